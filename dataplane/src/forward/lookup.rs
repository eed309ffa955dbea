//! One lookup: attempts at the servers of a group, side by side, until one answers (FW20-FW26).

mod queues;
mod streams;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane_core::{ErrorCodes, LookupKey, RelayError, Relayed};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep_until;

use super::attempt::{self, AttemptResult, Datagrams, Messages, Question, REFUSES_EDNS};
use super::cache::Member;
use super::connections::Progress;
use super::limits::Limit;
use super::plan::{Candidate, MAX_SENDS, Next, Plan, Send, Transport, order, signing_first};
use super::server::{Heard, Sent, Server, Waiting};
use super::sockets::Exchange;
use super::unresolved::Unresolved;
use super::upstreams::Group;
use super::{now, random};
use queues::Queues;
use streams::{Streams, Turn};

/// How long a reply without signatures is kept for clients that want them, where another server may have them, in seconds.
const MAX_WITHOUT_SIGNATURES_S: u32 = 30;

/// The good reply that ended a lookup.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) relayed: Relayed,
    /// Which server of the group gave it.
    pub(super) server: Member,
    /// For how many seconds it is kept at most: a bound where it lacks signatures that the client wants.
    pub(super) most_s: u32,
}

/// One lookup, between its sends.
#[derive(Debug)]
pub(super) struct Lookup {
    group: Arc<Group>,
    plan: Plan,
    /// The client that began it: the lookup waits for places in the turns of this client. Others that join the lookup later do
    /// not change that: each of them would need a way to a lookup that is in progress.
    client: IpAddr,
    /// Queries sent so far, of all attempts.
    sends: u32,
    /// The Extended DNS Errors of the latest reply that was an error.
    errors: Option<ErrorCodes>,
    limit: Option<Limit>,
    /// A part of the answer, should no server have all of it (FW26).
    part: Option<Answered>,
    /// The servers, by their place in the plan, that refused an OPT record (FW25); one bit each.
    without_edns: u32,
}

/// The first query, which was taken before the lookup waits for anything.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) send: Send,
    pub(super) sent: Sent,
    pub(super) outcome: Outcome,
}

/// What is known of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(AttemptResult),
    Open(Open),
}

/// A query whose result is not known.
#[derive(Debug)]
pub(super) enum Open {
    /// It was sent; its reply is awaited.
    Datagrams(Datagrams, Exchange),
    Connection(Messages, Progress),
}

impl Lookup {
    /// A lookup that asks these members of the group for this client. The budget runs from `started`.
    pub(super) fn new(
        group: &Arc<Group>,
        members: &[usize],
        client: IpAddr,
        key: &LookupKey,
        started: Instant,
    ) -> Result<Lookup, Unresolved> {
        let candidate = |member: &usize| group.candidate(*member, started);
        let candidates: Vec<_> = members.iter().filter_map(candidate).collect();
        if candidates.is_empty() {
            return Err(Unresolved::NoServer);
        }
        // A server that is alone needs no order.
        let drawn = if candidates.len() == 1 { 0 } else { random() };
        let mut order = order(candidates, group.policy, group.next_turn(), drawn);
        if key.dnssec_ok() {
            order.iter_mut().for_each(Candidate::ask_for_signatures);
            signing_first(&mut order, group.policy);
        }
        let plan = Plan::new(order, started);
        let (group, sends, without_edns) = (Arc::clone(group), 0, 0);
        let (errors, limit, part) = (None, None, None);
        Ok(Lookup { group, plan, client, sends, errors, limit, part, without_edns })
    }

    /// Takes the first send, if it is to a server that answers and has a place; the caller must send it. `None` if
    /// [`Lookup::run`] must begin.
    pub(super) fn take_first(&mut self, now: Instant) -> Option<(Send, Sent, Arc<Server>)> {
        if !self.plan.begins_at_once() {
            return None;
        }
        let Next::Send(send) = self.plan.next(now) else { return None };
        let server = Arc::clone(&self.group.servers[self.plan.member(send.place)]);
        match server.send(send.edns) {
            Some(sent) => {
                self.sends += 1;
                Some((send, sent.over(send.transport), server))
            }
            None => {
                self.full(send);
                None
            }
        }
    }

    pub(super) fn question<'a>(&'a self, key: &'a LookupKey) -> Question<'a> {
        Question::new(&self.group, key)
    }

