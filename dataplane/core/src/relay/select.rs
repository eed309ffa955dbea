//! Selects the records of an upstream's reply for the client (FW40): the chain from the question to the RRset at
//! its end, or the SOA; everything else is dropped.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

mod chain;

use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::key::LookupKey;
use super::private_addresses::OwnRanges;
use super::rdata::{self, NS, NSEC, NSEC3, RRSIG, SOA};
use super::read::{Message, Record};
use super::relayed::NXDOMAIN;
use super::selected::{Kept, Selected};
use super::verdict::RelayError;
use crate::wire::message::rtype::ANY;
use crate::wire::name::Name;

/// Settings of the selection: bounds of TTLs in seconds (FW44, CA3), whether private addresses are removed, and which names an
/// upstream cannot speak for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtlCaps {
    /// `maxTTLSeconds`: of every record but those that deny.
    pub max_s: u32,
    /// `maxNegativeTTLSeconds`: of the records that deny, which are the SOA of a negative reply and the proofs beside it.
    pub max_negative_s: u32,
    /// `rebindProtection` (FW43): addresses that no name of the public DNS should have are removed.
    pub no_private_addresses: bool,
    /// Addresses in these ranges are removed with them.
    pub own_ranges: OwnRanges,
    /// The cluster zone: what a reply says at the end of a chain that leads there is not relayed (FW42).
    pub own_zone: Option<Name>,
    /// Records at such a target are relayed: the servers of a stub domain may be those of another cluster of the same domain.
    /// That a target does not exist is believed of no upstream.
    pub relays_own_zone: bool,
}

impl Default for TtlCaps {
    fn default() -> TtlCaps {
        TtlCaps {
            max_s: 3600,
            max_negative_s: 30,
            no_private_addresses: false,
            own_ranges: OwnRanges::NONE,
            own_zone: None,
            relays_own_zone: false,
        }
    }
}

/// Records of an RRset that are compared with those before them (RFC 2181 §5). Further ones are relayed as they came: servers
/// send none twice, and the work must grow with the reply only.
const COMPARED: usize = 64;

/// The message costs more than its length allows (row L12): as a chain that is too long (FW41).
const TOO_MUCH: RelayError = RelayError::Chain;

/// Walks the chain from the name of the key and keeps what belongs to the answer.
pub(super) fn select(
    message: &Message<'_>,
    key: &LookupKey,
    caps: &TtlCaps,
    age_s: u32,
) -> Result<Selected, RelayError> {
    let (asked, qtype) = (key.name().wire(), key.qtype());
    // YXDOMAIN is 6; anything above 15 has its upper bits in the OPT record and is no answer.
    let rcode = match message.rcode {
        rcode @ (0 | 3 | 6) => rcode as u8,
        other => return Err(RelayError::Rcode(other)),
    };
    let mut selection = Selection {
        message,
        dnssec: key.dnssec_ok(),
        caps,
        age_s,
        kept: Selected::new(rcode, message.authentic),
        links: Vec::new(),
        made: Vec::new(),
        hashes: [0; COMPARED],
    };
    let end = selection.follow_chain(asked, qtype)?;
    if !selection.kept.leads_home || caps.relays_own_zone {
        selection.rrset_at(&end, qtype)?;
        selection.kept.leads_home &= !selection.answers_for(&end)?;
    }
    if selection.kept.leads_home {
        // What our records say of that name decides, and also whether it exists.
        (selection.kept.rcode, selection.kept.has_other_types) = (0, false);
    }
    let rcode = selection.kept.rcode;
    // Before private addresses are removed: a denial beside the very records that it denies contradicts itself.
    if rcode != 0 && !selection.kept.rrset.is_empty() {
        return Err(RelayError::Unrelated);
    }
    let is_less = caps.no_private_addresses && selection.kept.remove_private(&caps.own_ranges);
    if selection.kept.is_blocked {
        return Ok(selection.kept);
    }
    // AD was about records that are not relayed.
    if selection.kept.rrset.is_empty() && selection.kept.has_other_types {
        selection.kept.authentic = false;
    }
    let kept = &selection.kept;
    // Kept as either, it would be wrong for as long as its records say. A name with other types exists, too.
    if rcode == NXDOMAIN && kept.has_other_types {
        return Err(RelayError::Unrelated);
    }
    if rcode == 0 && kept.chain.is_empty() && kept.rrset.is_empty() {
        message.budget.spend(2 * message.authority.len()).ok_or(TOO_MUCH)?;
        let has = |rtype| message.authority.iter().any(|record| record.rtype == rtype);
        // Where the name has other types, it exists, and this one does not: NODATA (FW40).
        if !message.answer.is_empty() && !kept.has_other_types {
            return Err(RelayError::Unrelated);
        }
        if message.answer.is_empty() && has(NS) && !has(SOA) {
            return Err(RelayError::Referral);
        }
    }
    // A proof about the RRset as it was signed proves nothing about a part of it.
    if !is_less {
        selection.authority_for(&end)?;
    }
    Ok(selection.kept)
}

