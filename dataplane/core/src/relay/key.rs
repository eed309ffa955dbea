//! What an upstream is asked: with the route, the identity of a lookup and of a cache entry (docs/dns.md §1).

use super::{
    AD, CD, OPT, PADDED_TO, QueryForm, RD, TtlCaps, UPSTREAM_PAYLOAD, UpstreamQuery, Verdict, read,
    select, write,
};
use crate::wire::message::{CLASS_IN, HEADER};
use crate::wire::name::{MAX_NAME, Name};

/// The name in lower case, type, DO and CD. The class is always IN. Clients whose queries have the same key and route
/// share one lookup (FW11) and one cache entry (CA1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookupKey {
    name: Name,
    qtype: u16,
    dnssec_ok: bool,
    checking_disabled: bool,
}

impl LookupKey {
    /// The key of a question about `name`; `dnssec_ok` is DO, `checking_disabled` is CD.
    pub fn new(name: Name, qtype: u16, dnssec_ok: bool, checking_disabled: bool) -> LookupKey {
        LookupKey { name, qtype, dnssec_ok, checking_disabled }
    }

    /// The name that the upstream is asked about, in lower case.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The type that the upstream is asked for.
    pub fn qtype(&self) -> u16 {
        self.qtype
    }

    /// DO of the query.
    pub fn dnssec_ok(&self) -> bool {
        self.dnssec_ok
    }

    /// CD of the query.
    pub fn checking_disabled(&self) -> bool {
        self.checking_disabled
    }

    /// The same question about another name, such as the target of a CNAME (FW42).
    pub fn about(&self, name: Name) -> LookupKey {
        LookupKey { name, ..*self }
    }

    /// [`LookupKey::upstream_query_as`] of the usual form.
    pub fn upstream_query(&self, id: u16) -> UpstreamQuery {
        self.upstream_query_as(id, QueryForm::USUAL)
    }

    /// The query to send: RD=1, AD=1, DO and CD of the key, the name in lower case or the case of `form`, OPT 1232
    /// with no option but padding, unless `form` has none, and nothing else of the client's message (FW1).
    pub fn upstream_query_as(&self, id: u16, form: QueryForm) -> UpstreamQuery {
        let name = self.name.wire();
        let mut wire =
            Vec::with_capacity((HEADER + name.len() + 4 + OPT).next_multiple_of(PADDED_TO));
        wire.extend(id.to_be_bytes());
        wire.extend([RD, AD | if self.checking_disabled { CD } else { 0 }]);
        wire.extend([0, 1, 0, 0, 0, 0, 0, u8::from(form.edns)]);
        wire.extend(name);
        form.spell(&mut wire[HEADER..]);
        wire.extend(self.qtype.to_be_bytes());
        wire.extend(CLASS_IN.to_be_bytes());
        if form.edns {
            write::opt(&mut wire, UPSTREAM_PAYLOAD, self.dnssec_ok, form.padded);
        }
        UpstreamQuery { wire }
    }

    /// [`LookupKey::judge_as`] of the usual form.
    pub fn judge(&self, id: u16, reply: &[u8], caps: &TtlCaps) -> Verdict {
        self.judge_as(id, QueryForm::USUAL, reply, caps)
    }

    /// Judges a message that came on the socket from which [`LookupKey::upstream_query_as`] with this id and
    /// form was sent (FW12, FW14, FW20, FW21); keeps of it what may be relayed (FW40, FW41, FW44).
    pub fn judge_as(&self, id: u16, form: QueryForm, reply: &[u8], caps: &TtlCaps) -> Verdict {
        let question = match read::question(reply, id, self.name.wire(), self.qtype) {
            Ok(question) => question,
            Err(discard) => return Verdict::Discard(discard),
        };
        if question.end > HEADER && !self.is_spelled(form, &reply[HEADER..]) {
            return Verdict::Discard(super::Discard::Case);
        }
        if let Some(error) = question.error {
            return Verdict::Failed(error);
        }
        let Some(message) = read::Message::read(reply, question.end) else {
            return Verdict::Discard(super::Discard::Malformed);
        };
        match select::select(&message, self, caps) {
            Ok(relayed) => Verdict::Good(relayed),
            Err(select::Unusable::Failed(error)) => Verdict::Failed(error),
            Err(select::Unusable::Malformed) => Verdict::Discard(super::Discard::Malformed),
        }
    }

    /// Whether a name begins these octets in the case in which it was sent (FW14).
    fn is_spelled(&self, form: QueryForm, echoed: &[u8]) -> bool {
        if form.case.is_none() {
            return true;
        }
        let name = self.name.wire();
        let mut sent = [0; MAX_NAME];
        let sent = &mut sent[..name.len()];
        sent.copy_from_slice(name);
        form.spell(sent);
        echoed.starts_with(sent)
    }
}
