//! Replies of one server that have not come whole yet (FW54). A server may begin as many replies as it has queries, and end
//! none, so their octets have a bound together. One that finds no room is a failure of its query, not of the connection.
//! Over TCP and TLS messages come one after the other, so a connection has one such reply, and needs no bound besides.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::failure::Failure;

/// Octets that all unfinished replies of one server take in memory: 1,024 queries on 32 connections have 4 KiB each, thrice as
/// many in a crowd 1 KiB each, and few replies are longer.
pub(super) const MAX_OCTETS: usize = 4 << 20;
/// The first room of a reply. It is doubled when it is full.
const FIRST: usize = 512;

/// What all unfinished replies of one server take.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

impl Held {
    fn take(&self, octets: usize) -> Result<(), Failure> {
        let before = self.0.fetch_add(octets, Ordering::Relaxed);
        if before + octets > MAX_OCTETS {
            self.give(octets);
            return Err(Failure::no_room());
        }
        Ok(())
    }

    fn give(&self, octets: usize) {
        self.0.fetch_sub(octets, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn octets(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A reply as far as it has come. It takes about as much memory as that: a server may promise the longest message on
/// thousands of streams, and send nothing.
#[derive(Debug)]
pub(super) struct Partial<'h> {
    held: &'h Held,
    /// What it counts for.
    taken: usize,
    octets: Vec<u8>,
    most: usize,
}

impl<'h> Partial<'h> {
    /// One that has no octets yet, and will have this many at most.
    pub(super) fn new(held: &'h Held, most: usize) -> Partial<'h> {
        Partial { held, taken: 0, octets: Vec::new(), most }
    }

    /// Adds octets.
    ///
    /// # Errors
    /// They are too many for a message, or all replies take too much.
    pub(super) fn add(&mut self, octets: &[u8]) -> Result<(), Failure> {
        if self.octets.len() + octets.len() > self.most {
            return Err(Failure::too_large());
        }
        self.make_room(octets.len())?;
        self.octets.extend_from_slice(octets);
        Ok(())
    }

    /// The octets so far, with room for the next one, to read into; none where the reply is whole.
    ///
    /// # Errors
    /// All replies take too much.
    pub(super) fn room(&mut self) -> Result<Option<&mut Vec<u8>>, Failure> {
        if self.octets.len() == self.most {
            return Ok(None);
        }
        self.make_room(1)?;
        Ok(Some(&mut self.octets))
    }

    fn make_room(&mut self, more: usize) -> Result<(), Failure> {
        let needed = self.octets.len() + more;
        if needed <= self.taken {
            return Ok(());
        }
        let wanted = needed.max(2 * self.taken).max(FIRST).min(self.most);
        self.held.take(wanted - self.taken)?;
        self.taken = wanted;
        self.octets.reserve_exact(wanted - self.octets.len());
        Ok(())
    }

    /// The reply, which now belongs to its query.
    pub(super) fn whole(mut self) -> Vec<u8> {
        std::mem::take(&mut self.octets)
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        self.held.give(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::super::failure::Reason;
    use super::*;

    const LONGEST: usize = 65_535;

    #[test]
    fn fw54_unfinished_replies_of_a_server_have_a_bound_together() {
        let held = Held::default();
        let mut replies: Vec<Partial<'_>> =
            (0..1_024).map(|_| Partial::new(&held, LONGEST)).collect();
        let mut refused = 0;
        for reply in &mut replies {
            for chunk in [7; LONGEST - 1].chunks(1_400) {
                match reply.add(chunk) {
                    Ok(()) => {}
                    Err(failure) => {
                        assert_eq!(failure.reason, Reason::NoRoom);
                        refused += 1;
                        break;
                    }
                }
            }
        }
        let memory: usize = replies.iter().map(|reply| reply.octets.capacity()).sum();
        assert!(memory <= MAX_OCTETS, "{memory} octets");
        assert!(refused > 900, "{refused} of 1,024");
        assert_eq!(held.octets(), memory);
        drop(replies);
        assert_eq!(held.octets(), 0);
    }

    #[test]
    fn fw54_a_reply_takes_what_has_come_and_gives_it_back_when_it_is_whole() {
        let held = Held::default();
        let mut reply = Partial::new(&held, LONGEST);
        for _ in 0..LONGEST {
            reply.add(&[7]).unwrap();
            assert!(reply.octets.capacity() <= (2 * reply.octets.len()).max(FIRST));
        }
        assert_eq!(reply.add(&[7]).unwrap_err().reason, Reason::TooLarge);
        assert_eq!((reply.whole().len(), held.octets()), (LONGEST, 0));
    }
}
