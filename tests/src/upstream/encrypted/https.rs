//! HTTP/2: one request each, POST to `/dns-query`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{StreamExt, once};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

use super::super::script::{Http, Stream};
use super::{Encrypted, Shared, UpstreamTransport};

/// The only type of body (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";
/// Time in which the first half of a body leaves: a reset drops what has not left.
const LEAVE_WITHIN: Duration = Duration::from_millis(50);

type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(super) async fn serve(
    shared: &Arc<Shared>,
    encrypted: &Encrypted,
    stream: TlsStream<TcpStream>,
    from: SocketAddr,
) {
    let (queries, ended) = (AtomicUsize::new(0), Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let is_last = encrypted.ends(queries.fetch_add(1, Ordering::Relaxed) + 1);
        if is_last {
            ended.notify_one();
        }
        let shared = Arc::clone(shared);
        async move {
            match is_last {
                true => std::future::pending().await,
                // An error resets the stream.
                false => answer(&shared, request, from).await,
            }
        }
    });
    let serving =
        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = serving => {}
        () = ended.notified() => {}
    }
}

async fn answer(
    shared: &Shared,
    request: Request<Incoming>,
    from: SocketAddr,
) -> io::Result<Response<Body>> {
    let refused = |status: u16| {
        let mut response = Response::new(whole(Bytes::from_static(b"refused")));
        *response.status_mut() = status.try_into().expect("a status");
        Ok(response)
    };
    let header = |name: &str| request.headers().get(name).and_then(|it| it.to_str().ok());
    let is_dns = header("content-type") == Some(MEDIA_TYPE) && header("accept") == Some(MEDIA_TYPE);
    if request.method() != Method::POST || request.uri().path() != "/dns-query" || !is_dns {
        return refused(400);
    }
    let Ok(body) = request.into_body().collect().await else { return refused(400) };
    let packet = body.to_bytes();
    // Id 0 (RFC 8484 §4.1).
    if !packet.starts_with(&[0, 0]) {
        return refused(400);
    }
    let Some(reaction) = shared.receive(&packet, from, UpstreamTransport::Https) else {
        return refused(400);
    };
    tokio::time::sleep(reaction.delay).await;
    let Some(reply) = reaction.reply else { return std::future::pending().await };
    let Http { status, media_type, age, octets } = reaction.http;
    if let Some(status) = status {
        return refused(status);
    }
    let mut body = reply;
    body.resize(body.len().max(octets), 0);
    let body = match reaction.stream {
        Stream::Answer | Stream::Once => whole(body.into()),
        Stream::Close => return Err(io::ErrorKind::ConnectionReset.into()),
        Stream::Hang => std::future::pending().await,
        Stream::Half => half(body.into()),
    };
    let mut response = Response::builder();
    response = response.header("content-type", media_type.unwrap_or(MEDIA_TYPE.to_owned()));
    if let Some(age) = age {
        response = response.header("age", age);
    }
    Ok(response.body(body).expect("a response"))
}

fn whole(octets: Bytes) -> Body {
    Full::new(octets).map_err(|never| match never {}).boxed_unsync()
}

/// The first half of the octets, behind the headers; then the stream is reset.
fn half(octets: Bytes) -> Body {
    let first = octets.slice(..octets.len() / 2);
    let reset = async {
        tokio::time::sleep(LEAVE_WITHIN).await;
        Err(io::ErrorKind::ConnectionReset.into())
    };
    let frames = once(async { Ok(Frame::data(first)) }).chain(once(reset));
    StreamBody::new(frames).boxed_unsync()
}
