//! An adopted Service whose ClusterDNS is gone, live or while no operator ran: our key leaves its selector, so that it
//! selects the pods it selected before. There is no finalizer that could make deleting hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::DynamicObject;

use crate::apply::service;
use crate::context::Context;
use crate::controller::triggers::{self, Triggers};
use crate::decide::adoption;
use crate::desired::Kind;
use crate::names;
use crate::runtime::time_limit::within;

/// Between two passes over the kept Services; a pass sends requests only for a Service that must be given back.
const EVERY: Duration = Duration::from_secs(1);
/// Services that one pass tries to give back.
const MOST_IN_A_PASS: usize = 10;
/// Wait until a Service that did not change is tried again, doubled with each time: anyone who may edit a Service can write our
/// annotation on it, also where the operator may not patch it.
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Removes our key from Services whose ClusterDNS is gone, once a second, until dropped.
pub async fn follow(ctx: &Context, triggers: &Triggers) {
    let _ = ctx.caches.resources.wait_until_ready().await;
    let mut known: BTreeMap<String, Arc<ClusterDNS>> = BTreeMap::new();
    let mut tries = Tries::default();
    loop {
        leave_all(ctx, &mut tries).await;
        let all = ctx.caches.resources.state();
        let now = by_name(&all);
        // One that cannot be read is still there: `unreadable` says when it is gone.
        let stays_there = |name: &String| {
            now.get(name).is_some_and(|dns| stays(dns)) || ctx.caches.unreadable.has(name)
        };
        for (name, _) in known.iter().filter(|(name, dns)| stays(dns) && !stays_there(name)) {
            ctx.forget(name);
        }
        triggers.enqueue(&all, disputed(&known, &now, &all));
        known = now;
        tokio::time::sleep(EVERY).await;
    }
}

fn by_name(all: &[Arc<ClusterDNS>]) -> BTreeMap<String, Arc<ClusterDNS>> {
    all.iter().map(|dns| (dns.name_any(), dns.clone())).collect()
}

/// The ClusterDNS that claim the same Service or address as one that was changed or deleted: another may run now. One that is
/// being deleted keeps what it has until it is gone, so both are changes.
fn disputed(
    before: &BTreeMap<String, Arc<ClusterDNS>>,
    now: &BTreeMap<String, Arc<ClusterDNS>>,
    all: &[Arc<ClusterDNS>],
) -> Vec<String> {
    let other_in = |set: &BTreeMap<String, Arc<ClusterDNS>>, dns: &ClusterDNS| {
        let same = set.get(&dns.name_any());
        same.is_none_or(|same| {
            (&same.metadata.uid, same.metadata.generation, stays(same))
                != (&dns.metadata.uid, dns.metadata.generation, stays(dns))
        })
    };
    let gone = before.values().filter(|dns| other_in(now, dns));
    let come = now.values().filter(|dns| other_in(before, dns));
    gone.chain(come).flat_map(|dns| triggers::rivals(all, dns)).collect()
}

/// Those that stay, and those that cannot be read. One that is being deleted does not come back, and its pods may go before it
/// does: foreground deletion deletes them first.
fn instances(ctx: &Context) -> Vec<String> {
    let all = ctx.caches.resources.state();
    let readable = all.iter().filter(|dns| stays(dns)).map(|dns| dns.name_any());
    readable.chain(ctx.caches.unreadable.all().into_keys()).collect()
}

fn stays(dns: &ClusterDNS) -> bool {
    dns.metadata.deletion_timestamp.is_none()
}

/// Gives back what it can, and says of each other Service why it cannot.
async fn leave_all(ctx: &Context, tries: &mut Tries) {
    let instances = instances(ctx);
    let namespaces = ctx.caches.namespaces().iter();
    let all = namespaces.flat_map(|namespace| ctx.caches.objects(Kind::Service, namespace));
    let orphans = all.filter(|service| is_orphan(service, &instances)).collect();
    for service in tries.begin(orphans, Instant::now()) {
        if let Err(error) = leave(ctx, &service, &instances).await {
            let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
            tracing::warn!("cannot give back the adopted Service {namespace}/{name}: {error:#}");
        }
    }
}

fn owner(service: &DynamicObject) -> Option<&String> {
    service.annotations().get(names::ADOPTED_BY)
}

fn is_orphan(service: &DynamicObject, instances: &[String]) -> bool {
    owner(service).is_some_and(|owner| !instances.contains(owner))
}

/// When Services were tried, by uid.
#[derive(Debug, Default)]
struct Tries(BTreeMap<String, Try>);

#[derive(Debug)]
struct Try {
    /// The resourceVersion that was tried.
    version: Option<String>,
    wait: Duration,
    not_before: Instant,
}

