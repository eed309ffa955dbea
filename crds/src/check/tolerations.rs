//! Taints that pods tolerate: what the API server would refuse in every pod.

use k8s_openapi::api::core::v1::Toleration;

use super::bounds::at_most;
use super::names::label;
use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;

/// Adds what is wrong with tolerations.
pub(super) fn check_tolerations(tolerations: &[Toleration], violations: &mut Violations) {
    let field = "spec.placement.tolerations";
    at_most(tolerations.len(), limit::POD_ENTRIES, field, violations);
    for (index, toleration) in tolerations.iter().enumerate() {
        check_one(toleration, &format!("{field}[{index}]"), violations);
    }
}

fn check_one(toleration: &Toleration, field: &str, violations: &mut Violations) {
    let Toleration { effect, key, operator, toleration_seconds, value } = toleration;
    let text = |written: &Option<String>| written.clone().unwrap_or_default();
    let (effect, key, operator, value) = (text(effect), text(key), text(operator), text(value));
    if !key.is_empty() {
        label(&key, [], &format!("{field}.key"), violations);
    } else if operator != "Exists" {
        let message = "every taint is tolerated without a key, and only with operator: Exists: write it, or a key";
        violations.add(format!("{field}.operator"), Reason::Missing, message);
    }
    let at = format!("{field}.value");
    match operator.as_str() {
        "" | "Equal" => label_value(&value, &at, violations),
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let message = "Exists takes no value: leave it out, or write operator: Equal";
            violations.add(at, Reason::Unused, message);
        }
        // Kubernetes 1.35 and later compare numbers, where the feature is on.
        "Lt" | "Gt" if value.parse::<i64>().is_ok() => {}
        "Lt" | "Gt" => {
            let message = format!("{} is not a whole number, which Lt and Gt need", shown(&value));
            violations.add(at, Reason::OutOfRange, message);
        }
        unknown => {
            // The key was missing too: one message about the operator is enough.
            if !key.is_empty() {
                let message = format!("{} is unknown: write Equal or Exists", shown(unknown));
                violations.add(format!("{field}.operator"), Reason::OutOfRange, message);
            }
        }
    }
    match effect.as_str() {
        "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        unknown => {
            let known = "write NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all";
            let message = format!("{} is unknown: {known}", shown(unknown));
            violations.add(format!("{field}.effect"), Reason::OutOfRange, message);
        }
    }
    if toleration_seconds.is_some() && effect != "NoExecute" {
        let message = "only effect: NoExecute ends pods, so only there is a time: leave it out";
        violations.add(format!("{field}.tolerationSeconds"), Reason::Unused, message);
    }
}

fn label_value(value: &str, field: &str, violations: &mut Violations) {
    label("key", [value], field, violations);
}
