//! Name compression in linear time: a bounded list of names already written (WR25, row W12).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::ops::Range;

use crate::steps::step;
use crate::wire::name::MAX_NAME;

/// Suffixes remembered: enough for a question, a chain and an SOA. Beyond it names are written in full.
const MAX_KNOWN: usize = 64;
/// Steps of looking for suffixes that a message has in all, and more for each name in it: a suffix, or eight octets of one
/// of the same length. A name of 127 labels could cost thousands; when the steps are used up, names are written in full.
const MAX_LOOKS: usize = 512;
const LOOKS_PER_NAME: usize = 2 * MAX_KNOWN;
/// Names behind this offset are not pointed to. Pointers have 14 bits (RFC 1035 §4.1.4); the last quarter is left free,
/// because what is held for many clients moves back behind ten aliases of ours, which take less than 3,100 octets.
const MAX_OFFSET: usize = 0x2fff;

/// Names, and all their suffixes, that can be pointed to.
pub(super) struct Known<'n> {
    suffixes: [(&'n [u8], u16); MAX_KNOWN],
    count: usize,
    /// Steps that may still be taken.
    looks: usize,
    /// How many of the first ones belong to the question, whose letter case is the client's.
    of_question: usize,
}

/// How names are compared when one is replaced by a pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Letter case does not matter: owner names.
    Ignored,
    /// Letter case must survive: names in RDATA (FW41).
    Kept,
}

impl<'n> Known<'n> {
    pub(super) fn new() -> Known<'n> {
        Known { suffixes: [(&[], 0); MAX_KNOWN], count: 0, looks: MAX_LOOKS, of_question: 0 }
    }

    /// Places the name of a question that each client writes in its own letter case: names whose case must survive do
    /// not point there.
    pub(super) fn place_question(&mut self, name: &'n [u8], at: usize) {
        self.place(name, at, Case::Ignored);
        self.of_question = self.count;
    }

    /// How many are known; [`Known::forget`] goes back to it.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn forget(&mut self, count: usize) {
        self.count = count;
    }

    /// How to write a name at `at`: this many of its octets, then a pointer (or nothing when
    /// the octets end with the root label). What is written becomes known.
    pub(super) fn place(&mut self, name: &'n [u8], at: usize, case: Case) -> (usize, Option<u16>) {
        debug_assert!(!name.is_empty() && name.len() <= MAX_NAME);
        let known = self.count;
        self.looks += LOOKS_PER_NAME;
        let mut cut = 0;
        // The root label is shorter than any pointer.
        while name[cut] != 0 {
            step(1);
            let suffix = &name[cut..];
            let first = if case == Case::Kept { self.of_question } else { 0 };
            if let Some(offset) = self.find(suffix, first..known, case) {
                return (cut, Some(offset));
            }
            if self.count < MAX_KNOWN && at + cut <= MAX_OFFSET {
                self.suffixes[self.count] = (suffix, (at + cut) as u16);
                self.count += 1;
            }
            cut += name[cut] as usize + 1;
        }
        (name.len(), None)
    }

    /// Where a suffix is, among these; `None` also when the steps are used up.
    fn find(&mut self, suffix: &[u8], among: Range<usize>, case: Case) -> Option<u16> {
        let among = if self.looks == 0 { 0..0 } else { among };
        for &(other, offset) in &self.suffixes[among] {
            let octets = if other.len() == suffix.len() { suffix.len() } else { 0 };
            let steps = 1 + octets / 8;
            step(steps);
            self.looks = self.looks.saturating_sub(steps);
            if self.looks == 0 {
                return None;
            }
            let is_same = octets > 0
                && match case {
                    Case::Ignored => other.eq_ignore_ascii_case(suffix),
                    Case::Kept => other == suffix,
                };
            if is_same {
                return Some(offset);
            }
        }
        None
    }
}
