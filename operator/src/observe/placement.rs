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
    tolerations: Vec<Toleration>,
    /// Taints are misfits. With a Deployment, which replaces its pods one by one, they end no pod.
    is_per_node: bool,
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
        Wanted { labels, affinity, tolerations, is_per_node: is_per_node(dns) }
    }

    /// What the DaemonSet that exists asks for.
    pub(super) fn of_daemon_set(set: &DaemonSet) -> Wanted {
        let template = set.spec.as_ref().and_then(|spec| spec.template.spec.clone());
        let pod = template.unwrap_or_default();
        let affinity = pod.affinity.and_then(|affinity| affinity.node_affinity);
        let affinity =
            affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution);
        let labels = pod.node_selector.unwrap_or_default();
        let tolerations = pod.tolerations.unwrap_or_default();
        Wanted { labels, affinity, tolerations, is_per_node: true }
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

    /// Would the scheduler put a new pod of a Deployment there now, if it has room?
    fn takes_new_pod(&self, node: &SlimNode) -> bool {
        !is_virtual(node)
            && !node.is_cordoned()
            && !node.is_dead()
            && self.excluded(node, |_| false).is_none()
            && node.taints().iter().all(|taint| self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|one| tolerates(one, taint))
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
            !self.is_per_node
                || ALWAYS_TOLERATED.contains(&(taint.key.as_str(), taint.effect.as_str()))
                || self.tolerates(taint)
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
    /// Nodes that take a new pod of a Deployment now.
    pub(super) take_new_pods: u32,
}

pub(super) fn fit<'a>(nodes: impl IntoIterator<Item = &'a SlimNode>, wanted: &Wanted) -> Fit {
    let (mut count, mut fits, mut best) = (0, false, None);
    let (mut nodes, mut takers, mut take_new_pods) = (nodes.into_iter().peekable(), 0, 0);
    let has_nodes = nodes.peek().is_some();
    for node in nodes {
        takers += u32::from(wanted.takes_pod(node));
        take_new_pods += u32::from(wanted.takes_new_pod(node));
        match wanted.misfit(node) {
            None => (count, fits) = (count + u32::from(!is_virtual(node)), true),
            misfit @ Some(_) => best = misfit.max(best),
        }
    }
    let none_takes_pods = has_nodes && takers == 0;
    Fit { count, misfit: best.filter(|_| !fits), none_takes_pods, take_new_pods }
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
mod tests;
