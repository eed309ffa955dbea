//! DNS over QUIC (RFC 9250): each query on a stream of its own, answered as over TCP, with the limits of the connection
//! table.
//!
//! quinn reads, writes and encrypts on the thread of handshakes ([`entrance`]). Streams are read and answered on that of
//! the TCP side, so that connections share their limits without a lock. Early data (0-RTT) is not offered: it can be
//! replayed.

mod entrance;
mod frames;
mod lingering;
mod costly_frames;
mod message;
mod opening;
mod resets;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use quinn::{
    Connection, ConnectionError, ReadError, RecvStream, SendStream, StoppedError, VarInt,
    WriteError,
};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::super::certificate::Certificate;
use super::super::counters::CloseReason;
use super::super::responder::Asker;
use super::super::{Limits, Phase};
use super::frame::{self, PREFIX};
use super::handshakes::{HANDSHAKES, Handshakes};
use super::requests::{Ending, Requests, Unanswered, Work};
use super::{MESSAGE_OCTETS, TcpServer};
use costly_frames::COSTLY_FRAMES;
use entrance::Entrance;
use frames::Frames;
use message::message;
pub(super) use opening::{Opened, open};

/// Octets that a session counts as: about what quinn and rustls keep for it. 53 KiB were measured.
const SESSION_OCTETS: usize = 56 << 10;
/// Octets that a stream counts besides its message: what quinn keeps of it, and its task. 2.4 KB were measured of one that its
/// client does not read.
const REQUEST_OCTETS: usize = 2_560;
/// What a stream counts for besides, while the octets that come next are missing: quinn keeps as much of datagrams with pieces
/// behind them before it copies the pieces.
const UNREAD_OCTETS: usize = 32 << 10;
/// Pieces of a stream that are read, or written, in the turn in which it began: its length and its message. Each further one
/// counts as a request does, because it takes as long.
const FREE_PIECES: usize = 2;
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

/// The mistakes of a client that end its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QuicViolation {
    code: Code,
    reason: CloseReason,
}

/// A stream without exactly one query that may be sent over QUIC.
const NOT_A_QUERY: QuicViolation =
    QuicViolation { code: Code::ProtocolError, reason: CloseReason::NotAQuery };

/// Frames of streams that bring nothing which can be read.
const TOO_MANY_FRAMES: QuicViolation =
    QuicViolation { code: Code::ExcessiveLoad, reason: CloseReason::NotAQuery };

/// Serves one listener until the task is ended.
pub(super) async fn serve(
    server: Rc<TcpServer>,
    opened: Opened,
    certificate: Arc<Certificate>,
    (limits, phase): (watch::Receiver<Limits>, watch::Receiver<Phase>),
) {
    let Opened { local, endpoint, sockets, config } = opened;
    server.endpoints.borrow_mut().push(endpoint.clone());
    let ends = phase.clone();
    let (established, mut connections) = mpsc::channel(HANDSHAKES);
    let entrance = Entrance {
        endpoint,
        sockets,
        config,
        local,
        certificate,
        limits,
        phase,
        handshakes: Handshakes::default(),
        rates: Arc::clone(&server.rates),
        counters: Arc::clone(&server.counters),
        costly_frames: COSTLY_FRAMES,
        lingering: Mutex::default(),
        open: Mutex::default(),
        established,
    };
    let _open = AbortOnDropHandle::new(server.handshake_thread.spawn(entrance.serve()));
    while let Some((connection, asker)) = connections.recv().await {
        let (server, mut ends) = (Rc::clone(&server), ends.clone());
        ends.mark_unchanged();
        tokio::task::spawn_local(async move {
            let counters = Arc::clone(&server.counters);
            counters.add_closed(connected(server, connection, asker, ends).await);
        });
    }
}

