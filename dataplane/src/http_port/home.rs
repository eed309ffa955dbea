//! `/`: one page for people without Grafana at hand: what runs, how much is answered how fast, upstreams, cache, what is
//! skipped, and a box that explains an answer. Read only; no script, and nothing from elsewhere.

mod html;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{RawQuery, State as From};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use dataplane_core::{DataSource, Resource};

use super::{Running, STARTING, Views, explain};
use crate::explain::{Form, typed};
use crate::forward::View;
use crate::forward::cache::CacheResult;
use crate::origin::Origin;
use crate::rcode;
use crate::readiness::why_not_ready;
use crate::serve::{ServedOver, Totals};
use crate::status::{BadFile, Rejection, Skipped};
use process::histogram::Distribution;
use process::http::Client;

/// Skipped objects and warnings that the page lists; `/config` has more.
const MAX_LISTED: usize = 50;
/// Least time over which rates are computed; a page that is loaded again within it shows the same rates.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// The counters when the page was last loaded, for rates.
#[derive(Clone, Debug, Default)]
pub struct Samples(Arc<Mutex<[Option<Sample>; 2]>>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    replies: [u64; Origin::ALL.len()],
}

impl Samples {
    /// Replies a second since the look before this one, and how long ago that was; none at the first look.
    fn rates(
        &self,
        now: Instant,
        replies: [u64; Origin::ALL.len()],
    ) -> Option<(Duration, [f64; Origin::ALL.len()])> {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [latest, before] = &mut *samples;
        if latest.is_none_or(|latest| now.saturating_duration_since(latest.at) >= SAMPLE_EVERY) {
            *before = latest.replace(Sample { at: now, replies });
        }
        let before = before.as_ref()?;
        let span = now.saturating_duration_since(before.at);
        let rate = |place: usize| {
            replies[place].saturating_sub(before.replies[place]) as f64 / span.as_secs_f64()
        };
        (!span.is_zero()).then(|| (span, std::array::from_fn(rate)))
    }
}

