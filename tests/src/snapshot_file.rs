//! A snapshot on disk, changed by a test into one that time, another cluster or a broken disk would have made.
//!
//! Only the frame is read: magic, format, the length of the head, the head (JSON), objects, SHA-256.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Magic and format.
const HEAD_LENGTH: usize = 20 + 4;
const HEAD: usize = HEAD_LENGTH + 4;
const CHECKSUM: usize = 32;

/// The file that a data plane reads in this folder.
pub fn in_folder(folder: &Path) -> PathBuf {
    folder.join("snapshot")
}

/// Changes the head and seals the file again.
///
/// # Panics
/// When there is no whole snapshot.
pub fn change_head(folder: &Path, change: impl FnOnce(&mut Value)) {
    let file = in_folder(folder);
    let octets = std::fs::read(&file).expect("a snapshot");
    let length = octets[HEAD_LENGTH..HEAD].try_into().expect("four octets");
    let end = HEAD + u32::from_le_bytes(length) as usize;
    let mut head: Value = serde_json::from_slice(&octets[HEAD..end]).expect("a head in JSON");
    change(&mut head);
    let head = head.to_string();
    let mut changed = octets[..HEAD_LENGTH].to_vec();
    changed.extend((head.len() as u32).to_le_bytes());
    changed.extend(head.as_bytes());
    changed.extend(&octets[end..octets.len() - CHECKSUM]);
    let checksum = Sha256::digest(&changed);
    changed.extend(checksum);
    std::fs::write(file, changed).expect("the folder is ours");
}

/// Makes the snapshot older by this much.
pub fn grow_older(folder: &Path, by: Duration) {
    change_head(folder, |head| {
        let times = head["confirmedAtS"].as_object_mut().expect("times of confirmation");
        for time in times.values_mut() {
            *time = (time.as_u64().expect("seconds") - by.as_secs()).into();
        }
    });
}

/// Flips one bit in the middle.
pub fn damage(folder: &Path) {
    let file = in_folder(folder);
    let mut octets = std::fs::read(&file).expect("a snapshot");
    let middle = octets.len() / 2;
    octets[middle] ^= 1;
    std::fs::write(file, octets).expect("the folder is ours");
}
