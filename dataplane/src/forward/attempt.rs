//! One query to one server, and patience for replies that are not ours (FW13). Without a deadline: the lookup drops an
//! attempt that takes too long.

use std::net::IpAddr;
use std::sync::Arc;

use dataplane_core::{
    Discard, ErrorCodes, LookupKey, QueryForm, RelayError, Relayed, TtlCaps, Verdict,
};

use super::connections::{self, Asker, Progress, Reply, Unsent};
use super::plan::Transport;
use super::server::Server;
use super::sockets::{self, Arrival, Exchange};
use super::upstream_tap::Shown;
use super::upstreams::Group;
use super::{now, random};

/// Rcodes with which a server refuses a query for its OPT record (FW25): FORMERR, NOTIMP, BADVERS.
pub(super) const REFUSES_EDNS: [u16; 3] = [1, 4, 16];

/// Wrong datagrams after which the server is asked over TCP (FW13).
const MAX_DISCARDS: usize = 3;

/// The client of a query that no client asked for.
pub(super) const NO_CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// The question of a lookup, the same for every server.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) key: &'a LookupKey,
    pub(super) caps: &'a TtlCaps,
    /// The name goes out in random case over UDP (FW14).
    pub(super) randomise_case: bool,
    /// Its OPT record asks for a reply that is no longer than one without that record.
    pub(super) is_small: bool,
}

impl<'a> Question<'a> {
    pub(super) fn new(group: &'a Group, key: &'a LookupKey) -> Question<'a> {
        Question { key, caps: &group.caps, randomise_case: group.randomise_case, is_small: false }
    }
}

#[derive(Debug)]
pub(super) enum AttemptResult {
    /// A usable reply (FW20).
    Good(Relayed),
    /// A valid reply that is no answer (FW21, FW26), and the Extended DNS Errors in it.
    Error(RelayError, ErrorCodes),
    /// A part of a usable reply, over a connection (FW26), and the Extended DNS Errors in it.
    Cut(Relayed, ErrorCodes),
    /// The reply does not match the query and is discarded (FW13, FW14).
    Distrusted,
    /// An ICMP error, a connection refused or broken off.
    Unreachable,
    /// The pause after a connection that failed (FW54): the server was not asked, or not again on another connection.
    HeldOff,
    /// `upstreamPorts` is reached and no socket is open (FW10), or the system gave none: the server was not asked.
    NoPort,
    /// Every connection to the server has as many queries as it may have: the server was not asked.
    NoPlace,
}

/// Asks the server over this transport, with or without an OPT record; `asker` is needed over a connection.
pub(super) async fn ask(
    question: Question<'_>,
    server: &Arc<Server>,
    transport: Transport,
    edns: bool,
    asker: Asker<'_>,
) -> AttemptResult {
    match transport {
        Transport::Udp => {
            let datagrams = Datagrams::new(question, server, edns);
            match sockets::send(&server.pool, |id| datagrams.query(question.key, id)) {
                Ok(Some(exchange)) => listen(question, datagrams, exchange).await,
                Ok(None) => AttemptResult::NoPort,
                Err(error) if sockets::is_ours(&error) => AttemptResult::NoPort,
                Err(_) => AttemptResult::Unreachable,
            }
        }
        Transport::Connection => {
            exchange(question, Messages::new(server, edns), Progress::Unsent, asker).await
        }
    }
}

/// One query over UDP: how it was written, and what came that is not its reply.
#[derive(Debug)]
pub(super) struct Datagrams {
    server: Arc<Server>,
    form: QueryForm,
    discards: usize,
    shown: Shown,
}

impl Datagrams {
    /// A query that was not sent yet.
    pub(super) fn new(question: Question<'_>, server: &Arc<Server>, edns: bool) -> Datagrams {
        let case = question.randomise_case.then(random);
        let form = QueryForm { edns, case, padded: false, is_small: question.is_small };
        let shown = Shown::new(server, Transport::Udp);
        Datagrams { server: Arc::clone(server), form, discards: 0, shown }
    }

    /// The message with this id.
    pub(super) fn query(&self, key: &LookupKey, id: u16) -> Vec<u8> {
        self.shown.sent(key.upstream_query_as(id, self.form).wire)
    }

