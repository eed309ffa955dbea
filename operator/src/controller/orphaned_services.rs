//! An adopted Service whose ClusterDNS is gone, live or while no operator ran: our key leaves its selector, so that it
//! selects the pods it selected before. There is no finalizer that could make deleting hang. Where the definition of ClusterDNS
//! is gone, each of them is gone too, although no list and no event says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crds::ClusterDNS;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::reflector::ObjectRef;

use crate::apply::service;
use crate::context::Context;
use crate::controller::crd::{self, Definition};
use crate::controller::triggers::{self, Triggers};
use crate::decide::adoption;
use crate::desired::Kind;
use crate::names;
use crate::observe::caches::Caches;
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
pub async fn follow(ctx: &Context, triggers: &Triggers, definition: &Definition) {
    let mut known: BTreeMap<String, Arc<ClusterDNS>> = BTreeMap::new();
    let mut tries = Tries::default();
    loop {
        pass(ctx, triggers, definition, (&mut known, &mut tries)).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn pass(
    ctx: &Context,
    triggers: &Triggers,
    definition: &Definition,
    (known, tries): (&mut BTreeMap<String, Arc<ClusterDNS>>, &mut Tries),
) {
    let Some(existing) = Existing::of(ctx, definition) else { return };
    leave_all(ctx, &existing, tries).await;
    let Some(existing) = Existing::of(ctx, definition) else { return };
    let all = existing.readable;
    let now = by_name(&all);
    // One that cannot be read is still there: `unreadable` says when it is gone.
    let stays_there = |name: &String| {
        now.get(name).is_some_and(|dns| stays(dns)) || existing.unreadable.contains(name)
    };
    for (name, _) in known.iter().filter(|(name, dns)| stays(dns) && !stays_there(name)) {
        ctx.forget(name);
    }
    // One that has come since then must keep what is known of it.
    let (kept, unreadable) = (&ctx.caches.resources, &ctx.caches.unreadable);
    let is_there = |name: &str| {
        let dns = kept.get(&ObjectRef::new(name));
        existing.is_defined && (dns.is_some_and(|dns| stays(&dns)) || unreadable.stays(name))
    };
    ctx.retain(is_there);
    triggers.enqueue(&all, disputed(known, &now, &all));
    *known = now;
}

/// The ClusterDNS that are there, as far as this process can know.
struct Existing {
    readable: Vec<Arc<ClusterDNS>>,
    /// Names of those that cannot be read and are not being deleted.
    unreadable: Vec<String>,
    /// False: their definition is gone, and all of them with it.
    is_defined: bool,
}

impl Existing {
    /// None: they were never listed.
    fn of(ctx: &Context, definition: &Definition) -> Option<Existing> {
        // No list of them says so, and none may ever be complete: what was kept before is what was there before.
        if definition.is_gone() {
            return Some(Existing {
                readable: Vec::new(),
                unreadable: Vec::new(),
                is_defined: false,
            });
        }
        let Caches { resources, unreadable, .. } = &ctx.caches;
        let _ = resources.wait_until_ready().now_or_never()?;
        let unreadable = unreadable.all().into_iter().filter(|(_, seen)| !seen.is_leaving);
        Some(Existing {
            readable: resources.state(),
            unreadable: unreadable.map(|(name, _)| name).collect(),
            is_defined: true,
        })
    }

    /// Names of those that stay. One that is being deleted does not come back, and its pods may go before it does: foreground
    /// deletion deletes them first.
    fn instances(&self) -> Vec<String> {
        let readable = self.readable.iter().filter(|dns| stays(dns)).map(|dns| dns.name_any());
        readable.chain(self.unreadable.iter().cloned()).collect()
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

fn stays(dns: &ClusterDNS) -> bool {
    dns.metadata.deletion_timestamp.is_none()
}

/// Gives back what it can, and says of each other Service why it cannot.
async fn leave_all(ctx: &Context, existing: &Existing, tries: &mut Tries) {
    let instances = existing.instances();
    let namespaces = ctx.caches.namespaces().iter();
    let all = namespaces.flat_map(|namespace| ctx.caches.objects(Kind::Service, namespace));
    let orphans = all.filter(|service| is_orphan(service, &instances)).collect();
    let now = tokio::time::Instant::now().into_std();
    for service in tries.begin(orphans, now) {
        if let Err(error) = leave(ctx, &service, (&instances, existing.is_defined)).await {
            tries.failed(&service);
            let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
            tracing::warn!("cannot give back the adopted Service {namespace}/{name}: {error:#}");
        }
    }
    ctx.metrics.services_not_given_back(tries.failures());
}

fn owner(service: &DynamicObject) -> Option<String> {
    if let Some(owner) = service.annotations().get(names::ADOPTED_BY) {
        return Some(owner.clone());
    }
    // Only few have it, and each pass looks at all of them.
    service.data.pointer("/spec/selector")?.get(names::INSTANCE)?;
    adoption::adopted_by(&service.clone().try_parse().ok()?)
}

fn is_orphan(service: &DynamicObject, instances: &[String]) -> bool {
    owner(service).is_some_and(|owner| !instances.contains(&owner))
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
    has_failed: bool,
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
            let not_before = now + wait;
            self.0.insert(uid, Try { version, wait, not_before, has_failed: false });
        }
        begun
    }

    /// It was tried in this pass and could not be given back.
    fn failed(&mut self, service: &DynamicObject) {
        if let Some(tried) = self.0.get_mut(&service.uid().unwrap_or_default()) {
            tried.has_failed = true;
        }
    }

    /// Services whose latest try failed.
    fn failures(&self) -> usize {
        self.0.values().filter(|tried| tried.has_failed).count()
    }

    /// A change may be what it waits for.
    fn may_begin(&self, service: &DynamicObject, now: Instant) -> bool {
        let before = self.0.get(&service.uid().unwrap_or_default());
        before.is_none_or(|it| it.version != service.resource_version() || now >= it.not_before)
    }
}

async fn leave(
    ctx: &Context,
    object: &DynamicObject,
    (instances, is_defined): (&[String], bool),
) -> anyhow::Result<()> {
    let Some(owner) = owner(object) else { return Ok(()) };
    let service: Service = object.clone().try_parse()?;
    let Some(patch) = adoption::leave(&service, instances) else { return Ok(()) };
    // A watch may be behind, and taking a Service from a ClusterDNS that exists would be an outage. Its spec may be one that
    // cannot be read.
    let owners = Api::<ClusterDNS>::all(ctx.client.clone());
    let live = within(owners.get_metadata_opt(&owner)).await;
    let live = live.with_context(|| format!("cannot look for the ClusterDNS {owner}"))?;
    if live.is_some_and(|live| live.metadata.deletion_timestamp.is_none()) {
        return Ok(());
    }
    // An API server that does not serve the kind yet says the same of each ClusterDNS.
    let exists = crd::exists(&ctx.client);
    if !is_defined && exists.await.context("cannot look for the CustomResourceDefinition")? {
        return Ok(());
    }
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    service::patch_selector(&ctx.client, &ctx.writes, (&namespace, &name), &owner, &patch).await?;
    tracing::info!(
        "the Service {namespace}/{name} was given back: the ClusterDNS {owner:?} is gone"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
