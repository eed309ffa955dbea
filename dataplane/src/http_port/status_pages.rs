//! `/config`: what this process runs, which data it has and which is missing, since when, and what it could not
//! serve. `/upstreams`: which servers it asks, and their state. `/cache`: what they said, where that may be shown.

use std::time::Instant;

use axum::Extension;
use axum::extract::{RawQuery, State as From};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use crds::without_effect::WithoutEffect;
use dataplane_core::{DataSource, Resource};
use process::http::Client;
use serde::Serialize;
use serde_json::Value;

use super::{Running, STARTING, Views, parameter};
use crate::forward::{Down, WithoutServers};
use crate::serve::{CertificateState, ClosedListener};
use crate::status::Skipped;
use crate::status::{BadFile, Rejection, Reported, Status};

/// Skipped objects, files and warnings that `/config` lists: the log names the first few only, so
/// this is where a person finds the others. All of them are counted.
const MAX_LISTED: usize = 1000;

/// What `/config` shows. Lists are cut to [`MAX_LISTED`]; counts are not.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    /// Random, another one in each process: shows whether the process was started again.
    instance_id: &'a str,
    revision: &'a str,
    format: u32,
    /// The highest format that this version reads: an operator writes no higher one.
    max_format: u32,
    origin: &'a str,
    document: &'a Value,
    unknown_fields: &'a [String],
    /// Fields that are accepted and have no effect in this version, and what happens instead.
    without_effect: &'a [WithoutEffect],
    rejection: Option<&'a Rejection>,
    is_configured: bool,
    role: &'a str,
    watches: Vec<Watch<'a>>,
    objects: serde_json::Map<String, Value>,
    skipped_objects: Vec<&'a Skipped>,
    skipped_object_count: usize,
    files: &'a [BadFile],
    warnings: &'a [String],
    warning_count: usize,
    certificates: Vec<CertificateState>,
    /// Encrypted listeners whose ports could not be opened.
    closed_listeners: Vec<ClosedListener>,
    /// Servers that are down, with the time since they are.
    upstreams_down: Vec<Down>,
    /// Servers that answer with errors only.
    upstreams_failing: Vec<Down>,
    /// Servers that lead back to ClusterDNS, and so are not asked.
    upstreams_looping: Vec<Down>,
    /// Groups that name no server which can be asked.
    upstreams_without_servers: Vec<WithoutServers>,
    other_kinds: &'a std::collections::BTreeMap<String, usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a crate::status::snapshot::SnapshotStatus>,
}

/// One stream of objects, as `/config` shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Watch<'a> {
    resource: &'static str,
    is_wanted: bool,
    is_followed: bool,
    source: &'static str,
    seconds_since_contact: Option<u64>,
    /// What is wrong, since when.
    trouble: Option<&'a str>,
    trouble_seconds: Option<u64>,
    events: u64,
    relists: u64,
    failures: u64,
    decode_failures: u64,
}

fn watches(reported: &Reported) -> Vec<Watch<'_>> {
    let resources = Resource::ALL.iter().map(|resource| resource.plural()).zip(&reported.feeds);
    let all = resources.chain(reported.configuration.iter().map(|feed| ("configmaps", feed)));
    all.map(|(resource, feed)| Watch {
        resource,
        is_wanted: feed.is_wanted,
        is_followed: feed.is_followed,
        source: match feed.source {
            DataSource::None => "none",
            DataSource::Snapshot { .. } => "snapshot",
            DataSource::Live => "live",
        },
        seconds_since_contact: feed.age().map(|age| age.as_secs()),
        trouble: feed.trouble.as_ref().map(|trouble| trouble.reason.as_str()),
        trouble_seconds: feed.trouble.as_ref().map(|trouble| trouble.since.elapsed().as_secs()),
        events: feed.events,
        relists: feed.relists,
        failures: feed.failures,
        decode_failures: feed.undecodable,
    })
    .collect()
}

/// Answers `/config` with [`Shown`] as JSON.
pub(super) async fn config(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
) -> Response {
    if views.running.get().is_none() {
        return STARTING.into_response();
    }
    let (running, status) = (views.running.clone(), views.status.clone());
    let write = move || running.get().map(|running| text(running, &status)).unwrap_or_default();
    views.pages.page(client.0, "application/json", write).await
}

