//! Follows the objects of one kind in one place: lists them, watches them, and begins again when that fails. kube's
//! watcher holds a page as a whole, never doubts its version, never changes the size of its pages and never passes
//! over an object, so it is not used, and neither is its Controller, which has one.

use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, WatchParams};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Error, Event};
use kube::{Client, Resource, ResourceExt};
use process::pages::{Pages, Tries};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{self, timeout};

use super::budget::{BudgetVerdict, Share};
use super::events::{self, Sent};
use super::lists::{ANSWER, Lists, Page, silent};
use super::relist::{Next, Persistence, missed, resize};
use super::room::admitted;
use super::waits::{Waits, chance};
use crate::controller::crd::is_not_found;
use crate::runtime::decode::Undecodable;
use crate::runtime::metrics::Metrics;
use crate::runtime::patience::{asked, asked_of_watch};

/// Objects in the first page, while nothing is known of their size.
const FIRST_PAGE: u32 = 20;
/// Objects in a page at most.
const PAGE: u32 = 500;
/// Cloud load balancers drop idle links at 240 s and say nothing: a watch ends before.
const WATCH_S: u32 = 180;
/// Bookmarks come about once a minute. A watch without one for longer than this begins again: its connection may be dead.
const SILENCE: Duration = Duration::from_secs(90);
/// A watch that ends in order sooner than this, without an event, is a failure: the API server would be asked in a loop.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Least time between two lists of what has no room, or cannot be read, so that who writes such objects costs the API server little.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Which objects are followed, and which of their fields are kept.
pub(super) struct Followed<K: Resource> {
    pub(super) api: Api<K>,
    /// What the API calls its kind.
    pub(super) kind: K::DynamicType,
    /// Only objects with this label; none: all.
    pub(super) label: Option<&'static str>,
    /// Removes what no decision reads.
    pub(super) slim: fn(&mut K),
    /// Makes the stub of an object of others; `None`: the object is not kept at all.
    pub(super) stub: Option<fn(&mut K)>,
    /// True for an object without which decisions are wrong: it is always kept whole.
    pub(super) is_needed: fn(&[Arc<ClusterDNS>], &K) -> bool,
    /// Longest wait, on average, before a watch that failed begins again.
    pub(super) longest_wait: Duration,
}