struct Selection<'s, 'm> {
    message: &'s Message<'m>,
    dnssec: bool,
    caps: &'s TtlCaps,
    /// How long the reply lay in a cache of HTTP.
    age_s: u32,
    kept: Selected,
    /// CNAMEs and DNAMEs that are kept already.
    links: Vec<&'s Record>,
    /// CNAMEs that the server made of a DNAME, with the target that we make of it: that of the server begins with the name as it
    /// was asked for, in our random letter case (FW14).
    made: Vec<(&'s Record, Vec<u8>)>,
    /// Of the first records of the RRset. They need no secret: octets are compared where two are equal, and an upstream that
    /// finds equal ones uses up what its message may cost.
    hashes: [u32; COMPARED],
}

impl<'s> Selection<'s, '_> {
    /// Keeps the RRset of the question at the end of the chain.
    fn rrset_at(&mut self, end: &[u8], qtype: u16) -> Result<(), RelayError> {
        let (message, dnssec) = (self.message, self.dnssec);
        for record in &message.answer {
            if !self.is_at(record, end)? {
                continue;
            }
            if answers(record, qtype) {
                let octets = self.kept.octets.len();
                let kept = self.keep(record, self.caps.max_s)?;
                match self.has(&kept)? {
                    true => self.kept.octets.truncate(octets),
                    false => self.kept.rrset.push(kept),
                }
            } else if dnssec && self.signs(record, |covered| covered == qtype) {
                let kept = self.keep(record, self.caps.max_s)?;
                self.kept.signatures.push(kept);
            // NS records alone are a referral: they do not say that the server has looked there.
            } else if !matches!(record.rtype, RRSIG | NS) {
                self.kept.has_other_types = true;
            }
        }
        Ok(())
    }

    /// Whether the RRset has this record already (RFC 2181 §5); of a large one only the first records are compared. Each pair
    /// costs a look at two hashes: names of one length are usual, and to compare the octets of each pair would take more
    /// than a message of fifty may cost.
    fn has(&mut self, new: &Kept) -> Result<bool, RelayError> {
        let (kept, rdata) = (&self.kept, self.kept.rdata(new));
        let place = kept.rrset.len();
        if place >= COMPARED {
            return Ok(false);
        }
        self.spend_octets(rdata.len() + place * size_of::<u32>())?;
        let hash = FixedState::default().hash_one((new.rtype, rdata)) as u32;
        for (old, of_old) in kept.rrset.iter().zip(&self.hashes) {
            if *of_old != hash || old.rtype != new.rtype {
                continue;
            }
            self.spend_octets(rdata.len())?;
            if kept.rdata(old) == rdata {
                return Ok(true);
            }
        }
        self.hashes[place] = hash;
        Ok(false)
    }

