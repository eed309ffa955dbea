//! `/livez /readyz /metrics` of the operator. A standby is ready: it is there to take over.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use process::http;
use process::metrics::Form;

use crate::controller::crd::{ADVICE, Definition};
use crate::runtime::metrics::Metrics;

/// HTTP connections at a time: of kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 128;

/// Serves until the process ends. Called inside of the runtime.
///
/// # Errors
/// When the address cannot be had.
pub fn start(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    definition: Arc<Definition>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(http::bind(&http::candidates(address))?)
        .context("cannot listen for HTTP")?;
    // With port 0 only this line says which port it is.
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving probes and metrics");
    }
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(definition)
        .merge(Router::new().route("/metrics", get(page)).with_state(metrics));
    tokio::spawn(http::serve(listener, router, MAX_CONNECTIONS));
    Ok(())
}

/// Ready also while the CustomResourceDefinition is missing: another process would not find it either.
async fn readyz(State(definition): State<Arc<Definition>>) -> String {
    match definition.is_missing() {
        false => "ok\n".to_owned(),
        true => format!("ok\n{ADVICE}\n"),
    }
}

async fn page(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let form = Form::accepted(accepted);
    ([(header::CONTENT_TYPE, form.media_type())], metrics.page(form)).into_response()
}
