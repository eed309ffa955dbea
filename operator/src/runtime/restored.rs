//! Asks at which version the API server is before each watch begins (K22). An API server whose etcd was restored from a
//! backup accepts a watch at a version that it does not have yet, and stays silent until it has passed it. Here such a watch
//! is answered as if its version had expired, so who watches lists again. It is done for all watches in one place.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use kube::client::Body;
use kube::{Client, Error};
use process::items::{Items, NoList, Part};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::metrics::Metrics;

/// Time for a list of one object.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of a body that is longer, no more is read than what has the version: its one object is not needed.
const ENOUGH: usize = 64 << 10;
/// Parameters of a watch that a list of one object does not have. Without the label selector the API server reads one object,
/// not all up to the first that has the label.
const OF_WATCHES: [&str; 6] = [
    "watch",
    "resourceVersion",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "labelSelector",
    "resourceVersionMatch",
];
/// What kube asks for when it lists the metadata of objects alone.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Says when the API server has gone back to an older state.
#[derive(Clone, Debug)]
pub struct Resets {
    count: Arc<watch::Sender<u64>>,
    metrics: Arc<Metrics>,
}

impl Resets {
    /// Counts in these metrics too.
    pub fn new(metrics: Arc<Metrics>) -> Resets {
        Resets { count: Arc::default(), metrics }
    }

    /// Each change of the number is one watch whose version the API server does not have any more.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    fn noticed(&self) {
        self.metrics.version_reset();
        self.count.send_modify(|count| *count += 1);
    }
}

/// The same client, whose watches begin only at versions that the API server has.
pub fn confirming(client: Client, resets: Resets) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, resets) = (client.clone(), resets.clone());
        async move {
            let Some((held, look)) = look(&request) else { return client.send(request).await };
            let late = |_| failed(ErrorKind::TimedOut, "nothing came in time");
            let version = match timeout(PATIENCE, read(&client, look)).await.map_err(late)?? {
                Look::Refused(response) => return Ok(response),
                Look::At(Some(version)) if version < held => version,
                Look::At(_) => return client.send(request).await,
            };
            tracing::warn!(
                version,
                held,
                "the API server is at a lower version of {} than it showed before: its etcd was restored from a backup; \
                 everything is listed again",
                request.uri().path()
            );
            resets.noticed();
            Ok(expired(held, version))
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// The version at which this request begins a watch, and the list that says whether the API server has it.
fn look(watch: &Request<Body>) -> Option<(u64, Request<Body>)> {
    let query = watch.uri().query().unwrap_or_default();
    let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
    let value = |wanted: &str| pairs().find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let is_watch = watch.method() == Method::GET && matches!(value("watch"), Some("true" | "1"));
    let held: u64 = value("resourceVersion")?.parse().ok()?;
    if !is_watch || held == 0 {
        return None;
    }
    let kept = pairs().filter(|(key, _)| !OF_WATCHES.contains(key));
    let kept: String = kept.map(|(key, value)| format!("&{key}={value}")).collect();
    let mut parts = watch.uri().clone().into_parts();
    parts.path_and_query = format!("{}?limit=1{kept}", watch.uri().path()).parse().ok();
    let mut list = Request::get(Uri::from_parts(parts).ok()?).body(Body::empty()).ok()?;
    list.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
    Some((held, list))
}

/// What a list of one object says.
enum Look {
    /// The API server is at this version; `None` where versions are no numbers.
    At(Option<u64>),
    /// It refuses the list, and so it would refuse the watch.
    Refused(Response<Body>),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

async fn read(client: &Client, list: Request<Body>) -> Result<Look, Error> {
    let mut response = client.send(list).await?;
    if !response.status().is_success() {
        return Ok(Look::Refused(response));
    }
    let (mut items, mut octets) = (Items::default(), 0);
    let mut metadata: Option<Metadata> = None;
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame?;
        let Some(chunk) = frame.data_ref() else { continue };
        octets += chunk.len();
        let take = |part: Part<'_>| {
            if let Part::Metadata(text) = part {
                metadata = serde_json::from_slice(text).ok();
            }
            Ok::<(), NoList>(())
        };
        items.add(chunk, take).map_err(|error| failed(ErrorKind::InvalidData, error.0))?;
        if metadata.is_some() && octets > ENOUGH {
            break;
        }
    }
    let metadata = metadata.ok_or_else(|| failed(ErrorKind::InvalidData, "it has no metadata"))?;
    Ok(Look::At(metadata.resource_version.parse().ok()))
}

fn failed(kind: ErrorKind, why: &str) -> Error {
    let text = format!("cannot list one object before a watch: {why}");
    Error::ReadEvents(std::io::Error::new(kind, text))
}

/// The answer of an API server to a watch at a version that it has forgotten.
fn expired(held: u64, version: u64) -> Response<Body> {
    let message = format!("the version {held} is ahead of the API server, which is at {version}");
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
                        "code": 410, "message": message});
    let event = format!("{}\n", json!({"type": "ERROR", "object": status}));
    let mut response = Response::new(Body::from(event.into_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
