//! `/top`: the heaviest names, clients and denied names. GET shows what was counted, POST has it counted for a limited time.
//! For loopback only, as `/explain`: it shows what clients ask.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{RawQuery, State as From};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use process::http::Client;

use super::{Running, STARTING, Views};
use crate::taps::LONGEST_TOP;

/// For how long queries are counted if the request does not say it.
const DEFAULT: Duration = Duration::from_secs(60);
/// What clients from elsewhere read.
const NOT_FROM_HERE: &str = "what clients ask is for loopback only: kubectl clusterdns top, or \
     kubectl port-forward POD 9153, then ask 127.0.0.1:9153 by this address\n";
/// The reply to a page in a browser that tries to switch it on.
const FROM_A_BROWSER: &str = "a web page may not switch this on: ask without the header Origin\n";

/// `GET /top`: the heaviest names and clients, as JSON.
pub(super) async fn show(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
) -> Response {
    match client.is_from_here() {
        true => page(&views, client).await,
        false => (StatusCode::FORBIDDEN, NOT_FROM_HERE).into_response(),
    }
}

/// POST `/top?seconds=N`: the same, and it is counted for that time.
pub(super) async fn switch_on(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if !client.is_from_here() {
        return (StatusCode::FORBIDDEN, NOT_FROM_HERE).into_response();
    }
    // Browsers send it with each request of a page that is no GET (Fetch standard, "origin header").
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, FROM_A_BROWSER).into_response();
    }
    let Some(running) = views.running.get() else { return STARTING.into_response() };
    match during(query.as_deref().unwrap_or_default()) {
        Ok(during) => {
            running.state.taps.count_top(Instant::now(), during);
            page(&views, client).await
        }
        Err(wrong) => (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    }
}

async fn page(views: &Views, client: Client) -> Response {
    if views.running.get().is_none() {
        return STARTING.into_response();
    }
    let running = views.running.clone();
    let write = move || running.get().map(text).unwrap_or_default();
    views.pages.page(client.0, "application/json", write).await
}

fn text(running: &Running) -> String {
    let view = running.state.taps.top(Instant::now());
    let mut text = serde_json::to_string_pretty(&view).expect("strings and numbers only");
    text.push('\n');
    text
}

/// The time that a request asks for.
fn during(query: &str) -> Result<Duration, String> {
    if query.is_empty() {
        return Ok(DEFAULT);
    }
    let seconds = query.strip_prefix("seconds=").and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds| (1..=LONGEST_TOP.as_secs()).contains(seconds));
    let wrong = || format!("write /top?seconds=N with 1 to {}", LONGEST_TOP.as_secs());
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_bounded_and_nonsense_is_refused() {
        assert_eq!(during(""), Ok(DEFAULT));
        assert_eq!(during("seconds=600"), Ok(LONGEST_TOP));
        for query in
            ["seconds=0", "seconds=601", "seconds=", "seconds=x", "minutes=1", "seconds=5&a=b"]
        {
            assert!(during(query).unwrap_err().contains("1 to 600"), "{query}");
        }
    }
}
