//! DNS over QUIC (RFC 9250): each query on a stream of its own, answered as over TCP, with the limits of the connection
//! table.
//!
//! quinn speaks QUIC on the thread of the TCP side, so that connections share their limits without a lock. Early data
//! (0-RTT) is not offered: it can be replayed.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use dataplane_core::has_keepalive;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, ReadError,
    RecvStream, SendStream, ServerConfig, StoppedError, TokioRuntime, TransportConfig, VarInt,
    WriteError,
};

use super::super::Deadlines;
use super::super::certificate::{Certificate, LOOK_EVERY};
use super::super::counters::{CloseReason, add};
use super::super::responder::{Asker, client};
use super::super::traffic::ServedOver;
use super::frame::{self, PREFIX};
use super::handshakes::{HANDSHAKES, Handshake};
use super::requests::{Ending, Requests, STREAMS, Unanswered, Work};
use super::{MESSAGE_OCTETS, TcpServer, UNKNOWN};

/// What a session is counted as, about what quinn and rustls keep for it.
const SESSION_OCTETS: usize = 48 << 10;
/// What a client may send before we read it: a full message on each of two streams.
const WINDOW_OCTETS: u32 = 2 * (MESSAGE_OCTETS + PREFIX) as u32;
/// Handshakes in progress from which on a client must show first that it has its address (RFC 9000 §8.1.2).
const RETRY_FROM: usize = 32;
/// What quinn keeps of a connection that was not looked at yet, and of all of them.
const INCOMING_OCTETS: u64 = 32 << 10;
const ALL_INCOMING_OCTETS: u64 = 4 << 20;

/// The codes of RFC 9250 §4.3 that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Code {
    NoError = 0,
    InternalError = 1,
    ProtocolError = 2,
    ExcessiveLoad = 4,
}

impl Code {
    const fn number(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// What a client did that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Violation {
    code: Code,
    reason: CloseReason,
}

/// A stream without exactly one query that may be sent over QUIC.
const NOT_A_QUERY: Violation =
    Violation { code: Code::ProtocolError, reason: CloseReason::NotAQuery };

/// How we speak QUIC with the certificate in use; nothing until there was a good one.
fn config(certificate: &Certificate, deadlines: &Deadlines) -> Option<ServerConfig> {
    let tls = certificate.config()?;
    let crypto = QuicServerConfig::try_from(tls).ok()?;
    // Only what nothing is heard of for longer than we wait for: the connection table ends the rest.
    let silence = 2 * deadlines.idle.max(deadlines.message);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(WINDOW_OCTETS / 2))
        .receive_window(VarInt::from_u32(WINDOW_OCTETS))
        .send_window(WINDOW_OCTETS.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(silence).ok());
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(HANDSHAKES)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(ALL_INCOMING_OCTETS);
    // A client that moves is another one for limits by address.
    config.migration(false);
    Some(config)
}

/// Serves one listener until the task is ended.
pub(super) async fn serve(
    server: Rc<TcpServer>,
    socket: std::net::UdpSocket,
    certificate: Arc<Certificate>,
) {
    let local = socket.local_addr().unwrap_or(UNKNOWN);
    let deadlines = server.table.deadlines();
    let opened = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime));
    let endpoint = match opened {
        Ok(endpoint) => endpoint,
        Err(error) => {
            tracing::error!(%error, "a listener for QUIC cannot be used");
            return;
        }
    };
    server.endpoints.borrow_mut().push(endpoint.clone());
    let mut version = None;
    loop {
        // Before the certificate: one that comes in between is then taken the next time.
        let now = Some(certificate.version());
        if version != now
            && let Some(config) = config(&certificate, &deadlines)
        {
            version = now;
            endpoint.set_server_config(Some(config));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY / 4) => {}
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { return };
                welcome(&server, local, incoming);
            }
        }
    }
}

/// Begins a handshake. While there are many, a client must show first that it has its address: places go by address, so
/// one that is not its own must take none.
fn welcome(server: &Rc<TcpServer>, local: SocketAddr, incoming: Incoming) {
    if server.stopping.get() {
        // Its client can ask elsewhere at once.
        incoming.refuse();
        return;
    }
    let is_busy = server.quic_handshakes.count() >= RETRY_FROM;
    if is_busy && !incoming.remote_address_validated() {
        // It fails only for a client that has shown its address already.
        let _ = incoming.retry();
        return;
    }
    let place = server.quic_handshakes.begin(client(incoming.remote_address()).ip());
    tokio::task::spawn_local(attend(Rc::clone(server), local, incoming, place));
}

