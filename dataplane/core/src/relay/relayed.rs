//! The part of an upstream's reply that may be relayed, as one immutable allocation that is copied into replies:
//! records in wire form, compressed towards the name that was asked about, and where their TTLs are.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

mod image;
mod writer;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::key::LookupKey;
use super::private_addresses::has_addresses;
use super::selected::{Kept, Selected};
use crate::steps::step;
use crate::wire::message::{CLASS_IN, HEADER, rtype};
use crate::wire::name::Name;
use writer::Writer;

/// Octets in front of the table of TTLs: Rcode, flags, length of the name, unused; four counts of records; the life
/// time; where the unresolved target of the chain is.
const FIXED: usize = 20;
/// Where in front of the table the life time is.
const LIFETIME_AT: usize = 12;
/// The upstream's AD.
const AUTHENTIC: u8 = 1;
/// The RRset starts anywhere (WR24).
const ROTATES: u8 = 2;
/// DO of the key.
const DNSSEC_OK: u8 = 4;
/// CD of the key.
const CHECKING_DISABLED: u8 = 8;
/// Rebind protection left nothing (N21).
const BLOCKED: u8 = 16;
/// Records of the RRset are missing that a larger reply would have: the client must ask over TCP.
const CUT: u8 = 32;
/// The type is withheld, so no server was asked (FW45).
const WITHHELD: u8 = 64;
/// RCODE of an entry that remembers a failed lookup.
const SERVFAIL: u8 = 2;
const NOERROR: u8 = 0;
pub(super) const NXDOMAIN: u8 = 3;

/// The part of an upstream's reply that may be relayed: in order, TTLs capped. One immutable allocation, shared when
/// cloned; it also holds the key that it answers.
#[derive(Clone, Debug)]
pub struct Relayed {
    octets: Arc<[u8]>,
}

/// How old the data of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Held for this many whole seconds: TTLs have counted down by as much, to at least 1 (FW44).
    Fresh {
        /// Whole seconds since the upstream's reply.
        age_s: u32,
    },
    /// Past its TTL: every TTL is 30, and an Extended DNS Error says so (CA40).
    Stale,
}

/// How many records of each kind, in the order in which they are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// CNAMEs and DNAMEs in chain order, each with its signatures.
    pub(super) chain: usize,
    /// The RRset at the end of the chain; for ANY all of them.
    pub(super) rrset: usize,
    /// RRSIG records that cover the RRset.
    pub(super) signatures: usize,
    /// SOA of a negative reply; with DO signatures and denials of existence.
    pub(super) authority: usize,
}

impl Counts {
    fn all(self) -> usize {
        self.chain + self.rrset + self.signatures + self.authority
    }
}

/// One record in wire form.
pub(super) struct Record<'a> {
    pub(super) octets: &'a [u8],
    /// Where in them the TTL is.
    pub(super) ttl_at: usize,
}

impl<'a> Record<'a> {
    pub(super) fn rtype(&self) -> u16 {
        u16::from_be_bytes([self.octets[self.ttl_at - 4], self.octets[self.ttl_at - 3]])
    }

    /// As it is written: names in it may be compressed.
    pub(super) fn rdata(&self) -> &'a [u8] {
        &self.octets[self.ttl_at + 6..]
    }
}

impl Relayed {
    /// The entry of a failed lookup: the key and no records.
    pub fn failure(key: &LookupKey) -> Relayed {
        Relayed::of(&Selected::new(SERVFAIL, false), key)
    }

    /// The end of a chain whose type is withheld (N22): NOERROR and no records.
    pub(crate) fn withheld(key: &LookupKey) -> Relayed {
        let mut octets = Relayed::of(&Selected::new(NOERROR, false), key).octets.to_vec();
        octets[1] |= WITHHELD;
        Relayed { octets: octets.into() }
    }

