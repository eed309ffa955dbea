//! `/`, `/livez /readyz /metrics /config /upstreams /explain /top /look` on a thread of their own, so that a flood of queries
//! cannot make a probe fail (D6), nor one of HTTP connections (L14).
//!
//! Kubelet asks on the same port as all others, so that a pod's template need not change with the image, and has a share
//! of its own there: connections are shared by client address, and pages that take time are written elsewhere. A port of
//! its own would be as open to a flood as this one.

mod pages;
mod status_pages;
mod home;
mod explain;
mod top;
mod look;

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use anyhow::Context;
use axum::extract::State as From;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use crds::Config;
use dataplane_core::{DataSource, Resource};

pub use home::Samples;
pub use look::Looks;
pub use pages::Pages;
use process::http::{self, Client};
pub(crate) use status_pages::cache;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::background;
use crate::forward::Forwarder;
use crate::metrics::{Form, Metrics};
use crate::readiness::{Health, is_live, not_live, why_not_ready};
use crate::serve::ServeCounters;
use crate::state::State;
use crate::status::feed::Feed;
use crate::status::{Reported, Status};
use crate::telemetry::printable;

/// HTTP connections at a time: of kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 256;
/// The answer until the source has been opened; `/livez` and `/readyz` have an answer from the start.
pub(crate) const STARTING: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "starting: the source is being read\n");

/// What the HTTP pages are made from.
#[derive(Clone, Debug)]
pub struct Views {
    /// Decides `/readyz`, with the status.
    pub health: Arc<Health>,
    pub status: Arc<Status>,
    /// Set once the sockets are open; `None` before.
    pub running: Arc<OnceLock<Running>>,
    /// The pages that are being written or read.
    pub pages: Pages,
}

/// What a process has that answers DNS.
#[derive(Debug)]
pub struct Running {
    pub metrics: Metrics,
    /// For `/upstreams`: the servers in use.
    pub state: Arc<State>,
    /// The certificates of encrypted listeners.
    pub serving: Arc<ServeCounters>,
    /// Whose cache decides what `/explain` says of names that are not ours.
    pub forwarder: Arc<Forwarder>,
    /// Whether --expose-cache asks for `/cache`, which shows what clients asked; else the configuration decides.
    pub is_cache_exposed: bool,
    /// The configuration in use.
    pub configs: watch::Receiver<Arc<Config>>,
    /// For the rates on `/`.
    pub samples: Samples,
    /// Places and identity for the page `/look`.
    pub looks: Looks,
}

/// Serves until the process ends.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(listener: std::net::TcpListener, views: Views) -> anyhow::Result<()> {
    let runtime = runtime().context("cannot start the runtime of the HTTP thread")?;
    let serve = move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            http::serve(listener, router(views), MAX_CONNECTIONS).await;
            std::io::Result::Ok(())
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

/// A runtime for pages. A thread that it starts writes them, one after another, and gives way to those that answer clients;
/// the thread that runs it, which answers probes, does not.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1).on_thread_start(background::give_way).build()
}

fn router(views: Views) -> Router {
    Router::new()
        .route("/", get(home::home))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/config", get(status_pages::config))
        .route("/upstreams", get(status_pages::upstreams))
        .route("/cache", get(cache))
        .route("/explain", get(explain::explain))
        .route("/top", get(top::show).post(top::switch_on))
        .route("/look", get(look::page))
        .with_state(views)
}

async fn readyz(From(views): From<Views>) -> (StatusCode, String) {
    match why_not_ready(&views.health, &views.status) {
        reasons if reasons.is_empty() => {
            let notes = [notes(&views.status), upstream_notes(&views)].concat();
            (StatusCode::OK, format!("ready\n{notes}"))
        }
        reasons => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready:\n- {}\n", reasons.join("\n- ")))
        }
    }
}

