//! Which nodes `spec.placement` lets our pods run on, as the scheduler and the controller of DaemonSets read it. That
//! controller ends at once every pod whose node does not fit, so a mistake here ends DNS. Pure.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};

use super::cluster_size::{NO_EXECUTE, NO_SCHEDULE, SlimNode, Taint, is_virtual};
use crate::decide::adoption::is_per_node;
use crate::desired::default_tolerations;
use crate::observe::observed::Misfit;

/// Taints that Kubernetes writes on a node whose kubelet is not ready, and takes away by itself.
const PASSING: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// What the controller of DaemonSets lets each of its pods tolerate. Not the `NoSchedule` of a kubelet that is not ready.
const ALWAYS_TOLERATED: [(&str, &str); 6] = [
    (PASSING[0], NO_EXECUTE),
    (PASSING[1], NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];

/// What a node must have for our pods.
pub(super) struct Wanted {
    labels: BTreeMap<String, String>,
    affinity: Option<NodeSelector>,
    /// None where taints end no pod: a Deployment replaces its pods one by one.
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

    /// What the DaemonSet that exists asks for.
    pub(super) fn of_daemon_set(set: &DaemonSet) -> Wanted {
        let template = set.spec.as_ref().and_then(|spec| spec.template.spec.clone());
        let pod = template.unwrap_or_default();
        let affinity = pod.affinity.and_then(|affinity| affinity.node_affinity);
        let affinity =
            affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution);
        let labels = pod.node_selector.unwrap_or_default();
        Wanted { labels, affinity, tolerations: Some(pod.tolerations.unwrap_or_default()) }
    }

    /// What keeps new pods of ours off this node until a person changes it, so that a kubelet that is not ready is no reason;
    /// none: they may run there.
    pub(super) fn misfit(&self, node: &SlimNode) -> Option<Misfit> {
        self.excluded(node, |taint| !PASSING.contains(&taint.key.as_str()))
    }

    /// With a pod on each node: what ends one that runs there at once.
    pub(super) fn ends_pods(&self, node: &SlimNode) -> Option<Misfit> {
        self.excluded(node, |taint| taint.effect == NO_EXECUTE)
    }

    /// Does a DaemonSet make a pod on it now, and count it? If not, one that runs there has no successor: it ends when the template
    /// changes.
    pub(super) fn takes_pod(&self, node: &SlimNode) -> bool {
        self.excluded(node, |_| true).is_none()
    }

    /// What keeps our pods off this node, of its taints only these.
    fn excluded(&self, node: &SlimNode, counts: impl Fn(&Taint) -> bool) -> Option<Misfit> {
        let has = |(key, value): (&String, &String)| node.label(key) == Some(value.as_str());
        if !self.labels.iter().all(has) {
            return Some(Misfit::NodeSelector);
        }
        let terms = self.affinity.as_ref().map(|affinity| &affinity.node_selector_terms);
        if terms.is_some_and(|terms| !terms.iter().any(|term| matches(term, node))) {
            return Some(Misfit::NodeAffinity);
        }
        let tolerated = |taint: &Taint| {
            let all = self.tolerations.as_ref();
            ALWAYS_TOLERATED.contains(&(taint.key.as_str(), taint.effect.as_str()))
                || all.is_none_or(|all| all.iter().any(|one| tolerates(one, taint)))
        };
        let mut taints = node.taints().iter().filter(|taint| counts(taint));
        (!taints.all(tolerated)).then_some(Misfit::Tolerations)
    }
}

/// How the nodes of the cluster fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fit {
    /// Nodes on which our pods may run, virtual ones left out.
    pub(super) count: u32,
    /// What keeps them off every node: of the node that fits best. None: one fits, or there is none.
    pub(super) misfit: Option<Misfit>,
    /// There are nodes, and none takes a pod of a DaemonSet now.
    pub(super) none_takes_pods: bool,
}

