//! The fields of a status besides its conditions: pods, addresses, and objects that pods skipped.

use std::collections::BTreeMap;

use crds::bounds::{LABEL, MESSAGE, OBJECT_NAME, REPORTED};
use crds::v1alpha1::{Replicas, SkippedObject};

use crate::decide::plan::{Plan, ServicePlan, Size};
use crate::decide::{adoption, scale};
use crate::observe::observed::{Observed, PodReport};
use crate::observe::pods;
use crate::shortened::shortened;

/// How many pods there should be, unless an autoscaler decides it.
pub(super) fn wanted(size: &Size, observed: &Observed) -> u32 {
    match size {
        Size::Replicas(count) => *count,
        Size::Autoscaled { min, .. } => live_size(observed).max(*min),
        Size::PerNode => scale::on_nodes(observed),
    }
}

/// How many pods the workload has now, as its spec or status says.
pub(super) fn live_size(observed: &Observed) -> u32 {
    let deployment =
        observed.deployment.as_ref().and_then(|deployment| deployment.spec.as_ref()?.replicas);
    let daemon_set = observed.daemon_set.as_ref().and_then(|set| set.status.as_ref());
    let number = deployment.or(daemon_set.map(|status| status.desired_number_scheduled));
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

/// How many pods are ready, and how many of them run the stable document.
pub(super) fn replicas(desired: u32, stable: &str, observed: &Observed) -> Replicas {
    let ready = count(pods::ready(observed));
    let on_stable = pods::ready(observed).filter(|pod| {
        pods::known(observed, pod).is_some_and(|reported| reported.revision == stable)
    });
    Replicas {
        desired,
        ready,
        on_stable_revision: count(on_stable),
        summary: format!("{ready}/{desired}"),
    }
}

/// The number of items, as status fields hold it.
pub(super) fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}

/// The addresses that clients ask.
pub(super) fn cluster_ips(observed: &Observed, plan: &Plan) -> Vec<String> {
    match plan.service {
        // The addresses that clients know, also while the Service is gone, or has none.
        ServicePlan::Own | ServicePlan::Adopted { .. } | ServicePlan::Recreated { .. } => {
            let real = observed.service.iter().flat_map(adoption::cluster_ips);
            let real: Vec<String> = real.map(|ip| ip.to_string()).collect();
            match real.is_empty() {
                true => plan.rollout.state.service.cluster_ips.clone(),
                false => real,
            }
        }
        ServicePlan::Released { .. } => Vec::new(),
    }
}

/// Objects that pods could not serve, each once, in a stable order. Where there are more than status shows, of each namespace
/// in turn, so that one namespace hides no other. A pod says what they are called: no text is longer than the schema allows,
/// because the API server would refuse the whole status.
pub(super) fn skipped(observed: &Observed) -> Vec<SkippedObject> {
    let all = observed
        .pod_reports
        .values()
        .filter_map(PodReport::known)
        .flat_map(|reported| reported.skipped.iter());
    let mut of_each: BTreeMap<&str, BTreeMap<(&str, &str), &SkippedObject>> = BTreeMap::new();
    for object in all {
        let names = (object.kind.as_str(), object.name.as_str());
        of_each.entry(&object.namespace).or_default().entry(names).or_insert(object);
    }
    let mut in_turns: Vec<(usize, &SkippedObject)> =
        of_each.values().flat_map(|objects| objects.values().copied().enumerate()).collect();
    in_turns.sort_by_key(|(turn, object)| (*turn, &object.namespace));
    in_turns.truncate(REPORTED);
    let mut listed: Vec<SkippedObject> = in_turns
        .into_iter()
        .map(|(_, object)| SkippedObject {
            kind: shortened(&object.kind, LABEL),
            namespace: shortened(&object.namespace, LABEL),
            name: shortened(&object.name, OBJECT_NAME),
            reason: shortened(&object.reason, MESSAGE),
        })
        .collect();
    listed.sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
    listed
}
