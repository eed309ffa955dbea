//! What stands in the way when the Service of the other server is taken over, and no line of a configuration shows: a rule that
//! keeps pods with the labels of the Service off the nodes of that server, a budget that lets none of them be evicted, and a
//! platform that was not tried.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::from_cluster::{KUBE_DNS, LABEL_KEY, OPENSHIFT};
use super::manifests::Object;
use super::report::{Outcome, Place};
use super::{Source, Target};
use crate::decide::disruption_budget::selects;

/// The path of the rule in the pods of a workload.
const RULE: &str = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";

/// Labels by key.
type Labels = BTreeMap<String, String>;

/// The lines, where the Service is taken over. `selector`: what it selects by, empty where that is not known; `file` is the first
/// that was named.
pub(super) fn lines(
    objects: &[Object],
    target: &Target,
    selector: &Labels,
    file: Option<&str>,
) -> Vec<Source> {
    if !target.adopt {
        return Vec::new();
    }
    let rules = objects.iter().filter_map(|object| anti_affinity(object, selector));
    let openshift = (target.service.0 == OPENSHIFT.0).then(|| openshift(file));
    let budgets = objects.iter().filter_map(|object| budget(object, target, selector));
    rules.chain(budgets).chain(openshift).collect()
}

/// A budget beside the Service that would count our pods and cannot, where they are those of a DaemonSet.
fn budget(object: &Object, target: &Target, selector: &Labels) -> Option<Source> {
    let is_beside = ["", target.service.0.as_str()].contains(&object.namespace());
    if object.kind() != "PodDisruptionBudget" || !is_beside {
        return None;
    }
    let usual = || Labels::from([(LABEL_KEY.to_owned(), KUBE_DNS.to_owned())]);
    let labels = if selector.is_empty() { usual() } else { selector.clone() };
    let spec = &object.value["spec"];
    let selected: LabelSelector = serde_json::from_value(spec["selector"].clone()).ok()?;
    let counts = spec["minAvailable"].is_number();
    (!counts && selects(&selected, &labels)).then(|| Source::Note {
        place: object.place("spec"),
        outcome: Outcome::Changed,
        what: format!("PodDisruptionBudget {}", object.name()),
        message: "it selects the pods of a ClusterDNS that adopts the Service, too. With spec.scaling.perNode it then refuses to \
                  evict any pod that it selects, so no node with a pod of this server can be drained: delete it when the \
                  ClusterDNS is Ready: docs/switching.md (Adopt)"
            .to_owned(),
    })
}

/// A required rule of a workload behind the Service. It counts both ways: its pods and ours share no node.
fn anti_affinity(object: &Object, selector: &Labels) -> Option<Source> {
    let (pods, at) = object.pods();
    let labels = labels_of_ours(object, selector)?;
    let rule =
        &pods["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let selects_ours = |term: &Value| {
        let term: PodAffinityTerm = serde_json::from_value(term.clone()).unwrap_or_default();
        term.label_selector.is_some_and(|selector| selects(&selector, &labels))
    };
    let index = rule.as_array()?.iter().position(selects_ours)?;
    Some(Source::Note {
        place: object.place(&format!("{at}.{RULE}[{index}]")),
        outcome: Outcome::NotPossible,
        what: "podAntiAffinity".to_owned(),
        message: "this required rule keeps pods with the labels of the Service off a node that has a pod of this server, and the \
                  pods of a ClusterDNS that adopts the Service have these labels: where each node has a pod of this server, they \
                  stay Pending and the Service does not move; on the way back the same holds for the pods of this server. Make the \
                  rule a preferred one before you adopt: docs/switching.md (RKE2)"
            .to_owned(),
    })
}

/// The labels that our pods would have in common with the pods of this workload; none where it is not behind the Service.
pub(super) fn labels_of_ours(object: &Object, selector: &Labels) -> Option<Labels> {
    let labels = match object.value["kind"] == "Pod" {
        true => &object.value["metadata"]["labels"],
        false => &object.value["spec"]["template"]["metadata"]["labels"],
    };
    let labels: Labels = serde_json::from_value(labels.clone()).ok()?;
    let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    match selector.is_empty() {
        false => selector.iter().all(has).then(|| selector.clone()),
        // The label by which the Service of a cluster usually selects.
        true => labels.get(LABEL_KEY).is_some_and(|value| value == KUBE_DNS).then_some(labels),
    }
}