    pub(super) fn of(selected: &Selected, key: &LookupKey) -> Relayed {
        let counts = [&selected.chain, &selected.rrset, &selected.signatures, &selected.authority];
        let records: usize = counts.iter().map(|records| records.len()).sum();
        let name = key.name().wire();
        let mut writer = Writer::of(records);
        writer.octets.extend(name);
        writer.octets.extend(key.qtype().to_be_bytes());
        writer.octets.extend(CLASS_IN.to_be_bytes());
        writer.known.place_question(name, HEADER);

        let unresolved = selected.unresolved_target();
        let mut target_at = 0;
        for (place, record) in selected.chain.iter().enumerate() {
            let in_full = unresolved == Some(place);
            let rdata_at = writer.record(selected, record, in_full);
            if in_full {
                target_at = rdata_at;
            }
        }
        let known = writer.known.count();
        let rotates = is_rotated(&selected.rrset);
        // No pointer leads into records that are written in another order, or of which rebind protection leaves some: these
        // are copied to other places.
        let moves = rotates || selected.rrset.iter().any(|record| has_addresses(record.rtype));
        writer.only_known = moves.then_some(known);
        for record in &selected.rrset {
            writer.record(selected, record, false);
        }
        writer.only_known = None;
        for record in &selected.signatures {
            writer.record(selected, record, false);
        }
        if unresolved.is_some() {
            // These are written behind the answers of all parts of the chain (FW42), so at another distance.
            writer.write_in_full();
        }
        for record in &selected.authority {
            writer.record(selected, record, false);
        }

        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let octets = &mut writer.octets;
        octets[0] = selected.rcode;
        octets[1] = flag(selected.authentic, AUTHENTIC)
            | flag(rotates, ROTATES)
            | flag(selected.is_blocked, BLOCKED)
            | flag(key.dnssec_ok(), DNSSEC_OK)
            | flag(key.checking_disabled(), CHECKING_DISABLED);
        octets[2] = name.len() as u8;
        for (field, records) in octets[4..12].chunks_exact_mut(2).zip(counts) {
            field.copy_from_slice(&(records.len() as u16).to_be_bytes());
        }
        octets[LIFETIME_AT..LIFETIME_AT + 4].copy_from_slice(&selected.lifetime_s().to_be_bytes());
        octets[16..20].copy_from_slice(&(target_at as u32).to_be_bytes());
        Relayed { octets: writer.octets.into() }
    }

    /// The Rcode: NOERROR, NXDOMAIN or YXDOMAIN; SERVFAIL for [`Relayed::failure`].
    pub fn rcode(&self) -> u8 {
        self.octets[0]
    }

    /// Whether it says that the name does not exist.
    pub fn is_nxdomain(&self) -> bool {
        self.rcode() == NXDOMAIN
    }

    /// Whether it says of the name itself that there is none, or that it is an alias: caches believe this for every type.
    pub(super) fn denies_or_leads_on(&self) -> bool {
        self.rcode() != NOERROR || self.counts().chain > 0
    }

    /// Whether it is the entry of a failed lookup.
    pub fn is_failure(&self) -> bool {
        self.rcode() == SERVFAIL
    }

    /// Whether there are no records of the type asked for: NXDOMAIN or NODATA, or a chain whose target is not resolved yet.
    pub fn is_negative(&self) -> bool {
        self.counts().rrset == 0
    }

    /// The text of a reply to a question for TXT, where that is one character-string.
    pub fn only_text(&self) -> Option<&[u8]> {
        let counts = self.counts();
        if self.qtype() != rtype::TXT || counts.rrset != 1 {
            return None;
        }
        let (length, text) = self.record(counts.chain).rdata().split_first()?;
        (usize::from(*length) == text.len()).then_some(text)
    }

    /// For how many seconds it may be kept: the smallest TTL of its records (CA2, CA3); 0 is not at all, as for a
    /// negative reply without an SOA.
    pub fn lifetime_s(&self) -> u32 {
        self.u32_at(LIFETIME_AT)
    }

    /// The name at the end of a chain that has neither data nor an SOA there: the target must be resolved by itself
    /// (FW42).
    pub fn unresolved_target(&self) -> Option<Name> {
        let at = self.target_at()?;
        Name::from_wire(&self.octets[self.base() + at - HEADER..])
    }

    /// Whether the name at the end of its chain must be resolved by itself (FW42).
    pub fn is_partial(&self) -> bool {
        self.target_at().is_some()
    }

    /// True if rebind protection removed the whole answer (N21).
    pub(super) fn is_blocked(&self) -> bool {
        self.octets[1] & BLOCKED != 0
    }

    /// True if its type is withheld (N22).
    pub(super) fn is_withheld(&self) -> bool {
        self.octets[1] & WITHHELD != 0
    }

    /// The same with these records of its RRset only, which has addresses, and without signatures, authority and AD: these
    /// are about the whole RRset. Where the chain in front of them is longer than `most` octets, it is a part of the chain.
    pub(super) fn with_records(&self, chosen: &[usize], most: usize) -> Relayed {
        let base = self.base();
        let links = self.fitting(0..self.counts().chain, most);
        let is_cut = links < self.counts().chain;
        let chosen = if is_cut { &[] } else { chosen };
        let of_rrset = chosen.len();
        let records = (0..links).chain(chosen.iter().copied());
        let size = records.clone().map(|index| 4 + self.record(index).octets.len()).sum::<usize>();
        let name = &self.octets[base..self.extent(0).start];
        let mut octets = Vec::with_capacity(FIXED + name.len() + size);
        octets.extend(&self.octets[..FIXED]);
        octets[1] &= !AUTHENTIC;
        if is_cut {
            octets[1] |= CUT;
        }
        for (field, count) in octets[4..12].chunks_exact_mut(2).zip([links, of_rrset, 0, 0]) {
            field.copy_from_slice(&(count as u16).to_be_bytes());
        }
        octets.resize(FIXED + 4 * (links + of_rrset), 0);
        octets.extend(name);
        for (place, index) in records.enumerate() {
            let record = self.record(index);
            step(1 + record.octets.len() / 8);
            let ttl_at = (octets.len() + record.ttl_at) as u32;
            octets[FIXED + 4 * place..][..4].copy_from_slice(&ttl_at.to_be_bytes());
            octets.extend(record.octets);
        }
        Relayed { octets: octets.into() }
    }

