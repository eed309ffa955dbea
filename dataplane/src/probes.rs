//! `/livez /readyz /metrics /config` on a thread of their own, so that a flood of queries cannot
//! make a probe fail (D6).

mod bind;
mod bounded;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Context;
use axum::Router;
use axum::extract::State as From;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dataplane_core::{DataSource, Resource};
use serde::Serialize;
use serde_json::Value;

use bounded::Bounded;

pub use bind::bind;

use crate::metrics::Metrics;
use crate::snapshot::waits_for_live;
use crate::source::Skipped;
use crate::source::feed::Feed;
use crate::source::report::{BadFile, Rejection, Report, Told};

/// Skipped objects, files and warnings that `/config` lists: the log names the first few only, so
/// this is where a person finds the others. All of them are counted.
const MAX_LISTED: usize = 1000;
/// What there is to see until the source has been opened; `/livez` and `/readyz` have an answer from the start.
const STARTING: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "starting: the source is being read\n");

/// What decides `/readyz` besides the source.
#[derive(Debug, Default)]
pub struct Health {
    is_serving: AtomicBool,
    /// Once there is data, its want is no reason any more (E43).
    had_data: AtomicBool,
    is_leaving: AtomicBool,
}

impl Health {
    /// The sockets are open.
    pub fn serving(&self) {
        self.is_serving.store(true, Ordering::Relaxed);
    }

    /// The process is on its way out, and clients should go elsewhere (E45).
    pub fn leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }
}

/// What the handlers read.
#[derive(Clone, Debug)]
pub struct Views {
    /// Ready or not.
    pub health: Arc<Health>,
    /// What the source tells.
    pub report: Arc<Report>,
    /// Numbers; none until there are sockets to count for.
    pub metrics: Arc<OnceLock<Metrics>>,
}

/// Serves until the process ends.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(listener: std::net::TcpListener, views: Views) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime of the HTTP thread")?;
    let serve = move || {
        runtime.block_on(async {
            let listener = Bounded::new(tokio::net::TcpListener::from_std(listener)?);
            axum::serve(listener, router(views)).await
        })
    };
    std::thread::Builder::new()
        .name("http".into())
        .spawn(move || {
            if let Err(error) = serve() {
                tracing::error!(%error, "the HTTP listener ended: probes and metrics are gone");
            }
        })
        .context("cannot start the HTTP thread")?;
    Ok(())
}

fn router(views: Views) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/config", get(config))
        .with_state(views)
}

async fn readyz(From(views): From<Views>) -> (StatusCode, String) {
    match why_not_ready(&views.health, &views.report) {
        reasons if reasons.is_empty() => {
            (StatusCode::OK, format!("ready\n{}", snapshot_note(&views.report)))
        }
        reasons => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready:\n- {}\n", reasons.join("\n- ")))
        }
    }
}

/// E43: never because of what is refused or away, once ready.
pub fn why_not_ready(health: &Health, report: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(reason) = why_no_configuration(&report.read()) {
        reasons.push(reason);
    }
    if !health.had_data.load(Ordering::Relaxed) {
        let lacks = why_no_data(&report.read());
        health.had_data.store(lacks.is_empty(), Ordering::Relaxed);
        reasons.extend(lacks);
    }
    if !health.is_serving.load(Ordering::Relaxed) {
        reasons.push("the DNS sockets are not open yet".to_owned());
    }
    if health.is_leaving.load(Ordering::Relaxed) {
        reasons.push("draining: the process was asked to end".to_owned());
    }
    reasons
}

/// E44; nothing once there was one.
fn why_no_configuration(told: &Told) -> Option<String> {
    if !told.is_unconfigured {
        return None;
    }
    let refused = told.rejection.iter().flat_map(|rejection| &rejection.violations);
    let refused: Vec<&str> = refused.map(|violation| violation.message.as_str()).collect();
    let why = match refused.is_empty() {
        true => told.configuration.as_ref().map(Feed::explanation).unwrap_or_default(),
        false => refused.join("; "),
    };
    Some(format!("the configuration is not known, so nothing is answered: {why}"))
}

