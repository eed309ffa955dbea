//! A directory of a test's own that does not outlive it: removed when dropped, and when a test process died without
//! dropping anything, by the next one that starts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Held open and locked as long as the directory is in use; the kernel releases it however the process ends.
const OWNER: &str = "owner.lock";

/// A new empty directory, removed with everything in it on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _owner: File,
}

impl Scratch {
    /// Makes a directory whose name starts with `name`, and removes those that dead test processes left behind.
    pub fn new(name: &str) -> io::Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Each user has one: what another user made cannot be locked or removed.
        let user = fs::metadata("/proc/self")?.uid();
        let root = std::env::temp_dir().join(format!("clusterdns-tests-{user}"));
        fs::create_dir_all(&root)?;
        // Between making a directory and locking it, it looks abandoned: one process at a time.
        let turn = File::create(root.join("turn.lock"))?;
        turn.lock()?;
        remove_abandoned(&root)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let owner = File::create(path.join(OWNER))?;
        owner.lock()?;
        Ok(Scratch { path, _owner: owner })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it and returns the file's path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next test process.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn remove_abandoned(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let directory = entry?.path();
        let Ok(owner) = File::open(directory.join(OWNER)) else { continue };
        if owner.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&directory);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_stays_and_an_abandoned_one_is_removed() {
        let kept = Scratch::new("kept").expect("a scratch directory");
        let abandoned = kept.path().with_file_name(format!("abandoned-{}", std::process::id()));
        fs::create_dir(&abandoned).expect("a directory as a dead process left it");
        fs::write(abandoned.join(OWNER), "").expect("its lock file, which no process holds");

        let next = Scratch::new("next").expect("a scratch directory");

        assert!(!abandoned.exists());
        assert!(kept.path().exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