    /// How many of these records fit into this many octets, one after the other.
    pub(super) fn fitting(&self, records: impl IntoIterator<Item = usize>, most: usize) -> usize {
        let mut octets = 0;
        let fitting = records.into_iter().take_while(|index| {
            octets += self.record(*index).octets.len();
            octets <= most
        });
        fitting.count()
    }

    /// The same, marked as less than the whole answer: it is not authentic, and not kept.
    pub(crate) fn cut(&self) -> Relayed {
        let mut octets = self.octets.to_vec();
        octets[1] = octets[1] & !AUTHENTIC | CUT;
        octets[LIFETIME_AT..LIFETIME_AT + 4].fill(0);
        Relayed { octets: octets.into() }
    }

    /// Whether records are missing that the client gets over TCP.
    pub fn is_cut(&self) -> bool {
        self.octets[1] & CUT != 0
    }

    /// Where in the message that target is written in full.
    pub(super) fn target_at(&self) -> Option<usize> {
        Some(self.u32_at(16) as usize).filter(|at| *at > 0)
    }

    /// Octets of its allocation, without the counts of references in front.
    pub fn octets(&self) -> usize {
        self.octets.len()
    }

    /// The same, divided by how many share it.
    pub fn share_octets(&self) -> usize {
        self.octets.len() / Arc::strong_count(&self.octets).max(1)
    }

    /// Whether it answers this key.
    pub fn is_for(&self, key: &LookupKey) -> bool {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags =
            flag(key.dnssec_ok(), DNSSEC_OK) | flag(key.checking_disabled(), CHECKING_DISABLED);
        // Every hit asks this, so the place of the question is worked out once for its name and type.
        let (name, rest) = self.octets[self.base()..].split_at(usize::from(self.octets[2]));
        self.octets[1] & (DNSSEC_OK | CHECKING_DISABLED) == flags
            && rest.starts_with(&key.qtype().to_be_bytes())
            && name == key.name().wire()
    }

    /// The key that it answers.
    pub fn key(&self) -> LookupKey {
        let name = Name::from_wire(self.name()).unwrap_or(Name::ROOT);
        let has = |flag| self.octets[1] & flag != 0;
        LookupKey::new(name, self.qtype(), has(DNSSEC_OK), has(CHECKING_DISABLED))
    }

    fn qtype(&self) -> u16 {
        let at = self.base() + self.name().len();
        u16::from_be_bytes([self.octets[at], self.octets[at + 1]])
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.octets[self.base()..][..usize::from(self.octets[2])]
    }

    pub(super) fn is_authentic(&self) -> bool {
        self.octets[1] & AUTHENTIC != 0
    }

    pub(super) fn rotates(&self) -> bool {
        self.octets[1] & ROTATES != 0
    }

    pub(super) fn is_srv(&self) -> bool {
        self.qtype() == rtype::SRV
    }

    pub(super) fn counts(&self) -> Counts {
        let count = |at| usize::from(u16::from_be_bytes([self.octets[at], self.octets[at + 1]]));
        Counts { chain: count(4), rrset: count(6), signatures: count(8), authority: count(10) }
    }

    pub(super) fn record(&self, index: usize) -> Record<'_> {
        let extent = self.extent(index);
        let ttl_at = self.ttl_at(index) - extent.start;
        Record { octets: &self.octets[extent], ttl_at }
    }

    fn extent(&self, index: usize) -> Range<usize> {
        let start = match index.checked_sub(1) {
            None => self.base() + self.name().len() + 4,
            Some(before) => self.end(before),
        };
        start..self.end(index)
    }

    /// Where the TTL of record number `index` is.
    fn ttl_at(&self, index: usize) -> usize {
        self.u32_at(FIXED + 4 * index) as usize
    }

    /// Where record number `index` ends: behind its TTL are the length of its RDATA and the RDATA.
    fn end(&self, index: usize) -> usize {
        let length_at = self.ttl_at(index) + 4;
        length_at
            + 2
            + usize::from(u16::from_be_bytes([self.octets[length_at], self.octets[length_at + 1]]))
    }

    /// Where the message begins, less its header: what would be at octet 12 of it.
    fn base(&self) -> usize {
        FIXED + 4 * self.counts().all()
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.octets[at..].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets))
    }
}

/// A, AAAA and SRV RRsets start anywhere (WR24); others stay as they are.
fn is_rotated(rrset: &[Kept]) -> bool {
    let rotates = |rtype| matches!(rtype, rtype::A | rtype::AAAA | rtype::SRV);
    rrset.len() > 1
        && rotates(rrset[0].rtype)
        && rrset.windows(2).all(|pair| pair[0].rtype == pair[1].rtype)
}