/// Warnings about data that is not live or from another cluster, about snapshots that cannot be written, about watches that
/// fail, and about a configuration that was refused, one line each.
fn notes(status: &Status) -> String {
    let reported = status.read();
    let mut notes = snapshot_notes(&reported);
    notes.push_str(&feed_notes(&reported));
    if let Some(rejection) = &reported.rejection {
        let first = rejection.violations.first().map(|violation| &*violation.field);
        let first = first.filter(|field| !field.is_empty());
        let field = first.map(|field| format!(" because of {field}")).unwrap_or_default();
        let instead = match reported.is_unconfigured {
            true => "none is in use yet",
            false => "the configuration before it runs",
        };
        let origin = &rejection.origin;
        let note = match rejection.is_of_none() {
            true => {
                let why = rejection.violations.first().map(|violation| &*violation.message);
                format!("no configuration was given, and {instead}: {}", why.unwrap_or_default())
            }
            false => format!(
                "{origin} was refused{field}, and {instead}: /config says what to write instead"
            ),
        };
        notes.push_str(&printable(&format!("warning: {note}")));
        notes.push('\n');
    }
    if reported.serves_former_cluster() {
        notes.push_str(
            "the API server is of another cluster than before (kube-system has another uid): answers \
             are those of the former cluster until every kind of object is listed again\n",
        );
    }
    notes
}

/// What is not heard of: once ready, a process stays ready, so nothing else on this page says it (E43).
fn feed_notes(reported: &Reported) -> String {
    let resources = Resource::ALL.iter().map(|resource| resource.plural()).zip(&reported.feeds);
    let of_resource = |(resource, feed): (&str, &Feed)| {
        let what = match (feed.source, &feed.trouble) {
            (DataSource::None, _) => format!("no complete list of {resource} has been read yet"),
            (DataSource::Live | DataSource::Snapshot { .. }, Some(_)) => {
                format!("changes of {resource} do not arrive")
            }
            (DataSource::Live | DataSource::Snapshot { .. }, None) => return None,
        };
        Some(format!("{what}: {}", feed.explanation()))
    };
    let resources = resources.filter(|(_, feed)| feed.is_followed).filter_map(of_resource);
    let configuration = reported.configuration.as_ref().filter(|feed| feed.trouble.is_some());
    let configuration = configuration
        .map(|feed| format!("changes of the configuration do not arrive: {}", feed.explanation()));
    let all = resources.chain(configuration);
    all.map(|note| format!("warning: {}\n", printable(&note))).collect()
}

/// What answers come from, and what the next start cannot begin with: the pod itself lacks nothing until then (E40).
fn snapshot_notes(reported: &Reported) -> String {
    let loaded = match reported.snapshot.loaded {
        Some(loaded) if !is_live(reported) => format!(
            "answers come from a snapshot that was confirmed {} s ago{}: no complete list of {} has \
             been read yet\n",
            loaded.age(SystemTime::now()).as_secs(),
            if loaded.is_partial { " and had no room for all objects" } else { "" },
            not_live(reported).join(", ")
        ),
        Some(_) | None => String::new(),
    };
    let unwritten = reported.snapshot.error.as_deref().map(|error| {
        let error = printable(error);
        format!(
            "warning: snapshots cannot be written, so a restart finds an old one or none: {error}\n"
        )
    });
    loaded + &unwritten.unwrap_or_default()
}

/// Warnings about upstreams: those that lead back to us, a resolv.conf that cannot be used (FW3, FW50). Never a
/// reason to be unready.
fn upstream_notes(views: &Views) -> String {
    let Some(running) = views.running.get() else { return String::new() };
    let upstreams = Arc::clone(&running.state.published.load().upstreams);
    upstreams.notes(Instant::now()).into_iter().map(|note| format!("warning: {note}\n")).collect()
}

/// The first value of this parameter of a URL's query, as it is written there.
fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

async fn metrics(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    headers: HeaderMap,
) -> Response {
    metrics_page(&views, client, &headers, Metrics::page).await
}

/// Metrics as `page` writes them, in the form that the scraper accepts.
pub(crate) async fn metrics_page(
    views: &Views,
    client: Client,
    headers: &HeaderMap,
    page: impl FnOnce(&Metrics, Form) -> Vec<u8> + Send + 'static,
) -> Response {
    if views.running.get().is_none() {
        return STARTING.into_response();
    }
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let form = Form::accepted(accepted);
    let running = views.running.clone();
    let write =
        move || running.get().map(|running| page(&running.metrics, form)).unwrap_or_default();
    views.pages.page(client.0, form.media_type(), write).await
}

#[cfg(test)]
mod tests;