    /// The result for the query with this id; `None` if the datagram is not its reply, so that the wait continues
    /// (FW13).
    pub(super) fn judge(
        &mut self,
        question: Question<'_>,
        id: u16,
        datagram: &[u8],
    ) -> Option<AttemptResult> {
        match question.key.judge_as(id, self.form, datagram, question.caps, 0) {
            Verdict::Good(relayed) => {
                self.shown.came(datagram);
                Some(AttemptResult::Good(relayed))
            }
            // The server sent more than we asked for and more than is read: the rest comes over TCP only (FW26).
            Verdict::Failed(RelayError::Malformed) if datagram.len() >= sockets::MAX_DATAGRAM => {
                self.shown.came(datagram);
                Some(AttemptResult::Error(RelayError::Truncated, ErrorCodes::of(datagram)))
            }
            // A part of the reply, or a guess: the right one may follow.
            Verdict::Failed(RelayError::Malformed) => self.discard(Discard::Malformed),
            Verdict::Failed(error) => {
                self.shown.came(datagram);
                Some(AttemptResult::Error(error, ErrorCodes::of(datagram)))
            }
            Verdict::Discard(reason) => self.discard(reason),
        }
    }

    fn discard(&mut self, reason: Discard) -> Option<AttemptResult> {
        self.server.common.discard(reason);
        match reason {
            Discard::Case => Some(AttemptResult::Distrusted),
            Discard::Malformed | Discard::Id | Discard::Question => self.stray(),
        }
    }

    /// The same for a datagram that no query waits for.
    pub(super) fn stray(&mut self) -> Option<AttemptResult> {
        self.discards += 1;
        (self.discards >= MAX_DISCARDS).then_some(AttemptResult::Distrusted)
    }
}

/// Waits for the reply to a query that has left.
pub(super) async fn listen(
    question: Question<'_>,
    mut datagrams: Datagrams,
    mut exchange: Exchange,
) -> AttemptResult {
    loop {
        let outcome = match exchange.next().await {
            Arrival::Datagram(datagram) => datagrams.judge(question, exchange.id(), &datagram),
            Arrival::Stray => datagrams.stray(),
            Arrival::Failed => return AttemptResult::Unreachable,
        };
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
}

/// One query over a connection: how it is written.
#[derive(Debug)]
pub(super) struct Messages {
    server: Arc<Server>,
    form: QueryForm,
    shown: Shown,
}

impl Messages {
    /// A query that was not sent yet.
    pub(super) fn new(server: &Arc<Server>, edns: bool) -> Messages {
        let padded = server.identity.transport.is_encrypted();
        let form = QueryForm { edns, padded, ..QueryForm::USUAL };
        let shown = Shown::new(server, Transport::Connection);
        Messages { server: Arc::clone(server), form, shown }
    }

    /// The message with this id.
    pub(super) fn query(&self, key: &LookupKey, id: u16) -> Vec<u8> {
        self.shown.sent(key.upstream_query_as(id, self.form).wire)
    }

    /// The result of its reply.
    pub(super) fn judge(&mut self, question: Question<'_>, reply: &Reply) -> AttemptResult {
        let Reply { id, octets, age_s, .. } = reply;
        self.shown.came(octets);
        match question.key.judge_as(*id, self.form, octets, question.caps, *age_s) {
            Verdict::Good(relayed) => AttemptResult::Good(relayed),
            Verdict::Failed(error) => {
                if error == RelayError::Malformed {
                    self.server.common.discard(Discard::Malformed);
                }
                let caps = question.caps;
                if error == RelayError::Truncated
                    && let Some(part) = question.key.judge_cut(*id, self.form, octets, caps, *age_s)
                {
                    return AttemptResult::Cut(part, ErrorCodes::of(octets));
                }
                // Who owns the name may choose its records, so they say nothing about the server, and other queries wait on
                // this connection (FW54).
                AttemptResult::Error(error, ErrorCodes::of(octets))
            }
            Verdict::Discard(reason) => {
                self.server.common.discard(reason);
                // Only the server can write into this connection, so the server is at fault (FW54).
                reply.distrust();
                AttemptResult::Unreachable
            }
        }
    }
}

/// Asks over a connection, as far as that is not done yet.
pub(super) async fn exchange(
    question: Question<'_>,
    mut messages: Messages,
    progress: Progress,
    asker: Asker<'_>,
) -> AttemptResult {
    let query = |id| messages.query(question.key, id);
    match connections::ask(&messages.server.connections, asker, progress, query).await {
        Ok(reply) => messages.judge(question, &reply),
        Err(failure) => match failure.unsent {
            None => AttemptResult::Unreachable,
            Some(Unsent::Pause) => AttemptResult::HeldOff,
            Some(Unsent::NoSocket) => {
                messages.server.common.had_no_socket(&failure.text, now());
                AttemptResult::NoPort
            }
            Some(Unsent::NoPlace | Unsent::Taken) => AttemptResult::NoPlace,
        },
    }
}
