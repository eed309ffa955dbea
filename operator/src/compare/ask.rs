//! One question to one server: over UDP, and over TCP where the reply is truncated.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::judge::Heard;
use super::questions::Question;

/// Longest datagram that is read: pods send at most 4,096 octets.
const MAX_DATAGRAM: usize = 4096;

/// What the server replies within this time, over each transport.
pub(super) async fn ask(question: &Question, server: SocketAddr, patience: Duration) -> Heard {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(question.name.clone(), question.kind));
    let wire = query.to_vec().map_err(|error| error.to_string())?;
    let reply = within(patience, over_udp(&query, &wire, server)).await?;
    match reply.metadata.truncation {
        true => within(patience, over_tcp(&query, &wire, server)).await,
        false => Ok(reply),
    }
}

async fn within(patience: Duration, asking: impl Future<Output = io::Result<Message>>) -> Heard {
    match timeout(patience, asking).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no reply within {} s", patience.as_secs())),
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
        // Whatever else arrives is not what was asked for.
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
    reply_to(query, &reply).ok_or_else(|| io::Error::other("a reply to something else"))
}

fn reply_to(query: &Message, wire: &[u8]) -> Option<Message> {
    let reply = Message::from_vec(wire).ok()?;
    let fits = reply.metadata.id == query.metadata.id
        && reply.metadata.message_type == MessageType::Response
        && reply.queries == query.queries;
    fits.then_some(reply)
}