impl Tries {
    /// Those of the orphans that are tried in this pass. One that is still there at the next pass was not given back, or its
    /// watch is behind. Others are forgotten.
    fn begin(&mut self, orphans: Vec<Arc<DynamicObject>>, now: Instant) -> Vec<Arc<DynamicObject>> {
        let uids: BTreeSet<String> = orphans.iter().filter_map(|it| it.uid()).collect();
        self.0.retain(|uid, _| uids.contains(uid));
        let may_begin = |service: &Arc<DynamicObject>| self.may_begin(service, now);
        let mut begun = orphans;
        begun.retain(may_begin);
        begun.truncate(MOST_IN_A_PASS);
        for service in &begun {
            let (uid, version) = (service.uid().unwrap_or_default(), service.resource_version());
            let before = self.0.get(&uid).filter(|it| it.version == version);
            let wait = before.map_or(FIRST_WAIT, |it| (it.wait * 2).min(LONGEST_WAIT));
            self.0.insert(uid, Try { version, wait, not_before: now + wait });
        }
        begun
    }

    /// A change may be what it waits for.
    fn may_begin(&self, service: &DynamicObject, now: Instant) -> bool {
        let before = self.0.get(&service.uid().unwrap_or_default());
        before.is_none_or(|it| it.version != service.resource_version() || now >= it.not_before)
    }
}

async fn leave(ctx: &Context, object: &DynamicObject, instances: &[String]) -> anyhow::Result<()> {
    let Some(owner) = owner(object) else { return Ok(()) };
    let service: Service = object.clone().try_parse()?;
    let Some(patch) = adoption::leave(&service, instances) else { return Ok(()) };
    // A watch may be behind, and taking a Service from a ClusterDNS that exists would be an outage.
    let owners = Api::<ClusterDNS>::all(ctx.client.clone());
    let live = within(owners.get_opt(owner)).await;
    let live = live.with_context(|| format!("cannot look for the ClusterDNS {owner}"))?;
    if live.as_ref().is_some_and(stays) {
        return Ok(());
    }
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    service::patch_selector(&ctx.client, &ctx.writes, (&namespace, &name), owner, &patch).await?;
    tracing::info!(
        "the Service {namespace}/{name} was given back: the ClusterDNS {owner:?} is gone"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn dns(name: &str, generation: i64) -> Arc<ClusterDNS> {
        let mut dns = fixtures::dns("{}");
        dns.metadata.name = Some(name.to_owned());
        dns.metadata.generation = Some(generation);
        Arc::new(dns)
    }

    #[test]
    fn o3_one_that_was_refused_is_tried_again_when_the_older_one_goes_or_changes() {
        let (old, changed, young) = (dns("old", 1), dns("old", 2), dns("young", 1));
        let both = by_name(&[old.clone(), young.clone()]);
        let alone = [young.clone()];
        assert_eq!(disputed(&both, &by_name(&alone), &alone), ["young"]);
        let all = [changed, young];
        assert_eq!(disputed(&both, &by_name(&all), &all), ["young", "young"]);
        assert_eq!(disputed(&both, &both, &all), [] as [&str; 0]);
        // Deleted in the foreground: it is gone only when its pods are.
        let mut leaving = (*old).clone();
        leaving.metadata.deletion_timestamp = Some(fixtures::from(json!("2026-01-01T00:00:00Z")));
        let leaving = by_name(&[Arc::new(leaving), all[1].clone()]);
        assert_eq!(disputed(&leaving, &by_name(&alone), &alone), ["young"]);
    }

    fn orphan(name: &str, version: &str) -> Arc<DynamicObject> {
        Arc::new(fixtures::from(
            json!({"metadata": {"name": name, "uid": name, "resourceVersion": version,
            "annotations": {names::ADOPTED_BY: "gone"}}}),
        ))
    }

    #[test]
    fn o15_a_service_that_cannot_be_given_back_is_tried_less_often_until_it_changes() {
        let (mut tries, begin) = (Tries::default(), Instant::now());
        let mut tried = Vec::new();
        for second in 0..1_000 {
            let orphans = vec![orphan("a", "1")];
            if !tries.begin(orphans, begin + EVERY * second).is_empty() {
                tried.push(second);
            }
        }
        assert_eq!(tried, [0, 10, 30, 70, 150, 310, 610, 910]);
        let now = begin + EVERY * 1_000;
        assert_eq!(tries.begin(vec![orphan("a", "1"), orphan("b", "1")], now)[0].name_any(), "b");
        assert_eq!(tries.begin(vec![orphan("a", "2")], now).len(), 1, "it has changed");
        assert!(tries.begin(vec![orphan("a", "2")], now + EVERY).is_empty());
        assert!(tries.begin(Vec::new(), now).is_empty() && tries.0.is_empty(), "nothing is kept");
    }

    #[test]
    fn o15_one_pass_tries_a_few_and_the_next_one_the_others() {
        let (mut tries, now) = (Tries::default(), Instant::now());
        let all: Vec<_> = (0..25).map(|n| orphan(&format!("s{n:02}"), "1")).collect();
        let passes: Vec<usize> =
            (0..4).map(|pass| tries.begin(all.clone(), now + EVERY * pass).len()).collect();
        assert_eq!(passes, [10, 10, 5, 0]);
    }

    #[test]
    fn o15_only_a_service_whose_clusterdns_is_gone_is_an_orphan() {
        let service = orphan("a", "1");
        assert!(is_orphan(&service, &["default".to_owned()]));
        assert!(!is_orphan(&service, &["gone".to_owned()]));
        assert!(!is_orphan(&fixtures::from(json!({"metadata": {"name": "a"}})), &[]));
    }
}
