//! A label selector as it is written in a pod: what the API server would refuse there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::names::label;
use super::violations::{Reason, Violations, shown};

/// Adds what is wrong with a selector at `field`.
pub(super) fn check(selector: &LabelSelector, field: &str, violations: &mut Violations) {
    let LabelSelector { match_expressions, match_labels } = selector;
    for (key, value) in match_labels.iter().flatten() {
        label(key, [value.as_str()], &format!("{field}.matchLabels"), violations);
    }
    for (index, requirement) in match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        label(&requirement.key, values.iter().map(String::as_str), &field, violations);
        let needs_values = match requirement.operator.as_str() {
            "In" | "NotIn" => true,
            "Exists" | "DoesNotExist" => false,
            unknown => {
                let known = "write In, NotIn, Exists or DoesNotExist";
                let message = format!("{} is unknown: {known}", shown(unknown));
                violations.add(format!("{field}.operator"), Reason::InvalidSelector, message);
                continue;
            }
        };
        if needs_values == values.is_empty() {
            let message = "In and NotIn need values; Exists and DoesNotExist have none";
            violations.add(format!("{field}.values"), Reason::InvalidSelector, message);
        }
    }
}

/// Does it name this key?
pub(super) fn names(selector: &LabelSelector, key: &str) -> bool {
    let LabelSelector { match_expressions, match_labels } = selector;
    match_labels.as_ref().is_some_and(|labels| labels.contains_key(key))
        || match_expressions.iter().flatten().any(|requirement| requirement.key == key)
}
