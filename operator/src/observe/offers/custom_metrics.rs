//! Whether a metrics adapter offers the queries per second of our pods: an autoscaler that asks for a metric that does not
//! exist never takes a pod away.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use crate::names::QUERIES_PER_SECOND;
use crate::runtime::decode::ReadByObject;
use crate::runtime::time_limit::within_time;

/// Time for the answer, which another vendor gives: the start of the operator waits for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Octets of the list: an adapter has a line for each metric of each kind, some thousands with its default rules.
const MAX_OCTETS: usize = 8 << 20;

/// What the metrics API has, as far as it counts.
#[derive(Deserialize)]
struct List<'t> {
    #[serde(borrow)]
    resources: Vec<Listed<'t>>,
}

#[derive(Deserialize)]
struct Listed<'t> {
    #[serde(borrow)]
    name: Cow<'t, str>,
}

/// Whether pods have the metric in this version of the metrics API.
///
/// # Errors
/// The API does not answer in time, refuses, or answers with too much or with something else.
pub(super) async fn has_queries_per_second(
    client: &Client,
    group_version: &str,
) -> anyhow::Result<bool> {
    let list = within_time(PATIENCE, async { Ok(list(client, group_version).await) }).await??;
    let list: List<'_> = serde_json::from_slice(&list).context("it gave no list of metrics")?;
    let wanted = format!("pods/{QUERIES_PER_SECOND}");
    Ok(list.resources.iter().any(|metric| metric.name == wanted))
}

async fn list(client: &Client, group_version: &str) -> anyhow::Result<Bytes> {
    let mut request = Request::get(format!("/apis/{group_version}")).body(Body::empty())?;
    // The client would read the whole reply before the limit below counts.
    request.extensions_mut().insert(ReadByObject);
    let reply = client.send(request).await?;
    ensure!(reply.status().is_success(), "the API server says {}", reply.status());
    let body = Limited::new(reply.into_body(), MAX_OCTETS).collect().await;
    Ok(body.map_err(|error| anyhow!("{error}"))?.to_bytes())
}
