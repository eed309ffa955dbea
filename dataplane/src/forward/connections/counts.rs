//! What happened to the connections of one server: for `/upstreams` and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::failure::{Failure, REASONS, Reason};

/// Counters of the connections to one server.
#[derive(Debug, Default)]
pub(super) struct Counts {
    full: AtomicU64,
    resumed: AtomicU64,
    failures: [AtomicU64; REASONS],
    latest: Mutex<Option<(Instant, Failure)>>,
}

/// The present values of the counters.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Counted {
    /// Connections that are open now.
    pub(in crate::forward) open: usize,
    /// Connections made since start; never lower.
    pub(in crate::forward) opened: u64,
    /// TLS handshakes that succeeded since start, with a certificate.
    pub(in crate::forward) full: u64,
    /// Those that resumed a session: no certificate was sent.
    pub(in crate::forward) resumed: u64,
    /// In the order of [`Reason::ALL`].
    failures: [u64; REASONS],
    /// The latest failure since the latest reply, and how long ago it was.
    pub(in crate::forward) latest: Option<(Duration, Failure)>,
}

impl Counted {
    /// Every reason as metrics name it, with its count.
    pub(in crate::forward) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL.into_iter().map(Reason::label).zip(self.failures)
    }
}

impl Counts {
    pub(super) fn shook_hands(&self, is_resumed: bool) {
        // Each counter only rises: a difference of two could fall between their changes.
        let counter = if is_resumed { &self.resumed } else { &self.full };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A reply came: earlier failures are over.
    pub(super) fn answered(&self) {
        *self.latest() = None;
    }

    /// A connection was not made, or broke, or a query on it got no reply.
    pub(super) fn failed(&self, failure: &Failure, now: Instant) {
        self.failures[failure.reason as usize].fetch_add(1, Ordering::Relaxed);
        *self.latest() = Some((now, failure.clone()));
    }

    fn latest(&self) -> MutexGuard<'_, Option<(Instant, Failure)>> {
        self.latest.lock().expect("nothing panics while it holds this")
    }

    pub(super) fn read(&self, open: usize, opened: u64, now: Instant) -> Counted {
        let ago = |at: Instant| now.saturating_duration_since(at);
        let latest = self.latest().clone().map(|(at, failure)| (ago(at), failure));
        Counted {
            open,
            opened,
            full: self.full.load(Ordering::Relaxed),
            resumed: self.resumed.load(Ordering::Relaxed),
            failures: std::array::from_fn(|place| self.failures[place].load(Ordering::Relaxed)),
            latest,
        }
    }
}
