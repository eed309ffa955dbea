//! The action for one query: the whole decision table of docs/dns.md §4.1, in one function.

use core::net::{IpAddr, SocketAddr};

use crate::counters::{Counters, Reason};
use crate::decide::alias::{Led, lead};
use crate::decide::answer::Answer;
use crate::decide::chaos::write_chaos;
use crate::decide::found::Found;
use crate::decide::route::{Route, Soa, SoaKind, group_above, group_beside, route};
use crate::identity::Identity;
use crate::records::{Needs, Records};
use crate::relay::{Cnames, LookupKey, OwnedHead, ReplyForm, ReplyHead};
use crate::wire::ede;
use crate::wire::labels::Labels;
use crate::wire::message::{
    CLASS_CH, CLASS_IN, HEADER, Malformed, Query, Question, Rcode, Transport, has_name, parse,
    rtype,
};
use crate::wire::reply::{Owner, Reply, Section, header_only, size_limit};
use crate::wire::text::ShortText;

/// Longest text `snapshot <seconds>s`: ten digits suffice.
const AGE_OCTETS: usize = 20;

/// What to do with one query.
// A box would be an allocation, and these are not kept.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Action<'r> {
    /// Send this many octets, from the start of the buffer.
    Reply(usize),
    /// Send nothing; a TCP connection is closed.
    Drop,
    /// Answer from a cached reply, or ask an upstream group.
    Forward(Forward<'r>),
}

/// A query that an upstream group answers, borrowed from the query and the records.
#[derive(Clone, Debug)]
pub struct Forward<'r> {
    /// 0 for the default upstreams, `i + 1` for stub domain `i` of the settings.
    pub group: usize,
    /// What to ask: the name in the question, or where our CNAMEs lead.
    pub key: LookupKey,
    /// What this client's reply needs.
    pub head: ReplyHead<'r>,
}

impl Forward<'_> {
    /// A copy that owns its data, for as long as the group is asked.
    pub fn keep(&self) -> Waiting {
        Waiting { group: self.group, key: self.key.clone(), head: self.head.keep() }
    }
}

/// A [`Forward`] that waits for an upstream.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// As in [`Forward::group`].
    pub group: usize,
    /// What to ask the upstream for.
    pub key: LookupKey,
    /// What this client's reply needs.
    pub head: OwnedHead,
}

/// Decides the action for one query. Writes any reply into `buffer`; never allocates, waits or fails.
///
/// `buffer` must hold 65,535 octets for TCP and the configured UDP payload size for UDP (4,096 always suffices).
pub fn respond<'r>(
    records: &'r Records,
    query: &Query<'r>,
    counters: &Counters<'r>,
    buffer: &mut [u8],
) -> (Action<'r>, Reason) {
    let mut room = Labels::ROOT;
    let name = read_name(query, &mut room);
    respond_to(records, query, (name, &Found::Unknown), counters, buffer)
}

/// The same with a name that was read, and with what was found for it.
pub(crate) fn respond_to<'r>(
    records: &'r Records,
    query: &Query<'r>,
    (name, found): (Option<&Labels>, &Found<'r>),
    counters: &Counters<'r>,
    buffer: &mut [u8],
) -> (Action<'r>, Reason) {
    let question = match read(query, name) {
        Ok(question) => question,
        Err(malformed) => {
            let (reply, reason) = refuse_malformed(records, query, malformed, counters, buffer);
            counters.own.add(reason);
            return match reply {
                Some(octets) => (Action::Reply(octets), reason),
                None => (Action::Drop, reason),
            };
        }
    };
    count(query, &question, counters);
    let step = Step { records, query, counters, question: &question, found };
    let mut cnames = Cnames::NONE;
    let (action, reason) = step.decide(&mut cnames, buffer);
    counters.own.add(reason);
    // Each arm builds its own result: with one value for both, a kilobyte would be copied.
    match action {
        SmallAction::Reply(octets) => (Action::Reply(octets), reason),
        SmallAction::Forward { group, needs } => {
            let head = head(query, &question, records, counters.identity, (cnames, needs));
            let key = key(&question, &head);
            (Action::Forward(Forward { group, key, head }), reason)
        }
    }
}

