//! A ClusterDNS that is being deleted, and whose end waits: nothing of it is written or repaired any more. Pure.

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use jiff::Timestamp;

use super::problem::named;
use super::{ConditionState, Conditions};

/// The reason of the conditions.
const REASON: &str = "BeingDeleted";

/// The status from before, with this problem.
pub fn of(dns: &ClusterDNS, now: Timestamp) -> ClusterDNSStatus {
    let before = dns.status.clone().unwrap_or_default();
    let finalizers = dns.metadata.finalizers.clone().unwrap_or_default();
    let message = format!(
        "this ClusterDNS is being deleted: the operator gives an adopted Service back, and changes and repairs nothing else. It is \
         deleted when the clients that wrote its finalizers have removed them: {}. foregroundDeletion belongs to Kubernetes, which \
         waits until the pods are deleted",
        named(finalizers)
    );
    let no = ConditionState::no(REASON, &message);
    let mut kept = before.conditions.clone();
    // What is unknown says why nothing was looked at, also by the default of the schema.
    kept.retain(|it| it.type_ == "Accepted" && it.status != "Unknown");
    let mut conditions = Conditions::of(dns, now);
    if kept.is_empty() {
        conditions.set_unknown("Accepted", no.clone());
    }
    // Its pods may answer, or be gone.
    conditions.set_unknown("Ready", no.clone());
    conditions.set("UpToDate", no.clone());
    conditions.set("Progressing", no.clone());
    conditions.set("Degraded", no.negated());
    kept.extend(conditions.listed());
    ClusterDNSStatus {
        observed_generation: dns.metadata.generation,
        conditions: kept,
        // Its pods may be gone.
        replicas: None,
        ..before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, dns, first_status, from};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use serde_json::json;

    #[test]
    fn o10_a_clusterdns_whose_deletion_waits_is_not_ready_and_names_its_finalizers() {
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "Before", "message": "before",
                "observedGeneration": 1, "lastTransitionTime": at(0).to_string()})
        };
        let kinds = ["Accepted", "Ready", "UpToDate", "Stalled", "Reconciling", "OfOthers"];
        let mut dns = dns("{}");
        dns.metadata.finalizers = Some(vec!["a/b".to_owned(), "foregroundDeletion".to_owned()]);
        dns.status = Some(from(json!({"clusterIPs": ["10.96.0.10"],
            "conditions": kinds.map(condition)})));
        let status = of(&dns, at(60));
        let shown: Vec<String> = status
            .conditions
            .iter()
            .map(|it| format!("{}={}/{}", it.type_, it.status, it.reason))
            .collect();
        let expected = [
            "Accepted=True/Before",
            "Ready=Unknown/BeingDeleted",
            "UpToDate=False/BeingDeleted",
            "Progressing=False/BeingDeleted",
            "Degraded=True/BeingDeleted",
        ];
        assert_eq!(shown, expected);
        let message = &status.conditions.last().unwrap().message;
        assert!(message.contains("them: a/b, foregroundDeletion."), "{message}");
        assert_eq!(status.cluster_ips, ["10.96.0.10"], "which clients ask");
        dns.status = Some(status.clone());
        assert_eq!(of(&dns, at(120)), status, "nothing has changed since");
        dns.status = Some(first_status());
        let status = of(&dns, at(60));
        let is_ours = |it: &Condition| it.reason == REASON && it.last_transition_time.0 == at(60);
        assert_eq!(status.conditions.len(), expected.len());
        assert!(status.conditions.iter().all(is_ours), "{:?}", status.conditions);
    }
}
