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
use dataplane_core::Resource;
use serde::Serialize;
use serde_json::Value;

use bounded::Bounded;

use crate::metrics::Metrics;
use crate::snapshot::waits_for_live;
use crate::source::Skipped;
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
fn why_not_ready(health: &Health, report: &Report) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if !health.had_data.load(Ordering::Relaxed) {
        match why_no_data(&report.read()) {
            Some(reason) => reasons.push(reason),
            None => health.had_data.store(true, Ordering::Relaxed),
        }
    }
    if !health.is_serving.load(Ordering::Relaxed) {
        reasons.push("the DNS sockets are not open yet");
    }
    if health.is_leaving.load(Ordering::Relaxed) {
        reasons.push("draining: the process was asked to end");
    }
    reasons
}

/// Live, or from a snapshot that is young enough or has waited long enough.
fn why_no_data(told: &Told) -> Option<&'static str> {
    match (told.last_contact, told.snapshot.loaded) {
        (Some(_), _) => None,
        (None, None) => Some("no complete list of objects has been read yet"),
        (None, Some(loaded)) => waits_for_live(loaded, Instant::now(), told.source_answers)
            .then_some("the snapshot is more than 5 min old: live data gets 10 s to arrive"),
    }
}

/// What a person should know of data that is not live, a line of its own.
fn snapshot_note(report: &Report) -> String {
    let told = report.read();
    match (told.last_contact, told.snapshot.loaded) {
        (None, Some(loaded)) => format!(
            "answers come from a snapshot that was confirmed {} s ago: no complete list of objects \
             has been read yet\n",
            loaded.age_s + loaded.at.elapsed().as_secs()
        ),
        (Some(_), _) | (None, None) => String::new(),
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
        assert_eq!(why_not_ready(&health, &report).len(), 2);
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

    fn loaded(age_s: u64) -> crate::snapshot::Loaded {
        crate::snapshot::Loaded { confirmed_at_s: 0, age_s, at: Instant::now() }
    }

    #[test]
    fn k2_a_snapshot_is_enough_and_says_that_it_is_one() {
        let (health, report) = (Health::default(), Report::default());
        health.serving();
        report.read().snapshot.loaded = Some(loaded(90));
        assert!(why_not_ready(&health, &report).is_empty());
        assert!(snapshot_note(&report).contains("confirmed 9"));
        report.contact();
        assert_eq!(snapshot_note(&report), "");
    }

    #[test]
    fn e43_with_an_old_snapshot_live_data_comes_first_if_the_source_answers() {
        let (health, report) = (Health::default(), Report::default());
        health.serving();
        report.read().snapshot.loaded = Some(loaded(301));
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
