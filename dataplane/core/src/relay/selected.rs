//! The part of an upstream's reply that may be relayed, as records by kind.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec::Vec;
use core::ops::Range;

use super::private_addresses::OwnRanges;
use super::rdata::{CNAME, RRSIG, SOA};

/// The part of an upstream's reply that may be relayed: uncompressed, in order, TTLs capped.
pub(super) struct Selected {
    pub(super) rcode: u8,
    /// AD of the upstream's reply.
    pub(super) authentic: bool,
    pub(super) octets: Vec<u8>,
    /// CNAMEs and DNAMEs in chain order, each with its signatures.
    pub(super) chain: Vec<Kept>,
    /// The RRset at the end of the chain; for ANY all of them.
    pub(super) rrset: Vec<Kept>,
    /// RRSIG records that cover the RRset.
    pub(super) signatures: Vec<Kept>,
    /// SOA of a negative reply; with DO signatures and denials of existence.
    pub(super) authority: Vec<Kept>,
    /// Rebind protection left nothing (N21).
    pub(super) is_blocked: bool,
    /// The answer section has records of other types at the end of the chain, which are not relayed (FW40).
    pub(super) has_other_types: bool,
    /// The chain leads to a name of the cluster zone: nothing behind that is kept (FW42).
    pub(super) leads_home: bool,
}

/// Where one record is in [`Selected::octets`].
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) owner: Range<usize>,
    pub(super) rtype: u16,
    pub(super) ttl_s: u32,
    pub(super) rdata: Range<usize>,
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
            has_other_types: false,
            leads_home: false,
        }
    }

    /// FW43: removes private addresses, and signatures over an RRset that is no longer whole; whether there were any. If no
    /// address is left, everything else is removed too (N21).
    pub(super) fn remove_private(&mut self, own: &OwnRanges) -> bool {
        let (before, octets) = (self.rrset.len(), &self.octets);
        self.rrset.retain(|record| !own.is_private(record.rtype, &octets[record.rdata.clone()]));
        if self.rrset.len() == before {
            return false;
        }
        self.signatures.clear();
        // Those in a reply to ANY.
        self.rrset.retain(|record| record.rtype != RRSIG);
        self.authentic = false;
        self.is_blocked = self.rrset.is_empty();
        if self.is_blocked {
            self.chain.clear();
        }
        true
    }

    pub(super) fn owner(&self, record: &Kept) -> &[u8] {
        &self.octets[record.owner.clone()]
    }

    pub(super) fn rdata(&self, record: &Kept) -> &[u8] {
        &self.octets[record.rdata.clone()]
    }

    /// Which record of the chain is the CNAME that leads to a name with neither data nor an SOA (FW42). Where that name has
    /// records of other types, the server has looked there, and the one that was asked for does not exist.
    pub(super) fn unresolved_target(&self) -> Option<usize> {
        let has_end = !self.rrset.is_empty() || self.has_other_types || self.has_soa();
        if self.rcode != 0 || has_end {
            return None;
        }
        self.chain.iter().rposition(|record| record.rtype == CNAME)
    }

    fn has_soa(&self) -> bool {
        self.authority.iter().any(|record| record.rtype == SOA)
    }

    /// CA2, CA3: the smallest TTL; a denial without an SOA is not kept.
    pub(super) fn lifetime_s(&self) -> u32 {
        let denies = self.rrset.is_empty() && self.unresolved_target().is_none();
        if denies && !self.has_soa() {
            return 0;
        }
        let all = [&self.chain, &self.rrset, &self.signatures, &self.authority];
        all.into_iter().flatten().map(|record| record.ttl_s).min().unwrap_or(0)
    }
}