    /// Asks until the first good reply from any of the attempts; `asked` is the one that has left already.
    pub(super) async fn run(
        mut self,
        key: &LookupKey,
        asked: Option<Asked>,
    ) -> Result<Answered, Unresolved> {
        let group = Arc::clone(&self.group);
        let question = Question::new(&group, key);
        let mut attempts = FuturesUnordered::new();
        // Those in progress, by the number of the send.
        let mut sent: Vec<Option<(Send, Sent)>> = Vec::with_capacity(MAX_SENDS);
        let mut streams = Streams::of(self.client);
        match asked {
            Some(Asked { send, sent: guard, outcome: Outcome::Ended(outcome) }) => {
                if let Some(answered) = self.ended(send, guard, outcome) {
                    return Ok(answered);
                }
            }
            Some(Asked { send, sent: guard, outcome: Outcome::Open(open) }) => {
                sent.push(Some((send, guard)));
                let member = self.plan.member(send.place);
                let turn = streams.turn(send);
                attempts.push(attempt(question, &group.servers[member], send, 0, Some(open), turn));
            }
            None => {}
        }
        // They are kept from step to step: who leaves a queue is the last one in it later.
        let mut queues = Queues::default();
        // The place that it was given, until the next step is decided.
        let mut given: Option<(usize, Waiting)> = None;
        loop {
            let now_at = now();
            for (send, sent) in sent.iter_mut().flatten() {
                // Over a connection it may wait for a handshake, not for a reply.
                if sent.look(now_at) && send.transport == Transport::Udp {
                    let member = self.plan.member(send.place);
                    group.was_silent(member, key.name(), sent.at(), now_at);
                }
            }
            let until = match self.plan.next(now_at) {
                Next::Send(send) => {
                    let member = self.plan.member(send.place);
                    let guard = match given.take_if(|(place, _)| *place == send.place) {
                        Some((_, waiting)) => Some(waiting.send(send.edns)),
                        None => group.servers[member].send(send.edns),
                    };
                    match guard {
                        Some(guard) => {
                            let number = sent.len();
                            sent.push(Some((send, guard.over(send.transport))));
                            self.sends += 1;
                            let turn = streams.turn(send);
                            let one =
                                attempt(question, &group.servers[member], send, number, None, turn);
                            attempts.push(one);
                        }
                        None => self.full(send),
                    }
                    continue;
                }
                Next::Listen(_) if self.plan.waiting().next().is_none() => {
                    let open = sent.iter().flatten().map(|(send, _)| *send);
                    let until = self.plan.listens_until(open);
                    if attempts.is_empty() || now_at >= until {
                        return self.without_answer();
                    }
                    until
                }
                Next::Wait(until) | Next::Listen(until) => until,
                Next::Expired => {
                    sent.into_iter().flatten().for_each(|(_, sent)| sent.expire(now_at));
                    return self.without_answer();
                }
            };
            drop(given.take());
            queues.follow(&self);
            let overdue = sent.iter().flatten().filter_map(|(_, sent)| sent.overdue_at()).min();
            let until = overdue.map_or(until, |overdue| until.min(overdue));
            tokio::select! {
                biased;
                Some((number, send, outcome)) = attempts.next(), if !attempts.is_empty() => {
                    if let Some((_, sent)) = sent[number].take()
                        && let Some(answered) = self.ended(send, sent, outcome)
                    {
                        return Ok(answered);
                    }
                }
                (place, waiting) = queues.given(), if !queues.is_empty() => {
                    self.plan.freed(place);
                    given = Some((place, waiting));
                }
                () = sleep_until(until.into()) => {}
            }
        }
    }

    /// What there is where no whole answer can come any more.
    fn without_answer(&mut self) -> Result<Answered, Unresolved> {
        self.part.take().ok_or_else(|| self.why())
    }

    /// Why the lookup failed, if no answer can come any more.
    fn why(&self) -> Unresolved {
        match (self.errors, self.limit) {
            (Some(sent), _) => Unresolved::Errors(sent),
            (None, Some(limit)) if self.sends == 0 => Unresolved::Limited(limit),
            (None, _) => Unresolved::Silence,
        }
    }