fn openshift(file: Option<&str>) -> Source {
    Source::Note {
        place: Place { file: file.unwrap_or("the cluster").to_owned(), line: 1 },
        outcome: Outcome::NotPossible,
        what: "OpenShift".to_owned(),
        message: "ClusterDNS has not been tried on OpenShift. Its pods run as user 65532, which the constraint restricted-v2 \
                  refuses, and the DNS operator of OpenShift resets the Service: docs/switching.md (OpenShift) has what it needs \
                  at least"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(labels: Value, terms: Value) -> Object {
        let affinity =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        let template = json!({"metadata": {"labels": labels}, "spec": {"affinity": affinity}});
        Object {
            file: "coredns.yaml".to_owned(),
            value: json!({"kind": "Deployment", "spec": {"template": template}}),
            places: None,
            is_named: false,
        }
    }

    fn by(selector: Value) -> Value {
        json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}])
    }

    #[test]
    fn o15_a_required_rule_that_keeps_our_pods_off_the_nodes_of_the_server_is_said() {
        let rke2 =
            json!({"k8s-app": "kube-dns", "app.kubernetes.io/name": "rke2-coredns", "x": "y"});
        let kube_dns = json!({"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns"]}]});
        let selector = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
        let by_label = selector("k8s-app", "kube-dns");
        let said = |labels: &Value, terms: Value, selector: &Labels| {
            anti_affinity(&deployment(labels.clone(), terms), selector).is_some()
        };
        assert!(said(&rke2, by(kube_dns.clone()), &by_label));
        assert!(said(&rke2, by(kube_dns.clone()), &Labels::new()), "the Service was not named");
        assert!(said(&rke2, by(json!({})), &by_label), "it selects all pods");
        let own = json!({"matchLabels": {"app.kubernetes.io/name": "rke2-coredns"}});
        assert!(!said(&rke2, by(own), &by_label), "our pods do not have that label");
        assert!(!said(&rke2, by(kube_dns.clone()), &selector("k8s-app", "other")), "not behind it");
        let cache = json!({"k8s-app": "node-local-dns"});
        let own = json!({"matchLabels": {"k8s-app": "node-local-dns"}});
        assert!(!said(&cache, by(own), &Labels::new()));
        assert!(!said(&rke2, json!([{"topologyKey": "kubernetes.io/hostname"}]), &by_label));
        assert!(!said(&rke2, Value::Null, &by_label));
    }

    #[test]
    fn o12_a_budget_that_cannot_count_the_pods_of_a_daemon_set_is_said() {
        let target = |namespace: &str| Target {
            name: "default".to_owned(),
            service: (namespace.to_owned(), "kube-dns".to_owned()),
            adopt: true,
            domain: None,
            replaced: Vec::new(),
        };
        let said = |bound: &str, value: Value, label: &str, namespace: &str| {
            let spec = json!({bound: value, "selector": {"matchLabels": {"k8s-app": label}}});
            let value = json!({"kind": "PodDisruptionBudget", "spec": spec,
                "metadata": {"name": "coredns", "namespace": namespace}});
            let object = Object { file: String::new(), value, places: None, is_named: false };
            !lines(&[object], &target("kube-system"), &Labels::new(), None).is_empty()
        };
        assert!(said("maxUnavailable", json!(1), "kube-dns", "kube-system"));
        assert!(said("minAvailable", json!("50%"), "kube-dns", ""));
        assert!(!said("minAvailable", json!(1), "kube-dns", "kube-system"), "it counts pods");
        assert!(!said("maxUnavailable", json!(1), "web", "kube-system"));
        assert!(!said("maxUnavailable", json!(1), "kube-dns", "other"));
    }

    #[test]
    fn o15_a_trial_beside_has_no_line_about_taking_over() {
        let workload = deployment(json!({"k8s-app": "kube-dns"}), by(json!({})));
        let target = |adopt: bool| Target {
            name: "default".to_owned(),
            service: (OPENSHIFT.0.to_owned(), OPENSHIFT.1.to_owned()),
            adopt,
            domain: None,
            replaced: Vec::new(),
        };
        let count = |adopt| {
            lines(std::slice::from_ref(&workload), &target(adopt), &Labels::new(), None).len()
        };
        assert_eq!((count(true), count(false)), (2, 0));
    }
}
