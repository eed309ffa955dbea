//! One question to one server: over UDP, again when nothing comes, and over TCP where the reply is truncated.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Query};
use hickory_proto::rr::{Name, RecordType};
use tokio::time::timeout;

use super::super::exchange::{over_tcp, over_udp};
use super::question::{Expects, Question};
use super::reply::{NoReply, Reply};

/// For one reply from memory. A stub resolver waits 5 s, but a pod that takes longer than this is not well.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// For one reply that needs servers elsewhere: a data plane gives up after 4 s, and says how.
const FORWARDED: Duration = Duration::from_secs(5);
/// Datagrams that are sent before the pod counts as silent: a lost datagram says nothing about a configuration.
const ATTEMPTS: usize = 3;
/// The same for a forwarded question, which data planes repeat themselves.
const FORWARDED_ATTEMPTS: usize = 2;
/// Octets that we accept over UDP (RFC 9715).
const UDP_PAYLOAD: u16 = 1232;

/// The reply of this server to each part of a question.
pub(super) async fn ask(question: &Question, server: SocketAddr) -> Vec<Reply> {
    let (patience, attempts) = match question.expects {
        Expects::Server { .. } => (FORWARDED, FORWARDED_ATTEMPTS),
        Expects::Records | Expects::Hidden | Expects::Has(_) | Expects::Written(_) => {
            (PATIENCE, ATTEMPTS)
        }
    };
    let mut heard = Vec::new();
    for (name, kind) in &question.asked {
        heard.push(repeatedly((name, *kind), server, patience, attempts).await);
    }
    heard
}

async fn repeatedly(
    asked: (&Name, RecordType),
    server: SocketAddr,
    patience: Duration,
    attempts: usize,
) -> Reply {
    let mut heard = once(asked, server, patience).await;
    for _ in 1..attempts {
        match heard {
            Err(NoReply::Silent(_)) => heard = once(asked, server, patience).await,
            Ok(_) | Err(NoReply::Closed(_) | NoReply::Unsent(_)) => break,
        }
    }
    heard
}

/// What the server replies within this time, over each transport.
pub(crate) async fn once(
    (name, kind): (&Name, RecordType),
    server: SocketAddr,
    patience: Duration,
) -> Reply {
    let query = query(name, kind);
    let wire = query.to_vec().map_err(|error| NoReply::Unsent(error.to_string()))?;
    let accept = |reply: &[u8]| reply_to(&query, reply);
    let reply = within(patience, server, over_udp(&wire, server, accept)).await?;
    match reply.metadata.truncation {
        true => within(patience, server, over_tcp(&wire, server, accept)).await,
        false => Ok(reply),
    }
}

/// The message that asks for it.
pub fn query(name: &Name, kind: RecordType) -> Message {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(name.clone(), kind));
    // Extended DNS Errors come only to those who speak EDNS.
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD);
    query.edns = Some(edns);
    query
}

async fn within(
    patience: Duration,
    server: SocketAddr,
    asking: impl Future<Output = io::Result<Message>>,
) -> Reply {
    match timeout(patience, asking).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(no_reply(server, &error)),
        Err(_) => Err(NoReply::Silent(format!("no reply within {} s", patience.as_secs()))),
    }
}

/// Classifies the error: a closed port or broken stream is the pod's failure; a failed send is the operator's.
fn no_reply(server: SocketAddr, error: &io::Error) -> NoReply {
    let why = format!("{server}: {error}");
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::UnexpectedEof
        | ErrorKind::BrokenPipe
        | ErrorKind::InvalidData => NoReply::Closed(why),
        _ => NoReply::Unsent(why),
    }
}

fn reply_to(query: &Message, wire: &[u8]) -> Option<Message> {
    let reply = Message::from_vec(wire).ok()?;
    let fits = reply.metadata.id == query.metadata.id
        && reply.metadata.message_type == MessageType::Response
        && reply.queries == query.queries;
    fits.then_some(reply)
}
