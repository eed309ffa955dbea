//! What is counted of an address. Servers at one address share it, so that what metrics show of the address never decreases
//! when one of its servers is edited away, or comes back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dataplane_core::ServerCounters;
use process::histogram::{Distribution, Durations, QUERY_BUCKETS, Writers};

use crate::rcode;

/// The counts of one address.
#[derive(Debug)]
pub(in crate::forward) struct AddressCounts {
    /// Sent and failed, as `servers.bind.` shows them.
    pub(in crate::forward) shown: Arc<ServerCounters>,
    pub(in crate::forward) replies: Replies,
    failed_probes: AtomicU64,
}

/// How long replies took, by the places of [`rcode::LABELS`]; memory only for codes that came.
#[derive(Debug, Default)]
pub(in crate::forward) struct Replies(
    [OnceLock<Box<Durations<QUERY_BUCKETS>>>; rcode::LABELS.len()],
);

impl AddressCounts {
    pub(in crate::forward) fn new(address: SocketAddr) -> AddressCounts {
        let (sent, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        AddressCounts {
            shown: Arc::new(ServerCounters { address, sent, failed }),
            replies: Replies::default(),
            failed_probes: AtomicU64::new(0),
        }
    }

    /// Counts a probe without a reply.
    pub(super) fn probe_failed(&self) {
        self.failed_probes.fetch_add(1, Ordering::Relaxed);
    }

    /// Probes without a reply so far.
    pub(in crate::forward) fn failed_probes(&self) -> u64 {
        self.failed_probes.load(Ordering::Relaxed)
    }
}

impl Replies {
    /// Counts a reply of this Rcode that came after this time.
    pub(super) fn add(&self, rcode: u16, after: Duration) {
        self.0[rcode::place(rcode)].get_or_init(Default::default).add(after, Writers::Several);
    }

    /// How long they took so far, by the places of [`rcode::LABELS`].
    pub(in crate::forward) fn read(&self) -> [Distribution; rcode::LABELS.len()] {
        std::array::from_fn(|place| match self.0[place].get() {
            Some(durations) => durations.read(),
            None => Durations::<QUERY_BUCKETS>::default().read(),
        })
    }
}
