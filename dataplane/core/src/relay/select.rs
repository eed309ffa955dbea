//! What of an upstream's reply a client gets (FW40): the chain from the question to the RRset at
//! its end, or the SOA; everything else is dropped.

use std::net::IpAddr;

use super::rdata::{self, CNAME, DNAME, NS, NSEC, NSEC3, RRSIG, SOA};
use super::read::{Message, Record};
use super::{LookupKey, RelayError, Relayed, TtlCaps};
use crate::wire::message::rtype::{self, ANY};
use crate::wire::name::MAX_NAME;

/// CNAMEs of one upstream reply (FW41). A loop runs into it too.
const MAX_CNAMES: usize = 16;

/// The part of an upstream's reply that may be relayed: uncompressed, in order, TTLs capped.
pub(super) struct Selected {
    pub(super) rcode: u8,
    /// The upstream's AD.
    pub(super) authentic: bool,
    octets: Vec<u8>,
    /// CNAMEs and DNAMEs in chain order, each with its signatures.
    pub(super) chain: Vec<Kept>,
    /// The RRset at the end of the chain; for ANY all of them.
    pub(super) rrset: Vec<Kept>,
    /// Its signatures.
    pub(super) signatures: Vec<Kept>,
    /// SOA of a negative reply; with DO signatures and denials of existence.
    pub(super) authority: Vec<Kept>,
    /// Rebind protection left nothing (N21).
    pub(super) is_blocked: bool,
}

/// A record of [`Selected`].
#[derive(Clone, Debug)]
pub(super) struct Kept {
    owner: std::ops::Range<usize>,
    pub(super) rtype: u16,
    pub(super) ttl_s: u32,
    rdata: std::ops::Range<usize>,
}

/// Why nothing can be relayed.
pub(super) enum Unusable {
    Failed(RelayError),
    /// RDATA that cannot be read: the message does not parse (FW12).
    Malformed,
}

impl Selected {
    /// No records, with this Rcode and AD.
    pub(super) fn new(rcode: u8, authentic: bool) -> Selected {
        Selected {
            rcode,
            authentic,
            octets: Vec::new(),
            chain: Vec::new(),
            rrset: Vec::new(),
            signatures: Vec::new(),
            authority: Vec::new(),
            is_blocked: false,
        }
    }

    /// FW43: removes private addresses, and signatures over what is no more the whole RRset. When nothing is left, nothing
    /// else stays either, and this is true (N21).
    fn remove_private(&mut self) -> bool {
        let (before, octets) = (self.rrset.len(), &self.octets);
        self.rrset.retain(|record| !is_private(record.rtype, &octets[record.rdata.clone()]));
        if self.rrset.len() == before {
            return false;
        }
        self.signatures.clear();
        self.authentic = false;
        self.is_blocked = self.rrset.is_empty();
        if self.is_blocked {
            self.chain.clear();
        }
        self.is_blocked
    }

    pub(super) fn owner(&self, record: &Kept) -> &[u8] {
        &self.octets[record.owner.clone()]
    }

    pub(super) fn rdata(&self, record: &Kept) -> &[u8] {
        &self.octets[record.rdata.clone()]
    }
}

/// FW43: an address that no name of the public DNS should have.
fn is_private(rtype: u16, rdata: &[u8]) -> bool {
    let address = match (rtype, rdata.len()) {
        (rtype::A, 4) => rdata.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        (rtype::AAAA, 16) => rdata.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    };
    match address.map(|address| address.to_canonical()) {
        None => false,
        Some(IpAddr::V4(v4)) => {
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()
        }
        Some(IpAddr::V6(v6)) => {
            v6.is_unique_local()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
        }
    }
}