fn count(query: &Query<'_>, question: &Question<'_>, counters: &Counters<'_>) {
    let dnssec_ok = question.edns.is_some_and(|edns| edns.dnssec_ok);
    counters.own.add_question(query.client.is_ipv6(), question.qtype, dnssec_ok);
}

/// Answers a question about one of our names, without the client list (FW42). Returns the length, or 0 if the
/// name is not ours.
pub(crate) fn own_reply(
    records: &Records,
    query: &Query<'_>,
    counters: &Counters<'_>,
    buffer: &mut [u8],
) -> usize {
    let mut room = Labels::ROOT;
    let Ok(question) = read(query, read_name(query, &mut room)) else { return 0 };
    let step = Step { records, query, counters, question: &question, found: &Found::Unknown };
    let mut cnames = Cnames::NONE;
    match step.answer(&mut cnames, buffer).0 {
        SmallAction::Reply(octets) => octets,
        SmallAction::Forward { .. } => 0,
    }
}

/// An [`Action`] without what a forwarder needs: passing a kilobyte between functions would cost every reply
/// more than its look-up.
enum SmallAction {
    Reply(usize),
    Forward {
        group: usize,
        /// The data that the CNAMEs of ours in front depend on.
        needs: Needs,
    },
}

/// Reads the name of a query into `room`, if it can be read.
fn read_name<'l>(query: &Query<'_>, room: &'l mut Labels) -> Option<&'l Labels> {
    if !has_name(query.packet) {
        return None;
    }
    room.read(query.packet, HEADER)?;
    Some(room)
}

/// Source ports that get no reply over UDP. Nothing can be sent to port 0. The others are those of services that answer
/// everything: echo, users, daytime, quote of the day, character generator, time (RFC 862 to 868), and TFTP. One datagram
/// with such a forged source would begin an exchange of errors without end (CVE-2024-2169).
fn is_unanswered(port: u16) -> bool {
    // A list would be searched for each query.
    matches!(port, 0 | 7 | 11 | 13 | 17 | 19 | 37 | 69)
}

/// Reads the question behind its name; a query that cannot be read gets what N1-N6 say.
fn read<'p>(query: &Query<'p>, name: Option<&'p Labels>) -> Result<Question<'p>, Malformed<'p>> {
    if query.transport == Transport::Udp && is_unanswered(query.client.port()) {
        return Err(Malformed::Silence(Reason::SourcePortZero));
    }
    parse(query.packet, name)
}

/// Writes the reply to an unreadable query: returns its length, or `None` for no reply.
fn refuse_malformed(
    records: &Records,
    query: &Query<'_>,
    malformed: Malformed<'_>,
    counters: &Counters<'_>,
    buffer: &mut [u8],
) -> (Option<usize>, Reason) {
    let (question, rcode, reason) = match malformed {
        Malformed::Silence(reason) => return (None, reason),
        Malformed::HeaderOnly(rcode, reason) => {
            let octets = header_only(query.packet, rcode, records.zone.recursion, buffer);
            return (Some(octets), reason);
        }
        Malformed::WithQuestion(question, reason) => (question, Rcode::FormErr, reason),
        Malformed::BadVersion(question) => (question, Rcode::BadVers, Reason::EdnsVersion),
    };
    count(query, &question, counters);
    let step = Step { records, query, counters, question: &question, found: &Found::Unknown };
    let mut reply = step.reply(buffer);
    (Some(reply.finish(rcode, false, records.zone.recursion, None)), reason)
}

/// N7: whether the client list lets this client ask.
fn is_allowed(records: &Records, client: SocketAddr) -> bool {
    let clients = &records.zone.settings.clients;
    if clients.is_empty() {
        return true;
    }
    let address: IpAddr = client.ip().to_canonical();
    clients.iter().any(|range| range.contains(&address))
}

/// One readable question, and everything that decides about it.
struct Step<'r, 'a> {
    records: &'r Records,
    query: &'a Query<'a>,
    counters: &'a Counters<'a>,
    question: &'a Question<'a>,
    /// What was found for the question's name.
    found: &'a Found<'r>,
}

