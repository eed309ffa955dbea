//! What `/cache` shows: some entries at a time, so that neither a lock nor a reply of ours is held for long.

use dataplane_core::Relayed;
use serde::Serialize;

use super::{Cache, SHARDS, lock};

/// Most entries of one page.
pub(super) const MAX_ENTRIES: usize = 256;
/// Slots that are looked at for one page: in a cache that was larger before, most are empty.
pub(super) const MAX_SLOTS: usize = 16_384;
/// Slots that are looked at under one lock: a hit waits for no more than these.
const LOOKS: usize = 1_024;

/// One page of entries, and where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Entries of the cache, also those on other pages.
    pub total_entries: usize,
    /// What all of them take, in octets.
    pub total_octets: usize,
    /// At most `MAX_ENTRIES`, in the order of slots; fewer, though there are more, where most slots are empty, or have a
    /// failure that is no longer remembered.
    pub entries: Vec<Entry>,
    /// The value of `from` that shows the next ones; `None` after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// A kept reply, as `/cache` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub name: String,
    /// Record type as a number (RFC 1035 §3.2.2).
    #[serde(rename = "type")]
    pub qtype: u16,
    /// DO of the queries that it answers.
    pub dnssec_ok: bool,
    /// CD of the queries that it answers.
    pub checking_disabled: bool,
    /// The number of the route that it was asked on: the group of `/upstreams` with this number.
    pub route: u32,
    /// The Rcode; 2 is a failure that is remembered.
    pub rcode: u8,
    /// Whole seconds since it came.
    pub age_seconds: u64,
    /// For how many seconds it is fresh.
    pub lifetime_seconds: u32,
    /// Memory of the reply, in octets.
    pub octets: usize,
}

impl Cache {
    /// At most [`MAX_ENTRIES`] entries from `from` on: 0, or the `next` of another page. What comes and goes meanwhile may
    /// be shown twice or not at all.
    pub fn page(&self, from: usize, now_ms: u64) -> Page {
        let mut entries = Vec::new();
        let (mut shard, mut slot) = (from % SHARDS, from / SHARDS);
        let (mut next, mut slots) = (None, MAX_SLOTS);
        while shard < SHARDS {
            if entries.len() == MAX_ENTRIES || slots == 0 {
                next = Some(slot.saturating_mul(SHARDS).saturating_add(shard));
                break;
            }
            slots -= LOOKS;
            let most = MAX_ENTRIES - entries.len();
            let (some, rest) = lock(&self.shards[shard]).some(slot, most, LOOKS);
            let shown = |(relayed, age, route): (Relayed, dataplane_core::Age, u32)| {
                let (age_seconds, lifetime_seconds) = age.seconds(now_ms);
                let key = relayed.key();
                // A failure without a reply keeps its slot for longer than it is remembered.
                let is_forgotten = relayed.is_failure() && !age.is_failing(now_ms);
                (!is_forgotten).then(|| Entry {
                    name: key.name().to_string(),
                    qtype: key.qtype(),
                    dnssec_ok: key.dnssec_ok(),
                    checking_disabled: key.checking_disabled(),
                    route,
                    rcode: relayed.rcode(),
                    age_seconds: if relayed.is_failure() { 0 } else { age_seconds },
                    lifetime_seconds,
                    octets: relayed.octets(),
                })
            };
            entries.extend(some.into_iter().filter_map(shown));
            (shard, slot) = rest.map_or((shard + 1, 0), |slot| (shard, slot));
        }
        Page { total_entries: self.entries(), total_octets: self.octets(), entries, next }
    }
}
