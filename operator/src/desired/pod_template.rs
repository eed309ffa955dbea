//! The pod, the same below a Deployment and a DaemonSet. It passes Pod Security `restricted` (S8), and nothing in it
//! depends on the configuration, which pods take while they run, except for what `in_pods` says: only resources, listeners, images
//! and where pods run roll them.

use std::collections::BTreeMap;

use crds::defaults::{GRACE_AFTER_DRAIN_SECONDS, RESOURCES};
use k8s_openapi::api::core::v1::{
    LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, Sysctl, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::container::container;
use super::instance::Instance;
use super::pod_labels::pod_labels;
use super::{ports, volumes};
use crate::decide::plan::Account;
use crate::names::{SERVICE_ACCOUNT, TEMPLATE_HASH};

/// The user of the image, by number: a name could be root's.
const USER: i64 = 65532;
/// The topology keys over which pods are spread: nodes first, and zones where there are any.
const TOPOLOGIES: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];

/// Names volumes that keep no node: without it, Cluster Autoscaler never removes a node with a pod that has an `emptyDir` on disk.
const MAY_BE_LOST: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

/// Whether the template must spread the pods over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Tolerations of a pod where the spec has none.
    OverNodesAndZones,
    /// No constraint: a DaemonSet has one pod per node anyway.
    OnePerNode,
}

pub(super) fn pod_template(of: &Instance<'_>, spread: Spread) -> PodTemplateSpec {
    let written = of.dns.spec.placement.as_ref().and_then(|it| it.pod_annotations.clone());
    let mut annotations = annotations(written.unwrap_or_default(), spread);
    annotations.extend(account(&of.plan.rollout.state.account));
    let metadata = ObjectMeta {
        labels: Some(pod_labels(of.dns, &of.plan.service, of.observed)),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(of, spread)) }
}

/// Replaces the pods of a ServiceAccount that is not the first one any more: their tokens are refused.
fn account(account: &Account) -> Option<(String, String)> {
    let Account { uid, is_replaced } = account;
    is_replaced.then(|| (SERVICE_ACCOUNT.to_owned(), uid.clone()))
}

/// Those of the spec, and ours where it has none of that name.
fn annotations(mut written: BTreeMap<String, String>, spread: Spread) -> BTreeMap<String, String> {
    match spread {
        Spread::OverNodesAndZones => {
            let state = || volumes::STATE_VOLUME.to_owned();
            written.entry(MAY_BE_LOST.to_owned()).or_insert_with(state);
        }
        // Pods of a DaemonSet keep no node.
        Spread::OnePerNode => {}
    }
    written
}

fn pod(of: &Instance<'_>, spread: Spread) -> PodSpec {
    let spec = &of.dns.spec;
    let placement = spec.placement.clone().unwrap_or_default();
    let mut node_selector = placement.node_selector.unwrap_or_default();
    node_selector.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    PodSpec {
        service_account_name: Some(of.child.clone()),
        automount_service_account_token: Some(true),
        // With ClusterFirst, resolv.conf would name our own Service.
        dns_policy: Some("Default".to_owned()),
        // Otherwise the pod gets a variable for each Service of the namespace, and kube-system may have many.
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(
            i64::from(spec.drain_seconds) + i64::from(GRACE_AFTER_DRAIN_SECONDS),
        ),
        priority_class_name: Some(placement.priority_class_name),
        security_context: Some(security(of)),
        node_selector: Some(node_selector),
        tolerations: Some(match spread {
            Spread::OverNodesAndZones => tolerations(placement.tolerations),
            // A DaemonSet tolerates both forever: there is no other node for its pod.
            Spread::OnePerNode => placement.tolerations.unwrap_or_else(default_tolerations),
        }),
        affinity: placement.affinity,
        topology_spread_constraints: constraints(of, spread),
        image_pull_secrets: placement.image_pull_secrets.map(|secrets| {
            secrets.into_iter().map(|secret| LocalObjectReference { name: secret.name }).collect()
        }),
        containers: vec![container(of, spec.resources.clone().unwrap_or_else(default_resources))],
        volumes: Some(volumes::volumes(of)),
        ..PodSpec::default()
    }
}

/// Port 53 of the pod matters: network policies match the pod's port after address translation, and users' say 53. The
/// sysctl that allows it without a capability is safe, so `restricted` admits it.
fn security(of: &Instance<'_>) -> PodSecurityContext {
    let start = |port: u16| Sysctl {
        name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
        value: port.to_string(),
    };
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        sysctls: ports::unprivileged_from(&of.ports()).map(|port| vec![start(port)]),
        ..PodSecurityContext::default()
    }
}

/// Seconds until a pod on a node that Kubernetes has given up is replaced, in place of 300.
const REPLACED_AFTER_SECONDS: i64 = 30;