    /// Whether a stub domain answers for the name of ours at the end of the chain, as the servers of another cluster of the same
    /// domain do: with records of the type, or with NODATA. NXDOMAIN and an SOA above the zone come from any server that asks the
    /// root (FW42).
    fn answers_for(&self, end: &[u8]) -> Result<bool, RelayError> {
        let kept = &self.kept;
        if !kept.rrset.is_empty() {
            return Ok(true);
        }
        if kept.rcode != 0 || kept.has_other_types {
            return Ok(kept.rcode == 0);
        }
        for record in self.message.authority.iter().filter(|record| record.rtype == SOA) {
            if self.is_above(record, end)? && self.is_ours(self.message.owner(record))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps the SOA of a negative reply and, with DO, the denials of existence.
    fn authority_for(&mut self, end: &[u8]) -> Result<(), RelayError> {
        let message = self.message;
        let negative = self.kept.rrset.is_empty() && !self.kept.leads_home;
        let mut soa = None;
        for record in message.authority.iter().filter(|_| negative) {
            self.spend(1)?;
            if record.rtype == SOA && self.is_above(record, end)? {
                soa = Some(record);
                break;
            }
        }
        if let Some(soa) = soa {
            let mut kept = self.keep(soa, self.caps.max_negative_s)?;
            let rdata = self.kept.rdata(&kept);
            let minimum = rdata.last_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            // The SOA gets the negative TTL (CA3, RFC 2308 §5).
            let minimum = if minimum > i32::MAX as u32 { 0 } else { minimum };
            let minimum = minimum.saturating_sub(self.age_s);
            kept.ttl_s = kept.ttl_s.min(minimum);
            self.kept.authority.push(kept);
        }
        if !self.dnssec {
            return Ok(());
        }
        // Beside records, they prove that a wildcard made these.
        let most_s = if soa.is_some() { self.caps.max_negative_s } else { self.caps.max_s };
        for record in &message.authority {
            self.spend(1)?;
            let denial = matches!(record.rtype, NSEC | NSEC3)
                || self.signs(record, |covered| {
                    matches!(covered, NSEC | NSEC3) || (covered == SOA && soa.is_some())
                });
            if denial {
                let kept = self.keep(record, most_s)?;
                self.kept.authority.push(kept);
            }
        }
        Ok(())
    }

    /// Whether a record is at this name.
    fn is_at(&self, record: &Record, name: &[u8]) -> Result<bool, RelayError> {
        let owner = self.message.owner(record);
        if owner.len() != name.len() {
            self.spend(1)?;
            return Ok(false);
        }
        self.spend_octets(name.len())?;
        Ok(owner.eq_ignore_ascii_case(name))
    }

    /// Whether a record is at this name or above it.
    fn is_above(&self, record: &Record, name: &[u8]) -> Result<bool, RelayError> {
        // A name has at most one label for each two octets.
        self.spend(1 + name.len() / 2)?;
        Ok(is_suffix(name, self.message.owner(record)))
    }

    fn spend(&self, steps: usize) -> Result<(), RelayError> {
        self.message.budget.spend(steps).ok_or(TOO_MUCH)
    }

    fn spend_octets(&self, octets: usize) -> Result<(), RelayError> {
        self.message.budget.spend_octets(octets).ok_or(TOO_MUCH)
    }

    /// Whether a record is a signature over records of such a type.
    fn signs(&self, record: &Record, covers: impl Fn(u16) -> bool) -> bool {
        record.rtype == RRSIG
            && self
                .message
                .rdata(record)
                .first_chunk()
                .is_some_and(|covered| covers(u16::from_be_bytes(*covered)))
    }

    /// The remaining TTL, at most the cap: a record with more time left than the cap is kept for the whole cap (CA2).
    fn ttl_s(&self, record: &Record, most_s: u32) -> u32 {
        record.ttl_s.saturating_sub(self.age_s).min(most_s)
    }

    fn keep(&mut self, record: &Record, most_s: u32) -> Result<Kept, RelayError> {
        let message = self.message;
        let owner = message.owner(record);
        self.spend_octets(owner.len())?;
        let owner = self.store(owner);
        let start = self.kept.octets.len();
        let (octets, to) = (message.octets, &mut self.kept.octets);
        rdata::expand(octets, record.rtype, &record.rdata, &message.budget, to)
            .ok_or_else(|| message.budget.why_unread())?;
        if let Some((_, target)) = self.made.iter().find(|(made, _)| core::ptr::eq(*made, record)) {
            self.kept.octets.truncate(start);
            self.kept.octets.extend(target);
        }
        let rdata = start..self.kept.octets.len();
        // Without compression, a record may be too large for any message.
        if rdata.len() > usize::from(u16::MAX) {
            return Err(TOO_MUCH);
        }
        let ttl_s = self.ttl_s(record, most_s);
        Ok(Kept { owner, rtype: record.rtype, ttl_s, rdata })
    }

    fn expand(&self, record: &Record, to: &mut Vec<u8>) -> Result<(), RelayError> {
        let message = self.message;
        rdata::expand(message.octets, record.rtype, &record.rdata, &message.budget, to)
            .ok_or_else(|| message.budget.why_unread())
    }

    /// Copies octets; records in a row with the same owner share one copy.
    fn store(&mut self, octets: &[u8]) -> core::ops::Range<usize> {
        let kept = &mut self.kept;
        let last = [&kept.authority, &kept.signatures, &kept.rrset, &kept.chain]
            .into_iter()
            .find_map(|section| section.last());
        if let Some(last) = last
            && kept.octets[last.owner.clone()] == *octets
        {
            return last.owner.clone();
        }
        let start = kept.octets.len();
        kept.octets.extend_from_slice(octets);
        start..kept.octets.len()
    }
}

fn answers(record: &Record, qtype: u16) -> bool {
    record.rtype == qtype || qtype == ANY
}

/// Whether `name` is at or below `ancestor`, on a label boundary.
fn is_suffix(name: &[u8], ancestor: &[u8]) -> bool {
    let mut at = 0;
    while name.len() - at > ancestor.len() {
        at += name[at] as usize + 1;
    }
    name[at..].eq_ignore_ascii_case(ancestor)
}
