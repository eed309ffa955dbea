//! Names of a reply, compressed (RFC 1035 §4.1.4): the longest suffix that is in the question or behind an anchor
//! becomes a pointer.

use super::{ANCHORS, Full, Reply};
use crate::wire::message::HEADER;

/// Offsets that a compression pointer can hold (RFC 1035 §4.1.4).
const POINTER_LIMIT: usize = 0x4000;

/// Octets of the shortest name but the root, which no pointer would shorten.
pub(super) const SHORTEST_SUFFIX: usize = 3;

impl Reply<'_, '_> {
    /// A name, its longest known suffix as a pointer.
    pub(super) fn name(&mut self, wire: &[u8]) -> Result<(), Full> {
        let shared = shared_tail(self.question.name.wire(), wire);
        if shared < SHORTEST_SUFFIX && self.anchor_count == 0 {
            return self.whole_name(wire);
        }
        let mut start = 0;
        while wire[start] != 0 {
            if let Some(offset) = self.known(&wire[start..], shared) {
                self.labels(wire, start)?;
                return self.array((0xc000 | offset).to_be_bytes());
            }
            start += 1 + wire[start] as usize;
        }
        self.whole_name(wire)
    }

    /// A name without pointers, but known to later ones.
    pub(super) fn whole_name(&mut self, wire: &[u8]) -> Result<(), Full> {
        self.labels(wire, wire.len() - 1)?;
        self.array([0])
    }

    /// The labels of a name before `end`, remembered for compression.
    fn labels(&mut self, wire: &[u8], end: usize) -> Result<(), Full> {
        let at = self.at;
        self.octets(&wire[..end])?;
        let mut start = 0;
        while start < end && self.anchor_count < ANCHORS && at + start < POINTER_LIMIT {
            self.anchors[self.anchor_count] = (at + start) as u16;
            self.anchor_lengths[self.anchor_count] = (wire.len() - start) as u8;
            self.anchor_count += 1;
            start += 1 + wire[start] as usize;
        }
        Ok(())
    }

    /// The offset of this suffix, if it has been written: in the question, with which it shares so
    /// many octets from the end, or behind an anchor.
    fn known(&self, suffix: &[u8], shared: usize) -> Option<u16> {
        let name = self.question.name;
        if suffix.len() <= shared {
            let position = name.wire().len() - suffix.len();
            if name.is_start(position) {
                return Some((HEADER + position) as u16);
            }
        }
        let anchors = self.anchors.iter().zip(&self.anchor_lengths).take(self.anchor_count);
        anchors
            .filter(|&(_, &length)| usize::from(length) == suffix.len())
            .map(|(&offset, _)| offset)
            .find(|&offset| self.reads(offset, suffix))
    }

    /// Whether the name written at `offset` is this one. Our own pointers lead backwards only, so the loop ends.
    fn reads(&self, offset: u16, mut name: &[u8]) -> bool {
        let mut at = offset as usize;
        loop {
            let length = self.buffer[at] as usize;
            if length & 0xc0 == 0xc0 {
                at = (length & 0x3f) << 8 | self.buffer[at + 1] as usize;
                continue;
            }
            let end = at + 1 + length;
            // The question is written as asked, everything else in lower case.
            if end > self.at
                || name.len() <= length
                || !self.buffer[at..end].eq_ignore_ascii_case(&name[..=length])
            {
                return false;
            }
            if length == 0 {
                return true;
            }
            (at, name) = (end, &name[length + 1..]);
        }
    }
}

/// How many octets two names share from the end, read eight at a time.
pub(super) fn shared_tail(mut a: &[u8], mut b: &[u8]) -> usize {
    let mut shared = 0;
    while let (Some((a_rest, a_last)), Some((b_rest, b_last))) =
        (a.split_last_chunk::<8>(), b.split_last_chunk::<8>())
    {
        let difference = u64::from_be_bytes(*a_last) ^ u64::from_be_bytes(*b_last);
        if difference != 0 {
            return shared + difference.trailing_zeros() as usize / 8;
        }
        (a, b, shared) = (a_rest, b_rest, shared + 8);
    }
    shared + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}
