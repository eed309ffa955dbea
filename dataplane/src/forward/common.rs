//! What all upstream servers of the process share: the ports, the counts of replies that were not believed and of panics, and
//! the taps.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dataplane_core::{Discard, Unusable};
use futures::FutureExt;
use tokio::sync::Notify;

use super::ports::Ports;
use crate::taps::Taps;

/// Least time between two lines of the log about sockets that the system refuses.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// What all servers of the process share.
#[derive(Debug, Default)]
pub(super) struct Common {
    ports: Mutex<Ports>,
    /// The port of the QUIC listener, which may be opened at any time: no query leaves from it. 0 without one.
    kept_port: AtomicU16,
    /// A probe may be due.
    pub(super) woken: Notify,
    discards: [AtomicU64; Discard::ALL.len()],
    unusable: [AtomicU64; Unusable::ALL.len()],
    /// When the log last said that the system gives no socket.
    said_no_socket: Mutex<Option<Instant>>,
    /// Queries that drew one of the open sockets (FW10).
    shared_draws: AtomicU64,
    /// Tasks and looks that panicked, which is a defect of ours.
    panics: AtomicU64,
    /// The taps, which see what is asked and answered.
    pub(super) taps: Arc<Taps>,
}

impl Common {
    pub(super) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().expect("nothing panics while it counts")
    }

    /// No query leaves from this port from now on.
    pub(super) fn keep_port(&self, port: Option<u16>) {
        self.kept_port.store(port.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the port is kept for a listener.
    pub(super) fn keeps(&self, port: u16) -> bool {
        self.kept_port.load(Ordering::Relaxed) == port
    }

    /// Whether no thread uses the ports.
    #[cfg(test)]
    pub(super) fn has_free_ports(&self) -> bool {
        self.ports.try_lock().is_ok()
    }

    /// The system gave no socket. The log says why, for nothing else does: a query that is refused counts for `upstreamPorts`.
    pub(super) fn had_no_socket(&self, why: &dyn Display, now: Instant) {
        if self.says_no_socket(now) {
            tracing::warn!(
                "no socket towards upstreams: {why}; queries leave from open ones, or are refused"
            );
        }
    }

    /// Whether the log says it now. Each query of a flood may fail.
    pub(super) fn says_no_socket(&self, now: Instant) -> bool {
        let mut said = self.said_no_socket.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = said.is_none_or(|at| now.saturating_duration_since(at) >= SAY_EVERY);
        if is_due {
            *said = Some(now);
        }
        is_due
    }

    pub(super) fn discard(&self, reason: Discard) {
        self.discards[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn discarded(&self, reason: Discard) -> u64 {
        self.discards[reason as usize].load(Ordering::Relaxed)
    }

    /// Counts a reply to the query of a client.
    pub(super) fn was_unusable(&self, reason: Unusable) {
        self.unusable[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unusable_replies(&self, reason: Unusable) -> u64 {
        self.unusable[reason as usize].load(Ordering::Relaxed)
    }

    /// Runs a task of a server, whose panic is counted. Returns `None` after one.
    pub(super) async fn guarded<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        let ended = AssertUnwindSafe(task).catch_unwind().await;
        ended.inspect_err(|_| self.count_panic()).ok()
    }

    pub(super) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn drew_shared(&self) {
        self.shared_draws.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn shared_draws(&self) -> u64 {
        self.shared_draws.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread looked at the clock, and took the lock of a server.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    pub(super) static LOCKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_sockets_is_in_the_log_once_a_minute() {
        let (common, start) = (Common::default(), Instant::now());
        let said: Vec<u64> = (0..180)
            .filter(|second| common.says_no_socket(start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(said, [0, 60, 120]);
    }
}