/// Walks the chain from the name of the key and keeps what belongs to the answer.
pub(super) fn select(
    message: &Message<'_>,
    key: &LookupKey,
    caps: &TtlCaps,
) -> Result<Relayed, Unusable> {
    let (asked, qtype) = (key.name().wire(), key.qtype());
    // YXDOMAIN is 6; anything above 15 has its upper bits in the OPT record and is no answer.
    let rcode = match message.rcode {
        rcode @ (0 | 3 | 6) => rcode as u8,
        other => return Err(Unusable::Failed(RelayError::Rcode(other))),
    };
    let mut selection = Selection {
        message,
        dnssec: key.dnssec_ok(),
        caps,
        kept: Selected::new(rcode, message.authentic),
    };
    let end = selection.follow_chain(asked, qtype)?;
    selection.rrset_at(&end, qtype)?;
    if caps.no_private_addresses && selection.kept.remove_private() {
        return Ok(Relayed::of(&selection.kept, key));
    }
    let kept = &selection.kept;
    if rcode == 0 && kept.chain.is_empty() && kept.rrset.is_empty() {
        let has = |rtype| message.authority.iter().any(|record| record.rtype == rtype);
        if !message.answer.is_empty() {
            return Err(Unusable::Failed(RelayError::Unrelated));
        }
        if has(NS) && !has(SOA) {
            return Err(Unusable::Failed(RelayError::Referral));
        }
    }
    selection.authority_for(&end)?;
    Ok(Relayed::of(&selection.kept, key))
}

struct Selection<'s, 'm> {
    message: &'s Message<'m>,
    dnssec: bool,
    caps: &'s TtlCaps,
    kept: Selected,
}

