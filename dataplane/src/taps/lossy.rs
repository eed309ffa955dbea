//! Octets from serving threads for a thread that writes: bounded; octets without room are lost and counted.
//!
//! Each serving thread begins at a part of its own. It never waits: where a part is taken at the moment or full, it
//! tries the next ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Parts, more than most machines have serving threads.
const PARTS: usize = 32;
/// Octets of one part: some two thousand lines of the query log, which is what one thread answers in 20 ms.
pub(super) const PART_OCTETS: usize = 256 << 10;
/// Most parts that one busy thread uses.
const TRIES: usize = 4;

/// The buffers of one tap. They have no memory until something is put in.
#[derive(Debug, Default)]
pub(super) struct Lossy {
    parts: [Mutex<Vec<u8>>; PARTS],
    lost: AtomicU64,
}

impl Lossy {
    /// Puts this many octets, beginning at the part of this thread; without room they are lost.
    pub(super) fn put(&self, place: usize, octets: usize, write: impl FnOnce(&mut Vec<u8>)) {
        for number in place..place + TRIES {
            let mut part = match self.parts[number % PARTS].try_lock() {
                Ok(part) => part,
                Err(TryLockError::Poisoned(part)) => part.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if part.len() + octets <= PART_OCTETS {
                write(&mut part);
                return;
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives what every part holds to `each`, one part at a time. `spare` is the memory that takes a part's place: the
    /// part is free again before its octets are read.
    pub(super) fn drain(&self, spare: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
        for part in &self.parts {
            let mut part = lock(part);
            if part.is_empty() {
                continue;
            }
            std::mem::swap(&mut *part, spare);
            drop(part);
            each(spare);
            spare.clear();
        }
    }

    /// Forgets everything, and gives back the memory. `each` sees what every part held: something may have come since the
    /// last drain, and must be counted.
    pub(super) fn clear(&self, mut each: impl FnMut(&[u8])) {
        for part in &self.parts {
            let held = std::mem::take(&mut *lock(part));
            each(&held);
        }
    }

    /// How often there was no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn lock(part: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    // The state is valid after a panic: the length is written last.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(lossy: &Lossy, place: usize, octet: u8, count: usize) {
        lossy.put(place, count, |part| part.extend(std::iter::repeat_n(octet, count)));
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted_and_the_bound_holds() {
        let lossy = Lossy::default();
        for _ in 0..TRIES {
            put(&lossy, 5, 1, PART_OCTETS);
        }
        assert_eq!(lossy.lost(), 0, "a busy thread may use several parts");
        put(&lossy, 5, 2, 1);
        assert_eq!(lossy.lost(), 1);
        put(&lossy, 5 + TRIES, 3, 1);
        assert_eq!(lossy.lost(), 1, "another thread has room");
        let (mut spare, mut octets) = (Vec::new(), 0);
        lossy.drain(&mut spare, |part| octets += part.len());
        assert_eq!(octets, TRIES * PART_OCTETS + 1);
        put(&lossy, 5, 4, 1);
        assert_eq!(lossy.lost(), 1, "there is room again");
    }

    #[test]
    fn a_part_that_is_taken_is_not_waited_for() {
        let lossy = Lossy::default();
        let taken: Vec<_> = lossy.parts[..TRIES].iter().map(lock).collect();
        put(&lossy, 0, 1, 1);
        assert_eq!(lossy.lost(), 1);
        put(&lossy, 1, 1, 1);
        drop(taken);
        let mut octets = 0;
        lossy.drain(&mut Vec::new(), |part| octets += part.len());
        assert_eq!(octets, 1, "the next part was free");
    }
}