/// One connection from its handshake to its end.
async fn attend(server: Rc<TcpServer>, local: SocketAddr, incoming: Incoming, place: Handshake) {
    let counters = Arc::clone(&server.counters);
    let ip = incoming.local_ip().unwrap_or(local.ip());
    let asker = Asker {
        client: client(incoming.remote_address()),
        server: SocketAddr::new(ip, local.port()),
        over: ServedOver::Quic,
    };
    add(&counters.tcp_accepted, 1);
    let reason = match handshake(&server, incoming, place).await {
        Ok(connection) => connected(server, connection, asker).await,
        Err(reason) => reason,
    };
    counters.add_closed(reason);
}

/// A handshake has the time of a message (WR42), and gives way where there are too many.
async fn handshake(
    server: &TcpServer,
    incoming: Incoming,
    place: Handshake,
) -> Result<Connection, CloseReason> {
    let within = server.table.deadlines().message;
    let connecting = incoming.accept().map_err(|_| CloseReason::Failed)?;
    tokio::select! {
        () = place.gave_way() => Err(CloseReason::Evicted),
        connected = tokio::time::timeout(within, connecting) => match connected {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(_)) => Err(CloseReason::Failed),
            Err(_) => Err(CloseReason::SlowMessage),
        },
    }
}

async fn connected(server: Rc<TcpServer>, connection: Connection, asker: Asker) -> CloseReason {
    let counters = Arc::clone(&server.counters);
    let close = |code: Code| connection.close(code.number(), b"");
    // Only now is the address known to be its own.
    let Some(permit) = server.table.admit_session(asker.client.ip(), SESSION_OCTETS) else {
        counters.encrypted.add_quic(Code::ExcessiveLoad as u32);
        close(Code::ExcessiveLoad);
        return CloseReason::Refused;
    };
    let requests = Requests::new(server, asker, permit);
    let violation = Rc::new(Cell::new(None));
    let mut ending = None;
    // One for all turns of the loop: on a busy connection, too, its time comes.
    let mut closing = pin!(requests.closing(false));
    loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok((send, receive)) => {
                    let work = requests.begin();
                    let (requests, connection) = (Rc::clone(&requests), connection.clone());
                    let violation = Rc::clone(&violation);
                    tokio::task::spawn_local(async move {
                        let ended = answer(&requests, send, receive, work).await;
                        let code = ended.unwrap_or_else(|violation| Some(violation.code));
                        if let Some(code) = code {
                            requests.server.counters.encrypted.add_quic(code as u32);
                        }
                        if let Err(Violation { code, reason }) = ended {
                            violation.set(Some(reason));
                            connection.close(code.number(), b"");
                        }
                    });
                }
                Err(error) => return violation.get().unwrap_or_else(|| ended_by(&error)),
            },
            () = requests.done(), if ending.is_some() => {
                close(Code::NoError);
                return ending.unwrap_or(CloseReason::Drain);
            }
            must_end = &mut closing => match must_end {
                Ending::WhenDone(reason) => {
                    ending = Some(reason);
                    closing.set(requests.closing(true));
                }
                Ending::Now(CloseReason::Idle) => {
                    close(Code::NoError);
                    return CloseReason::Idle;
                }
                Ending::Now(reason) => {
                    counters.encrypted.add_quic(Code::ExcessiveLoad as u32);
                    close(Code::ExcessiveLoad);
                    return reason;
                }
            },
        }
    }
}

fn ended_by(error: &ConnectionError) -> CloseReason {
    match error {
        ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => {
            CloseReason::Client
        }
        ConnectionError::TimedOut => CloseReason::Idle,
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::Reset
        | ConnectionError::CidsExhausted => CloseReason::Failed,
    }
}

/// How a stream ended whose connection is gone; of one that we closed nothing is counted.
fn lost(error: &ConnectionError) -> Option<Code> {
    (!matches!(error, ConnectionError::LocallyClosed)).then_some(Code::NoError)
}

/// Why a stream was not read to its end.
enum Unread {
    TooLong,
    /// Too much is held for this client already.
    NoRoom,
    Lost(ReadError),
}

