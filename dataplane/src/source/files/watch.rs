//! The thread that follows a folder: the file system's events, gathered for a moment, and a scan
//! now and then.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::Files;
use crate::first_thread::Job;

/// Time between two scans without an event.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// How often resolv.conf is looked at: a change counts within 5 s (FW3).
const RESOLV_CONF_INTERVAL: Duration = Duration::from_secs(4);
/// Time until another scan after a change: a file may have been read while it was written.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// An event is followed by others: time without one until the folder is read ...
const DEBOUNCE: Duration = Duration::from_millis(100);
/// ... but not longer than this.
const MAX_DEBOUNCE: Duration = Duration::from_millis(500);

/// Follows the folder until dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    wake: SyncSender<()>,
    /// None where it does not end with this.
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Full: it is about to look anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // A panic there was logged there; the process is ending.
            let _ = thread.join();
        }
    }
}

pub(super) fn start(
    files: Files,
    begin: impl FnOnce(Job) -> std::io::Result<Option<JoinHandle<()>>>,
) -> std::io::Result<Watch> {
    // One place: what matters is that something happened since the last look, not how often.
    let (wake, woken) = sync_channel(1);
    files.writer.state().inspections.wakes(wake.clone());
    let events = Events::new(&files.root, wake.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = begin(Box::new(move || run(files, events, &woken, &stopped)))?;
    Ok(Watch { stop, wake, thread })
}

/// The events of the file system. They belong to the folder, not to its name: a folder that was deleted and created
/// again, or a link with a new target, is another folder.
struct Events {
    root: PathBuf,
    watcher: Option<RecommendedWatcher>,
    /// Device and inode of the folder that is watched.
    watched: Option<(u64, u64)>,
    /// The name was given to another folder since, which may well have the same inode.
    is_another: Arc<AtomicBool>,
}

impl Events {
    fn new(root: &Path, wake: SyncSender<()>) -> Events {
        // Absolute, as the paths of events must begin with it.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let is_another = Arc::new(AtomicBool::new(false));
        let watcher = match watcher(&root, wake, Arc::clone(&is_another)) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tell_of_missing_events(&error);
                None
            }
        };
        let mut events = Events { root, watcher, watched: None, is_another };
        events.follow();
        events
    }

    /// Watches the folder that has the name now, if it is not watched yet.
    fn follow(&mut self) {
        let (Some(watcher), Ok(metadata)) = (&mut self.watcher, std::fs::metadata(&self.root))
        else {
            return;
        };
        let found = identity(&metadata);
        let is_another = self.is_another.swap(false, Ordering::AcqRel);
        if self.watched == Some(found) && !is_another {
            return;
        }
        if self.watched.is_some() {
            // It fails if the old one is already gone.
            let _ = watcher.unwatch(&self.root);
        }
        if let Err(error) = watcher.watch(&self.root, RecursiveMode::Recursive) {
            tell_of_missing_events(&error);
        }
        // Tried once: the scan finds changes in any case.
        self.watched = Some(found);
    }
}

fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn tell_of_missing_events(error: &notify::Error) {
    tracing::warn!(
        "no events from the file system ({error}): changes are seen by the scan every 10 s"
    );
}

/// Wakes for what happens in the folder, and, by watching the one above, to the folder itself.
fn watcher(
    root: &Path,
    wake: SyncSender<()>,
    is_another: Arc<AtomicBool>,
) -> notify::Result<RecommendedWatcher> {
    let of_folder = root.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        // Our own reading is an event too.
        let is_ours =
            event.paths.is_empty() || event.paths.iter().any(|p| p.starts_with(&of_folder));
        let is_of_name = matches!(
            event.kind,
            EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
        );
        if is_of_name && event.paths.contains(&of_folder) {
            is_another.store(true, Ordering::Release);
        }
        if is_ours && !event.kind.is_access() {
            // Full: the thread has not looked yet, so it will see this as well.
            let _ = wake.try_send(());
        }
    })?;
    if let Some(above) = root.parent() {
        // Not allowed to: then the scan sees it.
        let _ = watcher.watch(above, RecursiveMode::NonRecursive);
    }
    Ok(watcher)
}