impl<'r: 'a, 'a> Step<'r, 'a> {
    /// Refuses clients that may not ask (N7), zone transfers and other classes (N8); the rest is answered.
    fn decide(&self, cnames: &mut Cnames<'r>, buffer: &mut [u8]) -> (SmallAction, Reason) {
        if !is_allowed(self.records, self.query.client) {
            return self.refuse(ede::PROHIBITED, Reason::Client, buffer);
        }
        if matches!(self.question.qtype, rtype::AXFR | rtype::IXFR) {
            return self.refuse(ede::NOT_SUPPORTED, Reason::Transfer, buffer);
        }
        match self.question.qclass {
            CLASS_IN => self.answer(cnames, buffer),
            CLASS_CH => self.chaos(buffer),
            _ => self.refuse(ede::NOT_SUPPORTED, Reason::Class, buffer),
        }
    }

    fn reply<'b>(&self, buffer: &'b mut [u8]) -> Reply<'b, 'a> {
        let settings = &self.records.zone.settings;
        let nsid: &[u8] =
            if settings.nsid { self.counters.identity.pod_name.as_bytes() } else { &[] };
        Reply::new(self.question, self.query.transport, settings.udp_payload_size, nsid, buffer)
    }

    fn finish(
        &self,
        reply: &mut Reply<'_, '_>,
        rcode: Rcode,
        authoritative: bool,
        ede: Option<(u16, &str)>,
    ) -> SmallAction {
        // A datagram says so itself (TC).
        if reply.is_truncated() && self.query.transport == Transport::Tcp {
            self.counters.own.add_capped_rrset();
        }
        SmallAction::Reply(reply.finish(rcode, authoritative, self.records.zone.recursion, ede))
    }

    fn refuse(&self, ede: u16, reason: Reason, buffer: &mut [u8]) -> (SmallAction, Reason) {
        let reply = &mut self.reply(buffer);
        (self.finish(reply, Rcode::Refused, false, Some((ede, ""))), reason)
    }

    /// Class CH: names that monitors ask for; any other is refused (A11).
    fn chaos(&self, buffer: &mut [u8]) -> (SmallAction, Reason) {
        let mut reply = self.reply(&mut *buffer);
        let question = self.question;
        if !write_chaos(self.records, question.name, question.qtype, self.counters, &mut reply) {
            return self.refuse(ede::NOT_SUPPORTED, Reason::Class, buffer);
        }
        (self.finish(&mut reply, Rcode::NoError, true, None), Reason::Chaos)
    }

    /// Class IN: also counts a PTR that is withheld (RR63).
    fn answer(&self, aliases: &mut Cnames<'r>, buffer: &mut [u8]) -> (SmallAction, Reason) {
        let mut withholds = false;
        let decided = self.follow(aliases, buffer, &mut withholds);
        if withholds {
            self.counters.own.add_withheld_ptr();
        }
        decided
    }

    /// Follows aliases of ours, which it adds to `aliases`, until a name answers (N9-N15). Sets `withholds` as [`route`] does.
    fn follow(
        &self,
        aliases: &mut Cnames<'r>,
        buffer: &mut [u8],
        withholds: &mut bool,
    ) -> (SmallAction, Reason) {
        let (qtype, recursion_desired) = (self.question.qtype, self.question.recursion_desired());
        let (mut name, mut owner) = (self.question.name, Owner::Question);
        let mut routed = route(self.records, name, self.found, qtype, withholds);
        if let Route::Group(group) = routed
            && recursion_desired
            && !self.records.zone.withholds(group, qtype)
        {
            // No reply is begun that an upstream gives: that is a tenth of what deciding costs.
            return (SmallAction::Forward { group, needs: Needs::NOTHING }, Reason::Forward);
        }
        let reply = &mut self.reply(buffer);
        let mut needs = Needs::NOTHING;
        let mut target: Option<Labels> = None;
        loop {
            let (lookup, soa) = match routed {
                Route::Own(lookup, soa) => (lookup, soa),
                Route::Group(group) => return self.forward(reply, group, needs, aliases),
                Route::NoGroup => return self.no_group(reply, needs, aliases),
            };
            // Who asks without recursion wants to know what we have.
            if recursion_desired
                && let Some(group) = group_above(self.records, name, &lookup, qtype)
            {
                return self.forward(reply, group, needs, aliases);
            }
            if recursion_desired
                && aliases.is_empty()
                && let Some(group) = group_beside(self.records, name, soa, qtype)
            {
                return self.forward(reply, group, needs, aliases);
            }
            if self.records.lacks(lookup.needs) {
                *withholds = false;
                let ede = Some((ede::NOT_READY, lookup.needs.what_is_missing()));
                return (self.finish(reply, Rcode::ServFail, false, ede), Reason::NotReady);
            }
            needs = needs.and(lookup.needs);
            let Some(node) = lookup.node else {
                return self.negative(reply, Rcode::NxDomain, soa, needs, aliases);
            };
            match lead(node, (owner, name), self.question, aliases, reply) {
                None => {}
                Some(Led::To(next)) => {
                    name = target.insert(next);
                    owner = Owner::Name(name.wire());
                    // What was found belongs to the question's name, not to where an alias leads.
                    routed = route(self.records, name, &Found::Unknown, qtype, withholds);
                    continue;
                }
                Some(Led::Answered) => return self.found(reply, needs, Reason::Cname),
                Some(Led::TooLong) => return self.too_long(reply, needs),
                Some(Led::Loop) => {
                    reply.clear();
                    let ede = Some((ede::OTHER, "CNAME loop, or too many CNAMEs"));
                    return (self.finish(reply, Rcode::ServFail, false, ede), Reason::CnameLoop);
                }
            }
            let answer = Answer { records: self.records, seed: self.query.seed, owner, soa };
            if self.records.snapshot(needs).is_some() {
                reply.keep_for_ede(AGE_OCTETS);
            }
            if !answer.write(node, qtype, reply) {
                return self.negative(reply, Rcode::NoError, soa, needs, aliases);
            }
            let reason = behind(
                aliases,
                if soa.kind == SoaKind::SpecialUse { Reason::SpecialUse } else { Reason::Found },
            );
            return self.found(reply, needs, reason);
        }
    }

    fn found(
        &self,
        reply: &mut Reply<'_, '_>,
        needs: Needs,
        reason: Reason,
    ) -> (SmallAction, Reason) {
        let action = self.with_age(needs, |ede| self.finish(reply, Rcode::NoError, true, ede));
        (action, reason)
    }

    /// What a DNAME makes of the name is too long (RR85): the DNAME says so.
    fn too_long(&self, reply: &mut Reply<'_, '_>, needs: Needs) -> (SmallAction, Reason) {
        let action = self.with_age(needs, |ede| self.finish(reply, Rcode::YxDomain, true, ede));
        (action, Reason::Cname)
    }

    /// NODATA (N11) or NXDOMAIN (N12), also behind a CNAME of ours (RR45), with the SOA of the last name's zone (N30).
    fn negative(
        &self,
        reply: &mut Reply<'_, '_>,
        rcode: Rcode,
        soa: Soa<'_>,
        needs: Needs,
        aliases: &Cnames<'_>,
    ) -> (SmallAction, Reason) {
        let answer = Answer { records: self.records, seed: 0, owner: Owner::Question, soa };
        if !reply.is_truncated()
            && !answer.soa_record(Section::Authority, Owner::Name(soa.owner), reply)
        {
            // Only behind CNAMEs that fill a datagram: the client asks again over TCP.
            reply.truncate();
        }
        let reason = match (soa.kind, rcode) {
            (SoaKind::SpecialUse, _) => Reason::SpecialUse,
            (_, Rcode::NxDomain) => Reason::NxDomain,
            (_, _) => Reason::NoData,
        };
        let action = self.with_age(needs, |ede| self.finish(reply, rcode, true, ede));
        (action, behind(aliases, reason))
    }

    /// E42: an answer that rests on a snapshot says how old that is.
    fn with_age(
        &self,
        needs: Needs,
        finish: impl FnOnce(Option<(u16, &str)>) -> SmallAction,
    ) -> SmallAction {
        let Some(confirmed_at_s) = self.records.snapshot(needs) else {
            return finish(None);
        };
        let text = ShortText::of_snapshot(self.query.now_s.saturating_sub(confirmed_at_s));
        finish(Some((ede::STALE_ANSWER, text.as_str())))
    }

    /// Not ours: an upstream group answers (RR40), unless recursion is not desired (N14, RR43).
    fn forward(
        &self,
        reply: &mut Reply<'_, '_>,
        group: usize,
        needs: Needs,
        aliases: &Cnames<'_>,
    ) -> (SmallAction, Reason) {
        if !self.question.recursion_desired() {
            return self.not_recursive(reply, needs, aliases);
        }
        if self.records.zone.withholds(group, self.question.qtype) {
            return self.withheld(reply, needs, aliases);
        }
        (SmallAction::Forward { group, needs }, Reason::Forward)
    }

    /// The type is withheld (N22): no data, behind CNAMEs of ours too. No zone of ours says so, so there is no SOA.
    fn withheld(
        &self,
        reply: &mut Reply<'_, '_>,
        needs: Needs,
        aliases: &Cnames<'_>,
    ) -> (SmallAction, Reason) {
        let led_by_us = !aliases.is_empty();
        let finish = |age: Option<(u16, &str)>| {
            self.finish(reply, Rcode::NoError, led_by_us, age.or(Some((ede::FILTERED, ""))))
        };
        (self.with_age(needs, finish), Reason::Withheld)
    }

    fn not_recursive(
        &self,
        reply: &mut Reply<'_, '_>,
        needs: Needs,
        aliases: &Cnames<'_>,
    ) -> (SmallAction, Reason) {
        if !aliases.is_empty() {
            return self.found(reply, needs, Reason::Cname);
        }
        reply.clear();
        let ede = Some((ede::NOT_AUTHORITATIVE, ""));
        (self.finish(reply, Rcode::Refused, false, ede), Reason::RecursionNotDesired)
    }

    /// Not ours, and no group is left: REFUSED (N15), or SERVFAIL behind a CNAME of ours (RR42).
    fn no_group(
        &self,
        reply: &mut Reply<'_, '_>,
        needs: Needs,
        aliases: &Cnames<'_>,
    ) -> (SmallAction, Reason) {
        if !self.question.recursion_desired() {
            return self.not_recursive(reply, needs, aliases);
        }
        let rcode = if !aliases.is_empty() { Rcode::ServFail } else { Rcode::Refused };
        let ede = Some((ede::NOT_AUTHORITATIVE, "no upstream for this name"));
        (self.finish(reply, rcode, false, ede), Reason::NoGroup)
    }
}

