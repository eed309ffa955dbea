//! Order of writes and deletions: prerequisites first; a workload is deleted only after its replacement serves. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::desired::{Desired, Kind};
use crate::observe::observed::{Child, Observed};
use crate::observe::pods;

/// The kinds that must be written before new content of this one. If one of them failed, that content waits; everything else is
/// written: a refused PodMonitor must not keep a repaired configuration from the pods.
pub(super) const fn needs(kind: Kind) -> &'static [Kind] {
    const RIGHTS: &[Kind] = &[
        Kind::ServiceAccount,
        Kind::ClusterRole,
        Kind::ClusterRoleBinding,
        Kind::Role,
        Kind::RoleBinding,
    ];
    const CONFIGURED: &[Kind] = &[
        Kind::ServiceAccount,
        Kind::ClusterRole,
        Kind::ClusterRoleBinding,
        Kind::Role,
        Kind::RoleBinding,
        Kind::ConfigMap,
    ];
    match kind {
        // A configuration that needs more rights comes after them.
        Kind::ConfigMap => RIGHTS,
        Kind::Deployment | Kind::DaemonSet => CONFIGURED,
        // The rollout's state in the ConfigMap remembers what was done to the Service.
        Kind::Service => &[Kind::ConfigMap],
        // It scales a Deployment that has given up `replicas`; one that is put back as it was applied before still has them.
        Kind::HorizontalPodAutoscaler => &[Kind::Deployment],
        Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::PodDisruptionBudget
        | Kind::NetworkPolicy
        | Kind::PodMonitor
        | Kind::PrometheusRule => &[],
    }
}

/// For what new content of this kind waits besides: a DaemonSet whose template changes ends the pods that it has where it wants
/// none now, up to the number that it wants. Where it wants none at all, every one ends. Where all nodes lost the API server, the node
/// controller says that their pods are not ready, and they still answer.
pub(super) fn waits_for_nodes(kind: Kind, observed: &Observed) -> Option<&'static str> {
    let is_cut_off = |pod: &Pod| pods::node(pod).is_some_and(|it| observed.dead_nodes.contains(it));
    // One without an address never ran, as on a node whose network does not work yet.
    let has_run = |pod: &Pod| pods::address(pod).is_some() && !pods::has_ended(pod);
    let may_answer = |pod: &&Pod| {
        pods::is_ready(pod) || !pods::is_leaving(pod) && has_run(pod) && is_cut_off(pod)
    };
    let ends_all = kind == Kind::DaemonSet
        && observed.no_node_takes_pods
        && observed.pods.iter().filter(may_answer).any(pods::is_of_daemon_set);
    ends_all.then_some(
        "waits for a node that takes a new pod: with a change every pod that runs would end. kubectl describe nodes shows taints, and \
         nodes that are not ready",
    )
}

/// What exists, is ours and is no longer wanted, in the order of deletion: the newest layer first.
pub(super) fn superfluous(desired: &Desired, observed: &Observed) -> Vec<Child> {
    let wanted: BTreeSet<(Kind, String, String)> = desired
        .objects
        .iter()
        .map(|(kind, object)| (*kind, object.namespace().unwrap_or_default(), object.name_any()))
        .collect();
    let is_wanted = |child: &&Child| {
        wanted.contains(&(child.kind, child.namespace.clone(), child.name.clone()))
    };
    let mut found: Vec<Child> =
        observed.children.iter().filter(|child| !is_wanted(child)).cloned().collect();
    found.retain(|child| may_go(child.kind, desired, observed));
    found.sort_by_key(|child| std::cmp::Reverse(child.kind));
    found
}

/// A workload stays until the one that replaces it is fully rolled out and ready. Objects that every ClusterDNS has
/// under a fixed name are deleted together with the ClusterDNS, never by us: the right to delete them is there for their owners
/// only, see the chart.
fn may_go(kind: Kind, desired: &Desired, observed: &Observed) -> bool {
    let wants = |kind| desired.objects.iter().any(|(wanted, _)| *wanted == kind);
    match kind {
        Kind::Deployment => wants(Kind::DaemonSet) && pods::progress(observed, true).is_complete(),
        Kind::DaemonSet => wants(Kind::Deployment) && pods::progress(observed, false).is_complete(),
        Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ConfigMap
        | Kind::Service => false,
        // Until its Deployment goes it says how many pods that has.
        Kind::HorizontalPodAutoscaler => {
            wants(Kind::Deployment) || may_go(Kind::Deployment, desired, observed)
        }
        Kind::PodDisruptionBudget
        | Kind::NetworkPolicy
        | Kind::PodMonitor
        | Kind::PrometheusRule => true,
    }
}

/// Whether it is a workload that serves until the one that replaces it does, or says how many pods that workload has.
pub(super) fn awaits_successor(kind: Kind, desired: &Desired, observed: &Observed) -> bool {
    let kinds = [Kind::Deployment, Kind::DaemonSet, Kind::HorizontalPodAutoscaler];
    kinds.contains(&kind) && desired.get(kind).is_none() && !may_go(kind, desired, observed)
}

