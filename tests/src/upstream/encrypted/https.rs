//! HTTP/2: one request each, POST to `/dns-query`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

use super::super::script::Http;
use super::{Encrypted, Shared, UpstreamTransport};

/// The only type of body (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";

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
                false => Ok::<_, Infallible>(answer(&shared, request, from).await),
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
) -> Response<Full<Bytes>> {
    let refused = |status: u16| {
        let mut response = Response::new(Full::new(Bytes::from_static(b"refused")));
        *response.status_mut() = status.try_into().expect("a status");
        response
    };
    let header = |name: &str| request.headers().get(name).and_then(|it| it.to_str().ok());
    let is_dns = header("content-type") == Some(MEDIA_TYPE) && header("accept") == Some(MEDIA_TYPE);
    if request.method() != Method::POST || request.uri().path() != "/dns-query" || !is_dns {
        return refused(400);
    }
    let Ok(body) = request.into_body().collect().await else { return refused(400) };
    let packet = body.to_bytes();
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
    let mut response = Response::builder();
    response = response.header("content-type", media_type.unwrap_or(MEDIA_TYPE.to_owned()));
    if let Some(age) = age {
        response = response.header("age", age);
    }
    response.body(Full::new(Bytes::from(body))).expect("a response")
}
