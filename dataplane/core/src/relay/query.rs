//! The query that we send to an upstream (FW1).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec::Vec;

use super::header::{AD, CD, OPT, RD, opt_octets};
use super::key::LookupKey;
use crate::wire::message::{CLASS_IN, HEADER};

/// UDP payload that we advertise to upstreams (FW1, RFC 9715).
const UPSTREAM_PAYLOAD: u16 = 1232;
/// As many octets as a reply has at most to a query without an OPT record (RFC 1035 §2.3.4).
const SMALL_PAYLOAD: u16 = 512;
/// Queries are padded to a multiple of this many octets (RFC 8467 §4.1).
const PADDED_TO: usize = 128;
/// The padding option (RFC 7830 §3).
const OPTION_PADDING: u16 = 12;
/// Octets of code and length of an EDNS option.
const OPTION_HEADER: usize = 4;

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
    /// Its OPT record asks for 512 octets at most, so that the reply is no longer than one without that record (RFC 6891 §6.2.5).
    pub is_small: bool,
}

impl QueryForm {
    /// With an OPT record, the name in lower case (FW1).
    pub const USUAL: QueryForm =
        QueryForm { edns: true, case: None, padded: false, is_small: false };

    /// Spells a name in wire form as it is sent and must come back: bit `i` decides the case of octet `i`, modulo 64.
    pub(super) fn spell(self, name: &mut [u8]) {
        let Some(bits) = self.case else { return };
        for (place, octet) in name.iter_mut().enumerate() {
            // Lengths of labels are below 64, so they are not letters.
            if bits >> (place % 64) & 1 == 1 {
                octet.make_ascii_uppercase();
            }
        }
    }
}

impl LookupKey {
    /// [`LookupKey::upstream_query_as`] of the usual form.
    pub fn upstream_query(&self, id: u16) -> UpstreamQuery {
        self.upstream_query_as(id, QueryForm::USUAL)
    }

    /// The query to send: RD=1, AD=1, DO and CD of the key, the name in lower case or the case of `form`, OPT 1232, or 512,
    /// with no option but padding, unless `form` has none, and nothing else of the client's message (FW1).
    pub fn upstream_query_as(&self, id: u16, form: QueryForm) -> UpstreamQuery {
        let name = self.name().wire();
        let mut wire =
            Vec::with_capacity((HEADER + name.len() + 4 + OPT).next_multiple_of(PADDED_TO));
        wire.extend(id.to_be_bytes());
        wire.extend([RD, AD | if self.checking_disabled() { CD } else { 0 }]);
        wire.extend([0, 1, 0, 0, 0, 0, 0, u8::from(form.edns)]);
        wire.extend(name);
        form.spell(&mut wire[HEADER..]);
        wire.extend(self.qtype().to_be_bytes());
        wire.extend(CLASS_IN.to_be_bytes());
        if form.edns {
            opt(&mut wire, self.dnssec_ok(), form);
        }
        UpstreamQuery { wire }
    }

    /// The same question to ourselves, from a client that takes replies of this length over UDP.
    pub(crate) fn query_for_us(&self, payload: usize) -> Vec<u8> {
        let without_opt = QueryForm { edns: false, ..QueryForm::USUAL };
        let mut wire = self.upstream_query_as(0, without_opt).wire;
        wire[HEADER - 1] = 1;
        let payload = u16::try_from(payload).unwrap_or(u16::MAX);
        wire.extend(opt_octets(payload, self.dnssec_ok(), 0));
        wire
    }
}

/// The OPT record of a query (FW1), with the option that fills the message up where the form says so.
fn opt(wire: &mut Vec<u8>, dnssec: bool, form: QueryForm) {
    let payload = if form.is_small { SMALL_PAYLOAD } else { UPSTREAM_PAYLOAD };
    if !form.padded {
        wire.extend(opt_octets(payload, dnssec, 0));
        return;
    }
    let padding_at = wire.len() + OPT + OPTION_HEADER;
    let end = padding_at.next_multiple_of(PADDED_TO);
    let padding = (end - padding_at) as u16;
    wire.extend(opt_octets(payload, dnssec, OPTION_HEADER as u16 + padding));
    wire.extend(OPTION_PADDING.to_be_bytes());
    wire.extend(padding.to_be_bytes());
    wire.resize(end, 0);
}
