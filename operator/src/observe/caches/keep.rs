//! How a store of the caches is fed: by a task of its own, with a share of the budget of all.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crds::ClusterDNS;
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

use super::super::budget::Share;
use super::super::list_and_watch::{Followed, Heard, Means, follow};
use super::super::stubs;
use super::slim::slim_resource;
use super::{Caches, plural};
use crate::controller::crd::{self, Definition};
use crate::controller::triggers;
use crate::runtime::metrics::Metrics;
use crate::runtime::resources;

impl Caches {
    /// Keeps every ClusterDNS, as a stub where all are too large, and wakes each that is listed or has changed. Those that cannot
    /// be read are named apart: who writes one of them keeps no other from being reconciled.
    pub fn keep_resources(&self, writer: Writer<ClusterDNS>, definition: Arc<Definition>) {
        let followed = Followed {
            api: Api::<ClusterDNS>::all(self.means.client.clone()),
            kind: (),
            label: None,
            slim: slim_resource,
            stub: Some(stubs::stub_of_resource),
            is_needed: |_, _| false,
            longest_wait: crd::LOOKED_FOR_EVERY,
        };
        let share = Share::new(self.budget_of_resources.clone(), 0, &plural(&followed.api));
        let means = Means { gauge: Metrics::cached_resources, ..self.means.clone() };
        let (all, triggers) = (self.resources.clone(), self.triggers.clone());
        let unreadable = self.unreadable.clone();
        let heard = move |heard: Heard<'_, ClusterDNS>| match heard {
            Heard::Changed(dns, _) => {
                unreadable.forget(&dns.name_any());
                triggers.enqueue(&all.state(), [dns.name_any()]);
            }
            Heard::Unreadable(undecodable) => unreadable.found(undecodable),
            Heard::NotKept(metadata) => unreadable.has_no_room(metadata),
            Heard::Listed => {
                unreadable.look_again();
                definition.is_there();
                let all = all.state();
                triggers.enqueue(&all, all.iter().map(|dns| dns.name_any()));
            }
            Heard::Began => definition.is_there(),
            Heard::Failed(error) => definition.failed(error),
        };
        self.spawn(writer, followed, (share, means), heard);
    }

    /// Keeps the objects of one kind in one place, and wakes each ClusterDNS that one concerns, or did before it was edited.
    pub(super) fn keep<K>(
        &self,
        writer: Writer<K>,
        followed: Followed<K>,
        whose: impl Fn(&[Arc<ClusterDNS>], &K) -> Vec<String> + Send + Sync + 'static,
    ) -> AbortHandle
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Clone + Eq + Hash + Send + Sync,
    {
        let (all, triggers) = (self.resources.clone(), self.triggers.clone());
        let namespace = followed.api.namespace().unwrap_or_default().to_owned();
        let kind = plural(&followed.api);
        let listings = self.listings.clone();
        // A problem with kinds that others bring must not delay the others.
        let is_needed =
            !resources::MONITORING.iter().any(|it| resources::resource(*it).plural == kind);
        if is_needed {
            listings.expect(&namespace, &kind);
        }
        let heard = move |heard: Heard<'_, K>| {
            let is_news = match heard {
                Heard::Changed(object, before) => {
                    let all = all.state();
                    let before = before.map(|before| whose(&all, &before)).unwrap_or_default();
                    let concerned = whose(&all, object).into_iter().chain(before);
                    return triggers.enqueue(&all, concerned);
                }
                Heard::Listed => listings.listed(&namespace, &kind),
                Heard::Began => return listings.began(&namespace, &kind),
                Heard::Failed(error) => listings.failed(&namespace, &kind, error, now()),
                // It is counted and logged; no ClusterDNS depends on what it says.
                Heard::Unreadable(_) => return,
                // It is counted, and read when it is needed.
                Heard::NotKept(_) => return,
            };
            if is_news {
                let all = all.state();
                triggers.enqueue(&all, triggers::of_namespace(&all, &namespace));
            }
        };
        let store = self.stores.fetch_add(1, Ordering::Relaxed);
        let share = Share::new(self.budget.clone(), store, &plural(&followed.api));
        self.spawn(writer, followed, (share, self.means.clone()), heard)
    }

    /// Feeds a store in a task that ends with the caches.
    fn spawn<K>(
        &self,
        writer: Writer<K>,
        followed: Followed<K>,
        (share, means): (Share, Means),
        heard: impl Fn(Heard<'_, K>) + Send + Sync + 'static,
    ) -> AbortHandle
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Clone + Eq + Hash + Send + Sync,
    {
        let name = format!("the watch of {}", followed.api.resource_url());
        let following = follow(followed, writer, share, means, heard);
        let following = self.critical.clone().run(name, following);
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that were ended.
        while watches.try_join_next().is_some() {}
        watches.spawn(following)
    }
}

/// By the clock of all timers, so that tests need not wait.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
