//! The thread that writes snapshots to disk, so that no event ever waits for it: octets come in
//! blocks through a short queue, and a file appears only when it is whole (E40).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::due::Cost;
use super::format::{END, MAX_FILE};
use super::shares::LeftOut;
use super::{FILE, TEMPORARY};
use crate::background;
use crate::restarting::restarting_on_thread;
use crate::status::Status;
use crate::telemetry::printable;

/// Blocks that wait for the disk; this number and their size bound the memory of a snapshot that is being written.
const MAX_BLOCKS: usize = 4;

/// Why a snapshot was not written where another process writes one; this is tried again.
const BUSY: &str = "another process writes one in this folder";

/// Why a snapshot was not written whose thread panicked.
const DEFECT: &str = "a defect of this program ended the thread that writes it, which began again";

/// The parts of a snapshot, in their order.
#[derive(Debug)]
pub(super) enum Part {
    /// A new file begins with these octets. One that was not ended is given up.
    Start(Vec<u8>),
    /// Whole objects, each with its length.
    Objects(Vec<u8>),
    /// Nothing follows: the file gets its checksum and its name.
    End {
        /// When the API server confirmed what is in it, in Unix seconds; `None` without objects.
        confirmed_at_s: Option<u64>,
        /// Of the configuration in it.
        revision: String,
        /// Objects that are not in it.
        left_out: LeftOut,
    },
    /// One whose handling panics, as a defect would.
    #[cfg(test)]
    Defect,
}

/// Starts the thread; it ends with the sender.
pub(super) fn start(folder: &Path, status: Arc<Status>) -> anyhow::Result<SyncSender<Part>> {
    let (to, from) = sync_channel(MAX_BLOCKS);
    let folder = folder.to_owned();
    std::thread::Builder::new()
        .name("snapshot".into())
        .spawn(move || {
            background::give_way();
            let count = || panicked(&status);
            restarting_on_thread("snapshot", count, || run(&folder, &from, &status));
        })
        .context("cannot start the thread that writes snapshots")?;
    Ok(to)
}

/// What was begun is lost: it counts as a failure, so that another snapshot becomes due.
fn panicked(status: &Status) {
    let mut reported = status.read();
    reported.panics += 1;
    reported.snapshot.failures += 1;
    reported.snapshot.error = Some(DEFECT.to_owned());
}

fn run(folder: &Path, parts: &Receiver<Part>, status: &Status) {
    let mut file: Option<Unfinished> = None;
    // Since the last one that was ended or failed: one that was begun again counts too.
    let mut cost = Cost::default();
    for part in parts {
        cost.octets += match &part {
            Part::Start(octets) => octets.len() as u64,
            Part::Objects(octets) if file.is_some() => octets.len() as u64,
            Part::Objects(_) | Part::End { .. } => 0,
            #[cfg(test)]
            Part::Defect => panic!("a defect"),
        };
        let begun = Instant::now();
        let done = match (part, file.take()) {
            (Part::Start(octets), before) => {
                // It has the lock of the file.
                drop(before);
                Unfinished::create(folder).and_then(|new| new.write(&octets)).map(|new| {
                    file = Some(new);
                    None
                })
            }
            (Part::Objects(octets), Some(unfinished)) => unfinished.write(&octets).map(|same| {
                file = Some(same);
                None
            }),
            (Part::End { confirmed_at_s, revision, left_out }, Some(unfinished)) => {
                unfinished.finish().map(|octets| Some((confirmed_at_s, revision, left_out, octets)))
            }
            // The remaining parts of a snapshot that failed.
            (Part::Objects(_) | Part::End { .. }, None) => Ok(None),
            #[cfg(test)]
            (Part::Defect, _) => Ok(None),
        };
        cost.took += begun.elapsed();
        match done {
            Ok(None) => {}
            Ok(Some(done)) => written(status, done, mem::take(&mut cost)),
            Err(error) => failed(status, folder, &error, mem::take(&mut cost)),
        }
    }
}

fn written(
    status: &Status,
    (confirmed_at_s, revision, left_out, octets): (Option<u64>, String, LeftOut, u64),
    cost: Cost,
) {
    let mut reported = status.read();
    let named = left_out.named();
    if reported.snapshot.left_out_objects != named {
        let (count, objects) = (left_out.count, named.join(", "));
        tracing::warn!(
            count,
            "not in the snapshot, because they are too large or their namespaces have more than \
             their share of it: {}",
            printable(&objects)
        );
    }
    reported.snapshot.left_out = left_out.count;
    reported.snapshot.left_out_objects = named;
    if reported.snapshot.error.take().is_some() || reported.snapshot.writes == 0 {
        match confirmed_at_s {
            Some(_) => {
                tracing::info!(octets, "snapshot written: a restart answers from it at once");
            }
            None => tracing::info!(octets, "snapshot written: it has the configuration only"),
        }
    }
    reported.snapshot.writes += 1;
    reported.snapshot.octets = octets;
    (reported.snapshot.written, reported.snapshot.took) = (cost.octets, cost.took);
    reported.snapshot.on_disk_confirmed_at_s = confirmed_at_s;
    reported.snapshot.on_disk_revision = Some(revision);
}

fn failed(status: &Status, folder: &Path, error: &io::Error, cost: Cost) {
    let mut reported = status.read();
    (reported.snapshot.written, reported.snapshot.took) = (cost.octets, cost.took);
    reported.snapshot.failures += 1;
    let text = format!("{error}");
    if reported.snapshot.error.as_ref() != Some(&text) {
        let advice = match error.kind() {
            io::ErrorKind::WouldBlock => "Give each process that stays a --state-dir of its own",
            _ => "Make the folder of --state-dir writable and give it room",
        };
        tracing::warn!(
            folder = %folder.display(),
            "a snapshot cannot be written, the one before stays: {text}. {advice}"
        );
        reported.snapshot.error = Some(text);
    }
}

