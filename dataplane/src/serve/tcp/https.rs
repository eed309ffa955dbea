//! DNS over HTTPS (RFC 8484): requests in HTTP/2 or 1.1 behind the same handshake as DNS over TLS, answered as over TCP,
//! with the limits of the connection table.
//!
//! hyper speaks HTTP. What it may hold is bounded by its settings below; what is asked and answered is counted here.

mod body;
mod request;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::super::counters::CloseReason;
use super::super::responder::Asker;
use super::handshakes::Session;
use super::requests::{Ending, Requests, STREAMS, Unanswered, Work};
use super::table::Permit;
use super::{MESSAGE_OCTETS, TcpServer};
use body::Reply;
use request::{Asked, DNS_MESSAGE};

/// What a client may send before we read it: one full message on each of two streams.
const WINDOW_OCTETS: u32 = 128 << 10;
/// All headers of one request; a message in a URI may take most of it.
const HEADER_OCTETS: usize = 16 << 10;
/// What hyper may have ready to be written on one stream.
const SEND_OCTETS: usize = 16 << 10;
/// What a session is counted as: that of TLS, the tables of HPACK and the buffers of hyper.
pub(super) const SESSION_OCTETS: usize = 48 << 10;
/// What the second version is called in a handshake (RFC 9113 §3.2).
const H2: &[u8] = b"h2";

/// Serves one connection behind its handshake to its end; returns why it ended.
pub(super) async fn attend(
    server: Rc<TcpServer>,
    session: Session,
    asker: Asker,
    permit: Permit,
    path: Arc<str>,
) -> CloseReason {
    let is_h2 = session.get_ref().1.alpn_protocol() == Some(H2);
    let requests = Requests::new(server, asker, permit);
    let served = Rc::clone(&requests);
    let service = service_fn(move |request| {
        let (requests, path) = (Rc::clone(&served), Arc::clone(&path));
        async move { Ok::<_, Infallible>(answer(&requests, &path, request).await) }
    });
    let io = TokioIo::new(session);
    if is_h2 {
        let mut http = http2::Builder::new(LocalExecutor);
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW_OCTETS / 2)
            .initial_connection_window_size(WINDOW_OCTETS)
            .max_header_list_size(HEADER_OCTETS as u32)
            .max_send_buf_size(SEND_OCTETS);
        let connection = pin!(http.serve_connection(io, service));
        follow(&requests, connection, http2::Connection::graceful_shutdown).await
    } else {
        let mut http = http1::Builder::new();
        // Half a request head is no request in progress: its connection is idle (WR42).
        http.header_read_timeout(None).max_buf_size(HEADER_OCTETS);
        let connection = pin!(http.serve_connection(io, service));
        follow(&requests, connection, http1::Connection::graceful_shutdown).await
    }
}

/// Drives a connection of either version until it ends or must end.
async fn follow<C: Future<Output = hyper::Result<()>>>(
    requests: &Requests,
    mut connection: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
) -> CloseReason {
    let mut is_ending = false;
    loop {
        tokio::select! {
            ended = &mut connection => return ended_by(is_ending, &ended),
            ending = requests.closing(is_ending) => match ending {
                Ending::Now(reason) => return reason,
                Ending::WhenDone => {
                    finish(connection.as_mut());
                    is_ending = true;
                }
            },
        }
    }
}

fn ended_by(is_ending: bool, ended: &hyper::Result<()>) -> CloseReason {
    match ended {
        Ok(()) if is_ending => CloseReason::Drain,
        Ok(()) => CloseReason::Client,
        Err(error) if error.is_parse() => CloseReason::NotAQuery,
        Err(_) => CloseReason::Failed,
    }
}

/// The response to one request.
async fn answer(
    requests: &Rc<Requests>,
    path: &str,
    request: Request<Incoming>,
) -> Response<Reply> {
    let mut work = requests.begin();
    let response = match message(requests, path, request, &mut work).await {
        Ok(message) => match requests.reply(&message, &mut work).await {
            Ok(octets) => replied(octets, work),
            Err(Unanswered::NotAQuery) => refused(StatusCode::BAD_REQUEST, work),
            Err(Unanswered::Failed) => refused(StatusCode::INTERNAL_SERVER_ERROR, work),
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
    let (head, body) = request.into_parts();
    match request::read(&head, path)? {
        Asked::Message(message) => Ok(message),
        Asked::Body(announced) => {
            // A client may send all that it announces.
            work.hold(announced);
            let within = requests.server.table.deadlines().message;
            let collected =
                tokio::time::timeout(within, Limited::new(body, MESSAGE_OCTETS).collect());
            match collected.await {
                Ok(Ok(body)) => {
                    let message = body.to_bytes().to_vec();
                    work.hold(message.len());
                    Ok(message)
                }
                Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                    Err(StatusCode::PAYLOAD_TOO_LARGE)
                }
                Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
                Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
            }
        }
    }
}

fn replied(octets: Vec<u8>, work: Work) -> Response<Reply> {
    let max_age = dataplane_core::max_age_s(&octets);
    let response = Response::builder()
        .header(CONTENT_TYPE, DNS_MESSAGE)
        .header(CACHE_CONTROL, format!("max-age={max_age}"));
    response.body(Reply::new(octets, work)).expect("these are headers")
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
