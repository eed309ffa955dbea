//! Whether a PodDisruptionBudget of ours is wanted: an eviction of a pod that two of them select is always refused, and a
//! node could not be drained. The same holds for one that Kubernetes cannot compute.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use crds::v1alpha1::PodDisruptionBudget;
use k8s_openapi::api::policy::v1::PodDisruptionBudget as ForeignBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::decide::adoption::is_per_node;
use crate::decide::plan::ServicePlan;
use crate::desired::pod_labels;
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods;

/// Is one wanted? Not while another selects our pods, where the spec wants none, or where it would refuse each eviction.
pub fn budget(dns: &ClusterDNS, observed: &Observed, service: &ServicePlan) -> bool {
    let written = dns.spec.pod_disruption_budget.as_ref();
    if written.is_some_and(|budget| !budget.enabled) {
        return false;
    }
    if has_pods_of_a_daemon_set(dns, observed) && !counts_pods(written) {
        return false;
    }
    foreign(dns, observed, service).is_empty()
}

/// The budgets of others that allow no eviction of any pod that they select, also of another DNS server, because pods of our
/// DaemonSet are among these. By name.
pub fn refusing(dns: &ClusterDNS, observed: &Observed, service: &ServicePlan) -> Vec<String> {
    if !has_pods_of_a_daemon_set(dns, observed) {
        return Vec::new();
    }
    let counts = |budget: &&ForeignBudget| {
        is_number(budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref()))
    };
    let all = foreign(dns, observed, service).into_iter().filter(|budget| !counts(budget));
    all.filter_map(|budget| budget.metadata.name.clone()).collect()
}

/// Those of others that select our pods.
fn foreign<'a>(
    dns: &ClusterDNS,
    observed: &'a Observed,
    service: &ServicePlan,
) -> Vec<&'a ForeignBudget> {
    let instance = dns.metadata.name.as_deref().unwrap_or_default();
    let own = names::child(instance);
    let labels = pod_labels(dns, service, observed);
    let others =
        observed.budgets.iter().filter(|budget| budget.metadata.name.as_deref() != Some(&own));
    let selector = |budget: &'a ForeignBudget| budget.spec.as_ref()?.selector.as_ref();
    others.filter(|it| selector(it).is_some_and(|selector| selects(selector, &labels))).collect()
}

/// Is there a pod of a DaemonSet among those that it would select, or will there be one? While a Deployment replaces a
/// DaemonSet, or the other way round, both have pods.
fn has_pods_of_a_daemon_set(dns: &ClusterDNS, observed: &Observed) -> bool {
    is_per_node(dns)
        || observed.daemon_set.is_some()
        || observed.pods.iter().any(pods::is_of_daemon_set)
}

/// Does it count the pods that must stay? For `maxUnavailable` and for shares the controller asks who made each pod how many
/// there should be, and a DaemonSet does not say it: it has no subresource `scale`. Because of one such pod the budget
/// allows no eviction of any.
fn counts_pods(written: Option<&PodDisruptionBudget>) -> bool {
    let least = written.and_then(|budget| budget.min_available.as_ref());
    is_number(least)
}

fn is_number(least: Option<&IntOrString>) -> bool {
    matches!(least, Some(IntOrString::Int(_)))
}

/// As `policy/v1` reads it: an empty selector selects every pod.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
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
    use crate::fixtures::{dns, from, pod};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn o12_no_budget_where_the_spec_wants_none() {
        let wanted = |spec: &str| budget(&dns(spec), &Observed::default(), &ServicePlan::Own);
        assert!(wanted("{}"));
        assert!(wanted("{podDisruptionBudget: {minAvailable: 1}}"));
        assert!(!wanted("{podDisruptionBudget: {enabled: false}}"));
    }

    #[test]
    fn o12_no_budget_that_refuses_each_eviction_because_of_a_pod_of_a_daemon_set() {
        let set = || Some(from(json!({"metadata": {"name": "clusterdns-default"}})));
        let mut left = pod("dns-0", 0, 0);
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "clusterdns-default", "uid": "u",
            "controller": true}]);
        left.metadata.owner_references = Some(from(owner));
        let pods_of = |pods: &[Pod]| Observed { pods: pods.to_vec(), ..Observed::default() };
        let (fixed, per_node) = ("scaling: {fixed: {replicas: 2}}", "scaling: {perNode: {}}");
        for (what, scaling, observed, expected) in [
            ("a Deployment", fixed, pods_of(&[pod("dns-0", 0, 0)]), true),
            ("it becomes a DaemonSet", per_node, pods_of(&[pod("dns-0", 0, 0)]), false),
            ("a DaemonSet", per_node, Observed { daemon_set: set(), ..pods_of(&[]) }, false),
            (
                "it becomes a Deployment",
                fixed,
                Observed { daemon_set: set(), ..pods_of(&[]) },
                false,
            ),
            ("its last pod ends", fixed, pods_of(&[left]), false),
        ] {
            for (written, is_counted) in [
                ("{}", false),
                ("{maxUnavailable: 1}", false),
                ("{maxUnavailable: 25%}", false),
                ("{minAvailable: 50%}", false),
                ("{minAvailable: 1}", true),
            ] {
                let dns = dns(&format!("{{podDisruptionBudget: {written}, {scaling}}}"));
                let wanted = budget(&dns, &observed, &ServicePlan::Own);
                assert_eq!(wanted, expected || is_counted, "{what}, {written}");
            }
        }
    }

    #[test]
    fn o12_a_foreign_budget_that_does_not_count_the_pods_of_a_daemon_set_is_named() {
        let foreign = |bound: serde_json::Value, label: &str| {
            let mut spec = json!({"selector": {"matchLabels": {"k8s-app": label}}});
            spec.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
            from::<ForeignBudget>(json!({"metadata": {"name": "coredns"}, "spec": spec}))
        };
        let (fixed, per_node) = ("{fixed: {replicas: 2}}", "{perNode: {}}");
        for (bound, label, scaling, expected) in [
            (json!({"maxUnavailable": 1}), "kube-dns", per_node, true),
            (json!({"minAvailable": "50%"}), "kube-dns", per_node, true),
            (json!({"minAvailable": 1}), "kube-dns", per_node, false),
            (json!({"maxUnavailable": 1}), "kube-dns", fixed, false),
            (json!({"maxUnavailable": 1}), "other", per_node, false),
        ] {
            let budgets = vec![foreign(bound.clone(), label)];
            let observed = Observed { budgets, ..Observed::default() };
            let dns = dns(&format!("{{scaling: {scaling}}}"));
            let labels = BTreeMap::from([("k8s-app".to_owned(), "kube-dns".to_owned())]);
            let adopted = ServicePlan::Adopted { labels, patch: None };
            let named = refusing(&dns, &observed, &adopted);
            assert_eq!(named == ["coredns"], expected, "{bound} {label} {scaling}: {named:?}");
        }
    }
}