pub(super) fn fit<'a>(nodes: impl IntoIterator<Item = &'a SlimNode>, wanted: &Wanted) -> Fit {
    let (mut count, mut fits, mut best) = (0, false, None);
    let (mut nodes, mut takers) = (nodes.into_iter().peekable(), 0);
    let has_nodes = nodes.peek().is_some();
    for node in nodes {
        takers += u32::from(wanted.takes_pod(node));
        match wanted.misfit(node) {
            None => (count, fits) = (count + u32::from(!is_virtual(node)), true),
            misfit @ Some(_) => best = misfit.max(best),
        }
    }
    Fit { count, misfit: best.filter(|_| !fits), none_takes_pods: has_nodes && takers == 0 }
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

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |written: &Option<String>| written.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    (effect.is_empty() || effect == taint.effect)
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

    const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

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
        for (nodes, (count, misfit), none_takes_pods) in [
            (vec![], (0, None), false),
            (vec![&other, &other], (0, misfit), true),
            (vec![&other, &fits, &other, &fits, &is_virtual], (2, None), false),
            (vec![&is_virtual], (0, None), false),
        ] {
            assert_eq!(fit(nodes, &wanted), Fit { count, misfit, none_takes_pods });
        }
    }

    #[test]
    fn o2_nodes_on_which_a_daemonset_never_has_a_pod_do_not_count() {
        let wanted = Wanted::of(&dns("{scaling: {perNode: {}}}"));
        let linux = json!({"kubernetes.io/os": "linux"});
        let taint = |key: &str| json!([{"key": key, "value": "x", "effect": "NoSchedule"}]);
        let mut nodes: Vec<SlimNode> = vec![from(json!({"metadata": {"labels": linux}})); 499];
        for key in ["eks.amazonaws.com/compute-type", "dedicated"] {
            nodes
                .push(from(json!({"metadata": {"labels": linux}, "spec": {"taints": taint(key)}})));
        }
        assert_eq!(fit(&nodes, &wanted), Fit { count: 499, ..Fit::default() });
    }

    #[test]
    fn o2_nodes_that_are_not_ready_fit_and_take_no_pod_now() {
        let tainted = |key: &str| node(json!([{"key": key, "effect": "NoSchedule"}]));
        let (dead, reserved) = (tainted(PASSING[1]), tainted("dedicated"));
        let of = |spec: &str, nodes: &[&SlimNode]| {
            let fit = fit(nodes.iter().copied(), &Wanted::of(&dns(spec)));
            (fit.count, fit.misfit, fit.none_takes_pods)
        };
        let default = "{scaling: {perNode: {}}}";
        assert_eq!(of(default, &[&dead, &reserved]), (1, None, true));
        assert_eq!(of(default, &[&reserved]), (0, Some(Misfit::Tolerations), true));
        let all = "{scaling: {perNode: {}}, placement: {tolerations: [{operator: Exists}]}}";
        assert_eq!(of(all, &[&dead, &reserved]), (2, None, false));
    }

    #[test]
    fn o7_a_daemonset_counts_the_nodes_that_its_own_template_tolerates() {
        let set = |tolerations: Value| -> DaemonSet {
            let pod = json!({"containers": [], "nodeSelector": {"pool": "infra"}, "tolerations": tolerations});
            from(json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": pod}}}))
        };
        let takes = |tolerations: Value, key: &str, effect: &str| {
            let node = node(json!([{"key": key, "effect": effect}]));
            Wanted::of_daemon_set(&set(tolerations)).takes_pod(&node)
        };
        let default = || json!([{"key": "CriticalAddonsOnly", "operator": "Exists"}]);
        assert!(takes(default(), PASSING[0], NO_EXECUTE));
        assert!(!takes(default(), PASSING[0], NO_SCHEDULE));
        assert!(takes(json!([{"operator": "Exists"}]), PASSING[0], NO_SCHEDULE));
        assert!(takes(default(), "node.kubernetes.io/unschedulable", NO_SCHEDULE));
        assert!(!takes(default(), "node.kubernetes.io/network-unavailable", NO_SCHEDULE));
        assert!(!takes(json!(null), "CriticalAddonsOnly", NO_SCHEDULE));
        let elsewhere: SlimNode = from(json!({"metadata": {"labels": {"pool": "web"}}}));
        assert!(!Wanted::of_daemon_set(&set(default())).takes_pod(&elsewhere));
        let tainted = node(json!([{"key": "dedicated", "effect": NO_SCHEDULE}]));
        let misfit = fit([&tainted], &Wanted::of_daemon_set(&set(default()))).misfit;
        assert_eq!(misfit, Some(Misfit::Tolerations));
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
    fn o2_a_taint_that_is_not_tolerated_is_a_misfit_where_each_node_has_a_pod() {
        let taint =
            |key: &str, effect: &str| json!([{"key": key, "value": "dns", "effect": effect}]);
        let (fits, no) = (None, Some(Misfit::Tolerations));
        for (tolerations, taints, expected) in [
            ("[]", json!([]), fits),
            ("[]", json!(null), fits),
            ("[]", taint("pool", "NoExecute"), no),
            ("[]", taint("pool", "NoSchedule"), no),
            ("[]", taint("pool", "PreferNoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/unschedulable", "NoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/memory-pressure", "NoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/not-ready", "NoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/unreachable", "NoSchedule"), fits),
            ("[]", taint("node.kubernetes.io/network-unavailable", "NoSchedule"), no),
            ("[{key: dedicated, operator: Exists}]", taint(CONTROL_PLANE, "NoSchedule"), no),
            (
                "[{key: pool, operator: Exists, effect: NoSchedule}]",
                taint("pool", "NoSchedule"),
                fits,
            ),
            ("[{key: pool, operator: Exists, effect: NoExecute}]", taint("pool", "NoSchedule"), no),
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
        let by_default = misfit("{scaling: {perNode: {}}}", taint(CONTROL_PLANE, "NoSchedule"));
        assert_eq!(by_default, fits);
    }

    #[test]
    fn o2_only_a_taint_that_ends_pods_ends_those_that_run() {
        let wanted = Wanted::of(&dns("{scaling: {perNode: {}}}"));
        let ends =
            |effect: &str| wanted.ends_pods(&node(json!([{"key": "pool", "effect": effect}])));
        assert_eq!([NO_EXECUTE, NO_SCHEDULE].map(ends), [Some(Misfit::Tolerations), None]);
    }
}