/// `phase`: as it was seen when the connection began.
async fn connected(
    server: Rc<TcpServer>,
    connection: Connection,
    asker: Asker,
    mut phase: watch::Receiver<Phase>,
) -> CloseReason {
    let counters = Arc::clone(&server.counters);
    let close = |code: Code| connection.close(code.number(), b"");
    // Only now is the address known to be its own.
    let Some(permit) = server.admit(asker.client.ip(), Some(SESSION_OCTETS)).await else {
        counters.encrypted.add_quic(Code::ExcessiveLoad as u32);
        close(Code::ExcessiveLoad);
        return CloseReason::Refused;
    };
    let requests = Requests::new(server, asker, permit, REQUEST_OCTETS);
    let violation = Rc::new(Cell::new(None));
    let frames = Rc::new(Frames::of(connection.clone()));
    let mut ending = None;
    // One timer for all turns of the loop, so that it also fires on a busy connection.
    let mut closing = pin!(requests.closing(false));
    loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok((send, receive)) => {
                    let work = requests.begin();
                    frames.stream_begins();
                    let (requests, connection) = (Rc::clone(&requests), connection.clone());
                    let (violation, frames) = (Rc::clone(&violation), Rc::clone(&frames));
                    tokio::task::spawn_local(async move {
                        let ended = answer(&requests, &frames, (send, receive), work).await;
                        let code = ended.unwrap_or_else(|violation| Some(violation.code));
                        if let Some(code) = code {
                            requests.server.counters.encrypted.add_quic(code as u32);
                        }
                        if let Err(QuicViolation { code, reason }) = ended {
                            violation.set(Some(reason));
                            connection.close(code.number(), b"");
                        }
                        if ended == Err(TOO_MANY_FRAMES) {
                            requests.charge();
                        }
                    });
                }
                Err(error) => return violation.get().unwrap_or_else(|| ended_by(&error)),
            },
            () = requests.done(), if ending.is_some() => {
                close(Code::NoError);
                return ending.unwrap_or(CloseReason::Drain);
            }
            Ok(()) = phase.changed(), if ending.is_none() && !requests.is_new() => {
                ending = Some(CloseReason::Drain);
                closing.set(requests.closing(true));
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
        ConnectionError::ApplicationClosed(_) => CloseReason::Client,
        // What ends a connection here has its own reason, so it was the look at its frames.
        ConnectionError::LocallyClosed => CloseReason::NotAQuery,
        ConnectionError::TimedOut => CloseReason::Idle,
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::Reset
        | ConnectionError::CidsExhausted => CloseReason::Failed,
    }
}

/// Outcome of a stream after its connection closed; not counted if we closed it.
fn lost(error: &ConnectionError) -> Option<Code> {
    (!matches!(error, ConnectionError::LocallyClosed)).then_some(Code::NoError)
}

/// Why a stream was not read to its end.
enum Unread {
    TooLong,
    /// Too much is held for this client already.
    NoRoom,
    TooManyFrames,
    Lost(ReadError),
}

/// All that comes on a stream. It is copied: what QUIC hands out keeps the whole datagram that it came in.
async fn read(
    requests: &Requests,
    frames: &Frames,
    receive: &mut RecvStream,
    work: &mut Work,
) -> Result<Vec<u8>, Unread> {
    let mut framed = Vec::new();
    let mut pieces = 0;
    loop {
        if pieces >= FREE_PIECES {
            let mut turn = pin!(requests.turn());
            if futures::poll!(turn.as_mut()).is_pending() {
                work.arrives(framed.capacity() + UNREAD_OCTETS);
                turn.await;
            }
        }
        if requests.permit.is_paused() {
            return Err(Unread::NoRoom);
        }
        let chunk = {
            let mut reading = pin!(receive.read_chunk(PREFIX + MESSAGE_OCTETS, true));
            match futures::poll!(reading.as_mut()) {
                Poll::Ready(chunk) => chunk,
                Poll::Pending => {
                    work.arrives(framed.capacity() + UNREAD_OCTETS);
                    // Each frame of the stream wakes this, also one that brings nothing which can be read.
                    poll_fn(|cx| match reading.as_mut().poll(cx) {
                        Poll::Pending if frames.are_too_many() => Poll::Ready(None),
                        chunk => chunk.map(Some),
                    })
                    .await
                    .ok_or(Unread::TooManyFrames)?
                }
            }
        };
        let Some(chunk) = chunk.map_err(Unread::Lost)? else {
            // Nothing is missing any more.
            work.arrives(framed.capacity());
            return Ok(framed);
        };
        if framed.len() + chunk.bytes.len() > PREFIX + MESSAGE_OCTETS {
            return Err(Unread::TooLong);
        }
        frames.are_read(chunk.bytes.len());
        framed.extend_from_slice(&chunk.bytes);
        work.arrives(framed.capacity());
        pieces += 1;
    }
}

