//! Which nodes `spec.placement` lets our pods run on, as the scheduler and the controller of DaemonSets read it. That
//! controller ends at once every pod whose node does not fit, so a mistake here ends DNS. Pure.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};

use super::cluster_size::{EndingTaint, SlimNode, is_virtual};
use crate::decide::adoption::is_per_node;
use crate::desired::default_tolerations;
use crate::observe::observed::Misfit;

/// Taints that Kubernetes writes on a node whose kubelet is not ready: pods of a DaemonSet stay there.
const STAYS_WITH: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What a node must have for our pods.
pub(super) struct Wanted {
    labels: BTreeMap<String, String>,
    affinity: Option<NodeSelector>,
    /// None where taints end no pod at once: a Deployment replaces its pods one by one.
    tolerations: Option<Vec<Toleration>>,
}

impl Wanted {
    pub(super) fn of(dns: &ClusterDNS) -> Wanted {
        let placement = dns.spec.placement.clone().unwrap_or_default();
        let mut labels = placement.node_selector.unwrap_or_default();
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        let affinity = placement.affinity.and_then(|affinity| affinity.node_affinity);
        let affinity =
            affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution);
        let tolerations = placement.tolerations.unwrap_or_else(default_tolerations);
        let tolerations = is_per_node(dns).then_some(tolerations);
        Wanted { labels, affinity, tolerations }
    }

    /// What keeps our pods off this node; none: they may run there. With a pod on each node: what would end one that runs.
    pub(super) fn misfit(&self, node: &SlimNode) -> Option<Misfit> {
        let has = |(key, value): (&String, &String)| node.label(key) == Some(value.as_str());
        if !self.labels.iter().all(has) {
            return Some(Misfit::NodeSelector);
        }
        let terms = self.affinity.as_ref().map(|affinity| &affinity.node_selector_terms);
        if terms.is_some_and(|terms| !terms.iter().any(|term| matches(term, node))) {
            return Some(Misfit::NodeAffinity);
        }
        let tolerated = |taint: &EndingTaint| {
            let all = self.tolerations.as_ref();
            STAYS_WITH.contains(&taint.key.as_str())
                || all.is_none_or(|all| all.iter().any(|one| tolerates(one, taint)))
        };
        (!node.ending_taints().iter().all(tolerated)).then_some(Misfit::Tolerations)
    }
}

/// How many nodes our pods may run on, virtual ones left out; and what keeps them off every node: of the node that fits best. None:
/// one fits, or there is none.
pub(super) fn fit<'a>(
    nodes: impl IntoIterator<Item = &'a SlimNode>,
    wanted: &Wanted,
) -> (u32, Option<Misfit>) {
    let (mut count, mut fits, mut best) = (0, false, None);
    for node in nodes {
        match wanted.misfit(node) {
            None => (count, fits) = (count + u32::from(!is_virtual(node)), true),
            misfit @ Some(_) => best = misfit.max(best),
        }
    }
    (count, best.filter(|_| !fits))
}

