//! Affinity of pods to nodes and to other pods: what the API server would refuse in every pod.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    WeightedPodAffinityTerm,
};

use super::bounds::at_most;
use super::names::label;
use super::selector;
use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;
use crate::names::is_label;

/// Adds what is wrong with an affinity.
pub(super) fn check(affinity: &Affinity, violations: &mut Violations) {
    let Affinity { node_affinity, pod_affinity, pod_anti_affinity } = affinity;
    if let Some(nodes) = node_affinity {
        of_nodes(nodes, "spec.placement.affinity.nodeAffinity", violations);
    }
    if let Some(pods) = pod_affinity {
        let field = "spec.placement.affinity.podAffinity";
        let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
        of_pods(required, preferred, field, violations);
    }
    if let Some(pods) = pod_anti_affinity {
        let field = "spec.placement.affinity.podAntiAffinity";
        let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
        of_pods(required, preferred, field, violations);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn of_nodes(affinity: &NodeAffinity, field: &str, violations: &mut Violations) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let field = format!("{field}.{REQUIRED}.nodeSelectorTerms");
        let terms = &required.node_selector_terms;
        if terms.is_empty() {
            let message = "no node fits an empty list: write a term, or leave the affinity out";
            violations.add(field.clone(), Reason::Missing, message);
        }
        at_most(terms.len(), limit::POD_ENTRIES, &field, violations);
        for (index, term) in terms.iter().enumerate() {
            of_node_term(term, &format!("{field}[{index}]"), violations);
        }
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref();
    let preferred = preferred.unwrap_or_default();
    let field = format!("{field}.{PREFERRED}");
    at_most(preferred.len(), limit::POD_ENTRIES, &field, violations);
    for (index, term) in preferred.iter().enumerate() {
        let field = format!("{field}[{index}]");
        weight(term.weight, &field, violations);
        of_node_term(&term.preference, &format!("{field}.preference"), violations);
    }
}

fn of_node_term(term: &NodeSelectorTerm, field: &str, violations: &mut Violations) {
    let NodeSelectorTerm { match_expressions, match_fields } = term;
    for (index, requirement) in match_expressions.iter().flatten().enumerate() {
        of_node_label(requirement, &format!("{field}.matchExpressions[{index}]"), violations);
    }
    for (index, requirement) in match_fields.iter().flatten().enumerate() {
        let field = format!("{field}.matchFields[{index}]");
        let NodeSelectorRequirement { key, operator, values } = requirement;
        let is_one = values.as_ref().is_some_and(|values| values.len() == 1);
        if key != "metadata.name" || !["In", "NotIn"].contains(&operator.as_str()) || !is_one {
            let message = "nodes have one such field: write {key: metadata.name, operator: In, values: [the node]}";
            violations.add(field, Reason::InvalidSelector, message);
        }
    }
}

fn of_node_label(requirement: &NodeSelectorRequirement, field: &str, violations: &mut Violations) {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    label(key, values.iter().map(String::as_str), field, violations);
    let (fits, needed) = match operator.as_str() {
        "In" | "NotIn" => (!values.is_empty(), "In and NotIn need values"),
        "Exists" | "DoesNotExist" => (values.is_empty(), "Exists and DoesNotExist have no values"),
        "Gt" | "Lt" => (values.len() == 1, "Gt and Lt need one value, which is a number"),
        unknown => {
            let known = "write In, NotIn, Exists, DoesNotExist, Gt or Lt";
            let message = format!("{} is unknown: {known}", shown(unknown));
            violations.add(format!("{field}.operator"), Reason::InvalidSelector, message);
            return;
        }
    };
    if !fits {
        violations.add(format!("{field}.values"), Reason::InvalidSelector, needed);
    }
}

fn of_pods(
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    field: &str,
    violations: &mut Violations,
) {
    let (required, preferred) = (required.unwrap_or_default(), preferred.unwrap_or_default());
    at_most(required.len(), limit::POD_ENTRIES, &format!("{field}.{REQUIRED}"), violations);
    for (index, term) in required.iter().enumerate() {
        of_pod_term(term, &format!("{field}.{REQUIRED}[{index}]"), violations);
    }
    at_most(preferred.len(), limit::POD_ENTRIES, &format!("{field}.{PREFERRED}"), violations);
    for (index, term) in preferred.iter().enumerate() {
        let field = format!("{field}.{PREFERRED}[{index}]");
        weight(term.weight, &field, violations);
        of_pod_term(&term.pod_affinity_term, &format!("{field}.podAffinityTerm"), violations);
    }
}

fn of_pod_term(term: &PodAffinityTerm, field: &str, violations: &mut Violations) {
    let PodAffinityTerm {
        label_selector,
        match_label_keys,
        mismatch_label_keys,
        namespace_selector,
        namespaces,
        topology_key,
    } = term;
    label(topology_key, [], &format!("{field}.topologyKey"), violations);
    for (what, written) in
        [("labelSelector", label_selector), ("namespaceSelector", namespace_selector)]
    {
        if let Some(written) = written {
            selector::check(written, &format!("{field}.{what}"), violations);
        }
    }
    for (index, namespace) in namespaces.iter().flatten().enumerate() {
        if !is_label(namespace) {
            let message = format!(
                "{} is not the name of a namespace: write one such as shop",
                shown(namespace)
            );
            violations.add(format!("{field}.namespaces[{index}]"), Reason::InvalidName, message);
        }
    }
    let other = match_label_keys.as_deref().unwrap_or_default();
    for (what, keys, others) in [
        ("matchLabelKeys", match_label_keys, &[][..]),
        ("mismatchLabelKeys", mismatch_label_keys, other),
    ] {
        for (index, key) in keys.iter().flatten().enumerate() {
            let field = format!("{field}.{what}[{index}]");
            label(key, [], &field, violations);
            match label_selector {
                None => {
                    let message =
                        "has no effect without a labelSelector: write one, or leave it out";
                    violations.add(field, Reason::Missing, message);
                }
                Some(selector) if selector::names(selector, key) || others.contains(key) => {
                    let message = format!("{} is selected already: leave one out", shown(key));
                    violations.add(field, Reason::Duplicate, message);
                }
                Some(_) => {}
            }
        }
    }
}

fn weight(weight: i32, field: &str, violations: &mut Violations) {
    if !(1..=100).contains(&weight) {
        let message = format!("{weight} is not in 1-100");
        violations.add(format!("{field}.weight"), Reason::OutOfRange, message);
    }
}
