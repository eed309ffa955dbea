//! The pods of the other DNS server: those that the Service would select without our key. Their labels are not
//! ours, so no watch of ours covers them. They are listed only where the Service is about to be left to them, and
//! then as they are now: what a watch cache remembers may be gone.

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::lists::Lists;
use crate::names;
use crate::runtime::time_limit::within;

/// More pods than any Service of cluster DNS has; the rest is not read.
const PAGE: u32 = 500;

/// Pods that this Service would select without our key and that are not ours.
///
/// # Errors
/// When the API server does not answer.
pub async fn pods(client: &Client, lists: &Lists, service: &Service) -> anyhow::Result<Vec<Pod>> {
    let Some(selector) = without_ours(service) else { return Ok(Vec::new()) };
    let pods = Api::<Pod>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let params = ListParams::default().labels(&selector).limit(PAGE);
    let mut found = Vec::new();
    let take = |pod: Pod| {
        if !pod.labels().contains_key(names::INSTANCE) {
            found.push(slim(pod));
        }
    };
    let listed = within(lists.page(client, pods.resource_url(), &params, take)).await;
    listed.context("cannot list the pods that the Service selects")?;
    Ok(found)
}

/// Its selector as text; none where it selects only by our key, or nothing.
fn without_ours(service: &Service) -> Option<String> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    let others = selector.iter().filter(|(key, _)| *key != names::INSTANCE);
    let text: Vec<String> = others.map(|(key, value)| format!("{key}={value}")).collect();
    (!text.is_empty()).then(|| text.join(","))
}

/// The fields that are read: its name, and whether it is ready or being deleted. Anyone may make pods with these
/// labels, of 1.5 MiB each.
fn slim(mut pod: Pod) -> Pod {
    let metadata = &mut pod.metadata;
    (metadata.annotations, metadata.labels, metadata.managed_fields) = (None, None, None);
    (metadata.owner_references, metadata.finalizers) = (None, None);
    pod.spec = None;
    let conditions = pod.status.take().and_then(|status| status.conditions).unwrap_or_default();
    let mut ready = conditions.into_iter().filter(|condition| condition.type_ == "Ready");
    pod.status.get_or_insert_default().conditions = ready.next().map(|mut condition| {
        (condition.message, condition.reason) = (None, None);
        vec![condition]
    });
    pod
}
