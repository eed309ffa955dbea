//! The warm start as people see it: what this process started from, and what it keeps for the next.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The report about snapshots.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Where they are; `None` without `--state-dir`.
    pub folder: Option<PathBuf>,
    /// When the API server last confirmed what is on disk, in Unix seconds (E52).
    pub on_disk_confirmed_at_s: Option<u64>,
    /// Revision of the configuration with what this process has written there: what a restart runs while there is no
    /// other good one.
    pub on_disk_revision: Option<String>,
    /// Size of the file on disk.
    pub octets: u64,
    /// Octets that the last attempt wrote, all passes together, also if it failed.
    #[serde(skip)]
    pub written: u64,
    /// How long the disk took for them.
    #[serde(skip)]
    pub took: Duration,
    /// Objects that the last one of this process does not have, because they are too large or their namespaces have more than their share.
    pub left_out: usize,
    /// Some of these, such as `endpointslices shop/cart-0`.
    pub left_out_objects: Vec<String>,
    /// Snapshots written since start.
    pub writes: u64,
    /// Times one could not be written.
    pub failures: u64,
    /// Why the last one could not be.
    pub error: Option<String>,
    /// What this process started from.
    pub loaded: Option<Loaded>,
    /// Why the one found at start was not used.
    pub refused: Option<String>,
}

/// A snapshot that this process started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    /// When the API server last confirmed all of it, in Unix seconds.
    pub confirmed_at_s: u64,
    /// How old it was when it was loaded.
    pub age_s: u64,
    /// Objects are missing in it, because there was no room for all.
    pub is_partial: bool,
    /// When it was loaded.
    #[serde(skip)]
    pub at: Instant,
}

impl Loaded {
    /// Time since it was confirmed, by the clock as it is now: at the start it may have been wrong. It is not less than the time
    /// that this process serves it.
    pub fn age(&self, now: SystemTime) -> Duration {
        since(self.confirmed_at_s, now).max(self.at.elapsed())
    }
}

/// Time since a moment in Unix seconds; zero while the clock is before it.
pub(super) fn since(unix_s: u64, now: SystemTime) -> Duration {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.saturating_sub(Duration::from_secs(unix_s))
}
