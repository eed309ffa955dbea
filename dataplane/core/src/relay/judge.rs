//! Which messages from an upstream we believe, and what happens to each.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec::Vec;

use super::header::TC;
use super::key::LookupKey;
use super::query::QueryForm;
use super::read;
use super::relayed::Relayed;
use super::select::{TtlCaps, select};
use super::verdict::{Discard, RelayError};
use crate::wire::message::HEADER;
use crate::wire::name::MAX_NAME;

/// The verdict about a message that came from an upstream.
#[derive(Debug)]
pub enum Verdict {
    /// The answer (FW20): relay it.
    Good(Relayed),
    /// Not the reply we wait for: count it and keep waiting (FW13).
    Discard(Discard),
    /// A reply that ends this attempt without an answer (FW21, FW26, FW41); only [`RelayError::Malformed`] does not where it
    /// came as a datagram.
    Failed(RelayError),
}

impl LookupKey {
    /// [`LookupKey::judge_as`] of the usual form.
    pub fn judge(&self, id: u16, reply: &[u8], caps: &TtlCaps) -> Verdict {
        self.judge_as(id, QueryForm::USUAL, reply, caps, 0)
    }

    /// Judges a message that came on the socket from which [`LookupKey::upstream_query_as`] with this id and
    /// form was sent (FW12, FW14, FW20, FW21); keeps of it what may be relayed (FW40, FW41, FW44). TTLs are less by
    /// `age_s`, the seconds that the reply lay in a cache of HTTP (RFC 8484 §5.1).
    pub fn judge_as(
        &self,
        id: u16,
        form: QueryForm,
        reply: &[u8],
        caps: &TtlCaps,
        age_s: u32,
    ) -> Verdict {
        let question = match read::question(reply, id, self.name().wire(), self.qtype()) {
            Ok(question) => question,
            Err(discard) => return Verdict::Discard(discard),
        };
        if question.end > HEADER && !self.is_spelled(form, &reply[HEADER..]) {
            return Verdict::Discard(Discard::Case);
        }
        if let Some(error) = question.error {
            return Verdict::Failed(error);
        }
        // Servers point from their data to the name of the question: our random case must not come into that, as it is kept.
        let in_lower_case = form.case.map(|_| self.in_lower_case(reply));
        let reply = in_lower_case.as_deref().unwrap_or(reply);
        let message = read::Message::read(reply, question.end);
        match message.and_then(|message| select(&message, self, caps, age_s)) {
            Ok(selected) => Verdict::Good(Relayed::of(&selected, self)),
            Err(error) => Verdict::Failed(error),
        }
    }

    /// The same for a reply with TC=1 that came where no larger one can (FW26): its whole records, if some of them answer the
    /// question. The client gets it as less than all.
    pub fn judge_cut(
        &self,
        id: u16,
        form: QueryForm,
        reply: &[u8],
        caps: &TtlCaps,
        age_s: u32,
    ) -> Option<Relayed> {
        let mut whole = reply.to_vec();
        *whole.get_mut(2)? &= !TC;
        match self.judge_as(id, form, &whole, caps, age_s) {
            Verdict::Good(relayed) if !relayed.is_negative() => Some(relayed.cut()),
            Verdict::Good(_) | Verdict::Discard(_) | Verdict::Failed(_) => None,
        }
    }

    /// The message with the name of its question as it is in the key.
    fn in_lower_case(&self, reply: &[u8]) -> Vec<u8> {
        let (mut reply, name) = (reply.to_vec(), self.name().wire());
        reply[HEADER..][..name.len()].copy_from_slice(name);
        reply
    }

    /// Whether a name begins these octets in the case in which it was sent (FW14).
    fn is_spelled(&self, form: QueryForm, echoed: &[u8]) -> bool {
        if form.case.is_none() {
            return true;
        }
        let name = self.name().wire();
        let mut sent = [0; MAX_NAME];
        let sent = &mut sent[..name.len()];
        sent.copy_from_slice(name);
        form.spell(sent);
        echoed.starts_with(sent)
    }
}
