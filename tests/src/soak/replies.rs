//! In what a reply of a soak differs from what one choice of objects says, and what is allowed while something is wrong.

use dataplane_core::Settings;

use super::upstreams;
use crate::oracle::compare::{Actual, differences};
use crate::oracle::decode::Decoded;
use crate::oracle::expected::{Expected, Question};

const SERVFAIL: u16 = 2;
/// Extended DNS Error "Stale Answer" (RFC 8914): the data is from a snapshot (E42).
const FROM_A_SNAPSHOT: u16 = 3;

/// What a reply may be besides right.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// The process was never ready: SERVFAIL (E44).
    pub not_ready: bool,
    /// Its data may be from a snapshot, and says so.
    pub snapshot: bool,
    /// No upstream answers: names of others get SERVFAIL.
    pub no_upstream: bool,
}

/// A reply with its question.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    pub question: &'a Question,
    pub id: u16,
    pub decoded: &'a Decoded,
    pub pod_name: &'a str,
    pub allowed: Allowed,
}

impl Reply<'_> {
    /// Everything in which it breaks what is expected.
    pub fn differs(&self, settings: &Settings, expected: &Expected) -> Vec<String> {
        let is_servfail = self.decoded.rcode == SERVFAIL;
        if self.allowed.not_ready && is_servfail {
            return self.header();
        }
        match expected {
            Expected::Reply(reply) => {
                let mut reply = reply.clone();
                if self.allowed.snapshot {
                    reply.ede_allowed.push(FROM_A_SNAPSHOT);
                }
                let actual = Actual::Reply(Box::new(self.decoded.clone()));
                let expected = Expected::Reply(reply);
                let (question, id) = (self.question, self.id);
                differences(settings, self.pod_name, question, id, &expected, &actual)
            }
            Expected::Forward { .. } if is_servfail && self.allowed.no_upstream => self.header(),
            Expected::Forward { name, cnames, .. } => {
                let mut found = self.header();
                let (first, rest) =
                    self.decoded.answer.split_at(cnames.len().min(self.decoded.answer.len()));
                if first != cnames {
                    found.push(format!("the aliases are {first:?}, not {cnames:?}"));
                }
                let (qtype, rcode) = (self.question.qtype, self.decoded.rcode);
                found.extend(upstreams::is_known(name, qtype, rcode, rest).err());
                found
            }
        }
    }

    /// What holds for every reply.
    fn header(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_owned());
            }
        };
        check(self.decoded.id == self.id, "another id");
        check(self.decoded.is_query_response, "no reply to a query");
        check(self.decoded.question == self.question.section(), "another question");
        check(!self.decoded.tc, "TC");
        found
    }

    /// What the table of a run counts it as.
    pub fn outcome(&self, is_of_others: bool) -> &'static str {
        let decoded = self.decoded;
        match (is_of_others, decoded.rcode, decoded.answer.is_empty()) {
            (false, 0, false) => "own names: records",
            (false, 0, true) => "own names: no data",
            (false, 3, _) => "own names: NXDOMAIN",
            (false, SERVFAIL, _) => "own names: SERVFAIL",
            (false, _, _) => "own names: other codes",
            (true, SERVFAIL, _) => "names of others: SERVFAIL",
            (true, _, _) => "names of others: answered",
        }
    }
}