/// The tolerations of the spec, or ours; and how long a pod stays on a dead node, unless the spec says it.
fn tolerations(written: Option<Vec<Toleration>>) -> Vec<Toleration> {
    let mut all = written.unwrap_or_else(default_tolerations);
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let says = |it: &Toleration| {
            it.key.as_deref().is_none_or(|it| it.is_empty() || it == key)
                && it
                    .effect
                    .as_deref()
                    .is_none_or(|effect| effect.is_empty() || effect == "NoExecute")
        };
        if !all.iter().any(says) {
            all.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoExecute".to_owned()),
                toleration_seconds: Some(REPLACED_AFTER_SECONDS),
                ..Toleration::default()
            });
        }
    }
    all
}

/// Where the spec has none.
pub(crate) fn default_tolerations() -> Vec<Toleration> {
    let taint = |key: &str, effect: Option<&str>| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: effect.map(str::to_owned),
        ..Toleration::default()
    };
    vec![
        taint("CriticalAddonsOnly", None),
        taint("node-role.kubernetes.io/control-plane", Some("NoSchedule")),
    ]
}

/// How the pods are spread: as the spec says, else over nodes and zones.
fn constraints(of: &Instance<'_>, spread: Spread) -> Option<Vec<TopologySpreadConstraint>> {
    let placement = of.dns.spec.placement.clone().unwrap_or_default();
    match (spread, placement.topology_spread_constraints) {
        (Spread::OnePerNode, _) => None,
        (Spread::OverNodesAndZones, Some(written)) if !written.is_empty() => {
            let with_selector = |mut written: TopologySpreadConstraint| {
                written.label_selector.get_or_insert_with(|| of.selector());
                written
            };
            Some(written.into_iter().map(with_selector).collect())
        }
        (Spread::OverNodesAndZones, _) => {
            let all = || TOPOLOGIES.map(|key| constraint(key, of)).to_vec();
            placement.topology_spread.then(all)
        }
    }
}

/// Counts pods of one template only: those of the old template would keep the new ones away.
fn constraint(topology: &str, of: &Instance<'_>) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(of.selector()),
        match_label_keys: Some(vec![TEMPLATE_HASH.to_owned()]),
        ..TopologySpreadConstraint::default()
    }
}

/// Where the spec has none.
pub(crate) fn default_resources() -> ResourceRequirements {
    let quantity = |name: &str, text: &str| (name.to_owned(), Quantity(text.to_owned()));
    let limits = RESOURCES.iter().filter_map(|(name, _, limit)| Some(quantity(name, (*limit)?)));
    ResourceRequirements {
        requests: Some(RESOURCES.iter().map(|(name, least, _)| quantity(name, least)).collect()),
        limits: Some(limits.collect()),
        claims: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::from;
    use serde_json::json;

    #[test]
    fn o12_the_snapshot_of_a_pod_keeps_no_node_unless_the_spec_says_so() {
        let of = |written: serde_json::Value, spread| {
            annotations(from(written), spread).into_iter().collect::<Vec<_>>()
        };
        let ours = |value: &str| (MAY_BE_LOST.to_owned(), value.to_owned());
        let owner = ("owner".to_owned(), "platform".to_owned());
        assert_eq!(of(json!({}), Spread::OverNodesAndZones), [ours("state")]);
        let others = json!({"owner": "platform"});
        assert_eq!(of(others, Spread::OverNodesAndZones), [ours("state"), owner]);
        let written = json!({MAY_BE_LOST: ""});
        assert_eq!(of(written, Spread::OverNodesAndZones), [ours("")]);
        assert_eq!(of(json!({}), Spread::OnePerNode), [], "a DaemonSet keeps no node");
    }

    #[test]
    fn o4_pods_are_replaced_only_for_another_serviceaccount_than_the_first() {
        let of = |is_replaced| account(&Account { uid: "u".to_owned(), is_replaced });
        assert_eq!(of(false), None);
        assert_eq!(of(true), Some((SERVICE_ACCOUNT.to_owned(), "u".to_owned())));
    }

    #[test]
    fn o20_a_pod_leaves_a_node_that_died_after_30_s_unless_the_spec_says_when() {
        let seconds = |written: serde_json::Value| -> Vec<(String, Option<i64>)> {
            let written: Vec<Toleration> = from(written);
            let all = tolerations(Some(written)).into_iter();
            all.map(|it| (it.key.unwrap_or_default(), it.toleration_seconds)).collect()
        };
        let (not_ready, unreachable) =
            ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
        let ours = |key: &str| (key.to_owned(), Some(30));
        assert_eq!(seconds(json!([])), [ours(not_ready), ours(unreachable)]);
        let theirs = json!([{"key": not_ready, "operator": "Exists", "tolerationSeconds": 5}]);
        assert_eq!(seconds(theirs), [(not_ready.to_owned(), Some(5)), ours(unreachable)]);
        let all = json!([{"operator": "Exists"}]);
        assert_eq!(seconds(all), [(String::new(), None)]);
        let other = json!([{"key": not_ready, "operator": "Exists", "effect": "NoSchedule"}]);
        assert_eq!(seconds(other).len(), 3, "not about pods that run");
    }
}
