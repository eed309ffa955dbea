//! `/livez /readyz /metrics /config` on a thread of their own, so that a flood of queries cannot
//! make a probe fail (D6).

mod bounded;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

use crate::metrics::Metrics;
use crate::snapshot::waits_for_live;
use crate::source::Skipped;
use crate::source::feed::Feed;
use crate::source::report::{BadFile, Rejection, Report, Told};

/// Skipped objects, files and warnings that `/config` lists: the log names the first few only, so
/// this is where a person finds the others. All of them are counted.
const MAX_LISTED: usize = 1000;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

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
    /// Numbers.
    pub metrics: Arc<Metrics>,
}

/// Takes the first address that can be had, of those that mean the same.
///
/// # Errors
/// When none can: the message says why and what to do.
pub fn bind(candidates: &[SocketAddr]) -> anyhow::Result<std::net::TcpListener> {
    let mut last = None;
    for &address in candidates {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some((address, error)),
        }
    }
    let (address, error) = last.context("no address for HTTP")?;
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process has this port: stop it, or choose another with --http"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not have ports below 1024: choose another with --http"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have this address: correct --http"
        }
        _ => "choose another address with --http",
    };
    Err(error).with_context(|| format!("cannot listen for HTTP on {address}: {advice}"))
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // [::] is every address of the machine, IPv4 ones too.
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
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
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], views.metrics.text()).into_response()
}

/// What `/config` shows. Lists are cut to [`MAX_LISTED`]; counts are not.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    revision: &'a str,
    format: u32,
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
    let told = views.report.read();
    let objects = Resource::ALL.iter().zip(told.objects);
    let shown = Shown {
        revision: &told.running.revision,
        format: told.running.format,
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
mod tests {
    use super::*;

    #[test]
    fn e43_readiness_explains_itself() {
        let (health, report) = (Health::default(), Report::default());
        report.read().feeds[0].failed("403".into());
        let reasons = why_not_ready(&health, &report);
        assert_eq!(reasons.len(), 1 + Resource::ALL.len());
        assert!(
            reasons[0].contains("services") && reasons[0].ends_with("for 0 s: 403"),
            "{reasons:?}"
        );
        report.contact();
        assert_eq!(why_not_ready(&health, &report), ["the DNS sockets are not open yet"]);
        health.serving();
        assert!(why_not_ready(&health, &report).is_empty());
        health.leaving();
        assert_eq!(why_not_ready(&health, &report), ["draining: the process was asked to end"]);
    }

    #[test]
    fn d5_readiness_never_drops_for_a_refused_configuration() {
        let (health, report) = (Health::default(), Report::default());
        report.contact();
        health.serving();
        report.reject(Rejection { origin: "a.yaml".into(), violations: Vec::new() });
        assert!(why_not_ready(&health, &report).is_empty());
    }

    fn is_loaded(report: &Report, age_s: u64) {
        let mut told = report.read();
        told.snapshot.loaded = Some(loaded(age_s));
        let source = DataSource::Snapshot { confirmed_at_s: 0 };
        told.feeds.iter_mut().for_each(|feed| feed.source = source);
    }

    fn loaded(age_s: u64) -> crate::snapshot::Loaded {
        crate::snapshot::Loaded { confirmed_at_s: 0, age_s, at: Instant::now() }
    }

    #[test]
    fn k2_a_snapshot_is_enough_and_says_that_it_is_one() {
        let (health, report) = (Health::default(), Report::default());
        health.serving();
        is_loaded(&report, 90);
        assert!(why_not_ready(&health, &report).is_empty());
        assert!(snapshot_note(&report).contains("confirmed 9"));
        report.contact();
        assert_eq!(snapshot_note(&report), "");
    }

    #[test]
    fn e43_with_an_old_snapshot_live_data_comes_first_if_the_source_answers() {
        let (health, report) = (Health::default(), Report::default());
        health.serving();
        is_loaded(&report, 301);
        assert_eq!(why_not_ready(&health, &report).len(), 1, "not tried yet");
        report.read().source_answers = Some(true);
        assert_eq!(why_not_ready(&health, &report).len(), 1);
        report.read().source_answers = Some(false);
        assert!(why_not_ready(&health, &report).is_empty());
        report.read().source_answers = Some(true);
        assert!(why_not_ready(&health, &report).is_empty(), "once reached it does not drop");
    }

    #[test]
    fn a_taken_port_says_what_to_do() {
        let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        let message = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(message.contains("another process has this port"), "{message}");
        assert!(message.contains(&address.to_string()), "{message}");
    }
}
