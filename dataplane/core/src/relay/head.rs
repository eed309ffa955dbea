//! What one client's reply needs besides what an upstream said: the question as asked, flags, EDNS, limits, and the
//! CNAMEs of ours in front (§5).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::boxed::Box;

use super::aliases::{Cnames, KeptAlias};
use super::relayed::Relayed;

/// The largest UDP reply there is (`udpPayloadBytes`); a larger limit means a stream.
pub(crate) const MAX_UDP: usize = 4096;

/// The fields of a query that its reply depends on, without the octets that are copied. Every field is as the
/// client sent it
/// unless stated.
#[derive(Clone, Copy, Debug)]
pub struct ReplyForm {
    /// The client's message id.
    pub id: u16,
    /// RD; copied (WR1).
    pub rd: bool,
    /// CD; copied (WR1).
    pub cd: bool,
    /// AD: the client wants to see the AD bit of the upstream (WR6).
    pub ad: bool,
    /// DO; copied (WR10).
    pub do_: bool,
    /// The query had a well-formed OPT, so the reply has one (WR10).
    pub edns: bool,
    /// The question's type; the class is IN.
    pub qtype: u16,
    /// Largest reply: WR11 for UDP, 65,535 for TCP (which also means that TC is never set).
    pub limit: usize,
    /// What our OPT advertises.
    pub udp_payload_size: u16,
    /// RA of the reply (WR5).
    pub ra: bool,
    /// How old the snapshot is that the CNAMEs of ours are from, in seconds: every form of the reply shows this
    /// (E42).
    pub snapshot_age_s: Option<u32>,
    /// Records of the ClusterDNS resource have the question's name: what an upstream says of it is relayed only where it neither
    /// denies the name nor leads away from it (RR81).
    pub is_ours: bool,
}

impl ReplyForm {
    /// Whether the chain of this reply is continued for the client (FW42). Where the name is ours, the reply is the same
    /// wherever the chain ends, so no upstream is asked for the rest of it (RR81).
    pub fn follows(&self, relayed: &Relayed) -> bool {
        relayed.is_partial() && !self.is_ours
    }
}

/// What one client's reply needs, borrowed from its query and from our records: no allocation, and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead<'a> {
    /// Flags, sizes and numbers of the reply's header and OPT record.
    pub form: ReplyForm,
    /// The question's name exactly as asked, letter case included (WR2), uncompressed; at most 255 octets.
    pub question: &'a [u8],
    /// The content of the NSID option, if one was asked for (WR13); at most 255 octets are used.
    pub nsid: Option<&'a [u8]>,
    /// CNAMEs and DNAMEs of ours that lead from the question to the name that the upstream is asked about.
    pub cnames: Cnames<'a>,
}

impl ReplyHead<'_> {
    /// A copy that owns its data, for as long as an upstream is asked.
    pub fn keep(&self) -> OwnedHead {
        let nsid = self.nsid.map(|nsid| &nsid[..nsid.len().min(MAX_NSID)]);
        OwnedHead {
            form: self.form,
            question_octets: self.question.len(),
            has_nsid: nsid.is_some(),
            octets: [self.question, nsid.unwrap_or_default()].concat().into(),
            cnames: self.cnames.iter().map(KeptAlias::of).collect(),
        }
    }

    /// Whether the reply goes over a stream: no TC, and 65,535 octets (WR23).
    pub(super) fn is_stream(&self) -> bool {
        self.form.limit > MAX_UDP
    }
}

/// Octets of a pod name that an NSID option shows.
pub(super) const MAX_NSID: usize = 255;

/// A [`ReplyHead`] with octets of its own.
#[derive(Clone, Debug)]
pub struct OwnedHead {
    form: ReplyForm,
    question_octets: usize,
    has_nsid: bool,
    /// The question's name, then the content of the NSID option.
    octets: Box<[u8]>,
    cnames: Box<[KeptAlias]>,
}

impl OwnedHead {
    /// Octets of the largest reply that the client may get.
    pub fn limit(&self) -> usize {
        self.form.limit
    }

    /// Borrows the octets, as [`ReplyHead`] needs them.
    pub fn borrow(&self) -> ReplyHead<'_> {
        let (question, nsid) = self.octets.split_at(self.question_octets);
        let mut cnames = Cnames::NONE;
        for alias in &self.cnames {
            cnames.add(alias.borrow());
        }
        ReplyHead { form: self.form, question, nsid: self.has_nsid.then_some(nsid), cnames }
    }
}

/// A reply to a client that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length.
    pub octets: usize,
    /// Records of its answer are missing: over UDP the reply says so (TC), over a stream nothing does (WR23).
    pub is_cut: bool,
}

impl Written {
    /// One without a missing record.
    pub fn whole(octets: usize) -> Written {
        Written { octets, is_cut: false }
    }
}