/// Live, or from a snapshot that is young enough or has waited long enough.
fn why_no_data(told: &Told) -> Vec<String> {
    if is_live(told) {
        return Vec::new();
    }
    if let Some(loaded) = told.snapshot.loaded
        && waits_for_live(loaded, Instant::now(), told.source_answers)
    {
        return vec![
            "the snapshot is more than 5 min old: live data gets 10 s to arrive".to_owned(),
        ];
    }
    let lacking = Resource::ALL.iter().zip(&told.feeds).filter(|(_, feed)| !feed.is_answerable());
    let reason = |(resource, feed): (&Resource, &Feed)| {
        let (resource, why) = (resource.plural(), feed.explanation());
        format!("no complete list of {resource} has been read yet: {why}")
    };
    lacking.map(reason).collect()
}

fn is_live(told: &Told) -> bool {
    told.feeds.iter().all(|feed| !feed.is_wanted || feed.source == DataSource::Live)
}

/// What a person should know of data that is not live, a line of its own.
fn snapshot_note(report: &Report) -> String {
    let told = report.read();
    match told.snapshot.loaded {
        Some(loaded) if !is_live(&told) => format!(
            "answers come from a snapshot that was confirmed {} s ago: no complete list of objects \
             has been read yet\n",
            loaded.age_s + loaded.at.elapsed().as_secs()
        ),
        Some(_) | None => String::new(),
    }
}

async fn metrics(From(views): From<Views>) -> Response {
    let Some(metrics) = views.metrics.get() else { return STARTING.into_response() };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.text()).into_response()
}

/// What `/config` shows. Lists are cut to [`MAX_LISTED`]; counts are not.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    revision: &'a str,
    format: u32,
    /// The highest format that this version reads: an operator writes no higher one.
    max_format: u32,
    origin: &'a str,
    document: &'a Value,
    unknown_fields: &'a [String],
    rejection: Option<&'a Rejection>,
    is_configured: bool,
    role: &'a str,
    watches: Vec<Watch<'a>>,
    objects: serde_json::Map<String, Value>,
    skipped_objects: &'a [Skipped],
    skipped_object_count: usize,
    files: &'a [BadFile],
    warnings: &'a [String],
    warning_count: usize,
    other_kinds: &'a std::collections::BTreeMap<String, usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a crate::snapshot::Told>,
}

/// One stream of objects, as `/config` shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Watch<'a> {
    resource: &'static str,
    is_wanted: bool,
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

fn watches(told: &Told) -> Vec<Watch<'_>> {
    let resources = Resource::ALL.iter().map(|resource| resource.plural()).zip(&told.feeds);
    let all = resources.chain(told.configuration.iter().map(|feed| ("configmaps", feed)));
    all.map(|(resource, feed)| Watch {
        resource,
        is_wanted: feed.is_wanted,
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

async fn config(From(views): From<Views>) -> Response {
    if views.metrics.get().is_none() {
        return STARTING.into_response();
    }
    let told = views.report.read();
    let objects = Resource::ALL.iter().zip(told.objects);
    let shown = Shown {
        revision: &told.running.revision,
        format: told.running.format,
        max_format: crds::config::FORMAT,
        origin: &told.running.origin,
        document: &told.running.document,
        unknown_fields: &told.running.unknown_fields,
        rejection: told.rejection.as_ref(),
        is_configured: !told.is_unconfigured,
        role: &told.role,
        watches: watches(&told),
        objects: objects.map(|(kind, count)| (kind.plural().into(), count.into())).collect(),
        skipped_objects: &told.skipped[..told.skipped.len().min(MAX_LISTED)],
        skipped_object_count: told.skipped.len(),
        files: &told.bad_files[..told.bad_files.len().min(MAX_LISTED)],
        warnings: &told.warnings[..told.warnings.len().min(MAX_LISTED)],
        warning_count: told.warnings.len(),
        other_kinds: &told.other_kinds,
        snapshot: told.snapshot.folder.is_some().then_some(&told.snapshot),
    };
    let mut text = serde_json::to_string_pretty(&shown).expect("strings and numbers only");
    text.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
