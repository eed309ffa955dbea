//! How pods are spread, how many of them a drain may take, and the labels of what Prometheus reads. The API server
//! would refuse these mistakes only in objects that the operator writes, where users do not look.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::bounds::{at_most, in_range};
use super::names::{is_ours, label};
use super::selector;
use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;
use crate::v1alpha1::disruption::is_number_or_share;
use crate::v1alpha1::{Metrics, PodDisruptionBudget};

/// Adds what is wrong with how pods are spread.
pub(super) fn check_spread(constraints: &[TopologySpreadConstraint], violations: &mut Violations) {
    let field = "spec.placement.topologySpreadConstraints";
    at_most(constraints.len(), limit::SPREAD_CONSTRAINTS, field, violations);
    for (index, constraint) in constraints.iter().enumerate() {
        let field = format!("{field}[{index}]");
        label(&constraint.topology_key, [], &format!("{field}.topologyKey"), violations);
        if constraint.max_skew < 1 {
            let message = "how much the numbers of pods may differ: write 1 or more";
            violations.add(format!("{field}.maxSkew"), Reason::OutOfRange, message);
        }
        let policy = constraint.when_unsatisfiable.as_str();
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&policy) {
            let message =
                format!("{} is unknown: write ScheduleAnyway or DoNotSchedule", shown(policy));
            violations.add(format!("{field}.whenUnsatisfiable"), Reason::OutOfRange, message);
        }
        if let Some(domains) = constraint.min_domains
            && (domains < 1 || policy != "DoNotSchedule")
        {
            let message = "is 1 or more, and only with whenUnsatisfiable: DoNotSchedule";
            violations.add(format!("{field}.minDomains"), Reason::OutOfRange, message);
        }
        check_policies(constraint, &field, violations);
        check_selected(constraint, &field, violations);
        let is_same = |other: &&TopologySpreadConstraint| {
            other.topology_key == constraint.topology_key
                && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if constraints[..index].iter().any(|other| is_same(&other)) {
            let message =
                format!("{} is there twice: leave one out", shown(&constraint.topology_key));
            violations.add(format!("{field}.topologyKey"), Reason::Duplicate, message);
        }
    }
}

fn check_policies(constraint: &TopologySpreadConstraint, field: &str, violations: &mut Violations) {
    for (what, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        let Some(policy) = policy else { continue };
        if !["Honor", "Ignore"].contains(&policy.as_str()) {
            let message = format!("{} is unknown: write Honor or Ignore", shown(policy));
            violations.add(format!("{field}.{what}"), Reason::OutOfRange, message);
        }
    }
}

/// The pods that a constraint counts. A key in `matchLabelKeys` and in the selector is counted twice, which the API server
/// refuses; one without a selector gets that of our pods, which has our own label.
fn check_selected(constraint: &TopologySpreadConstraint, field: &str, violations: &mut Violations) {
    let written = constraint.label_selector.as_ref();
    if let Some(written) = written {
        selector::check(written, &format!("{field}.labelSelector"), violations);
    }
    let field = format!("{field}.matchLabelKeys");
    let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    at_most(keys.len(), limit::SELECTOR_ENTRIES, &field, violations);
    for (index, key) in keys.iter().enumerate() {
        let field = format!("{field}[{index}]");
        label(key, [], &field, violations);
        let is_selected = match written {
            Some(written) => selector::names(written, key),
            None => is_ours(key),
        };
        if is_selected {
            let message = format!("{} is in the selector too: leave one out", shown(key));
            violations.add(field, Reason::Duplicate, message);
        }
    }
}

/// Adds what is wrong with a budget.
pub(super) fn check_budget(budget: &PodDisruptionBudget, violations: &mut Violations) {
    let field = "spec.podDisruptionBudget";
    let PodDisruptionBudget { enabled: _, max_unavailable, min_available } = budget;
    if max_unavailable.is_some() && min_available.is_some() {
        let message = "maxUnavailable and minAvailable exclude each other: leave one of them out";
        violations.add(field, Reason::MoreThanOneMember, message);
    }
    for (what, written) in [("maxUnavailable", max_unavailable), ("minAvailable", min_available)] {
        let Some(written) = written.as_ref().filter(|written| !is_number_or_share(written)) else {
            continue;
        };
        let text = match written {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => shown(text),
        };
        let message =
            format!("{text} is no number of pods: write one of 0-1000, or a share such as 25%");
        violations.add(format!("{field}.{what}"), Reason::OutOfRange, message);
    }
}

/// Adds what is wrong with what is created for Prometheus.
pub(super) fn check_metrics(metrics: &Metrics, violations: &mut Violations) {
    let field = "spec.metrics.labels";
    let labels = metrics.labels.iter().flatten();
    at_most(labels.clone().count(), limit::SELECTOR_ENTRIES, field, violations);
    for (key, value) in labels {
        label(key, [value.as_str()], field, violations);
        if is_ours(key) {
            let message = format!("{key} is set by ClusterDNS itself: leave it out");
            violations.add(field, Reason::ReservedLabel, message);
        }
    }
    if let Some(seconds) = metrics.interval_seconds {
        in_range("spec.metrics.intervalSeconds", seconds, 1, limit::SCRAPE_SECONDS, violations);
    }
}
