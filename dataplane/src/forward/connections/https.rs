//! Messages as requests of HTTP/2 (RFC 8484), one stream each, by hyper: it carries bodies, windows and GOAWAY, and is in the
//! tree for the API client.

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http2::{self, Builder, SendRequest};
use hyper::header::{ACCEPT, AGE, CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::connection::{Connection, MAX_STREAMS, Message};
use super::exchanges::Exchanges;
use super::failure::Failure;
use super::in_parts::InParts;
use super::outlet::Query;
use super::partial::{Held, Partial};
use crate::forward::now;

/// The only type of body, of requests and of replies (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";
/// Octets of a reply: what a DNS message may have.
const MAX_BODY: usize = 65_535;
/// Octets of a connection that HTTP/2 keeps before they are read.
const WINDOW: u32 = 128 << 10;
/// Octets of the header fields of a reply.
const MAX_HEADERS: u32 = 8 << 10;
/// Tasks of hyper for one connection: one for the socket, up to two for each query, and thrice as many that end.
const MAX_TASKS: usize = 8 * MAX_STREAMS;

/// Requests are sent with this.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Takes requests to the streams of one connection. It ends before those streams do where the server says GOAWAY.
pub(super) type Driver<T> = http2::Connection<TokioIo<InParts<T>>, Full<Bytes>, Executor>;

/// Runs the tasks that hyper starts for one connection. hyper itself ends them only when each stream has ended, which a
/// server can prevent.
#[derive(Clone, Debug)]
pub(super) struct Executor {
    /// Cancels every task of the connection.
    end: CancellationToken,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, task: F) {
        if self.tasks.len() >= MAX_TASKS {
            // The server answers, but does not take our requests: each leaves a task behind.
            self.end.cancel();
        } else {
            self.tasks.spawn(self.end.clone().run_until_cancelled_owned(task));
        }
    }
}

/// Checks that the server chose HTTP/2 in the handshake of TLS.
///
/// # Errors
/// It did not.
pub(super) fn check_protocol(stream: &TlsStream<TcpStream>) -> Result<(), Failure> {
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Ok(()),
        _ => Err(Failure::protocol("the server does not speak HTTP/2")),
    }
}

/// Begins HTTP/2 on a connection. Returns the sender of requests, the connection that carries them, and the handle
/// that ends all its tasks.
///
/// # Errors
/// The other side does not speak HTTP/2.
pub(super) async fn begin<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: T,
) -> Result<(Sender, Driver<T>, DropGuard), Failure> {
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    let mut builder = Builder::new(Executor { end, tasks: TaskTracker::new() });
    builder
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(u32::from(u16::MAX))
        .initial_connection_window_size(WINDOW);
    let begun = builder.handshake(TokioIo::new(InParts::new(io))).await;
    let (sender, driver) = begun.map_err(|error| Failure::protocol(&error.to_string()))?;
    Ok((sender, driver, guard))
}

/// Carries queries out and replies in, until the connection ends or is idle.
pub(super) async fn carry<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connection: Arc<Connection>,
    sender: Sender,
    driver: Driver<T>,
    uri: Arc<str>,
    mut queries: mpsc::Receiver<Query>,
) {
    let _end = connection.end.clone().drop_guard();
    let ask = |query| exchange(&connection, sender.clone(), Arc::clone(&uri), query);
    let mut requests = Exchanges::new();
    let mut driver = Some(driver);
    loop {
        tokio::select! {
            biased;
            // For any reason of the end, waiting queries are asked again on another connection.
            () = connection.end.cancelled() => break,
            ended = end_of(&mut driver) => {
                if ended.is_err() {
                    break;
                }
                // GOAWAY: the server answers what it took (RFC 9113 §6.8); the rest is asked again elsewhere, at once: without
                // the driver, requests fail that it would never send.
                driver = None;
                connection.server_left();
            }
            (id, ended) = requests.next() => {
                connection.answered(id, ended, now());
            }
            Some(query) = queries.recv() => {
                requests.begin(query, ask);
            }
            () = connection.unused() => break,
        }
        if let Some(driver) = &driver {
            let streams = driver.current_max_send_streams();
            if streams == 0 {
                // No other connection is made at once, or each query would make one.
                let failure = Failure::protocol("the server allows no streams");
                connection.shared.pause.failed(&failure, now());
                break;
            }
            connection.allow(streams);
        } else if requests.is_empty() && queries.is_empty() {
            break;
        }
    }
    connection.close();
}

/// How the driver ends; never, where it has ended.
async fn end_of<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    driver: &mut Option<Driver<T>>,
) -> hyper::Result<()> {
    match driver {
        Some(driver) => driver.await,
        None => std::future::pending().await,
    }
}

/// One request: POST, so that no cache between keeps names, and with id 0 (RFC 8484 §4.1).
async fn exchange(
    connection: &Connection,
    mut sender: Sender,
    uri: Arc<str>,
    query: Query,
) -> (u16, Result<Message, Failure>) {
    let Query { id, octets, .. } = query.without_id();
    let request = Request::post(&*uri)
        .header(CONTENT_TYPE, MEDIA_TYPE)
        .header(ACCEPT, MEDIA_TYPE)
        .body(Full::new(Bytes::from(octets)));
    let reply = async {
        let request = request.map_err(|error| Failure::protocol(&error.to_string()))?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| Failure::reset(&error.to_string()))?;
        read(response, &connection.shared.held).await
    };
    (id, reply.await.map(|message| message.with_id(id)))
}

async fn read(response: Response<Incoming>, held: &Held) -> Result<Message, Failure> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(Failure::status(status.as_u16()));
    }
    let headers = response.headers();
    if !is_message(headers) {
        return Err(Failure::content_type());
    }
    let age_s = age_s(headers);
    Ok(Message { octets: collect(response.into_body(), held).await?, age_s })
}

/// All of a body, copied: a frame may have one octet, and what HTTP hands out keeps the whole chunk that the frame came in.
async fn collect<B>(mut body: B, held: &Held) -> Result<Vec<u8>, Failure>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let mut partial = Partial::new(held, MAX_BODY);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::reset(&error.to_string()))?;
        // Trailers say nothing here.
        let Ok(some) = frame.into_data() else { continue };
        partial.add(&some)?;
    }
    Ok(partial.whole())
}

/// Parameters after the type are ignored.
fn is_message(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = value.and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(MEDIA_TYPE))
}

/// For how long the reply lay in a cache between (RFC 9111 §5.1); more seconds than fit are as many as fit.
fn age_s(headers: &HeaderMap) -> u32 {
    let value = headers.get(AGE).and_then(|value| value.to_str().ok()).map(str::trim);
    let digits = value.filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    digits.map_or(0, |text| text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
