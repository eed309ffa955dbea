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
    if !is_from_here(client, &headers) {
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

/// A client on this machine's own loopback that also asked for it.
pub(super) fn is_from_here(client: Client, headers: &HeaderMap) -> bool {
    client.0.is_loopback() && names_loopback(headers)
}

/// Does the request name loopback as its host, or nothing? A page of a browser whose name was bound to loopback after it was
/// loaded (DNS rebinding) sends that name in Host.
pub(super) fn names_loopback(headers: &HeaderMap) -> bool {
    let is_local = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    let name = host.map(|host| {
        let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let name = port.map_or(host, |(name, _)| name);
        name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name)
    });
    name.is_none_or(is_local)
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn n41_only_loopback_that_was_asked_for_reads_what_dns_hides() {
        let asked = |client: &str, host: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            host.map(|host| headers.insert(header::HOST, HeaderValue::from_static(host)));
            is_from_here(Client(client.parse().unwrap()), &headers)
        };
        for host in ["localhost", "localhost:9153", "127.0.0.1:9153", "127.0.0.1", "[::1]:9153"] {
            assert!(asked("127.0.0.1", Some(host)) && asked("::1", Some(host)), "{host}");
            assert!(!asked("10.0.0.7", Some(host)), "{host}");
        }
        assert!(asked("::1", None), "HTTP/1.0");
        for host in ["rebound.example", "rebound.example:9153", "10.0.0.1", "localhost.example", ""]
        {
            assert!(!asked("127.0.0.1", Some(host)), "{host}");
        }
    }
}
