//! Entries that left the short queue, as far as they are remembered: one that returns soon was evicted too early. Only
//! hashes are kept, and one takes the place of another.

/// Hashes that are remembered.
const GHOSTS: usize = 4096;

/// The hashes, by their low bits; no memory before the first.
#[derive(Debug, Default)]
pub(super) struct Ghosts(Vec<u32>);

impl Ghosts {
    pub(super) fn have(&self, hash: u64) -> bool {
        self.0.get(place(hash)) == Some(&fingerprint(hash))
    }

    pub(super) fn remember(&mut self, hash: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; GHOSTS];
        }
        self.0[place(hash)] = fingerprint(hash);
    }
}

fn place(hash: u64) -> usize {
    hash as usize % GHOSTS
}

/// 32 bits of a hash that do not choose its place.
fn fingerprint(hash: u64) -> u32 {
    (hash >> 24) as u32
}
