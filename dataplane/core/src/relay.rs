//! Between client and upstream: the query we send, which replies we believe, and what of them the
//! client gets (docs/dns.md §3.5, §5, §6.1-§6.4). Plain functions over octets: no socket, clock or randomness.
//!
//! [`Pending`] is made by `respond` when it decides to forward. The forwarder sends
//! [`Pending::upstream_query`], shows every message that comes back to [`Pending::judge`], and ends
//! with [`Pending::write`] or [`Pending::fail`].

mod compress;
mod rdata;
mod read;
mod select;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use crate::message::{CLASS_IN, HEADER};
use crate::name::{MAX_NAME, Name};

pub use select::Relayed;

/// CNAMEs of ours in one reply (RR48).
pub(crate) const MAX_OWN_CNAMES: usize = 10;
/// UDP payload that we advertise to upstreams (FW1, RFC 9715).
const UPSTREAM_PAYLOAD: u16 = 1232;
/// The largest UDP reply there is (`udpPayloadSize`); a larger limit means a stream.
const MAX_UDP: usize = 4096;
/// Octets of an OPT record without options (RFC 6891 §6.1.2).
const OPT: usize = 11;

/// QR, in the third octet of the header.
const QR: u8 = 0x80;
/// Opcode, in the third octet.
const OPCODE: u8 = 0x78;
/// TC, in the third octet.
const TC: u8 = 0x02;
/// RD, in the third octet.
const RD: u8 = 0x01;
/// AD, in the fourth octet.
const AD: u8 = 0x20;
/// CD, in the fourth octet.
const CD: u8 = 0x10;

/// What must be kept of a client's query while an upstream is asked: no borrow of records and no
/// allocation, about 1 KiB.
#[derive(Clone, Debug)]
pub struct Pending {
    id: u16,
    rd: bool,
    cd: bool,
    ad: bool,
    do_: bool,
    edns: bool,
    ra: bool,
    qtype: u16,
    limit: usize,
    udp_payload_size: u16,
    /// As asked, letter case included (WR2).
    question: Octets<MAX_NAME>,
    nsid: Option<Octets<255>>,
    /// What the upstream is asked: the question's name, or the outside target of a CNAME of ours.
    target: Name,
    /// TTL and target of each CNAME of ours; the targets are shared with the records, because ten
    /// names in place are more than all the rest.
    cnames: [Option<(u32, Arc<Name>)>; MAX_OWN_CNAMES],
    cname_count: u8,
    /// How old the snapshot is that the CNAMEs are from (E42).
    snapshot_age_s: Option<u32>,
}

/// The client's query, as `respond` read it; every field as the client sent it unless stated.
#[derive(Clone, Copy, Debug)]
pub struct PendingQuestion<'a> {
    /// The client's message id.
    pub id: u16,
    /// RD; copied (WR1).
    pub rd: bool,
    /// CD; copied (WR1) and sent on (FW1).
    pub cd: bool,
    /// AD: the client wants to see the upstream's (WR6).
    pub ad: bool,
    /// DO; copied (WR10) and sent on (FW1).
    pub do_: bool,
    /// The query had a well-formed OPT, so the reply has one (WR10).
    pub edns: bool,
    /// The question's name exactly as asked, uncompressed; at most 255 octets.
    pub name_as_asked: &'a [u8],
    /// The question's type; the class is IN.
    pub qtype: u16,
    /// Largest reply: WR11 for UDP, 65,535 for TCP (which also means that TC is never set).
    pub limit: usize,
    /// What our OPT advertises.
    pub udp_payload_size: u16,
    /// RA of the reply (WR5).
    pub ra: bool,
    /// What an NSID option answers, if one is due (WR13).
    pub nsid: Option<&'a [u8]>,
}

/// A query for an upstream (FW1), ready to send.
#[derive(Clone, Debug)]
pub struct UpstreamQuery {
    /// The message, without the length prefix of TCP.
    pub wire: Vec<u8>,
}

/// What a message that came from an upstream is worth.
#[derive(Debug)]
pub enum Verdict {
    /// The answer (FW20): relay it.
    Good(Relayed),
    /// Not the reply we wait for: count it and go on waiting (FW13).
    Discard(Discard),
    /// A reply that ends this attempt without an answer (FW21, FW26, FW41).
    Failed(RelayError),
}

/// Why a message from an upstream is not the reply we wait for (FW12, FW13): counted and waited past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// Not a response, another opcode, or it does not parse.
    Malformed,
    /// Another id.
    Id,
    /// Another question.
    Question,
}

impl Discard {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Discard; 3] = [Discard::Malformed, Discard::Id, Discard::Question];

    /// The metrics label.
    pub const fn label(self) -> &'static str {
        match self {
            Discard::Malformed => "malformed",
            Discard::Id => "id",
            Discard::Question => "question",
        }
    }
}

/// Why a valid reply cannot be relayed: it counts as a failure of that attempt (FW20, FW21, FW26, FW41).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayError {
    /// TC=1: ask again over TCP.
    Truncated,
    /// An Rcode that is no answer; above 15 with the upper bits of the OPT record.
    Rcode(u16),
    /// A referral.
    Referral,
    /// More than 16 CNAMEs, or a loop.
    Chain,
    /// NOERROR with records of which none answers the question.
    Unrelated,
}

/// Bounds of relayed TTLs (FW44, CA3), in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlCaps {
    /// `maxTtl`: of every record.
    pub max_s: u32,
    /// `maxNegativeTtl`: of the SOA of a negative reply.
    pub max_negative_s: u32,
}

impl Default for TtlCaps {
    fn default() -> TtlCaps {
        TtlCaps { max_s: 3600, max_negative_s: 30 }
    }
}

