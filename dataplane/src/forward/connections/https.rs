//! Messages as requests of HTTP/2 (RFC 8484), one stream each, by hyper: it carries bodies, windows and GOAWAY, and is in the
//! tree for the API client.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT, AGE, CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_rustls::client::TlsStream;

use super::{Connection, Failure, IDLE, Message, Query};
use crate::forward::now;

/// The only type of body, of requests and of replies (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";
/// Octets of a reply: what a DNS message may have.
const MAX_BODY: usize = 65_535;
/// Octets of the header fields of a reply.
const MAX_HEADERS: u32 = 8 << 10;

/// Requests are sent with this.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// A connection that has begun to speak HTTP/2: what sends requests, and what carries them.
///
/// # Errors
/// The other side does not speak HTTP/2.
pub(super) async fn begin(
    stream: TlsStream<TcpStream>,
) -> Result<(Sender, impl Future<Output = hyper::Result<()>> + Send), Failure> {
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(Failure::protocol("the server does not speak HTTP/2"));
    }
    let mut builder = Builder::new(TokioExecutor::new());
    builder.max_header_list_size(MAX_HEADERS).initial_stream_window_size(u32::from(u16::MAX));
    let begun = builder.handshake(TokioIo::new(stream)).await;
    begun.map_err(|error| Failure::protocol(&error.to_string()))
}

/// Carries queries out and replies in, until the connection ends or is idle.
pub(super) async fn carry(
    connection: Arc<Connection>,
    sender: Sender,
    driver: impl Future<Output = hyper::Result<()>>,
    uri: Arc<str>,
    mut queries: mpsc::Receiver<Query>,
) {
    let mut driver = std::pin::pin!(driver);
    let mut requests = FuturesUnordered::new();
    let mut heard = now();
    loop {
        tokio::select! {
            biased;
            // What waits is asked again elsewhere, whatever ended it.
            _ = &mut driver => break,
            Some((id, ended)) = requests.next(), if !requests.is_empty() => {
                heard = now();
                if sender.is_closed() {
                    connection.retire();
                }
                connection.answered(id, ended, heard);
            }
            Some(query) = queries.recv() => {
                requests.push(exchange(sender.clone(), Arc::clone(&uri), query));
            }
            () = sleep_until((heard + IDLE).into()) => break,
        }
        if connection.is_closed() && requests.is_empty() {
            break;
        }
    }
    connection.close();
}

/// One request: POST, so that no cache between keeps names, and with id 0 (RFC 8484 §4.1).
async fn exchange(
    mut sender: Sender,
    uri: Arc<str>,
    query: Query,
) -> (u16, Result<Message, Failure>) {
    let Query { id, octets } = query.without_id();
    let request = Request::post(&*uri)
        .header(CONTENT_TYPE, MEDIA_TYPE)
        .header(ACCEPT, MEDIA_TYPE)
        .body(Full::new(Bytes::from(octets)));
    let reply = async {
        let request = request.map_err(|error| Failure::protocol(&error.to_string()))?;
        let response = sender.send_request(request).await;
        read(response.map_err(|error| Failure::reset(&error.to_string()))?).await
    };
    (id, reply.await.map(|message| message.with_id(id)))
}

async fn read(response: Response<Incoming>) -> Result<Message, Failure> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(Failure::status(status.as_u16()));
    }
    let headers = response.headers();
    if !is_message(headers) {
        return Err(Failure::content_type());
    }
    let age_s = age_s(headers);
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let octets = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
        true => Failure::too_large(),
        false => Failure::reset(&error.to_string()),
    })?;
    Ok(Message { octets: octets.to_bytes().to_vec(), age_s })
}

/// Parameters behind the type mean nothing.
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
mod tests {
    use super::*;

    #[test]
    fn fw2_only_the_media_type_of_dns_is_a_reply() {
        let of =
            |value: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]);
        assert!(is_message(&of("application/dns-message")));
        assert!(is_message(&of("Application/DNS-Message; charset=utf-8")));
        for other in ["text/html", "application/dns-json", "", "application/dns-messages"] {
            assert!(!is_message(&of(other)), "{other}");
        }
        assert!(!is_message(&HeaderMap::new()));
    }

    #[test]
    fn ca2_the_age_of_http_is_whole_seconds_and_nonsense_is_none() {
        let of = |value: &'static str| HeaderMap::from_iter([(AGE, value.parse().unwrap())]);
        let cases =
            [("0", 0), (" 50 ", 50), ("99999999999", u32::MAX), ("-1", 0), ("x", 0), ("", 0)];
        for (text, age) in cases {
            assert_eq!(age_s(&of(text)), age, "{text}");
        }
    }
}
