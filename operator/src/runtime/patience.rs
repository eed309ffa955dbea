//! How long the API server asks to wait. One that is overloaded says it in the header `Retry-After` and has a sentence as its body.
//! kube gives of a refusal nothing but the body, so here every refusal gets one that says this time, and its code.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response};
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use kube::runtime::watcher;
use kube::{Client, Error};

use crate::shortened::shortened;

/// Octets of a refusal that are read, and one chunk more. One that is cut off there is no Status.
const ENOUGH: usize = 1024 * 1024;
/// Octets that are kept of a refusal that is no Status, such as a page of a proxy.
const MAX_SAID: usize = 2_048;

/// The same client, whose refusals say in their `details` how long the API server asks to wait.
pub fn patient(client: Client) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let reply = client.send(request).await?;
            let status = reply.status();
            match status.is_client_error() || status.is_server_error() {
                true => with_status(reply).await,
                false => Ok(reply),
            }
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// How long this refusal asks to wait.
pub fn asked(error: &Error) -> Option<Duration> {
    match error {
        Error::Api(status) => asked_by(status),
        _ => None,
    }
}

/// The same of a list or a watch.
pub(crate) fn asked_of_watch(error: &watcher::Error) -> Option<Duration> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => asked(error),
        watcher::Error::WatchError(status) => asked_by(status),
        watcher::Error::NoResourceVersion => None,
    }
}

/// The same of an error that such a refusal caused.
pub fn asked_of_cause(error: &anyhow::Error) -> Option<Duration> {
    error.chain().find_map(|cause| asked(cause.downcast_ref()?))
}

fn asked_by(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

async fn with_status(reply: Response<Body>) -> Result<Response<Body>, Error> {
    let (mut parts, body) = reply.into_parts();
    let body = beginning(body).await?;
    // JSON that is no Status, as a proxy may send it, would be one without a code.
    let status = serde_json::from_slice::<Status>(&body).ok().filter(Status::is_failure);
    let mut status = status.unwrap_or_else(|| {
        let reason = parts.status.canonical_reason().unwrap_or_default();
        Status::failure(&shortened(String::from_utf8_lossy(&body).trim(), MAX_SAID), reason)
    });
    if status.code == 0 {
        status.code = parts.status.as_u16();
    }
    if let Some(asked) = seconds(&parts.headers) {
        let details = status.details.get_or_insert_with(no_details);
        details.retry_after_seconds = details.retry_after_seconds.max(asked);
    }
    let text = serde_json::to_vec(&status).map_err(Error::SerdeError)?;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// kube would read all of it, however much comes.
async fn beginning(mut body: Body) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        read.extend_from_slice(&frame?.into_data().unwrap_or_else(|_| Bytes::new()));
        if read.len() >= ENOUGH {
            break;
        }
    }
    Ok(read)
}

/// A date, which some proxies write there, is not read: it would be compared with our own clock.
fn seconds(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{StreamExt, stream};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::ListParams;
    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    /// The refusal, as a client has it.
    async fn refused(reply: fn() -> Reply) -> Box<Status> {
        let client = patient(api::client(move |_| reply()));
        match Api::<Pod>::all(client).list(&ListParams::default()).await {
            Err(Error::Api(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    fn asks(status: Box<Status>) -> Option<u64> {
        asked(&Error::Api(status)).map(|wait| wait.as_secs())
    }

    #[tokio::test]
    async fn o13_an_overloaded_api_server_says_in_a_header_how_long_to_wait() {
        let status = refused(|| Reply::overloaded(429, 7)).await;
        assert_eq!(status.code, 429);
        assert_eq!(status.message, "Too many requests, please try again later.");
        assert_eq!(asks(status), Some(7));
        assert_eq!(asks(refused(|| Reply::overloaded(503, 3)).await), Some(3));
    }

    #[tokio::test]
    async fn o13_a_refusal_that_is_a_status_stays_what_it_is_and_gets_the_header() {
        let said = || {
            let details = json!({"name": "a", "kind": "pods", "retryAfterSeconds": 2,
                "causes": [{"reason": "Budget", "message": "it is used up", "field": "spec"}]});
            Reply::ok(
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
                "reason": "TooManyRequests", "message": "no", "details": details}),
            )
            .with_code(429)
        };
        let without_header = refused(said).await;
        assert_eq!(without_header.details.as_ref().unwrap().causes[0].message, "it is used up");
        assert_eq!(without_header.reason, "TooManyRequests");
        assert_eq!(asks(without_header), Some(2));
        let status =
            refused(|| Reply::status(503, "starting").with_header("retry-after", "5")).await;
        assert_eq!(
            (status.message.as_str(), status.reason.as_str()),
            ("starting", "ServiceUnavailable")
        );
        assert_eq!(asks(status), Some(5));
    }

    #[tokio::test]
    async fn a_refusal_has_its_code_also_where_its_body_is_no_status() {
        for (body, message) in [
            (r#"{"error": "bad gateway"}"#, r#"{"error": "bad gateway"}"#),
            ("<html>bad gateway</html>", "<html>bad gateway</html>"),
            ("", ""),
        ] {
            let client = patient(api::client(move |_| Reply::text(body).with_code(502)));
            let Err(Error::Api(status)) = Api::<Pod>::all(client).get("a").await else {
                panic!("{body}")
            };
            assert_eq!((status.code, status.message.as_str()), (502, message));
            assert_eq!(asks(status), None);
        }
    }

    #[tokio::test]
    async fn of_a_refusal_that_does_not_end_the_beginning_is_read() {
        const CHUNK: &[u8] = &[b'a'; 64 * 1024];
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let client = patient(api::client(move |_| {
            let counted = counted.clone();
            let chunks = stream::iter(0..100).map(move |_| {
                counted.fetch_add(CHUNK.len(), Ordering::Relaxed);
                CHUNK.into()
            });
            Reply::stream(chunks).with_code(503).with_header("retry-after", "9")
        }));
        let Err(Error::Api(status)) = Api::<Pod>::all(client).get("a").await else { panic!() };
        assert_eq!((status.code, status.message.len()), (503, MAX_SAID));
        assert_eq!(asks(status), Some(9));
        assert_eq!(sent.load(Ordering::Relaxed), ENOUGH);
    }

    #[test]
    fn o13_what_is_no_number_of_seconds_asks_for_nothing() {
        let of = |value: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(value))];
            seconds(&headers.into_iter().collect())
        };
        assert_eq!(of("120"), Some(120));
        for value in ["", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999"] {
            assert_eq!(of(value), None, "{value}");
        }
    }
}
