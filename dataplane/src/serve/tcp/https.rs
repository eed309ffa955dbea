//! DNS over HTTPS (RFC 8484): requests in HTTP/2 or 1.1 behind the same handshake as DNS over TLS, answered as over TCP,
//! with the limits of the connection table.
//!
//! hyper speaks HTTP. What it may hold is bounded by its settings below; what is asked and answered is counted here.

pub(super) mod body;
mod request;
mod refusals;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::super::counters::CloseReason;
use super::super::responder::Asker;
use super::TcpServer;
use super::deadline::CLOSE_WITHIN;
use super::handshakes::Session;
use super::reads::InTurns;
use super::requests::{Ending, Replied, Requests, STREAMS, Unanswered, Work};
use super::table::Permit;
use body::Reply;
use refusals::{Refusals, Watched};
use request::{Asked, DNS_MESSAGE};

/// The path of the URI, which a configuration may change at any time.
pub(in super::super) type HttpPath = Arc<ArcSwap<String>>;

/// Octets that a client may send before we read them: one full message on each of two streams.
const WINDOW_OCTETS: u32 = 128 << 10;
/// All headers of one request; a message in a URI may take most of it.
pub(super) const HEADER_OCTETS: usize = 16 << 10;
/// The same of HTTP/2, past which its library refuses a request by itself; [`Refusals`] counts that.
const H2_HEADER_OCTETS: u32 = 2 * HEADER_OCTETS as u32;
/// Encrypted octets that a session buffers for a client that does not read; hyper buffers (and counts) the rest.
const SEND_OCTETS: usize = 16 << 10;
/// Octets that a session counts as: TLS, the tables of HPACK, and the buffers of hyper.
pub(super) const SESSION_OCTETS: usize = 48 << 10;
/// Octets that a request counts besides its message: its stream, its task, and the head of its response. 4.6 KB were measured
/// of one that its client does not read.
pub(super) const REQUEST_OCTETS: usize = 5 << 10;
/// What the second version is called in a handshake (RFC 9113 §3.2).
const H2: &[u8] = b"h2";

/// Serves one connection behind its handshake to its end; returns why it ended.
pub(super) async fn attend(
    server: Rc<TcpServer>,
    mut session: Session,
    asker: Asker,
    permit: Permit,
    path: HttpPath,
) -> CloseReason {
    session.get_mut().1.set_buffer_limit(Some(SEND_OCTETS));
    let is_h2 = session.get_ref().1.alpn_protocol() == Some(H2);
    let within = server.table.deadlines().write;
    let requests = Requests::new(server, asker, permit, REQUEST_OCTETS);
    let served = Rc::clone(&requests);
    let service = service_fn(move |request| {
        let (requests, path) = (Rc::clone(&served), path.load_full());
        async move { Ok::<_, Infallible>(answer(&requests, &path, request).await) }
    });
    if is_h2 {
        let mut http = http2::Builder::new(LocalExecutor);
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW_OCTETS / 2)
            .initial_connection_window_size(WINDOW_OCTETS)
            .max_header_list_size(H2_HEADER_OCTETS);
        let refusals = Refusals::new(Arc::clone(&requests.server.counters));
        let reads = requests.server.http2_reads.of(requests.permit.read_share());
        let session = InTurns::new(session, reads, Rc::clone(&requests.permit));
        let session = session.until_taken(within);
        let session = Watched::new(session, Rc::clone(&refusals));
        let connection = pin!(http.serve_connection(TokioIo::new(session), service));
        refusals.ended(follow(&requests, connection, http2::Connection::graceful_shutdown).await)
    } else {
        let mut http = http1::Builder::new();
        // Half a request head is no request in progress: its connection is idle (WR42).
        // A client may end its side of the connection once it has asked, and wait for the response.
        http.header_read_timeout(None).max_buf_size(HEADER_OCTETS).half_close(true);
        let reads = requests.server.turns.reads(requests.permit.share());
        let session = InTurns::new(session, reads, Rc::clone(&requests.permit));
        let session = session.until_taken(within);
        let connection = pin!(http.serve_connection(TokioIo::new(session), service));
        follow(&requests, connection, http1::Connection::graceful_shutdown).await
    }
}

