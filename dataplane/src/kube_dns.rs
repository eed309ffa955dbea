//! The ports of kube-dns, for those who scrape or probe them: 8081 (`/readiness`, `/cache`), 10054 of the sidecar
//! (`/metrics`, `/healthcheck/<label>`) and 10055 of the resolver (`/metrics`). They are open while
//! `metrics.compatibility` has KubeDNS, on a thread of their own.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::{Path, State as From};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use crds::Config;
use crds::config::MetricNames;
use process::http::{self, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http_port::{Views, cache, metrics_page, runtime};
use crate::metrics::KubeDnsPage;
use crate::readiness::why_not_ready;
use crate::sidecar_probe::{Probe, repeat};

/// Connections of each port at a time: of kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 64;
/// Time until a port that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(10);

/// The numbers of the ports.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// `/readiness` and `/cache`, as kube-dns had them with `--healthz-port=8081`.
    pub health: u16,
    /// `/metrics` and `/healthcheck/<label>`, as the sidecar had them.
    pub sidecar: u16,
    /// The metrics of the resolver.
    pub resolver: u16,
}

impl Ports {
    /// Those of kube-dns.
    pub const USUAL: Ports = Ports { health: 8081, sidecar: 10_054, resolver: 10_055 };
}

/// Addresses of this process.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Where it answers DNS: what probes ask.
    pub own: SocketAddr,
    /// The address of its HTTP port: these ports are opened there too.
    pub http: IpAddr,
}

/// Follows the configurations on a thread of its own.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    views: Views,
    configs: watch::Receiver<Arc<Config>>,
    places: Places,
    ports: Ports,
) -> anyhow::Result<()> {
    let runtime = runtime().context("cannot start the runtime of the ports of kube-dns")?;
    let follow = move || runtime.block_on(follow(views, configs, places, ports));
    let thread = std::thread::Builder::new().name("kube-dns".into()).spawn(follow);
    thread.map(drop).context("cannot start a thread for the ports of kube-dns")
}

/// Opens and closes the ports as each configuration says, until the process ends.
async fn follow(
    views: Views,
    mut configs: watch::Receiver<Arc<Config>>,
    places: Places,
    ports: Ports,
) {
    let mut open: Option<(Arc<Config>, JoinSet<()>)> = None;
    loop {
        let config = configs.borrow_and_update().clone();
        let is_wanted = config.metrics.compatibility.contains(&MetricNames::KubeDNS);
        let is_same = |known: &Config| {
            known.metrics.probes == config.metrics.probes && known.domain == config.domain
        };
        let is_same = open.as_ref().is_some_and(|(known, _)| is_wanted && is_same(known));
        if !is_same {
            // Their ports must be closed before they are opened again.
            if let Some((_, mut tasks)) = open.take() {
                tasks.shutdown().await;
            }
            open = is_wanted.then(|| (config.clone(), opened(&views, &config, places, ports)));
        }
        if configs.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The tasks that ask and those that serve.
fn opened(views: &Views, config: &Config, places: Places, ports: Ports) -> JoinSet<()> {
    let probes = Probe::all(config, places.own);
    let mut tasks = JoinSet::new();
    for probe in probes.iter().cloned() {
        tasks.spawn(repeat(probe));
    }
    for (port, router) in routers(views, probes.into(), ports) {
        tasks.spawn(serve(SocketAddr::new(places.http, port), router));
    }
    tasks
}

/// Serves one port, as soon as it can be opened.
async fn serve(address: SocketAddr, router: Router) {
    let candidates = http::candidates(address);
    let mut is_said = false;
    loop {
        let listener = http::bind(&candidates)
            .and_then(|listener: TcpListener| Ok(tokio::net::TcpListener::from_std(listener)?));
        match listener {
            Ok(listener) => return http::serve(listener, router, MAX_CONNECTIONS).await,
            Err(error) if !is_said => {
                tracing::warn!(
                    %address,
                    error = format!("{error:#}"),
                    "a port of kube-dns (metrics.compatibility) is not open; it is tried again"
                );
                is_said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// What the pages are made from.
#[derive(Clone)]
struct Shown {
    views: Views,
    probes: Arc<[Arc<Probe>]>,
}

fn routers(views: &Views, probes: Arc<[Arc<Probe>]>, ports: Ports) -> [(u16, Router); 3] {
    let shown = Shown { views: views.clone(), probes };
    let health = Router::new()
        .route("/readiness", get(readiness))
        .with_state(shown.clone())
        .merge(Router::new().route("/cache", get(cache)).with_state(views.clone()));
    let sidecar = Router::new()
        .route("/metrics", get(sidecar_metrics))
        .route("/healthcheck/{label}", get(healthcheck))
        .with_state(shown.clone());
    let resolver = Router::new().route("/metrics", get(resolver_metrics)).with_state(shown);
    [(ports.health, health), (ports.sidecar, sidecar), (ports.resolver, resolver)]
}

/// `/readiness`: as `/readyz`.
async fn readiness(From(shown): From<Shown>) -> (StatusCode, String) {
    match why_not_ready(&shown.views.health, &shown.views.status) {
        reasons if reasons.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}

/// `/healthcheck/<label>`: how the last probe of this label went.
async fn healthcheck(From(shown): From<Shown>, Path(label): Path<String>) -> Response {
    let Some(probe) = shown.probes.iter().find(|probe| probe.label == label) else {
        let known: Vec<&str> = shown.probes.iter().map(|probe| probe.label.as_str()).collect();
        let text = format!("there is no probe of this label; there are: {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let (is_ok, text) = probe.report();
    let status = if is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn sidecar_metrics(
    client: Extension<Client>,
    From(shown): From<Shown>,
    headers: HeaderMap,
) -> Response {
    let page = KubeDnsPage::Sidecar(shown.probes.clone());
    metrics(client, &shown.views, &headers, page).await
}

async fn resolver_metrics(
    client: Extension<Client>,
    From(shown): From<Shown>,
    headers: HeaderMap,
) -> Response {
    metrics(client, &shown.views, &headers, KubeDnsPage::Resolver).await
}

async fn metrics(
    Extension(client): Extension<Client>,
    views: &Views,
    headers: &HeaderMap,
    page: KubeDnsPage,
) -> Response {
    metrics_page(views, client, headers, move |metrics, form| metrics.kube_dns(&page, form)).await
}
