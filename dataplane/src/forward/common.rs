//! What all upstream servers of the process share: the ports, the counts of replies that were not believed, and the taps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dataplane_core::Discard;
use tokio::sync::Notify;

use super::ports::Ports;
use crate::taps::Taps;

/// What all servers of the process share.
#[derive(Debug, Default)]
pub(super) struct Common {
    ports: Mutex<Ports>,
    /// A probe may be due.
    pub(super) woken: Notify,
    discards: [AtomicU64; Discard::ALL.len()],
    /// Queries that drew one of the open sockets, as the bound of ports was reached (FW10).
    shared_draws: AtomicU64,
    /// The taps, which see what is asked and answered.
    pub(super) taps: Arc<Taps>,
}

impl Common {
    pub(super) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().expect("nothing panics while it counts")
    }

    pub(super) fn discard(&self, reason: Discard) {
        self.discards[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn discarded(&self, reason: Discard) -> u64 {
        self.discards[reason as usize].load(Ordering::Relaxed)
    }

    pub(super) fn drew_shared(&self) {
        self.shared_draws.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn shared_draws(&self) -> u64 {
        self.shared_draws.load(Ordering::Relaxed)
    }
}
