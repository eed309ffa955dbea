//! The EndpointSlices of Services, and what they say of the other DNS servers of the namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;

use super::caches::slim_slice;
use super::other_dns::{self, Workload};
use super::possible_labels::PossibleLabels;
use crate::context::Context;
use crate::names;
use crate::observe::observed::DnsService;
use crate::runtime::time_limit::within;

/// EndpointSlices of one Service that are read where a watch does not keep them: 2,000 endpoints as controllers write them.
const MAX_SLICES: u32 = 20;

/// Other Services of the namespace that serve DNS to pods with labels of ours; `own` is the one that the spec names. One that is not looked at counts as if it led
/// to our pods alone: so nothing changes because of it.
pub(super) async fn dns_services(
    ctx: &Context,
    dns: &ClusterDNS,
    (services, own): (&[Arc<DynamicObject>], Option<&Service>),
    possible: &PossibleLabels,
    (pods, workload): (&[Pod], &Workload),
) -> anyhow::Result<BTreeMap<String, DnsService>> {
    let (namespace, _) = names::service(dns);
    let (rivals, mut unread) = other_dns::rivals(services, own, dns, possible);
    let (mut found, mut requests) = (BTreeMap::new(), 0);
    for (name, selector) in rivals {
        let has_other_pods = match ctx.caches.slices(&namespace, &name) {
            Some(kept) => other_dns::has_other_pods(kept.iter().map(AsRef::as_ref), pods, workload),
            None if requests < other_dns::MAX_READ => {
                requests += 1;
                let read = read(ctx, &namespace, &name).await?;
                other_dns::has_other_pods(&read, pods, workload)
            }
            None => {
                unread += 1;
                false
            }
        };
        found.insert(name, DnsService { selector, has_other_pods });
    }
    if unread > 0 {
        tracing::debug!(
            "{unread} Services of namespace {namespace} with port 53 were not looked at"
        );
        ctx.events.warn(dns, "ServicesNotLookedAt", &not_looked_at(dns)).await;
    }
    Ok(found)
}

/// The text of an Event, which is sent once an hour: it has no number, which anyone who edits the namespace could change
/// all the time, so that other Events find no room.
fn not_looked_at(dns: &ClusterDNS) -> String {
    format!(
        "many Services of namespace {} with port 53 select pods of ClusterDNS {}, and the operator did not look whose pods are \
         behind the newest of them: delete what is not needed",
        names::service(dns).0,
        dns.name_any()
    )
}

/// The EndpointSlices of a Service as a watch keeps them; where it does not keep all of them whole, as the API server has
/// them, up to a limit.
pub(super) async fn of(
    ctx: &Context,
    namespace: &str,
    service: &str,
) -> anyhow::Result<Vec<EndpointSlice>> {
    match ctx.caches.slices(namespace, service) {
        Some(kept) => Ok(kept.into_iter().map(Arc::unwrap_or_clone).collect()),
        None => read(ctx, namespace, service).await,
    }
}

async fn read(ctx: &Context, namespace: &str, service: &str) -> anyhow::Result<Vec<EndpointSlice>> {
    let its = format!("{}={service}", names::SERVICE_NAME);
    let params = ListParams::default().labels(&its).limit(MAX_SLICES);
    let all = Api::<EndpointSlice>::namespaced(ctx.client.clone(), namespace);
    let mut found = Vec::new();
    let take = |mut slice: EndpointSlice| {
        // Kubernetes bounds only one size of what others write: 1,000 endpoints in a slice.
        slim_slice(&mut slice);
        found.push(slice);
    };
    let read = within(ctx.lists.page(&ctx.client, all.resource_url(), &params, take)).await;
    read.with_context(|| format!("cannot list EndpointSlices of {namespace}/{service}"))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k23_the_event_about_services_has_one_text_at_any_number() {
        let text = not_looked_at(&crate::fixtures::dns("{}"));
        assert!(text.contains("of namespace kube-system"), "{text}");
        let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|it| !it.is_empty());
        assert_eq!(numbers.collect::<Vec<_>>(), ["53"], "the port, and no count");
    }
}