/// An empty term matches no node.
fn matches(term: &NodeSelectorTerm, node: &SlimNode) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let is_named = |field: &NodeSelectorRequirement| {
        field.key == "metadata.name" && holds(field, Some(node.name()))
    };
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|label| holds(label, node.label(&label.key)))
        && fields.iter().all(is_named)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let numbers = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &EndingTaint) -> bool {
    let text = |written: &Option<String>| written.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    (effect.is_empty() || effect == "NoExecute")
        && (key.is_empty() || key == taint.key)
        && match text(&toleration.operator).as_str() {
            "" | "Equal" => text(&toleration.value) == taint.value,
            // Others compare numbers, where the API server knows that: what may be tolerated counts as tolerated.
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, from};
    use serde_json::{Value, json};

    fn node(taints: Value) -> SlimNode {
        let labels = json!({"kubernetes.io/os": "linux", "pool": "infra", "cores": "16"});
        from(json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints}}))
    }

    #[test]
    fn o2_only_nodes_on_which_a_pod_may_run_count_as_pods() {
        let wanted =
            Wanted::of(&dns("{placement: {nodeSelector: {pool: dns}}, scaling: {perNode: {}}}"));
        let node = |labels: Value| -> SlimNode { from(json!({"metadata": {"labels": labels}})) };
        let fits = node(json!({"kubernetes.io/os": "linux", "pool": "dns"}));
        let other = node(json!({"kubernetes.io/os": "linux"}));
        let is_virtual =
            node(json!({"kubernetes.io/os": "linux", "pool": "dns", "type": "virtual-kubelet"}));
        let misfit = Some(Misfit::NodeSelector);
        for (nodes, expected) in [
            (vec![], (0, None)),
            (vec![&other, &other], (0, misfit)),
            (vec![&other, &fits, &other, &fits, &is_virtual], (2, None)),
            (vec![&is_virtual], (0, None)),
        ] {
            assert_eq!(fit(nodes, &wanted), expected);
        }
    }

    fn misfit(spec: &str, taints: Value) -> Option<Misfit> {
        Wanted::of(&dns(spec)).misfit(&node(taints))
    }

    #[test]
    fn o2_required_affinity_to_nodes_is_read_as_kubernetes_reads_it() {
        let affinity = |terms: &str| {
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            format!("affinity: {{nodeAffinity: {{{required}: {{nodeSelectorTerms: [{terms}]}}}}}}")
        };
        let label = |requirement: &str| format!("{{matchExpressions: [{{{requirement}}}]}}");
        let (fits, no) = (None, Some(Misfit::NodeAffinity));
        for (terms, expected) in [
            (label("key: pool, operator: In, values: [web, infra]"), fits),
            (label("key: pool, operator: In, values: [infa]"), no),
            (label("key: pol, operator: In, values: [infra]"), no),
            (label("key: pool, operator: NotIn, values: [infra]"), no),
            (label("key: pool, operator: NotIn, values: [web]"), fits),
            (label("key: pol, operator: NotIn, values: [infra]"), fits),
            (label("key: pool, operator: Exists"), fits),
            (label("key: pol, operator: Exists"), no),
            (label("key: pool, operator: DoesNotExist"), no),
            (label("key: pol, operator: DoesNotExist"), fits),
            (label("key: cores, operator: Gt, values: ['15']"), fits),
            (label("key: cores, operator: Gt, values: ['16']"), no),
            (label("key: cores, operator: Lt, values: ['17']"), fits),
            (label("key: cores, operator: Lt, values: ['16']"), no),
            (label("key: pool, operator: Gt, values: ['1']"), no),
            (label("key: pol, operator: Lt, values: ['1']"), no),
            ("{matchFields: [{key: metadata.name, operator: In, values: [a]}]}".to_owned(), fits),
            ("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}".to_owned(), no),
            (
                "{matchFields: [{key: metadata.name, operator: NotIn, values: [b]}]}".to_owned(),
                fits,
            ),
            ("{}".to_owned(), no),
            (
                "{matchExpressions: [{key: pool, operator: Exists}, {key: pol, operator: Exists}]}"
                    .to_owned(),
                no,
            ),
            (
                format!(
                    "{}, {}",
                    label("key: pol, operator: Exists"),
                    label("key: pool, operator: Exists")
                ),
                fits,
            ),
        ] {
            for scaling in ["{perNode: {}}", "{fixed: {replicas: 2}}"] {
                let spec = format!("{{scaling: {scaling}, placement: {{{}}}}}", affinity(&terms));
                assert_eq!(misfit(&spec, json!([])), expected, "{terms}");
            }
        }
        let spec = format!("{{placement: {{nodeSelector: {{pool: web}}, {}}}}}", affinity("{}"));
        assert_eq!(misfit(&spec, json!([])), Some(Misfit::NodeSelector), "the first that is wrong");
    }

    #[test]
    fn o2_a_taint_that_ends_pods_is_a_misfit_where_each_node_has_a_pod() {
        let taint =
            |key: &str, effect: &str| json!([{"key": key, "value": "dns", "effect": effect}]);
        let (fits, no) = (None, Some(Misfit::Tolerations));
        for (tolerations, taints, expected) in [
            ("[]", json!([]), fits),
            ("[]", json!(null), fits),
            ("[]", taint("pool", "NoExecute"), no),
            ("[]", taint("pool", "NoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/not-ready", "NoExecute"), fits),
            ("[]", taint("node.kubernetes.io/unreachable", "NoExecute"), fits),
            ("[]", taint("node.kubernetes.io/out-of-service", "NoExecute"), no),
            ("[{operator: Exists}]", taint("pool", "NoExecute"), fits),
            ("[{key: pool, operator: Exists}]", taint("pool", "NoExecute"), fits),
            ("[{key: pol, operator: Exists}]", taint("pool", "NoExecute"), no),
            ("[{key: pool, operator: Exists, effect: NoSchedule}]", taint("pool", "NoExecute"), no),
            ("[{key: pool, value: dns}]", taint("pool", "NoExecute"), fits),
            ("[{key: pool, value: web}]", taint("pool", "NoExecute"), no),
            (
                "[{key: pool, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]",
                taint("pool", "NoExecute"),
                fits,
            ),
        ] {
            let placement = format!("placement: {{tolerations: {tolerations}}}");
            let spec = format!("{{scaling: {{perNode: {{}}}}, {placement}}}");
            assert_eq!(misfit(&spec, taints.clone()), expected, "{tolerations} {taints}");
            let spec = format!("{{scaling: {{fixed: {{replicas: 2}}}}, {placement}}}");
            assert_eq!(misfit(&spec, taints), None, "a Deployment");
        }
        let by_default = |key: &str| misfit("{scaling: {perNode: {}}}", taint(key, "NoExecute"));
        assert_eq!([by_default("CriticalAddonsOnly"), by_default("pool")], [fits, no]);
    }
}