/// What a watch says besides what it keeps.
pub(super) enum Heard<'a, K> {
    /// An object has changed: as it is now, and as the store had it before, because it may have concerned others then. The store
    /// has the new one, unless the list that it is in is not complete yet.
    Changed(&'a K, Option<Arc<K>>),
    /// An object cannot be read, so the store does not have it, or not any more.
    Unreadable(&'a Undecodable),
    /// There is no room for an object, nor for a stub of it: the same.
    NotKept(&'a ObjectMeta),
    /// A list is complete, and the store has it.
    Listed,
    /// The API server has accepted a watch.
    Began,
    /// The list or the watch failed; it begins again.
    Failed(&'a Error),
}

/// What all watches share.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) client: Client,
    pub(super) lists: Arc<Lists>,
    pub(super) metrics: Arc<Metrics>,
    /// Shows how many octets of whole objects and of stubs they hold.
    pub(super) gauge: fn(&Metrics, (usize, usize)),
    /// All ClusterDNS, to find those that an event concerns.
    pub(super) all: Store<ClusterDNS>,
}

/// Feeds the store forever.
pub(super) async fn follow<K>(
    followed: Followed<K>,
    writer: Writer<K>,
    share: Share,
    means: Means,
    heard: impl Fn(Heard<'_, K>),
) where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Send + Sync,
{
    let (mut persistence, mut pages) = (Persistence::default(), Pages::new(FIRST_PAGE, PAGE));
    let mut waits = Waits::up_to(followed.longest_wait);
    let mut keeper = Keeper {
        followed,
        writer,
        share,
        means,
        heard,
        has_passed_over: false,
        listed: time::Instant::now(),
    };
    let mut version: Option<String> = None;
    // A list is due that says what watches do not. They could go on without it.
    let mut is_list_due = false;
    loop {
        let was_list_due = std::mem::take(&mut is_list_due);
        let ended = match &mut version {
            Some(reached) if !was_list_due => {
                let ended = keeper.watch(reached, &mut persistence, &mut waits).await;
                is_list_due = ended.is_ok() && keeper.must_list();
                ended
            }
            _ => keeper.list(&mut pages).await.map(|listed| {
                persistence.went_well();
                pages.complete();
                waits.began(Instant::now());
                version = Some(listed);
            }),
        };
        let Err(error) = ended else { continue };
        keeper.means.metrics.watch_failed();
        (keeper.heard)(Heard::Failed(&error));
        let what = keeper.followed.api.resource_url();
        match is_not_found(&error) {
            // Who needs the kind says once that it is missing.
            true => tracing::debug!("the watch of {what} failed and begins again: {error}"),
            false => tracing::warn!("the watch of {what} failed and begins again: {error}"),
        }
        match persistence.after(&error) {
            // As long as such lists fail, watches bring what is new.
            _ if was_list_due => keeper.give_up_list(),
            Next::GoOn => {}
            Next::ListAgain => version = None,
        }
        let asked = asked_of_watch(&error);
        tokio::time::sleep(waits.next(Instant::now(), chance(), asked)).await;
    }
}

/// Puts what is read into the store, as far as there is room.
struct Keeper<K, H>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    followed: Followed<K>,
    writer: Writer<K>,
    share: Share,
    means: Means,
    heard: H,
    /// The watch had an event that is too long.
    has_passed_over: bool,
    /// When a list was complete.
    listed: time::Instant,
}

impl<K, H> Keeper<K, H>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Send + Sync,
    H: Fn(Heard<'_, K>),
{
    /// Reads one consistent list, page by page. Returns its version.
    async fn list(&mut self, pages: &mut Pages) -> Result<String, Error> {
        let begun = time::Instant::now().into_std();
        self.keep(Event::Init);
        let label_selector = self.followed.label.map(str::to_owned);
        let mut params = ListParams { label_selector, ..ListParams::default() };
        loop {
            let page = self.page(&mut params, pages, begun).await?;
            for _ in 0..page.skipped {
                self.count_passed_over();
            }
            if page.token.is_some() {
                params.continue_token = page.token;
                continue;
            }
            if page.version.is_empty() {
                return Err(Error::NoResourceVersion);
            }
            self.keep(Event::InitDone);
            (self.has_passed_over, self.listed) = (false, time::Instant::now());
            (self.heard)(Heard::Listed);
            return Ok(page.version);
        }
    }

    /// The list that was begun is not read again. The store keeps nothing of it.
    fn give_up_list(&mut self) {
        self.share.give_up_list();
        self.writer.apply_watcher_event(&Event::Init);
        (self.means.gauge)(&self.means.metrics, self.share.held_by_all());
    }

    /// What has become of an object whose event was passed over, a list says, and once for each watch. Of what was refused too.
    fn must_list(&self) -> bool {
        let is_due = self.listed.elapsed() >= LIST_AGAIN_AFTER;
        self.has_passed_over || is_due && self.share.has_to_be_listed()
    }

    /// Reads a page. A later one that is refused or breaks off is asked for again, as long as it may pass.
    async fn page(
        &mut self,
        params: &mut ListParams,
        pages: &mut Pages,
        list_begun: Instant,
    ) -> Result<Page, Error> {
        let Means { client, lists, .. } = self.means.clone();
        let path = self.followed.api.resource_url().to_owned();
        let now = || time::Instant::now().into_std();
        let (mut waits, mut tries) =
            (Waits::up_to(self.followed.longest_wait), Tries::begin(now(), list_begun));
        loop {
            let begun = now();
            params.limit = Some(pages.limit());
            let keep = |read| match read {
                Ok(object) => self.keep(Event::InitApply(object)),
                Err(undecodable) => (self.heard)(Heard::Unreadable(&undecodable)),
            };
            let error = match lists.page_of_all(&client, &path, params, keep).await {
                Ok(page) => {
                    pages.took(page.objects, page.octets);
                    return Ok(page);
                }
                Err(error) => error,
            };
            resize(pages, &error, now().saturating_duration_since(begun));
            let wait = waits.next(Instant::now(), chance(), asked(&error));
            let missed = missed(&error).filter(|_| params.continue_token.is_some());
            if !missed.is_some_and(|missed| tries.another(now(), wait, missed)) {
                return Err(Error::InitialListFailed(error));
            }
            tracing::warn!("a page of {path} failed and is asked for again: {error}");
            self.means.metrics.watch_failed();
            (self.heard)(Heard::Failed(&Error::InitialListFailed(error)));
            time::sleep(wait).await;
        }
    }

    /// Watches from this version until the watch ends in order, and leaves in it the version that was reached.
    async fn watch(
        &mut self,
        version: &mut String,
        persistence: &mut Persistence,
        waits: &mut Waits,
    ) -> Result<(), Error> {
        let mut params = WatchParams::default().timeout(WATCH_S);
        params.label_selector = self.followed.label.map(str::to_owned);
        let began = Instant::now();
        let (client, path) =
            (self.means.client.clone(), self.followed.api.resource_url().to_owned());
        let events = timeout(ANSWER, events::watch(&client, &path, &params, version)).await;
        let events = events.unwrap_or_else(|_| Err(silent(ANSWER)));
        let mut events = events.map_err(Error::WatchStartFailed)?;
        waits.began(Instant::now());
        (self.heard)(Heard::Began);
        let mut is_empty = true;
        while let Ok(event) = timeout(SILENCE, events.next::<K>()).await {
            let Some(event) = event.map_err(Error::WatchFailed)? else { break };
            // One that is too long is the first of the next watch too, if nothing comes behind it.
            is_empty &= matches!(event, Sent::TooLong);
            let event = match event {
                Sent::Kept(object) => Event::Apply(object),
                Sent::Deleted(object) => Event::Delete(object),
                Sent::Undecodable(undecodable) => {
                    tracing::warn!("the operator skips an object of {path}: {undecodable}");
                    let reached = undecodable.metadata.resource_version.clone();
                    *version = reached.ok_or(Error::NoResourceVersion)?;
                    self.pass_over(&undecodable);
                    continue;
                }
                Sent::TooLong => {
                    self.pass_over_unknown();
                    continue;
                }
                Sent::Reached(reached) => {
                    *version = reached;
                    continue;
                }
                Sent::Failed(status) => return Err(Error::WatchError(status)),
            };
            if let Event::Apply(object) | Event::Delete(object) = &event {
                *version = object.resource_version().ok_or(Error::NoResourceVersion)?;
            }
            self.keep(event);
            persistence.went_well();
        }
        match is_empty && began.elapsed() < SHORTEST_WATCH {
            true => {
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "it ended at once");
                Err(Error::WatchFailed(kube::Error::ReadEvents(ended)))
            }
            false => Ok(()),
        }
    }

    /// An object cannot be read: what was kept of it is outdated.
    fn pass_over(&mut self, undecodable: &Undecodable) {
        self.count_passed_over();
        if let Some(object) = undecodable.nameless() {
            self.keep(Event::Delete(object));
        }
        (self.heard)(Heard::Unreadable(undecodable));
    }

    /// The same, and it is not known which. Who writes such objects may write many: there is one line for each watch.
    fn pass_over_unknown(&mut self) {
        if !std::mem::replace(&mut self.has_passed_over, true) {
            let path = self.followed.api.resource_url();
            tracing::warn!("the operator skips an object of {path}: an event is too long");
        }
        self.count_passed_over();
    }

    fn count_passed_over(&mut self) {
        self.share.pass_over(self.followed.api.namespace().unwrap_or_default());
        self.means.metrics.not_kept(&self.share.kind);
    }

    fn keep(&mut self, mut event: Event<K>) {
        let Followed { slim, stub, is_needed, .. } = self.followed;
        if let Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) = &mut event
        {
            slim(object);
        }
        let all = &self.means.all;
        let is_needed = |it: &K| is_needed(&all.state(), it);
        let verdict = admitted(&mut event, &mut self.share, stub, is_needed);
        (self.means.gauge)(&self.means.metrics, self.share.held_by_all());
        match verdict {
            BudgetVerdict::Whole => {}
            BudgetVerdict::Stub | BudgetVerdict::Nothing => {
                self.means.metrics.not_kept(&self.share.kind)
            }
        }
        let event = match (verdict, event) {
            (BudgetVerdict::Whole | BudgetVerdict::Stub, event) => event,
            // The state that was kept before is outdated.
            (BudgetVerdict::Nothing, Event::Apply(object)) => Event::Delete(object),
            (BudgetVerdict::Nothing, Event::InitApply(object)) => {
                return (self.heard)(Heard::NotKept(object.meta()));
            }
            (BudgetVerdict::Nothing, _) => return,
        };
        let (Event::Apply(object) | Event::Delete(object) | Event::InitApply(object)) = &event
        else {
            return self.writer.apply_watcher_event(&event);
        };
        let which = ObjectRef::from_obj_with(object, self.followed.kind.clone());
        let before = self.writer.as_reader().get(&which);
        self.writer.apply_watcher_event(&event);
        (self.heard)(Heard::Changed(object, before));
        if verdict == BudgetVerdict::Nothing {
            (self.heard)(Heard::NotKept(object.meta()));
        }
    }
}

#[cfg(test)]
mod tests;
