//! Slices that are held and not published, because their Service has as many addresses as it may: they are published
//! when there is room again.

use alloc::collections::{BTreeMap, BTreeSet};

/// By Service: rows and place of each slice that is left out, the smallest first.
#[derive(Debug, Default)]
pub(super) struct LeftOut(BTreeMap<u32, BTreeSet<(usize, u32)>>);

impl LeftOut {
    pub(super) fn add(&mut self, service: u32, slot: u32, rows: usize) {
        self.0.entry(service).or_default().insert((rows, slot));
    }

    /// Removes a slice with this many rows; whether it was left out.
    pub(super) fn remove(&mut self, service: u32, slot: u32, rows: usize) -> bool {
        let Some(slices) = self.0.get_mut(&service) else { return false };
        let was_left_out = slices.remove(&(rows, slot));
        if slices.is_empty() {
            self.0.remove(&service);
        }
        was_left_out
    }

    pub(super) fn contains(&self, service: u32, slot: u32, rows: usize) -> bool {
        self.0.get(&service).is_some_and(|slices| slices.contains(&(rows, slot)))
    }

    /// The one that needs the least room.
    pub(super) fn smallest(&self, service: u32) -> Option<(usize, u32)> {
        self.0.get(&service)?.first().copied()
    }
}
