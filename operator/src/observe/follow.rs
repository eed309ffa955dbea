//! Follows the objects of one kind in one place: lists them, watches them, and begins again when that fails. kube's watcher
//! never doubts its version and never changes the size of its pages, so another one takes its place.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use crds::ClusterDNS;
use futures::StreamExt;
use kube::Resource;
use kube::api::Api;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::budget::{Share, Verdict};
use super::pages::{Pages, Waits};
use super::relist::{Next, Persistence};
use super::stubs::octets;
use crate::runtime::metrics::Metrics;

/// What is followed, and how much of it is kept.
pub(super) struct Followed<K> {
    pub(super) api: Api<K>,
    pub(super) config: watcher::Config,
    /// Removes what no decision reads.
    pub(super) slim: fn(&mut K),
    /// Leaves what decisions read of an object of others; none: nothing of it is kept.
    pub(super) stub: Option<fn(&mut K)>,
    /// Is it one without which decisions are wrong? Such an object is kept whole, whatever else is kept.
    pub(super) is_needed: fn(&[Arc<ClusterDNS>], &K) -> bool,
}

/// Feeds the store for ever; `changed` hears of each object after the store has it.
pub(super) async fn follow<K>(
    Followed { api, config, slim, stub, is_needed }: Followed<K>,
    mut writer: Writer<K>,
    mut share: Share,
    metrics: Arc<Metrics>,
    all: Store<ClusterDNS>,
    changed: impl Fn(&K),
) where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Send + Sync,
{
    let what = api.resource_url().to_owned();
    let (mut persistence, mut pages) = (Persistence::default(), Pages::new(config.page_size));
    let mut waits = Waits::default();
    loop {
        let page_size = pages.limit();
        let config = watcher::Config { page_size, ..config.clone() };
        let events = watcher(api.clone(), config).default_backoff().modify(slim);
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let error = match event {
                Ok(event) => {
                    persistence.went_well(&event);
                    let is_listed = matches!(event, Event::InitDone);
                    let (event, verdict) =
                        bounded(event, &mut share, stub, |it| is_needed(&all.state(), it));
                    metrics.cached(share.held_by_all());
                    match verdict {
                        Verdict::Whole => {}
                        Verdict::Stub | Verdict::Nothing => metrics.not_kept(&share.kind),
                    }
                    if let Some(event) = event {
                        writer.apply_watcher_event(&event);
                        if let Event::Apply(object)
                        | Event::Delete(object)
                        | Event::InitApply(object) = &event
                        {
                            changed(object);
                        }
                    }
                    if is_listed {
                        pages.grow();
                        waits.listed(Instant::now());
                    }
                    continue;
                }
                Err(error) => error,
            };
            metrics.watch_failed();
            tracing::warn!("the watch of {what} broke and begins again: {error}");
            match persistence.after(&error) {
                Next::GoOn => {}
                Next::ListsAgain if pages.limit() == page_size => {}
                Next::ListsAgain | Next::ListAgain => break,
                Next::ListInSmallerPages => {
                    pages.shrink();
                    break;
                }
                Next::ListInLargerPages => {
                    pages.grow();
                    break;
                }
            }
        }
        tokio::time::sleep(waits.next(Instant::now(), chance())).await;
    }
}

/// The event as it fits into the budget, none where nothing of it is kept; and what became of its object.
fn bounded<K: Resource + Serialize>(
    mut event: Event<K>,
    share: &mut Share,
    stub: Option<fn(&mut K)>,
    is_needed: impl Fn(&K) -> bool,
) -> (Option<Event<K>>, Verdict) {
    let verdict = match &mut event {
        Event::Init => {
            share.list();
            Verdict::Whole
        }
        Event::InitDone => {
            share.listed();
            Verdict::Whole
        }
        Event::Delete(object) => {
            share.remove(object.meta());
            Verdict::Whole
        }
        Event::Apply(object) | Event::InitApply(object) => {
            let whole = octets(object);
            match share.admit(object.meta(), whole, is_needed(object)) {
                true => Verdict::Whole,
                false => {
                    let stub = stub.map(|stub| {
                        stub(object);
                        octets(object)
                    });
                    share.admit_stub(object.meta(), whole, stub)
                }
            }
        }
    };
    let event = match (verdict, event) {
        (Verdict::Whole | Verdict::Stub, event) => Some(event),
        // What was kept of it before is not true any more.
        (Verdict::Nothing, Event::Apply(object)) => Some(Event::Delete(object)),
        (Verdict::Nothing, _) => None,
    };
    (event, verdict)
}

/// A random number between 0 and 1.
fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() % 1_000) as f64 / 1_000.0
}