/// Everything that the page shows.
struct Shown {
    version: String,
    pod_name: String,
    revision: String,
    /// Empty when it is ready.
    why_not_ready: Vec<String>,
    /// The configuration that was refused last, or was not given.
    rejection: Option<Arc<Rejection>>,
    /// No other one runs.
    is_unconfigured: bool,
    /// Fields that were written and that do nothing, each with why.
    ignored: Vec<String>,
    /// Files whose last good content is used.
    bad_files: Vec<BadFile>,
    bad_file_count: usize,
    outcomes: Vec<OutcomeRow>,
    /// The time that the rates are of.
    rate_span: Option<Duration>,
    rcodes: Vec<(&'static str, u64)>,
    upstreams: View,
    /// Entries, octets, and queries by what they found.
    cache: (usize, usize, Vec<(&'static str, u64)>),
    feeds: Vec<FeedRow>,
    skipped: Vec<Skipped>,
    skipped_count: usize,
    warnings: Vec<String>,
    warning_count: usize,
    explained: Option<Explained>,
}

/// One row of the table of replies: an origin and its count.
struct OutcomeRow {
    origin: &'static str,
    count: u64,
    /// Replies a second.
    rate: Option<f64>,
    /// Seconds, since the process began.
    mean_s: Option<f64>,
    /// Seconds that half of the replies, and 99 % of them, took at most; none above every bound.
    median_s: Option<f64>,
    slow_s: Option<f64>,
}

struct FeedRow {
    resource: &'static str,
    objects: usize,
    source: &'static str,
    contact_s: Option<u64>,
    trouble: Option<String>,
}

/// What was asked in the box, and the explanation or what is wrong.
struct Explained {
    name: String,
    qtype: String,
    text: String,
}

/// `GET /`: the start page.
pub(super) async fn home(
    Extension(client): Extension<Client>,
    From(views): From<Views>,
    RawQuery(query): RawQuery,
) -> Response {
    if views.running.get().is_none() {
        return STARTING.into_response();
    }
    let explained = match query.filter(|query| !query.is_empty()) {
        None => None,
        Some(query) => Some(explained(&views, client, &query).await),
    };
    let nonce = format!("{:016x}", getrandom::u64().unwrap_or_default());
    let policy = html::policy(&nonce);
    let pages = views.pages.clone();
    // What is shown is gathered there too: it locks the cache and reads all counters, which probes must not wait for.
    let write = move || {
        let running = views.running.get();
        running.map_or_else(String::new, |it| html::page(&shown(&views, it, explained), &nonce))
    };
    let mut response = pages.page(client.0, "text/html; charset=utf-8", write).await;
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

async fn explained(views: &Views, client: Client, query: &str) -> Explained {
    let (name, qtype) = typed(query);
    let text = match client.is_from_here() {
        false => explain::NOT_FROM_HERE.to_owned(),
        true => match explain::of(views, client.0, query, Form::Text).await {
            Ok((explanation, _)) => {
                let (name, qtype) = (explanation.name.clone(), explanation.qtype.clone());
                return Explained { name, qtype, text: explanation.text() };
            }
            Err((_, wrong)) => wrong,
        },
    };
    Explained { name, qtype, text }
}

fn shown(views: &Views, running: &Running, explained: Option<Explained>) -> Shown {
    let now = Instant::now();
    let totals: Vec<Totals> =
        ServedOver::ALL.iter().map(|over| running.metrics.traffic(*over)).collect();
    let replies = std::array::from_fn(|origin| {
        totals.iter().map(|totals| totals.by_rcode[origin].iter().sum::<u64>()).sum()
    });
    let rates = running.samples.rates(now, replies);
    let outcomes = Origin::ALL.into_iter().enumerate().map(|(place, origin)| {
        let took = totals
            .iter()
            .fold(Distribution::default(), |sum, totals| sum.plus(&totals.durations[place]));
        OutcomeRow {
            origin: origin.label(),
            count: replies[place],
            rate: rates.map(|(_, rates)| rates[place]),
            mean_s: (took.count() > 0).then(|| took.sum / took.count() as f64),
            median_s: took.at_most(0.5),
            slow_s: took.at_most(0.99),
        }
    });
    let of_code = |place: usize| {
        totals.iter().flat_map(|totals| &totals.by_rcode).map(|codes| codes[place]).sum()
    };
    let cache = running.forwarder.cache();
    let found = CacheResult::ALL.iter().map(|outcome| outcome.label()).zip(cache.outcomes());
    let why_not_ready = why_not_ready(&views.health, &views.status);
    let upstreams = running.state.published.load().upstreams.view(now);
    let reported = views.status.read().clone();
    let unknown = reported.running.unknown_fields.iter();
    let unknown = unknown.map(|field| format!("{field}: this version does not know it"));
    let without_effect = reported.running.without_effect.iter();
    let without_effect = without_effect.map(|it| format!("{}: {}", it.field, it.instead));
    let feeds = Resource::ALL.into_iter().zip(&reported.feeds).zip(reported.objects);
    Shown {
        version: running.state.identity.version.clone(),
        pod_name: running.state.identity.pod_name.clone(),
        revision: reported.running.revision.clone(),
        why_not_ready,
        rejection: reported.rejection.clone(),
        is_unconfigured: reported.is_unconfigured,
        ignored: unknown.chain(without_effect).take(MAX_LISTED).collect(),
        bad_files: reported.bad_files.iter().take(MAX_LISTED).cloned().collect(),
        bad_file_count: reported.bad_files.len(),
        outcomes: outcomes.collect(),
        rate_span: rates.map(|(span, _)| span),
        rcodes: rcode::LABELS
            .into_iter()
            .enumerate()
            .map(|(at, code)| (code, of_code(at)))
            .collect(),
        upstreams,
        cache: (cache.entries(), cache.octets(), found.collect()),
        feeds: feeds
            .filter(|((_, feed), _)| feed.is_followed)
            .map(|((resource, feed), objects)| FeedRow {
                resource: resource.plural(),
                objects,
                source: match feed.source {
                    DataSource::None => "none yet",
                    DataSource::Snapshot { .. } => "snapshot",
                    DataSource::Live => "live",
                },
                contact_s: feed.age().map(|age| age.as_secs()),
                trouble: feed.trouble.as_ref().map(|trouble| trouble.reason.clone()),
            })
            .collect(),
        skipped: reported.skipped.first(MAX_LISTED).into_iter().cloned().collect(),
        skipped_count: reported.skipped.len(),
        warnings: reported.warnings.iter().take(MAX_LISTED).cloned().collect(),
        warning_count: reported.warnings.len(),
        explained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_look_before() {
        let (samples, start) = (Samples::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let rate = |seconds, count| {
            let (span, rates) = samples.rates(at(seconds), [count, 0, 0, 0, 0])?;
            Some((span.as_secs(), rates[0]))
        };
        assert_eq!(rate(0, 100), None, "the first look");
        assert_eq!(rate(1, 200), None, "too soon for a look of its own");
        assert_eq!(rate(10, 600), Some((10, 50.0)));
        assert_eq!(rate(12, 1_300), Some((12, 100.0)), "since the same look");
        assert_eq!(rate(20, 1_600), Some((10, 100.0)));
        assert_eq!(rate(8_020, 9_600), Some((8_000, 1.0)), "a mean of hours says so");
    }
}
