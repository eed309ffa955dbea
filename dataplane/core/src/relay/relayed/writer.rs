//! Fills the one allocation of a relayed reply: records one after the other, names compressed.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::super::compress::{Case, Known};
use super::super::rdata::Layout;
use super::super::read;
use super::super::selected::{Kept, Selected};
use super::FIXED;
use crate::steps::step;
use crate::wire::message::{CLASS_IN, HEADER};

/// Octets with a table of TTLs in front, and what may be pointed to.
pub(super) struct Writer<'s> {
    pub(super) octets: Vec<u8>,
    /// Where the next offset of a TTL goes.
    table_at: usize,
    /// What would be octet 12 of the message.
    base: usize,
    pub(super) known: Known<'s>,
    /// The latest owner that is a pointer and no more, and that pointer: records of one RRset follow each other.
    latest: Option<(Range<usize>, u16)>,
    /// Pointers lead only to this many of the known names: what is written does not become known.
    pub(super) only_known: Option<usize>,
}

impl<'s> Writer<'s> {
    /// With room for the TTLs of this many records.
    pub(super) fn of(records: usize) -> Writer<'s> {
        Writer {
            octets: vec![0; FIXED + 4 * records],
            table_at: FIXED,
            base: FIXED + 4 * records,
            known: Known::new(),
            latest: None,
            only_known: None,
        }
    }

    /// No pointer leads from what is written now, or into it.
    pub(super) fn write_in_full(&mut self) {
        self.known.forget(0);
        (self.only_known, self.latest) = (Some(0), None);
    }

    /// Writes one record, its RDATA compressed unless `in_full`; returns where in the message the RDATA begins.
    pub(super) fn record(&mut self, selected: &'s Selected, record: &Kept, in_full: bool) -> usize {
        let rdata = selected.rdata(record);
        step(1 + rdata.len() / 8);
        self.owner(selected, record);
        self.octets.extend(record.rtype.to_be_bytes());
        self.octets.extend(CLASS_IN.to_be_bytes());
        let ttl_at = self.octets.len();
        self.octets[self.table_at..][..4].copy_from_slice(&(ttl_at as u32).to_be_bytes());
        self.table_at += 4;
        self.octets.extend(record.ttl_s.to_be_bytes());
        self.octets.extend([0, 0]);
        let rdata_at = self.octets.len();
        if in_full || self.compressed(record.rtype, rdata).is_none() {
            self.octets.truncate(rdata_at);
            self.octets.extend(rdata);
        }
        let length = (self.octets.len() - rdata_at) as u16;
        self.octets[rdata_at - 2..rdata_at].copy_from_slice(&length.to_be_bytes());
        rdata_at - self.base + HEADER
    }

    /// RDATA with its names compressed; `None` where that is not allowed.
    fn compressed(&mut self, rtype: u16, rdata: &'s [u8]) -> Option<()> {
        let layout = Layout::of(rtype).filter(|layout| layout.compressible)?;
        let (before, mut rest) = rdata.split_at(layout.names_at(rdata)?);
        self.octets.extend(before);
        for _ in 0..layout.names() {
            let (name, tail) = rest.split_at(read::uncompressed_length(rest)?);
            self.name(name, Case::Kept);
            rest = tail;
        }
        self.octets.extend(rest);
        Some(())
    }

    fn owner(&mut self, selected: &'s Selected, record: &Kept) {
        if let Some((owner, offset)) = &self.latest
            && *owner == record.owner
        {
            self.octets.extend((0xc000 | offset).to_be_bytes());
            return;
        }
        if let (0, Some(offset)) = self.name(selected.owner(record), Case::Ignored) {
            self.latest = Some((record.owner.clone(), offset));
        }
    }

    /// Writes a name: this many of its octets, then a pointer to the rest, if the rest is already in the message.
    fn name(&mut self, name: &'s [u8], case: Case) -> (usize, Option<u16>) {
        let at = self.octets.len() - self.base + HEADER;
        let (octets, pointer) = self.known.place(name, at, case);
        if let Some(known) = self.only_known {
            self.known.forget(known);
        }
        self.octets.extend(&name[..octets]);
        if let Some(offset) = pointer {
            self.octets.extend((0xc000 | offset).to_be_bytes());
        }
        (octets, pointer)
    }
}
