//! One query to one server, and patience for replies that are not ours (FW13). Without a deadline: the lookup drops an
//! attempt that takes too long.

use std::sync::Arc;

use dataplane_core::{
    Discard, ErrorCodes, LookupKey, QueryForm, RelayError, Relayed, TtlCaps, Verdict,
};

use super::connections;
use super::plan::Transport;
use super::random;
use super::server::Server;
use super::shown::Shown;
use super::sockets::{self, Arrival};

/// Wrong datagrams after which the server is asked over TCP (FW13).
const MAX_DISCARDS: usize = 3;

/// The question of a lookup, the same for every server.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) key: &'a LookupKey,
    pub(super) caps: &'a TtlCaps,
    /// The name goes out in random case over UDP (FW14).
    pub(super) randomise_case: bool,
}

#[derive(Debug)]
pub(super) enum AttemptResult {
    /// The answer (FW20).
    Good(Relayed),
    /// A valid reply that is no answer (FW21, FW26), and the Extended DNS Errors in it.
    Error(RelayError, ErrorCodes),
    /// The reply does not match the query and is discarded (FW13, FW14).
    Distrusted,
    /// An ICMP error, a connection refused or broken off.
    Unreachable,
    /// `upstreamPorts` is reached and no socket is open (FW10), or the system gave none: the server was not asked.
    NoPort,
}

/// Asks the server over this transport, with or without an OPT record.
pub(super) async fn ask(
    question: Question<'_>,
    server: &Arc<Server>,
    transport: Transport,
    edns: bool,
) -> AttemptResult {
    match transport {
        Transport::Udp => {
            let case = question.randomise_case.then(random);
            let form = QueryForm { edns, case, padded: false };
            over_udp(question, server, form).await
        }
        Transport::Connection => {
            let padded = server.identity.transport.is_encrypted();
            over_connection(question, server, QueryForm { edns, case: None, padded }).await
        }
    }
}

async fn over_udp(question: Question<'_>, server: &Arc<Server>, form: QueryForm) -> AttemptResult {
    let key = question.key;
    let mut shown = Shown::new(server, Transport::Udp);
    let query = |id| shown.sent(key.upstream_query_as(id, form).wire);
    let mut exchange = match sockets::send(&server.pool, query) {
        Ok(Some(exchange)) => exchange,
        Ok(None) => return AttemptResult::NoPort,
        Err(error) if sockets::is_ours(&error) => return AttemptResult::NoPort,
        Err(_) => return AttemptResult::Unreachable,
    };
    for _ in 0..MAX_DISCARDS {
        let datagram = match exchange.next().await {
            Arrival::Datagram(datagram) => datagram,
            Arrival::Stray => continue,
            Arrival::Failed => return AttemptResult::Unreachable,
        };
        match key.judge_as(exchange.id(), form, &datagram, question.caps, 0) {
            Verdict::Good(relayed) => {
                shown.came(&datagram);
                return AttemptResult::Good(relayed);
            }
            Verdict::Failed(error) => {
                shown.came(&datagram);
                return AttemptResult::Error(error, ErrorCodes::of(&datagram));
            }
            Verdict::Discard(reason) => {
                server.common.discard(reason);
                if reason == Discard::Case {
                    return AttemptResult::Distrusted;
                }
            }
        }
    }
    AttemptResult::Distrusted
}

async fn over_connection(
    question: Question<'_>,
    server: &Arc<Server>,
    form: QueryForm,
) -> AttemptResult {
    let key = question.key;
    let mut shown = Shown::new(server, Transport::Connection);
    let query = |id| shown.sent(key.upstream_query_as(id, form).wire);
    let reply = match connections::ask(&server.connections, query).await {
        Ok(reply) => reply,
        Err(failure) if failure.is_ours => return AttemptResult::NoPort,
        Err(_) => return AttemptResult::Unreachable,
    };
    shown.came(&reply.octets);
    match key.judge_as(reply.id, form, &reply.octets, question.caps, reply.age_s) {
        Verdict::Good(relayed) => AttemptResult::Good(relayed),
        Verdict::Failed(error) => AttemptResult::Error(error, ErrorCodes::of(&reply.octets)),
        Verdict::Discard(reason) => {
            server.common.discard(reason);
            // Only the server can write into this connection: it is wrong itself (FW54).
            reply.distrust();
            AttemptResult::Unreachable
        }
    }
}