impl<'s> Selection<'s, '_> {
    /// Keeps the CNAMEs and DNAMEs that lead away from `asked`; returns the name at the end.
    fn follow_chain(&mut self, asked: &[u8], qtype: u16) -> Result<Vec<u8>, Unusable> {
        let mut current = asked.to_vec();
        for _ in 0..=MAX_CNAMES {
            if self.answer_at(&current, |record| answers(record, qtype)).next().is_some() {
                return Ok(current);
            }
            let cname = self.answer_at(&current, |record| record.rtype == CNAME).next();
            let dname = self.dname_above(&current)?;
            let target = match (cname, &dname) {
                (Some(cname), _) => {
                    let mut target = Vec::new();
                    self.expand(cname, &mut target)?;
                    Some(target)
                }
                (None, Some((_, target))) => target.clone(),
                (None, None) => return Ok(current),
            };
            // The DNAME from which the CNAME was made, or from which we make it (RFC 6672 §3.1).
            if let Some((dname, to)) = &dname
                && (cname.is_none() || same(to.as_deref(), target.as_deref()))
            {
                self.keep_in_chain(dname)?;
            }
            // No target: the name would be too long (YXDOMAIN), the DNAME says so.
            let Some(target) = target else { return Ok(current) };
            match (cname, &dname) {
                (Some(cname), _) => self.keep_in_chain(cname)?,
                (None, Some((dname, _))) => {
                    let ttl_s = dname.ttl_s.min(self.caps.max_s);
                    let (owner, rdata) = (self.store(&current), self.store(&target));
                    self.kept.chain.push(Kept { owner, rtype: CNAME, ttl_s, rdata });
                }
                (None, None) => {}
            }
            current = target;
        }
        Err(Unusable::Failed(RelayError::Chain))
    }

    /// Keeps the RRset of the question at the end of the chain.
    fn rrset_at(&mut self, end: &[u8], qtype: u16) -> Result<(), Unusable> {
        let (message, dnssec) = (self.message, self.dnssec);
        for record in &message.answer {
            if !message.owner(record).eq_ignore_ascii_case(end) {
                continue;
            }
            if answers(record, qtype) {
                let kept = self.keep(record)?;
                self.kept.rrset.push(kept);
            } else if dnssec && self.signs(record, |covered| covered == qtype) {
                let kept = self.keep(record)?;
                self.kept.signatures.push(kept);
            }
        }
        Ok(())
    }

    /// Keeps the SOA of a negative reply and, with DO, the denials of existence.
    fn authority_for(&mut self, end: &[u8]) -> Result<(), Unusable> {
        let message = self.message;
        let negative = self.kept.rrset.is_empty();
        let soa = message.authority.iter().find(|record| {
            negative && record.rtype == SOA && is_suffix(end, message.owner(record))
        });
        if let Some(soa) = soa {
            let mut kept = self.keep(soa)?;
            let rdata = self.kept.rdata(&kept);
            let minimum = rdata.last_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            // What a negative answer may be cached for is shown as its TTL (CA3, RFC 2308 §5).
            let minimum = if minimum > i32::MAX as u32 { 0 } else { minimum };
            kept.ttl_s = kept.ttl_s.min(minimum).min(self.caps.max_negative_s);
            self.kept.authority.push(kept);
        }
        if !self.dnssec {
            return Ok(());
        }
        for record in &message.authority {
            let denial = matches!(record.rtype, NSEC | NSEC3)
                || self.signs(record, |covered| {
                    matches!(covered, NSEC | NSEC3) || (covered == SOA && soa.is_some())
                });
            if denial {
                let kept = self.keep(record)?;
                self.kept.authority.push(kept);
            }
        }
        Ok(())
    }

    /// Keeps a link of the chain and, with DO, its signatures.
    fn keep_in_chain(&mut self, link: &Record) -> Result<(), Unusable> {
        let (message, dnssec) = (self.message, self.dnssec);
        let kept = self.keep(link)?;
        self.kept.chain.push(kept);
        for record in message.answer.iter().filter(|_| dnssec) {
            if self.signs(record, |covered| covered == link.rtype)
                && message.owner(record).eq_ignore_ascii_case(message.owner(link))
            {
                let kept = self.keep(record)?;
                self.kept.chain.push(kept);
            }
        }
        Ok(())
    }

    /// The first DNAME above a name, and what it makes of the name (`None`: a name too long).
    #[expect(clippy::type_complexity)]
    fn dname_above(&self, name: &[u8]) -> Result<Option<(&'s Record, Option<Vec<u8>>)>, Unusable> {
        let message = self.message;
        let dname = message.answer.iter().find(|record| {
            let owner = message.owner(record);
            record.rtype == DNAME && owner.len() < name.len() && is_suffix(name, owner)
        });
        let Some(dname) = dname else { return Ok(None) };
        let mut target = name[..name.len() - message.owner(dname).len()].to_vec();
        self.expand(dname, &mut target)?;
        Ok(Some((dname, (target.len() <= MAX_NAME).then_some(target))))
    }

    fn answer_at(
        &self,
        name: &[u8],
        matches: impl Fn(&Record) -> bool,
    ) -> impl Iterator<Item = &'s Record> {
        let message = self.message;
        message
            .answer
            .iter()
            .filter(move |r| matches(r) && message.owner(r).eq_ignore_ascii_case(name))
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

    fn keep(&mut self, record: &Record) -> Result<Kept, Unusable> {
        let owner = self.store(self.message.owner(record));
        let start = self.kept.octets.len();
        rdata::expand(self.message.octets, record.rtype, &record.rdata, &mut self.kept.octets)
            .ok_or(Unusable::Malformed)?;
        let rdata = start..self.kept.octets.len();
        // Expanded, a record may no longer fit in any message.
        if rdata.len() > usize::from(u16::MAX) {
            return Err(Unusable::Malformed);
        }
        let ttl_s = record.ttl_s.min(self.caps.max_s);
        Ok(Kept { owner, rtype: record.rtype, ttl_s, rdata })
    }

    fn expand(&self, record: &Record, to: &mut Vec<u8>) -> Result<(), Unusable> {
        rdata::expand(self.message.octets, record.rtype, &record.rdata, to)
            .ok_or(Unusable::Malformed)
    }

    /// Copies octets; records in a row with the same owner share one copy.
    fn store(&mut self, octets: &[u8]) -> std::ops::Range<usize> {
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

fn same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// Whether `name` is at or below `ancestor`, on a label boundary.
fn is_suffix(name: &[u8], ancestor: &[u8]) -> bool {
    let mut at = 0;
    while name.len() - at > ancestor.len() {
        at += name[at] as usize + 1;
    }
    name[at..].eq_ignore_ascii_case(ancestor)
}
