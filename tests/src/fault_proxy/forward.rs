//! One request: refused, held back, or passed on to the API server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use hyper::{Request, Response};
use kube::client::Body;
use tokio::sync::Notify;

use super::Fault;
use super::relay::{Stream, relay};
use super::rules::{Rules, Seen, status_object};
use crate::control_plane::client_config;

/// The largest request body passed on; etcd takes no larger objects.
const REQUEST_LIMIT: usize = 4 << 20;

/// What goes back to the client.
pub(super) type Reply = Response<BoxBody<Bytes, std::io::Error>>;

/// The API server behind the proxy: once with the proxy's own identity, once with none.
pub(super) struct Upstream {
    identified: kube::Client,
    anonymous: kube::Client,
}

impl Upstream {
    pub(super) async fn new(kubeconfig: &Path) -> anyhow::Result<Upstream> {
        let identified = client_config(kubeconfig).await?;
        let mut anonymous = identified.clone();
        anonymous.auth_info = Default::default();
        Ok(Upstream {
            identified: kube::Client::try_from(identified)?,
            anonymous: kube::Client::try_from(anonymous)?,
        })
    }

    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        match request.headers().contains_key(AUTHORIZATION) {
            true => self.anonymous.send(request).await,
            false => self.identified.send(request).await,
        }
    }
}

/// Answers one request of a client. Rules about it apply in turn until one decides or none is left.
pub(super) async fn answer(
    request: Request<Incoming>,
    upstream: Arc<Upstream>,
    rules: Arc<Rules>,
    reset: Arc<Notify>,
) -> Result<Reply, Infallible> {
    let seen = Seen::of(request.method(), request.uri());
    rules.record(seen.clone());
    // Read to its end before it is delayed: its sender may be stopped or gone when it is passed on.
    let Ok(request) = outgoing(request).await else { return reset_now(&reset).await };
    let mut loses_reply = false;
    let at_start = rules.take(&seen, |rule| acts_at_start(&rule.fault));
    if let Some(rule) = at_start {
        match rule.fault {
            Fault::Answer { status, retry_after_s } => return Ok(refusal(status, retry_after_s)),
            Fault::Overload { status, retry_after_s } => {
                let text = "Too many requests, please try again later.\n".to_owned();
                return Ok(reply(status, "text/plain; charset=utf-8", text, Some(retry_after_s)));
            }
            Fault::Hang => until_healed(&rules, rule.id).await,
            Fault::LoseRequest => return lose(&rules, &seen).await,
            Fault::LoseReply => loses_reply = true,
            Fault::Reset => return reset_now(&reset).await,
            Fault::End | Fault::Truncate | Fault::Event(_) | Fault::Throttle { .. } => {
                unreachable!("not at start")
            }
        }
    }
    let response = upstream.send(request).await;
    if let Ok(response) = &response {
        rules.record_answer(seen.clone(), response.status().as_u16());
    }
    if loses_reply {
        return lose(&rules, &seen).await;
    }
    match response {
        Ok(response) => Ok(pass_back(response, Stream { request: seen, rules, reset })),
        // To the client, an API server that is not there and a dead proxy are the same.
        Err(_) => reset_now(&reset).await,
    }
}

/// The others act on the body, see `relay`.
fn acts_at_start(fault: &Fault) -> bool {
    match fault {
        Fault::Answer { .. }
        | Fault::Overload { .. }
        | Fault::Hang
        | Fault::LoseRequest
        | Fault::LoseReply
        | Fault::Reset => true,
        Fault::End | Fault::Truncate | Fault::Event(_) | Fault::Throttle { .. } => false,
    }
}

async fn until_healed(rules: &Rules, id: u64) {
    let mut changes = rules.changes();
    while rules.in_force(id) {
        let _ = changes.changed().await;
    }
}

/// Never returns: the connection drops this future when it is reset.
async fn reset_now(reset: &Notify) -> Result<Reply, Infallible> {
    reset.notify_one();
    std::future::pending().await
}

/// Never returns: no answer comes.
async fn lose(rules: &Rules, request: &Seen) -> Result<Reply, Infallible> {
    rules.lose(request.clone());
    std::future::pending().await
}

async fn outgoing(request: Request<Incoming>) -> anyhow::Result<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = Limited::new(body, REQUEST_LIMIT).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    // The client fills in where it goes; these belong to the connection that ends here.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse()?;
    Ok(Request::from_parts(parts, Body::from(body.to_vec())))
}

fn pass_back(response: Response<Body>, stream: Stream) -> Reply {
    let (mut parts, body) = response.into_parts();
    for header in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    Response::from_parts(parts, relay(body, stream))
}

fn refusal(status: u16, retry_after_s: Option<u32>) -> Reply {
    let mut object = status_object(status, "refused by the fault proxy");
    if let Some(seconds) = retry_after_s {
        object["details"] = serde_json::json!({"retryAfterSeconds": seconds});
    }
    reply(status, "application/json", object.to_string(), retry_after_s)
}

fn reply(status: u16, content: &str, text: String, retry_after_s: Option<u32>) -> Reply {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::builder().status(status).header(CONTENT_TYPE, content);
    if let Some(seconds) = retry_after_s {
        response = response.header(RETRY_AFTER, seconds);
    }
    response.body(BoxBody::new(body)).expect("a well-formed response")
}
