//! Tables whose keys are hashes, or have theirs.

use std::hash::Hasher;

/// The hashes are keyed and random already.
#[derive(Debug, Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        // Only whole hashes are written; this is never called.
        octets.iter().for_each(|octet| self.0 = self.0.rotate_left(8) ^ u64::from(*octet));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
