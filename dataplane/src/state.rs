//! What every serving thread reads: records and upstream groups, swapped together so that a
//! group number in a decision always means the group of the same configuration.

use std::sync::Arc;

use arc_swap::ArcSwap;
use dataplane_core::{Identity, Records, WorkerCounters};

use crate::forward::upstreams::Upstreams;
use crate::inspection::Inspections;
use crate::taps::Taps;

#[derive(Debug)]
pub struct Published {
    /// The records that own answers are made from.
    pub records: Arc<Records>,
    /// The upstreams for all other names; group numbers are those of `records`.
    pub upstreams: Arc<Upstreams>,
}

/// Shared by all serving threads for the life of the process.
#[derive(Debug)]
pub struct State {
    /// Swapped by the source, loaded by workers once per batch: a worker only moves forward in time (E12).
    pub published: ArcSwap<Published>,
    /// One per serving thread, as [`crate::serve::worker_counters`] makes them: UDP threads first, then one for each stream transport.
    pub counters: Vec<Arc<WorkerCounters>>,
    /// Who we say we are.
    pub identity: Identity,
    /// Query log and dnstap.
    pub taps: Arc<Taps>,
    /// Questions to the thread that owns the index.
    pub inspections: Arc<Inspections>,
}
