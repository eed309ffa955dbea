//! What stands in the way when the Service of the other server is taken over, and no line of a configuration shows: a rule that
//! keeps pods with the labels of the Service off the nodes of that server, and a platform that was not tried.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodAffinityTerm;
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
    rules.chain(openshift).collect()
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
