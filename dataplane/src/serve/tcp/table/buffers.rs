//! What connections hold in their buffers (WR44): at the bound the largest backlogs are not read, past it one of them closes.

use std::sync::atomic::Ordering;

use super::super::super::counters::CloseReason;
use super::sessions::most;
use super::{ConnectionTable, Entry, Permit};

impl ConnectionTable {
    /// What all may hold beside their sessions. After a lower limit sessions may hold more than their part until enough of
    /// them have closed: the rest is left for what is read and written.
    pub(super) fn bound(&self) -> usize {
        let all = self.limits.borrow().tcp_buffer_bytes;
        all.saturating_sub(self.sessions.get()).max(all - most(all))
    }

    pub(super) fn set_held_of(&self, entry: &Entry, octets: usize) {
        let before = entry.held.replace(octets);
        let client = &entry.client.held;
        client.set(client.get() - before + octets);
        self.set_held(self.held.get() - before + octets);
    }

    /// The one place where less comes to be held, so that every connection that waits for it is woken.
    pub(super) fn set_held(&self, octets: usize) {
        self.held.set(octets);
        let buffered = octets + self.sessions.get();
        self.counters.tcp_buffered.store(buffered as u64, Ordering::Relaxed);
        if self.paused.get() > 0 && octets < resume_at(self.bound()) {
            self.resume();
        }
    }

    pub(super) fn keep_bound(&self) {
        if self.held.get() > self.bound()
            && let Some(largest) = self.largest()
        {
            self.evict(largest, CloseReason::Backlog);
        }
    }

    pub(super) fn set_paused(&self, entry: &Entry, paused: bool) {
        let before = entry.paused.replace(paused);
        self.paused.set(self.paused.get() + usize::from(paused) - usize::from(before));
    }

    /// Reads the connections again that were not read while the buffers were full.
    fn resume(&self) {
        for entry in self.entries.borrow().values() {
            if entry.paused.replace(false) {
                entry.waker.borrow().wake_by_ref();
            }
        }
        self.paused.set(0);
    }

    /// The connection to close when all buffers are full: the largest of the client that holds most. It looks at all of
    /// them. That it holds at least the average is what pays for it: as much must be held again before the next look, so
    /// an octet that is held costs half a step at most (32 MiB, 4,096 connections).
    fn largest(&self) -> Option<u64> {
        let entries = self.entries.borrow();
        let held = |entry: &Entry| (entry.client.held.get(), entry.held.get());
        entries.iter().max_by_key(|(_, entry)| held(entry)).map(|(number, _)| *number)
    }
}

/// From here on the connections with the largest backlogs are not read; the rest of the bound is for what the
/// others still need.
const fn pause_at(bound: usize) -> usize {
    bound / 4 * 3
}

/// From here on they are read again: so much below that a client must send or take that many octets to have all of them
/// woken once more.
const fn resume_at(bound: usize) -> usize {
    pause_at(bound) - bound / 32
}

impl Permit {
    /// Says how many octets this connection holds beside a session of TLS. When all of them together pass the bound, the largest of the client
    /// that holds most is closed.
    pub(in super::super) fn hold(&self, octets: usize) {
        if self.must_close() {
            // Taken off the table, or about to go: no longer counted.
            return;
        }
        self.table.set_held_of(&self.entry, octets);
        self.table.keep_bound();
    }

    /// Whether there is room for this many more octets. In the last quarter only clients that hold less than the average
    /// are read, so it is theirs.
    pub(in super::super) fn has_room(&self, octets: usize) -> bool {
        self.table.held.get() + octets <= self.table.bound()
    }

    /// Whether this connection must not be read for now: the buffers are nearly full, its client holds no less than the
    /// average client, and it no less than the average connection of its client. Both are true of the largest.
    pub(in super::super) fn is_paused(&self) -> bool {
        if self.must_close() {
            return false;
        }
        let held = self.table.held.get();
        let (own, client) = (self.entry.held.get(), &self.entry.client);
        let paused = held >= pause_at(self.table.bound())
            && own > 0
            && client.held.get().saturating_mul(self.table.clients.borrow().len()) >= held
            && own.saturating_mul(client.connections.get()) >= client.held.get();
        self.table.set_paused(&self.entry, paused);
        paused
    }
}