/// A file under its temporary name, which is not read at a start.
struct Unfinished {
    folder: PathBuf,
    file: File,
    hash: Sha256,
    octets: u64,
}

impl Unfinished {
    fn create(folder: &Path) -> io::Result<Unfinished> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // Other users of the machine must not read the names of a cluster.
        options.mode(0o600);
        let path = folder.join(TEMPORARY);
        let file = options.open(&path)?;
        // A process that takes over has the same folder for a moment. Nothing of the file is touched that another writes.
        let is_of_another = match file.try_lock() {
            Ok(()) => fs::metadata(&path).map(|now| now.ino()).ok() != Some(file.metadata()?.ino()),
            Err(TryLockError::WouldBlock) => true,
            // A file system without locks, as of some networks.
            Err(TryLockError::Error(_)) => false,
        };
        if is_of_another {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, BUSY));
        }
        file.set_len(0)?;
        Ok(Unfinished { folder: folder.to_owned(), file, hash: Sha256::new(), octets: 0 })
    }

    fn write(mut self, octets: &[u8]) -> io::Result<Unfinished> {
        self.octets += octets.len() as u64;
        if self.octets > MAX_FILE {
            return self.give_up(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it would have more than {MAX_FILE} octets"),
            ));
        }
        self.hash.update(octets);
        match self.file.write_all(octets) {
            Ok(()) => Ok(self),
            Err(error) => self.give_up(error),
        }
    }

    /// Removes the file, which frees its room on disk.
    fn give_up(self, error: io::Error) -> io::Result<Unfinished> {
        let _ = fs::remove_file(self.folder.join(TEMPORARY));
        Err(error)
    }

    /// Whole or not at all, even if the power goes: content, then name, then the folder.
    fn finish(self) -> io::Result<u64> {
        let mut this = self.write(&END)?;
        let checksum = this.hash.clone().finalize();
        match this.seal(&checksum) {
            Ok(()) => Ok(this.octets + checksum.len() as u64),
            // Some file systems say only now that the disk is full.
            Err(error) => this.give_up(error).map(|this| this.octets),
        }
    }

    fn seal(&mut self, checksum: &[u8]) -> io::Result<()> {
        self.file.write_all(checksum)?;
        self.file.sync_all()?;
        fs::rename(self.folder.join(TEMPORARY), self.folder.join(FILE))?;
        sync_folder(&self.folder)
    }
}

/// Writes the names of a folder to its disk. Some file systems, as of some networks, refuse this for folders: the file is whole
/// there too, and has its name.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e40_a_snapshot_that_fails_at_its_end_leaves_no_file_on_a_full_disk() {
        let folder = std::env::temp_dir().join(format!("clusterdns-{}-sealed", std::process::id()));
        // A folder that is not empty cannot be replaced by a file.
        fs::create_dir_all(folder.join(FILE).join("inside")).unwrap();
        let unfinished = Unfinished::create(&folder).and_then(|new| new.write(b"octets"));
        assert!(unfinished.unwrap().finish().is_err());
        assert!(!folder.join(TEMPORARY).exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn e40_a_folder_that_the_system_does_not_sync_is_no_failure() {
        let refuses = Path::new("/proc");
        let refused = File::open(refuses).and_then(|folder| folder.sync_all()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        sync_folder(refuses).unwrap();
        assert!(sync_folder(Path::new("/proc/nothing")).is_err());
    }

    #[test]
    fn e40_two_processes_with_one_folder_do_not_write_into_one_file() {
        let folder = std::env::temp_dir().join(format!("clusterdns-{}-shared", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let old = Unfinished::create(&folder).and_then(|new| new.write(b"of the old")).unwrap();
        let busy = Unfinished::create(&folder).err().expect("the old process writes");
        assert_eq!((busy.kind(), busy.to_string()), (io::ErrorKind::WouldBlock, BUSY.to_owned()));
        old.finish().unwrap();
        assert!(fs::read(folder.join(FILE)).unwrap().starts_with(b"of the old"));
        let new = Unfinished::create(&folder).and_then(|new| new.write(b"of the new")).unwrap();
        assert!(
            fs::read(folder.join(FILE)).unwrap().starts_with(b"of the old"),
            "until it is whole"
        );
        new.finish().unwrap();
        assert!(fs::read(folder.join(FILE)).unwrap().starts_with(b"of the new"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn e40_a_panic_of_the_thread_is_a_failure_after_which_a_snapshot_is_due() {
        let folder = std::env::temp_dir().join(format!("clusterdns-{}-panic", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let status = Arc::<Status>::default();
        let disk = start(&folder, status.clone()).unwrap();
        let end = || Part::End {
            confirmed_at_s: Some(0),
            revision: String::new(),
            left_out: LeftOut::default(),
        };
        let wait_until = |is_so: &dyn Fn(&Status) -> bool| {
            while !is_so(&status) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        disk.send(Part::Start(b"octets".to_vec())).unwrap();
        disk.send(Part::Defect).unwrap();
        // The rest of that snapshot, which has lost its beginning.
        disk.send(end()).unwrap();
        wait_until(&|status| status.read().panics == 1);
        let reported = status.read().snapshot.clone();
        assert_eq!((reported.failures, reported.writes), (1, 0));
        assert_eq!(reported.error.as_deref(), Some(DEFECT));
        disk.send(Part::Start(b"octets".to_vec())).unwrap();
        disk.send(end()).unwrap();
        wait_until(&|status| status.read().snapshot.writes == 1);
        let reported = status.read().snapshot.clone();
        assert_eq!((reported.failures, reported.error), (1, None));
        fs::remove_dir_all(&folder).unwrap();
    }
}
