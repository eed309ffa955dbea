//! An adopted Service whose ClusterDNS is gone, live or while no operator ran: our key leaves its selector, so that it
//! selects the pods it selected before. There is no finalizer that could make deleting hang.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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

/// Between two passes over the kept Services; a pass sends no request.
const EVERY: Duration = Duration::from_secs(1);
/// Wait after a failed pass.
const RETRY: Duration = Duration::from_secs(10);

/// Removes our key from Services whose ClusterDNS is gone, once a second, until dropped.
pub async fn follow(ctx: &Context, triggers: &Triggers) {
    let _ = ctx.caches.resources.wait_until_ready().await;
    let mut known: BTreeMap<String, Arc<ClusterDNS>> = BTreeMap::new();
    loop {
        let wait = match leave_all(ctx).await {
            Ok(()) => EVERY,
            Err(error) => {
                tracing::warn!("cannot give back an adopted Service: {error:#}");
                RETRY
            }
        };
        let all = ctx.caches.resources.state();
        let now = by_name(&all);
        for name in known.keys().filter(|name| !now.contains_key(name.as_str())) {
            ctx.metrics.gone(name);
            ctx.backoff.forget(name);
            ctx.last_written.forget(name);
        }
        triggers.enqueue(&all, disputed(&known, &now, &all));
        known = now;
        tokio::time::sleep(wait).await;
    }
}

fn by_name(all: &[Arc<ClusterDNS>]) -> BTreeMap<String, Arc<ClusterDNS>> {
    let staying = all.iter().filter(|dns| stays(dns));
    staying.map(|dns| (dns.name_any(), dns.clone())).collect()
}

/// The ClusterDNS that claim the same Service or address as one that was deleted or changed: another may run now.
fn disputed(
    before: &BTreeMap<String, Arc<ClusterDNS>>,
    now: &BTreeMap<String, Arc<ClusterDNS>>,
    all: &[Arc<ClusterDNS>],
) -> Vec<String> {
    let other_in = |set: &BTreeMap<String, Arc<ClusterDNS>>, dns: &ClusterDNS| {
        let same = set.get(&dns.name_any());
        same.is_none_or(|same| {
            (&same.metadata.uid, same.metadata.generation)
                != (&dns.metadata.uid, dns.metadata.generation)
        })
    };
    let gone = before.values().filter(|dns| other_in(now, dns));
    let come = now.values().filter(|dns| other_in(before, dns));
    gone.chain(come).flat_map(|dns| triggers::rivals(all, dns)).collect()
}

/// Those that stay. One that is being deleted does not come back, and its pods may go before it does: foreground
/// deletion deletes them first.
fn instances(ctx: &Context) -> Vec<String> {
    let all = ctx.caches.resources.state();
    all.iter().filter(|dns| stays(dns)).map(|dns| dns.name_any()).collect()
}

fn stays(dns: &ClusterDNS) -> bool {
    dns.metadata.deletion_timestamp.is_none()
}

/// Gives back what it can.
///
/// # Errors
/// The first that could not be given back; the others were.
async fn leave_all(ctx: &Context) -> anyhow::Result<()> {
    let instances = instances(ctx);
    let mut outcome = Ok(());
    for namespace in ctx.caches.namespaces() {
        for object in ctx.caches.objects(Kind::Service, namespace) {
            outcome = outcome.and(leave(ctx, &object, &instances).await);
        }
    }
    outcome
}

async fn leave(ctx: &Context, object: &DynamicObject, instances: &[String]) -> anyhow::Result<()> {
    let Some(owner) = object.annotations().get(names::ADOPTED_BY) else { return Ok(()) };
    if instances.contains(owner) {
        return Ok(());
    }
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
    }
}