fn run(mut files: Files, mut events: Events, woken: &Receiver<()>, stop: &AtomicBool) {
    // Something may have changed between the first reading and the start of the watch.
    let mut next_scan = Instant::now() + DEBOUNCE;
    loop {
        match woken.recv_timeout(until_next_look(next_scan, Instant::now())) {
            Ok(()) => {
                gather(woken, stop);
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // Before the look: what changes after it is an event.
                events.follow();
                files.refresh();
                next_scan = Instant::now() + SECOND_LOOK;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= next_scan => {
                events.follow();
                files.refresh();
                next_scan = Instant::now() + SCAN_INTERVAL;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        files.refresh_resolv_conf();
        files.tick();
    }
}

/// Time until the thread looks again where no event wakes it: at the folder, or at resolv.conf only.
fn until_next_look(next_scan: Instant, now: Instant) -> Duration {
    next_scan.saturating_duration_since(now).min(RESOLV_CONF_INTERVAL)
}

/// Waits for the end of a burst of events.
fn gather(woken: &Receiver<()>, stop: &AtomicBool) {
    let start = Instant::now();
    while start.elapsed() < MAX_DEBOUNCE
        && !stop.load(Ordering::Acquire)
        && woken.recv_timeout(DEBOUNCE).is_ok()
    {}
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Generous: only a failure takes longer.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Forgets the events so far.
    fn calm(woken: &Receiver<()>) {
        while woken.recv_timeout(DEBOUNCE).is_ok() {}
    }

    #[test]
    fn fw3_without_an_event_resolv_conf_is_looked_at_within_five_seconds() {
        let now = Instant::now();
        // A burst of events delays the look too.
        let longest = until_next_look(now + SCAN_INTERVAL, now) + MAX_DEBOUNCE;
        assert!(longest <= Duration::from_secs(5), "{longest:?}");
        assert_eq!(until_next_look(now + DEBOUNCE, now), DEBOUNCE, "a scan is not delayed");
        assert_eq!(until_next_look(now, now + DEBOUNCE), Duration::ZERO);
    }

    #[test]
    fn a_folder_made_again_is_watched_again() {
        let name = format!("clusterdns-watch-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let (wake, woken) = sync_channel(1);
        let mut events = Events::new(&root, wake);
        fs::write(root.join("a.yaml"), "one").unwrap();
        woken.recv_timeout(PATIENCE).expect("an event of the folder as it was");
        fs::remove_dir_all(&root).unwrap();
        calm(&woken);
        fs::create_dir_all(&root).unwrap();
        woken.recv_timeout(PATIENCE).expect("an event as it comes back");
        events.follow();
        calm(&woken);
        fs::write(root.join("a.yaml"), "two").unwrap();
        woken.recv_timeout(PATIENCE).expect("an event of the folder as it is now");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_followed() {
        let name = format!("clusterdns-link-{}", std::process::id());
        let above = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&above);
        for version in ["one", "two"] {
            fs::create_dir_all(above.join(version)).unwrap();
        }
        let link = |to| {
            std::os::unix::fs::symlink(to, above.join("next")).unwrap();
            fs::rename(above.join("next"), above.join("current")).unwrap();
        };
        link("one");
        let (wake, woken) = sync_channel(1);
        let mut events = Events::new(&above.join("current"), wake);
        calm(&woken);
        link("two");
        woken.recv_timeout(PATIENCE).expect("an event of the link");
        events.follow();
        calm(&woken);
        fs::write(above.join("two/a.yaml"), "two").unwrap();
        woken.recv_timeout(PATIENCE).expect("an event of where it leads");
        fs::remove_dir_all(&above).unwrap();
    }
}