/// Whether the failed writes forbid deleting an object of this kind. What no pod needs goes also if all others failed: a policy that
/// is not wanted any more may cut clients off.
pub(super) fn keeps(failed: &BTreeSet<Kind>, kind: Kind) -> bool {
    let has_failed = |kinds: &[Kind]| kinds.iter().any(|kind| failed.contains(kind));
    let workloads = [Kind::Deployment, Kind::DaemonSet];
    match kind {
        // An autoscaler that is not wanted any more would continue to change the Deployment, against our writes. A budget is kept
        // while the pods of before serve, and none of the new workload are beside them.
        Kind::HorizontalPodAutoscaler | Kind::PodDisruptionBudget => has_failed(&workloads),
        // Its successor is one of these, and serves only with what it needs.
        Kind::Deployment | Kind::DaemonSet => {
            has_failed(&workloads) || has_failed(needs(kind)) || has_failed(&[Kind::Service])
        }
        Kind::NetworkPolicy | Kind::PodMonitor | Kind::PrometheusRule => false,
        // They are never deleted.
        Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ConfigMap
        | Kind::Service => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::DynamicObject;
    use serde_json::json;

    fn desired(kinds: &[Kind]) -> Desired {
        let object = |kind: &Kind| {
            let value = json!({"metadata": {"name": "clusterdns-a", "namespace": "n"}});
            (*kind, serde_json::from_value::<DynamicObject>(value).unwrap())
        };
        Desired { objects: kinds.iter().map(object).collect() }
    }

    fn child(kind: Kind) -> Child {
        Child { kind, namespace: "n".into(), name: "clusterdns-a".into(), uid: "u".into() }
    }

    fn daemon_set(available: i32) -> Observed {
        let set = json!({"metadata": {"generation": 2}, "spec": {"selector": {}, "template": {}},
            "status": {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3, "numberAvailable": available}});
        Observed { daemon_set: Some(serde_json::from_value(set).unwrap()), ..Observed::default() }
    }

    #[test]
    fn a_workload_goes_only_when_its_successor_serves() {
        let kinds = |desired: &Desired, mut observed: Observed| {
            observed.children = vec![
                child(Kind::ServiceAccount),
                child(Kind::Deployment),
                child(Kind::NetworkPolicy),
            ];
            superfluous(desired, &observed).into_iter().map(|child| child.kind).collect::<Vec<_>>()
        };
        let to_daemon_set = desired(&[Kind::ServiceAccount, Kind::DaemonSet]);
        assert_eq!(kinds(&to_daemon_set, daemon_set(2)), [Kind::NetworkPolicy]);
        assert_eq!(kinds(&to_daemon_set, daemon_set(3)), [Kind::Deployment, Kind::NetworkPolicy]);
        let mut leaving = daemon_set(3);
        leaving.daemon_set.as_mut().unwrap().metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(kinds(&to_daemon_set, leaving), [Kind::NetworkPolicy], "it is being deleted");
        let nothing = desired(&[]);
        assert_eq!(
            kinds(&nothing, daemon_set(3)),
            [Kind::NetworkPolicy],
            "an empty plan takes no pod"
        );
    }

    #[test]
    fn o12_an_autoscaler_is_deleted_with_its_deployment() {
        let goes = |wanted: Kind, available: i32| {
            let mut observed = daemon_set(available);
            observed.children = vec![child(Kind::HorizontalPodAutoscaler)];
            !superfluous(&desired(&[wanted]), &observed).is_empty()
        };
        assert!(!goes(Kind::DaemonSet, 2), "the Deployment still serves");
        assert!(goes(Kind::DaemonSet, 3));
        assert!(goes(Kind::Deployment, 2), "only its size has changed");
    }

    #[test]
    fn o13_a_budget_stays_while_the_workload_that_needs_none_is_refused() {
        let keeps = |failed: Kind| keeps(&[failed].into(), Kind::PodDisruptionBudget);
        assert!(keeps(Kind::DaemonSet) && keeps(Kind::Deployment));
        assert!(!keeps(Kind::Service));
    }

    #[test]
    fn o12_an_autoscaler_is_deleted_with_the_new_size_also_if_other_writes_failed() {
        let keeps = |failed: &[Kind], kind| keeps(&failed.iter().copied().collect(), kind);
        assert!(!keeps(&[Kind::NetworkPolicy], Kind::HorizontalPodAutoscaler));
        assert!(
            keeps(&[Kind::Deployment], Kind::HorizontalPodAutoscaler),
            "it still owns the size"
        );
    }

    #[test]
    fn o13_a_failed_write_forbids_only_deletions_that_need_it() {
        let keeps = |failed: Kind, kind| keeps(&[failed].into(), kind);
        for failed in [
            Kind::ClusterRole,
            Kind::ServiceAccount,
            Kind::ConfigMap,
            Kind::Service,
            Kind::DaemonSet,
        ] {
            assert!(keeps(failed, Kind::Deployment), "{failed:?}");
            assert!(!keeps(failed, Kind::NetworkPolicy), "{failed:?}");
        }
        for failed in [Kind::PodMonitor, Kind::PodDisruptionBudget, Kind::NetworkPolicy] {
            for kind in [Kind::Deployment, Kind::DaemonSet, Kind::PrometheusRule] {
                assert!(!keeps(failed, kind), "{failed:?} {kind:?}");
            }
        }
    }

    #[test]
    fn what_every_cluster_dns_has_is_never_deleted() {
        let kinds = [Kind::ServiceAccount, Kind::Role, Kind::ConfigMap, Kind::Service];
        let mut observed = daemon_set(3);
        observed.children = kinds.map(|kind| Child { name: "other".into(), ..child(kind) }).into();
        assert_eq!(superfluous(&desired(&kinds), &observed), []);
    }

    #[test]
    fn rights_come_before_the_configuration_and_both_before_pods() {
        assert!(needs(Kind::ConfigMap).contains(&Kind::ClusterRole));
        assert!(needs(Kind::Deployment).contains(&Kind::ConfigMap));
        assert!(!needs(Kind::Deployment).contains(&Kind::PodMonitor));
        // Objects that others need are written earlier.
        for kind in crate::runtime::resources::NAMESPACED
            .into_iter()
            .chain(crate::runtime::resources::CLUSTER)
        {
            assert!(needs(kind).iter().all(|needed| *needed < kind), "{kind:?}");
        }
    }
}