/// The reason of a reply that may begin with our CNAMEs.
fn behind(aliases: &Cnames<'_>, without: Reason) -> Reason {
    if aliases.is_empty() { without } else { Reason::Cname }
}

/// What the reply to a forwarded query needs; `cnames` are ours, and `needs` is the data they come from.
fn head<'r>(
    query: &Query<'r>,
    question: &Question<'_>,
    records: &'r Records,
    identity: &'r Identity,
    (cnames, needs): (Cnames<'r>, Needs),
) -> ReplyHead<'r> {
    let settings = &records.zone.settings;
    let edns = question.edns;
    let confirmed_at_s = records.snapshot(needs);
    let age = |at_s| u32::try_from(query.now_s.saturating_sub(at_s)).unwrap_or(u32::MAX);
    let form = ReplyForm {
        id: question.id(),
        rd: true,
        cd: question.checking_disabled(),
        ad: question.authentic_data(),
        do_: edns.is_some_and(|edns| edns.dnssec_ok),
        edns: edns.is_some(),
        qtype: question.qtype,
        limit: size_limit(edns, query.transport, settings.udp_payload_size),
        udp_payload_size: settings.udp_payload_size,
        ra: records.zone.recursion,
        snapshot_age_s: confirmed_at_s.map(age),
        is_ours: matches!(question.qtype, rtype::DS | rtype::DNSKEY)
            && cnames.is_empty()
            && records.zone.extra.has_owner(question.name),
    };
    let nsid = (settings.nsid && edns.is_some_and(|edns| edns.nsid))
        .then_some(identity.pod_name.as_bytes());
    #[allow(
        clippy::indexing_slicing,
        reason = "the name was read there: uncompressed, behind the header (N4)"
    )]
    let name = &query.packet[HEADER..HEADER + question.name.wire().len()];
    ReplyHead { form, question: name, nsid, cnames }
}

/// What to ask upstream for a question: its own name, or where our CNAMEs lead.
fn key(question: &Question<'_>, head: &ReplyHead<'_>) -> LookupKey {
    let name = head.cnames.lead_from(question.name.to_name());
    LookupKey::new(name, question.qtype, head.form.do_, head.form.cd)
}

#[cfg(test)]
mod tests;