/// Drives a connection of either version until it ends or must end.
async fn follow<C: Future<Output = hyper::Result<()>>>(
    requests: &Requests,
    mut connection: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
) -> CloseReason {
    let mut ending = None;
    let mut closing = pin!(requests.closing(false));
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Some(status) = ended.as_ref().err().and_then(answered_by_hyper) {
                    requests.server.counters.encrypted.add_https(status.as_u16());
                }
                return ended_by(ending, &ended);
            }
            must_end = &mut closing => {
                finish(connection.as_mut());
                match must_end {
                    Ending::Now(reason) => {
                        // The alert shows the client that nothing was cut off, if the client reads it at once.
                        let _ = tokio::time::timeout(CLOSE_WITHIN, connection).await;
                        requests.permit.closes(reason);
                        return reason;
                    }
                    Ending::WhenDone(reason) => {
                        ending = Some(reason);
                        closing.set(requests.closing(true));
                    }
                }
            }
        }
    }
}

/// The status that hyper itself gave to what it could not read as a request of HTTP/1.1, before it closed the connection.
fn answered_by_hyper(error: &hyper::Error) -> Option<StatusCode> {
    if !error.is_parse() || error.is_parse_version_h2() {
        return None;
    }
    Some(match error.is_parse_too_large() {
        // A URI that is too long for 414 does not fit among the headers.
        true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    })
}

fn ended_by(ending: Option<CloseReason>, ended: &hyper::Result<()>) -> CloseReason {
    match ended {
        Ok(()) => ending.unwrap_or(CloseReason::Client),
        Err(error) if error.is_parse() => CloseReason::NotAQuery,
        // One that we end may be closed by its client before we do, and without an alert.
        Err(_) => ending.unwrap_or(CloseReason::Failed),
    }
}

/// The response to one request.
async fn answer(
    requests: &Rc<Requests>,
    path: &str,
    request: Request<Incoming>,
) -> Response<Reply> {
    let mut work = requests.begin();
    let message = message(requests, path, request, &mut work).await;
    // What waits for its turn is counted: neither its headers nor its body are with the library by now.
    requests.turn().await;
    let response = match message {
        Ok(message) => match requests.reply(message, &mut work).await {
            Ok(reply) => replied(reply, work),
            Err(Unanswered::NotAQuery) => refused(StatusCode::BAD_REQUEST, work),
            Err(Unanswered::Failed) => refused(StatusCode::INTERNAL_SERVER_ERROR, work),
            Err(Unanswered::GivesWay) => refused(StatusCode::SERVICE_UNAVAILABLE, work),
        },
        Err(status) => refused(status, work),
    };
    requests.server.counters.encrypted.add_https(response.status().as_u16());
    response
}

/// The DNS message of a request.
async fn message(
    requests: &Requests,
    path: &str,
    request: Request<Incoming>,
    work: &mut Work,
) -> Result<Vec<u8>, StatusCode> {
    if requests.permit.is_paused() {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let (head, body) = request.into_parts();
    let asked = request::read(&head, path)?;
    // Headers of requests that wait for their bodies would be held without a count.
    drop(head);
    match asked {
        Asked::Message(message) => {
            work.hold(message.capacity());
            Ok(message)
        }
        Asked::Body(at_most) => {
            work.arrives(0);
            let within = requests.server.table.deadlines().message;
            let collected = collect(requests, body, at_most, work);
            let collected = tokio::time::timeout(within, collected).await;
            collected.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

/// The body of a request. What has come of it counts, not what it announces.
async fn collect(
    requests: &Requests,
    mut body: Incoming,
    at_most: usize,
    work: &mut Work,
) -> Result<Vec<u8>, StatusCode> {
    let mut message = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        // Trailers say nothing here.
        let Ok(octets) = frame.into_data() else { continue };
        if message.len() + octets.len() > at_most {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        message.extend_from_slice(&octets);
        work.arrives(message.capacity());
        if requests.permit.is_paused() {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    // Nothing is missing any more.
    work.hold(message.capacity());
    Ok(message)
}

fn replied(reply: Replied, work: Work) -> Response<Reply> {
    let Replied { message, is_cut } = reply;
    // A cache of HTTP would give the records that are there to every client, and the others to none (WR23).
    let max_age = if is_cut { 0 } else { dataplane_core::max_age_s(&message) };
    let response = Response::builder()
        .header(CONTENT_TYPE, DNS_MESSAGE)
        .header(CACHE_CONTROL, format!("max-age={max_age}"));
    response.body(Reply::new(message, work)).expect("these are headers")
}

fn refused(status: StatusCode, work: Work) -> Response<Reply> {
    let mut response = Response::builder().status(status);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response = response.header(ALLOW, "GET, POST");
    }
    response.body(Reply::new(Vec::new(), work)).expect("these are headers")
}

/// Runs the streams of HTTP/2 on the thread of their connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(async move {
            stream.await;
        });
    }
}

#[cfg(test)]
mod tests;