    /// Takes the end of an attempt; a good reply ends the lookup.
    pub(super) fn ended(
        &mut self,
        send: Send,
        sent: Sent,
        outcome: AttemptResult,
    ) -> Option<Answered> {
        let (at, now) = (sent.at(), now());
        match outcome {
            AttemptResult::Good(relayed) => {
                if !send.edns && self.without_edns & (1 << send.place) != 0 {
                    self.group.servers[self.plan.member(send.place)].doubt_edns(now);
                }
                sent.replied(Heard::Good, relayed.rcode().into());
                self.replied(send, false, at, now);
                let server = Member::at(self.plan.member(send.place));
                let most_s = self.most_s(send, &relayed, now);
                return Some(Answered { relayed, server, most_s });
            }
            AttemptResult::Cut(relayed, codes) => {
                let server = Member::at(self.plan.member(send.place));
                let most_s = self.most_s(send, &relayed, now);
                self.part.get_or_insert(Answered { relayed, server, most_s });
                self.errors = Some(codes);
                sent.settle(Heard::Good);
                self.replied(send, false, at, now);
                self.plan.over_stream(send.place, now);
            }
            AttemptResult::Error(RelayError::Truncated, codes) => {
                // It did answer: if no connection brings the rest, this was no silence (N18).
                self.errors = Some(codes);
                sent.settle(Heard::Good);
                self.replied(send, false, at, now);
                self.plan.over_stream(send.place, now);
            }
            AttemptResult::Error(RelayError::Rcode(rcode), codes)
                if send.edns && REFUSES_EDNS.contains(&rcode) =>
            {
                self.errors = Some(codes);
                sent.refused_edns(rcode);
                self.replied(send, true, at, now);
                self.without_edns |= 1 << send.place;
                self.plan.without_edns(send);
            }
            AttemptResult::Error(RelayError::Rcode(rcode), codes) => {
                self.errors = Some(codes);
                sent.replied(Heard::Error, rcode);
                self.replied(send, true, at, now);
                self.plan.error(send.place, now);
            }
            AttemptResult::Error(
                error @ (RelayError::Referral
                | RelayError::Chain
                | RelayError::Unrelated
                | RelayError::Malformed),
                codes,
            ) => {
                self.errors = Some(codes);
                sent.was_no_answer(error);
                self.replied(send, false, at, now);
                self.plan.error(send.place, now);
            }
            AttemptResult::Distrusted => {
                sent.settle(Heard::Nothing);
                self.plan.over_stream(send.place, now);
            }
            AttemptResult::Unreachable => {
                match send.transport {
                    Transport::Udp => sent.settle(Heard::Nothing),
                    Transport::Connection => sent.stream_failed(),
                }
                self.plan.unreachable(now);
            }
            AttemptResult::HeldOff => {
                sent.stream_failed();
                self.plan.held_off(send, now);
            }
            AttemptResult::NoPort => {
                sent.cancel();
                self.sends -= 1;
                self.limited(send, Limit::UpstreamPorts);
            }
            AttemptResult::NoPlace => {
                sent.cancel();
                self.sends -= 1;
                self.limit = Some(Limit::Server);
                self.plan.no_place(send, now);
            }
        }
        None
    }

    /// A reply came to a query that was sent then, and `is_error` says whether its Rcode is an error (FW28).
    fn replied(&self, send: Send, is_error: bool, at: Instant, now: Instant) {
        self.group.replied(self.plan.member(send.place), is_error, at, now);
    }

    /// For how many seconds the reply is kept at most (FW25). It was asked for without an OPT record, so without DO: for a client
    /// that wants signatures, that is good until a server of the group may give them.
    fn most_s(&self, send: Send, relayed: &Relayed, now: Instant) -> u32 {
        if send.edns || !relayed.key().dnssec_ok() {
            return u32::MAX;
        }
        let servers = &self.group.servers;
        let rest = match servers.iter().any(|server| server.may_give_signatures(now)) {
            true => Some(Duration::ZERO),
            false => servers.iter().filter_map(|server| server.without_edns_for(now)).min(),
        };
        rest.map_or(u32::MAX, |rest| (rest.as_secs() as u32).max(MAX_WITHOUT_SIGNATURES_S))
    }

    /// The server could not be asked: waiting for a port would cost the client more than the next server does.
    fn limited(&mut self, send: Send, limit: Limit) {
        self.limit = Some(limit);
        self.plan.leave_out(send.place, now());
    }

    /// The server has as many queries as it is given at once. Limits per group and in all bound how many lookups wait.
    fn full(&mut self, send: Send) {
        self.limit = Some(Limit::Server);
        self.plan.full(send, now());
    }
}

/// One attempt of a lookup, with its number; `begun` where it has begun already.
async fn attempt(
    question: Question<'_>,
    server: &Arc<Server>,
    send: Send,
    number: usize,
    begun: Option<Open>,
    turn: Turn,
) -> (usize, Send, AttemptResult) {
    let asker = turn.wait().await;
    let outcome = match begun {
        Some(Open::Datagrams(datagrams, exchange)) => {
            attempt::listen(question, datagrams, exchange).await
        }
        Some(Open::Connection(messages, progress)) => {
            attempt::exchange(question, messages, progress, asker).await
        }
        None => attempt::ask(question, server, send.transport, send.edns, asker).await,
    };
    (number, send, outcome)
}

#[cfg(test)]
pub(super) async fn lookup(
    group: &Arc<Group>,
    members: &[usize],
    key: &LookupKey,
    started: Instant,
) -> Result<Answered, Unresolved> {
    Lookup::new(group, members, attempt::NO_CLIENT, key, started)?.run(key, None).await
}

#[cfg(test)]
mod tests;
