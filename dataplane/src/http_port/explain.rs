//! `/explain`: why a question is answered as it is. For clients on this machine's own loopback only: it shows what DNS
//! hides (N41), so it takes the right to forward a port of the pod, which the API server checks.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::{RawQuery, State as From};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Running, STARTING, Views};
use crate::explain::{Decided, Explanation, Form, Question, Scene, decide};
use process::http::Client;

/// How long the source gets to say which objects an answer came from.
const PATIENCE: Duration = Duration::from_secs(2);

/// What clients from elsewhere read.
pub(super) const NOT_FROM_HERE: &str = "explanations show what DNS hides, so they are for loopback only: \
     kubectl port-forward POD 9153, then ask 127.0.0.1:9153 by this address\n";

/// `/explain?name=…&type=…&client=…&format=…`: text, or JSON where the Accept header or `format` asks for it.
pub(super) async fn explain(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if !client.is_from_here() {
        return (StatusCode::FORBIDDEN, NOT_FROM_HERE).into_response();
    }
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let (explanation, form) =
        match of(&views, client.0, &query.unwrap_or_default(), Form::accepted(accepted)).await {
            Ok(explained) => explained,
            Err(refused) => return refused.into_response(),
        };
    let (kind, write): (_, fn(&Explanation) -> String) = match form {
        Form::Text => ("text/plain; charset=utf-8", Explanation::text),
        Form::Json => ("application/json", json),
    };
    views.pages.page(client.0, kind, move || write(&explanation)).await
}

fn json(explanation: &Explanation) -> String {
    let mut text = serde_json::to_string_pretty(explanation).expect("strings and numbers only");
    text.push('\n');
    text
}

/// The explanation, or the status and what is wrong.
pub(super) async fn of(
    views: &Views,
    asker: IpAddr,
    query: &str,
    form: Form,
) -> Result<(Explanation, Form), (StatusCode, String)> {
    let (question, form) = Question::read(query, asker, form)
        .map_err(|wrong| (StatusCode::BAD_REQUEST, format!("{wrong}\n")))?;
    let Some(running) = views.running.get() else {
        return Err((STARTING.0, STARTING.1.to_owned()));
    };
    let revision = views.status.read().running.revision.clone();
    let decided = decided(running, &revision, &question);
    if decided.sources.is_empty() {
        return Ok((decided.with(Some(Vec::new())), form));
    }
    let Some(asked) = running.state.inspections.ask(decided.sources.clone()) else {
        let why = "too many explanations at once: ask again\n".to_owned();
        return Err((StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let identified = tokio::time::timeout(PATIENCE, asked).await.ok().and_then(Result::ok);
    Ok((decided.with(identified), form))
}

fn decided(running: &Running, revision: &str, question: &Question) -> Decided {
    let published = running.state.published.load_full();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let scene = Scene {
        state: &running.state,
        published: &published,
        forwarder: &running.forwarder,
        revision,
        now_s,
        now: Instant::now(),
    };
    decide(&scene, question)
}