fn text(running: &Running, status: &Status) -> String {
    let upstreams = running.state.published.load().upstreams.clone();
    // Written without the lock, which the source waits for.
    let reported = status.read().clone();
    let objects = Resource::ALL.iter().zip(reported.objects);
    let shown = Shown {
        instance_id: &running.state.identity.instance_id,
        revision: &reported.running.revision,
        format: reported.running.format,
        max_format: crds::config::FORMAT,
        origin: &reported.running.origin,
        document: &reported.running.document,
        unknown_fields: &reported.running.unknown_fields,
        without_effect: &reported.running.without_effect
            [..reported.running.without_effect.len().min(MAX_LISTED)],
        rejection: reported.rejection.as_deref(),
        is_configured: !reported.is_unconfigured,
        role: &reported.role,
        watches: watches(&reported),
        objects: objects.map(|(kind, count)| (kind.plural().into(), count.into())).collect(),
        skipped_objects: reported.skipped.first(MAX_LISTED),
        skipped_object_count: reported.skipped.len(),
        files: &reported.bad_files[..reported.bad_files.len().min(MAX_LISTED)],
        warnings: &reported.warnings[..reported.warnings.len().min(MAX_LISTED)],
        warning_count: reported.warnings.len(),
        certificates: running.serving.certificates(),
        closed_listeners: running.serving.closed_listeners(),
        upstreams_down: upstreams.down(Instant::now(), MAX_LISTED),
        upstreams_failing: upstreams.failing(Instant::now(), MAX_LISTED),
        upstreams_looping: upstreams.looping(Instant::now(), MAX_LISTED),
        upstreams_without_servers: upstreams.without_servers(MAX_LISTED),
        other_kinds: &reported.other_kinds,
        snapshot: reported.snapshot.folder.is_some().then_some(&reported.snapshot),
    };
    let mut text = serde_json::to_string_pretty(&shown).expect("strings and numbers only");
    text.push('\n');
    text
}

/// What `/upstreams` says of a format that it does not have.
const FORMATS: &str = "write /upstreams, /upstreams?format=json or /upstreams?format=text\n";

/// `/upstreams`: JSON, or a table with `?format=text`.
pub(super) async fn upstreams(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    RawQuery(query): RawQuery,
) -> Response {
    if views.running.get().is_none() {
        return STARTING.into_response();
    }
    let is_text = match parameter(query.as_deref().unwrap_or_default(), "format") {
        None | Some("json") => false,
        Some("text") => true,
        Some(_) => return (StatusCode::BAD_REQUEST, FORMATS).into_response(),
    };
    let kind = if is_text { "text/plain; charset=utf-8" } else { "application/json" };
    let running = views.running.clone();
    let write =
        move || running.get().map(|running| upstreams_page(running, is_text)).unwrap_or_default();
    views.pages.page(client.0, kind, write).await
}

fn upstreams_page(running: &Running, is_text: bool) -> String {
    let upstreams = running.state.published.load().upstreams.clone();
    let view = upstreams.view(Instant::now());
    if is_text {
        return view.text();
    }
    let mut text = serde_json::to_string_pretty(&view).expect("strings and numbers only");
    text.push('\n');
    text
}

/// What `/cache` says where it is off.
const NOT_EXPOSED: &str = "the cache shows what clients asked: write spec.cache.expose, or start with --expose-cache, to see it here\n";

/// What `/cache` says of a place that is no number: the first page again would send a script around in a circle.
const PLACES: &str = "write /cache, or /cache?from=N with the `next` of another page\n";

/// `/cache`: some entries as JSON; `?from=N` shows those from the `next` of another page on.
pub(crate) async fn cache(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(running) = views.running.get() else { return STARTING.into_response() };
    if !running.is_cache_exposed && !running.configs.borrow().cache.expose {
        return (StatusCode::NOT_FOUND, NOT_EXPOSED).into_response();
    }
    let from = parameter(query.as_deref().unwrap_or_default(), "from").map(str::parse);
    let Ok(from) = from.unwrap_or(Ok(0)) else {
        return (StatusCode::BAD_REQUEST, PLACES).into_response();
    };
    let running = views.running.clone();
    let write = move || running.get().map(|running| cache_page(running, from)).unwrap_or_default();
    views.pages.page(client.0, "application/json", write).await
}

fn cache_page(running: &Running, from: usize) -> String {
    let forwarder = &running.forwarder;
    let page = forwarder.cache().page(from, forwarder.clock().now_ms());
    let mut text = serde_json::to_string_pretty(&page).expect("strings and numbers only");
    text.push('\n');
    text
}
