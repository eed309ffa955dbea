//! Between client and upstream: the query we send, which replies we believe, what of them the client gets (docs/dns.md
//! §3.5, §5, §6.1-§6.4). Plain functions over octets: no socket, clock or randomness.
//!
//! `respond` gives a [`LookupKey`], which is what to ask and what lookups and cached replies are found by, and a
//! [`ReplyHead`], which is what this client's reply needs. The forwarder sends [`LookupKey::upstream_query`], shows every
//! message that comes back to [`LookupKey::judge`], and answers each client with [`Relayed::write`] or
//! [`ReplyHead::fail`].

pub(crate) mod cache;
mod compress;
mod head;
mod key;
mod rdata;
mod read;
mod relayed;
mod select;
#[cfg(test)]
mod tests;
mod write;

pub use head::{Cnames, OwnedHead, ReplyForm, ReplyHead};
pub use key::LookupKey;
pub use relayed::{Freshness, Relayed, write_chain};

/// UDP payload that we advertise to upstreams (FW1, RFC 9715).
const UPSTREAM_PAYLOAD: u16 = 1232;
/// The largest UDP reply there is (`udpPayloadSize`); a larger limit means a stream.
const MAX_UDP: usize = 4096;
/// Queries are padded to a multiple of so many octets (RFC 8467 §4.1).
const PADDED_TO: usize = 128;
/// The option with which they are (RFC 7830 §3).
const OPTION_PADDING: u16 = 12;
/// Octets of code and length of an EDNS option.
const OPTION_HEADER: usize = 4;
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

/// A query for an upstream (FW1), ready to send.
#[derive(Clone, Debug)]
pub struct UpstreamQuery {
    /// The message, without the length prefix of TCP.
    pub wire: Vec<u8>,
}

/// How a query to one server is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryForm {
    /// With an OPT record, unless the server is known not to understand it (FW25).
    pub edns: bool,
    /// Letters of the name in random case, from these random bits (FW14).
    pub case: Option<u64>,
    /// With an option that fills the message up to a multiple of 128 octets, so that its length says little about the
    /// name (RFC 8467 §4.1): towards encrypted servers. Without an OPT record there is none.
    pub padded: bool,
}

impl QueryForm {
    /// With an OPT record, the name in lower case (FW1).
    pub const USUAL: QueryForm = QueryForm { edns: true, case: None, padded: false };

    /// Spells a name in wire form as it is sent and must come back: bit `i` decides the case of octet `i`, modulo 64.
    fn spell(self, name: &mut [u8]) {
        let Some(bits) = self.case else { return };
        for (place, octet) in name.iter_mut().enumerate() {
            // Lengths of labels are below 64 and so no letters.
            if bits >> (place % 64) & 1 == 1 {
                octet.make_ascii_uppercase();
            }
        }
    }
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
    /// The question in other letter case than it was sent in (FW14).
    Case,
}

impl Discard {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Discard; 4] =
        [Discard::Malformed, Discard::Id, Discard::Question, Discard::Case];

    /// The metrics label.
    pub const fn label(self) -> &'static str {
        match self {
            Discard::Malformed => "malformed",
            Discard::Id => "id",
            Discard::Question => "question",
            Discard::Case => "case",
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

/// What of a reply may be relayed: bounds of TTLs in seconds (FW44, CA3), and whether private addresses are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlCaps {
    /// `maxTtl`: of every record.
    pub max_s: u32,
    /// `maxNegativeTtl`: of the SOA of a negative reply.
    pub max_negative_s: u32,
    /// `rebindProtection` (FW43): private, loopback, link-local and unspecified addresses are removed.
    pub no_private_addresses: bool,
}

impl Default for TtlCaps {
    fn default() -> TtlCaps {
        TtlCaps { max_s: 3600, max_negative_s: 30, no_private_addresses: false }
    }
}