impl Pending {
    /// Keeps a query; `target` is what the upstream is asked: the name in the question, or where
    /// our CNAMEs lead (then each is given to [`Pending::push_cname`], first to last).
    pub fn new(query: PendingQuestion<'_>, target: Name) -> Pending {
        Pending {
            id: query.id,
            rd: query.rd,
            cd: query.cd,
            ad: query.ad,
            do_: query.do_,
            edns: query.edns,
            ra: query.ra,
            qtype: query.qtype,
            limit: query.limit,
            udp_payload_size: query.udp_payload_size,
            question: Octets::of(query.name_as_asked),
            nsid: query.nsid.map(Octets::of),
            target,
            cnames: [const { None }; MAX_OWN_CNAMES],
            cname_count: 0,
            snapshot_age_s: None,
        }
    }

    /// Says that the CNAMEs are from a snapshot, this old when the query came: whatever the reply becomes, it tells
    /// so (E42).
    pub fn set_snapshot_age(&mut self, age_s: u64) {
        self.snapshot_age_s = Some(u32::try_from(age_s).unwrap_or(u32::MAX));
    }

    /// Adds a CNAME of ours. The first is owned by the question's name, each later one by the
    /// target of the one before; the last leads to the name that the upstream is asked.
    /// `respond` ends chains of more than 10 (RR48) before they get here.
    pub fn push_cname(&mut self, ttl_s: u32, target: impl Into<Arc<Name>>) {
        debug_assert!((self.cname_count as usize) < MAX_OWN_CNAMES, "RR48 is decided before");
        if let Some(place) = self.cnames.get_mut(usize::from(self.cname_count)) {
            *place = Some((ttl_s, target.into()));
            self.cname_count += 1;
        }
    }

    /// What the upstream is asked.
    pub fn target(&self) -> &Name {
        &self.target
    }

    /// The type that the upstream is asked for.
    pub fn qtype(&self) -> u16 {
        self.qtype
    }

    /// The query to send: RD=1, AD=1, DO and CD from the client, the name in lower case, OPT 1232
    /// without options, and nothing else of the client's message (FW1).
    pub fn upstream_query(&self, id: u16) -> UpstreamQuery {
        let name = self.target.wire();
        let mut wire = Vec::with_capacity(HEADER + name.len() + 4 + OPT);
        wire.extend(id.to_be_bytes());
        wire.extend([RD, AD | if self.cd { CD } else { 0 }]);
        wire.extend([0, 1, 0, 0, 0, 0, 0, 1]);
        wire.extend(name);
        wire.extend(self.qtype.to_be_bytes());
        wire.extend(CLASS_IN.to_be_bytes());
        write::opt(&mut wire, UPSTREAM_PAYLOAD, self.do_);
        UpstreamQuery { wire }
    }

    /// Judges a message that came on the socket from which [`Pending::upstream_query`] with this
    /// id was sent (FW12, FW20, FW21); keeps of it what may be relayed (FW40, FW41, FW44).
    pub fn judge(&self, id: u16, reply: &[u8], caps: &TtlCaps) -> Verdict {
        let question = match read::question(reply, id, self.target.wire(), self.qtype) {
            Ok(question) => question,
            Err(discard) => return Verdict::Discard(discard),
        };
        if let Some(error) = question.error {
            return Verdict::Failed(error);
        }
        let Some(message) = read::Message::read(reply, question.end) else {
            return Verdict::Discard(Discard::Malformed);
        };
        match select::select(&message, self.target.wire(), self.qtype, self.do_, caps) {
            Ok(relayed) => Verdict::Good(relayed),
            Err(select::Unusable::Failed(error)) => Verdict::Failed(error),
            Err(select::Unusable::Malformed) => Verdict::Discard(Discard::Malformed),
        }
    }

    /// Writes the client's reply (§5, RR40, RR41); returns its length.
    ///
    /// `seed` decides the rotation of RRsets (WR24). `buffer` must hold the largest reply: 65,535
    /// octets for TCP, 4,096 for UDP; what does not fit in a smaller one is cut as if it were the limit.
    pub fn write(&self, relayed: &Relayed, seed: u64, buffer: &mut [u8]) -> usize {
        write::relayed(self, relayed, seed, buffer)
    }

    /// Writes SERVFAIL with this Extended DNS Error, behind our own CNAMEs (N16, N18-N20, RR42);
    /// returns its length. Without an OPT in the query there is no Extended DNS Error; at most 64
    /// octets of `text` are used (WR15).
    pub fn fail(&self, ede: u16, text: &str, buffer: &mut [u8]) -> usize {
        write::failure(self, ede, text, buffer)
    }

    /// TTL and target of each CNAME of ours, in order.
    fn own_cnames(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.cnames.iter().flatten().map(|(ttl_s, target)| (*ttl_s, target.wire()))
    }

    /// Whether the reply goes over a stream: no TC, and 65,535 octets (WR23).
    fn is_stream(&self) -> bool {
        self.limit > MAX_UDP
    }
}

/// At most `N` octets, in place.
#[derive(Clone, Debug)]
struct Octets<const N: usize> {
    len: u16,
    octets: [u8; N],
}

impl<const N: usize> Octets<N> {
    /// The first `N` of these octets.
    fn of(octets: &[u8]) -> Octets<N> {
        let mut own = Octets { len: 0, octets: [0; N] };
        own.push(octets);
        own
    }

    fn push(&mut self, octets: &[u8]) {
        let at = self.len as usize;
        let octets = &octets[..octets.len().min(N - at)];
        self.octets[at..at + octets.len()].copy_from_slice(octets);
        self.len += octets.len() as u16;
    }

    fn get(&self) -> &[u8] {
        &self.octets[..self.len as usize]
    }
}