/// All that comes on a stream. It is copied: what QUIC hands out keeps the whole datagram that it came in.
async fn read(
    requests: &Requests,
    receive: &mut RecvStream,
    work: &mut Work,
) -> Result<Vec<u8>, Unread> {
    let mut framed = Vec::new();
    loop {
        if requests.permit.is_paused() {
            return Err(Unread::NoRoom);
        }
        let chunk = receive.read_chunk(PREFIX + MESSAGE_OCTETS, true).await;
        let Some(chunk) = chunk.map_err(Unread::Lost)? else { return Ok(framed) };
        if framed.len() + chunk.bytes.len() > PREFIX + MESSAGE_OCTETS {
            return Err(Unread::TooLong);
        }
        framed.extend_from_slice(&chunk.bytes);
        work.arrives(framed.capacity());
    }
}

/// One query and its reply (RFC 9250 §4.2): how its stream ended.
///
/// # Errors
/// The connection ends.
async fn answer(
    requests: &Requests,
    mut send: SendStream,
    mut receive: RecvStream,
    mut work: Work,
) -> Result<Option<Code>, Violation> {
    let deadlines = requests.server.table.deadlines();
    let read = read(requests, &mut receive, &mut work);
    let mut framed = match tokio::time::timeout(deadlines.message, read).await {
        Ok(Ok(framed)) => framed,
        Ok(Err(Unread::TooLong)) => return Err(NOT_A_QUERY),
        Ok(Err(Unread::NoRoom)) => return Ok(Some(given_up(&mut send, Code::ExcessiveLoad))),
        Ok(Err(Unread::Lost(ReadError::ConnectionLost(error)))) => return Ok(lost(&error)),
        // It was cancelled (RFC 9250 §4.3.1).
        Ok(Err(Unread::Lost(_))) => return Ok(Some(Code::NoError)),
        Err(_) => {
            let reason = CloseReason::SlowMessage;
            return Err(Violation { code: Code::ExcessiveLoad, reason });
        }
    };
    if message(&framed).is_none() {
        return Err(NOT_A_QUERY);
    }
    framed.drain(..PREFIX);
    work.hold(framed.capacity());
    let reply = tokio::select! {
        reply = requests.reply(framed, &mut work) => reply,
        stopped = send.stopped() => return Ok(match stopped {
            Err(StoppedError::ConnectionLost(error)) => lost(&error),
            // A client that does not want the reply any more says so (RFC 9250 §4.3.1).
            _ => Some(Code::NoError),
        }),
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(Unanswered::NotAQuery) => return Err(NOT_A_QUERY),
        Err(Unanswered::Failed) => return Ok(Some(given_up(&mut send, Code::InternalError))),
    };
    work.hold(reply.len());
    // Half of the time of a connection that nothing moves on: then this stream is given up, and the connection stays.
    let written = tokio::time::timeout(deadlines.write, async {
        send.write_all(&frame::prefix(reply.len())).await?;
        send.write_all(&reply).await
    });
    match written.await {
        Ok(Ok(())) => {
            let _ = send.finish();
            work.written(reply.len());
            // Octets that are not acknowledged yet are lost when their connection is closed.
            let _ = tokio::time::timeout(deadlines.write, send.stopped()).await;
            Ok(Some(Code::NoError))
        }
        Ok(Err(WriteError::ConnectionLost(error))) => Ok(lost(&error)),
        Ok(Err(_)) => Ok(Some(Code::NoError)),
        Err(_) => Ok(Some(given_up(&mut send, Code::InternalError))),
    }
}

/// Ends a stream without the rest of its reply.
fn given_up(send: &mut SendStream, code: Code) -> Code {
    // It fails only where the stream has ended already.
    let _ = send.reset(code.number());
    code
}

/// The one message of a stream: its id is 0 (RFC 9250 §4.2.1), and it has no edns-tcp-keepalive (§5.5.2).
fn message(framed: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = framed.split_first_chunk::<PREFIX>()?;
    let is_whole = usize::from(u16::from_be_bytes(*prefix)) == message.len();
    (is_whole && message.get(..2)? == [0, 0] && !has_keepalive(message)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_whole_message_with_id_0() {
        let rows: [(&[u8], Option<&[u8]>); 6] = [
            (b"\0\x03\0\0x", Some(b"\0\0x")),
            (b"\0\x03\0\x01x", None),
            (b"\0\x04\0\0x", None),
            (b"\0\x02\0\0x", None),
            (b"\0\x01\0", None),
            (b"\0", None),
        ];
        for (framed, expected) in rows {
            assert_eq!(message(framed), expected, "{framed:?}");
        }
    }
}