/// Writes a reply. A client that takes it piece by piece pays for them, as where it sends so.
async fn write(requests: &Requests, send: &mut SendStream, reply: &[u8]) -> Result<(), WriteError> {
    let mut pieces = 0;
    for mut rest in [&frame::prefix(reply.len())[..], reply] {
        while !rest.is_empty() {
            if pieces >= FREE_PIECES {
                requests.turn().await;
            }
            rest = &rest[send.write(rest).await?..];
            pieces += 1;
        }
    }
    Ok(())
}

/// One query and its reply (RFC 9250 §4.2): how its stream ended.
///
/// # Errors
/// The connection ends.
async fn answer(
    requests: &Requests,
    frames: &Frames,
    (mut send, receive): (SendStream, RecvStream),
    work: Work,
) -> Result<Option<Code>, QuicViolation> {
    let ended = exchange(requests, frames, (&mut send, receive), work).await;
    if let Err(violation) = &ended {
        // A stream that is dropped ends like an empty reply, and that may arrive before the end of the connection.
        given_up(&mut send, violation.code);
    }
    ended
}

async fn exchange(
    requests: &Requests,
    frames: &Frames,
    (send, mut receive): (&mut SendStream, RecvStream),
    mut work: Work,
) -> Result<Option<Code>, QuicViolation> {
    let deadlines = requests.server.table.deadlines();
    requests.turn().await;
    let read = read(requests, frames, &mut receive, &mut work);
    let mut framed = match tokio::time::timeout(deadlines.message, read).await {
        Ok(Ok(framed)) => framed,
        Ok(Err(Unread::TooLong)) => return Err(NOT_A_QUERY),
        Ok(Err(Unread::TooManyFrames)) => return Err(TOO_MANY_FRAMES),
        Ok(Err(Unread::NoRoom)) => return Ok(Some(given_up(send, Code::ExcessiveLoad))),
        Ok(Err(Unread::Lost(ReadError::ConnectionLost(error)))) => return Ok(lost(&error)),
        // It was cancelled (RFC 9250 §4.3.1).
        Ok(Err(Unread::Lost(_))) => return Ok(Some(Code::NoError)),
        Err(_) => {
            let reason = CloseReason::SlowMessage;
            return Err(QuicViolation { code: Code::ExcessiveLoad, reason });
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
        Ok(reply) => reply.message,
        Err(Unanswered::NotAQuery) => return Err(NOT_A_QUERY),
        Err(Unanswered::Failed) => return Ok(Some(given_up(send, Code::InternalError))),
        Err(Unanswered::GivesWay) => return Ok(Some(given_up(send, Code::ExcessiveLoad))),
    };
    work.hold(reply.len());
    // Half of the time after which a connection without progress ends: this stream is given up, and the connection
    // stays.
    let written = write(requests, send, &reply);
    match tokio::time::timeout(deadlines.write, written).await {
        Ok(Ok(())) => {
            let _ = send.finish();
            work.written(reply.len());
            // Octets that are not acknowledged yet are lost when their connection is closed.
            let _ = tokio::time::timeout(deadlines.write, send.stopped()).await;
            Ok(Some(Code::NoError))
        }
        Ok(Err(WriteError::ConnectionLost(error))) => Ok(lost(&error)),
        Ok(Err(_)) => Ok(Some(Code::NoError)),
        Err(_) => Ok(Some(given_up(send, Code::InternalError))),
    }
}

/// Ends a stream without the rest of its reply.
fn given_up(send: &mut SendStream, code: Code) -> Code {
    // It fails only where the stream has ended already.
    let _ = send.reset(code.number());
    code
}
