//! Whether a PodDisruptionBudget of ours is wanted: an eviction of a pod that two of them select is always refused, and a
//! node could not be drained.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::decide::plan::ServicePlan;
use crate::desired::pod_labels;
use crate::names;
use crate::observe::observed::Observed;

/// Is one wanted? Not while another selects our pods, or where the spec wants none.
pub fn budget(dns: &ClusterDNS, observed: &Observed, service: &ServicePlan) -> bool {
    let written = dns.spec.pod_disruption_budget.as_ref();
    if written.is_some_and(|budget| !budget.enabled) {
        return false;
    }
    let instance = dns.metadata.name.as_deref().unwrap_or_default();
    let own = names::child(instance);
    let labels = pod_labels(dns, service, observed);
    let others =
        observed.budgets.iter().filter(|budget| budget.metadata.name.as_deref() != Some(&own));
    let mut selectors = others.filter_map(|budget| budget.spec.as_ref()?.selector.as_ref());
    !selectors.any(|selector| selects(selector, &labels))
}

/// As `policy/v1` reads it: an empty selector selects every pod.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    let expressions = selector.match_expressions.iter().flatten();
    selector.match_labels.iter().flatten().all(equal)
        && expressions.clone().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = value
                .is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o12_no_budget_where_the_spec_wants_none() {
        let wanted = |spec: &str| {
            budget(&crate::fixtures::dns(spec), &Observed::default(), &ServicePlan::Own)
        };
        assert!(wanted("{}"));
        assert!(wanted("{podDisruptionBudget: {minAvailable: 1}}"));
        assert!(!wanted("{podDisruptionBudget: {enabled: false}}"));
    }
}
