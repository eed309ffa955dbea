//! One question to one server: over UDP, again when nothing comes, and over TCP where the reply is truncated.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Query};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

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
/// Longest datagram that is read: pods send at most 4,096 octets.
const MAX_DATAGRAM: usize = 4096;
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
    let reply = within(patience, server, over_udp(&query, &wire, server)).await?;
    match reply.metadata.truncation {
        true => within(patience, server, over_tcp(&query, &wire, server)).await,
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

async fn over_udp(query: &Message, wire: &[u8], server: SocketAddr) -> io::Result<Message> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(wire).await?;
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Other datagrams are not the reply.
        if let Some(reply) = reply_to(query, &buffer[..length]) {
            return Ok(reply);
        }
    }
}

async fn over_tcp(query: &Message, wire: &[u8], server: SocketAddr) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let framed = [&(wire.len() as u16).to_be_bytes()[..], wire].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; length.into()];
    stream.read_exact(&mut reply).await?;
    let stranger = || io::Error::new(ErrorKind::InvalidData, "a reply to something else");
    reply_to(query, &reply).ok_or_else(stranger)
}

fn reply_to(query: &Message, wire: &[u8]) -> Option<Message> {
    let reply = Message::from_vec(wire).ok()?;
    let fits = reply.metadata.id == query.metadata.id
        && reply.metadata.message_type == MessageType::Response
        && reply.queries == query.queries;
    fits.then_some(reply)
}
