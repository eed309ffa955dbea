//! The namespace of a ClusterDNS cannot be read, or what has none, so nothing is decided about it (K23). Pure.

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::conditions::SERVED_OTHERWISE;
use super::not_ready::not_looked_at;
use super::{ConditionState, Conditions};
use crate::names;
use crate::observe::unlisted::{Cause, Unlisted};

/// The reason of `Degraded`, and of the Event.
pub const REASON: &str = "NamespaceUnread";

/// What people do about a refusal.
const GIVE_RIGHTS: &str = "Create the namespace again if it is gone, and the operator's Role in it (helm upgrade); or delete this ClusterDNS \
     and take the namespace out of workloadNamespaces";
/// The same of kinds without a namespace.
const GIVE_CLUSTER_RIGHTS: &str =
    "Create the operator's ClusterRole and its ClusterRoleBinding again (helm upgrade)";

/// A read was refused after all lists had been complete: why, and what to do.
pub fn refused(dns: &ClusterDNS, why: &str) -> String {
    format!(
        "the operator may not read all that it needs in namespace {}, so it changes nothing there, and pods continue as they \
         are: {why}. {GIVE_RIGHTS}",
        names::service(dns).0
    )
}

/// What fails in this namespace, and what to do. Empty: of what has none.
pub fn message(namespace: &str, unlisted: &Unlisted) -> String {
    let Unlisted { cause, kind, others, why } = unlisted;
    let more = match others {
        0 => String::new(),
        others => format!(" and {others} more kinds"),
    };
    let remedy = match (cause, namespace) {
        (Cause::Refused, "") => GIVE_CLUSTER_RIGHTS,
        (Cause::Refused, _) => GIVE_RIGHTS,
        // It says nothing about the namespace: nothing may be deleted because of it.
        (Cause::Fails, _) => {
            "The operator tries again; see whether the API server is well, and the way to it"
        }
    };
    let what = match namespace {
        "" => format!("{kind}{more}, so it changes nothing"),
        namespace => format!("{kind}{more} in namespace {namespace}, so it changes nothing there"),
    };
    format!("the operator cannot list {what}, and pods continue as they are: {why}. {remedy}")
}

/// The text of the Event. It does not say which kinds are missing: they come and go one by one, and each text is an Event.
pub fn event(namespace: &str) -> String {
    let what = match namespace {
        "" => "what it needs of the cluster, so it changes nothing".to_owned(),
        namespace => format!("namespace {namespace}, so it changes nothing there"),
    };
    format!(
        "the operator cannot read {what}, and pods continue as they are: the condition Degraded says why"
    )
}

/// The status from before, with this problem: nothing more is known.
pub fn of(dns: &ClusterDNS, reason: &str, message: &str, now: Timestamp) -> ClusterDNSStatus {
    let before = dns.status.clone().unwrap_or_default();
    let mut kept = before.conditions.clone();
    // Nothing is known that would change them. What was said of another spec is not true of this one.
    kept.retain(|condition| match condition.type_.as_str() {
        "Accepted" | "UpToDate" => {
            condition.observed_generation == dns.metadata.generation && !is_of_no_look(condition)
        }
        // The other server answers, and what ours do changes nothing.
        "Ready" => {
            condition.status == "False" && SERVED_OTHERWISE.contains(&condition.reason.as_str())
        }
        _ => false,
    });
    let mut conditions = Conditions::of(dns, now);
    let no = ConditionState::no(reason, message);
    // Left out, the default of the schema would stay, which says that no operator has looked: no client owns it, so no apply
    // removes it.
    if !kept.iter().any(|condition| condition.type_ == "Accepted") {
        conditions.set_unknown("Accepted", no.clone());
    }
    if !kept.iter().any(|condition| condition.type_ == "UpToDate") {
        conditions.set("UpToDate", no.clone());
    }
    if !kept.iter().any(|condition| condition.type_ == "Ready") {
        match before.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "False") {
            // Of a ClusterDNS that was not ready, a part of its pods is no more than before.
            true => conditions.set("Ready", no.clone()),
            // Pods may answer, or be gone with their namespace.
            false => conditions.set_unknown("Ready", no.clone()),
        }
    }
    conditions.set("Progressing", no.clone());
    conditions.set("Degraded", ConditionState::yes(reason, &not_looked_at(dns, message)));
    conditions.set("Stalled", no.negated());
    kept.extend(conditions.listed());
    ClusterDNSStatus { observed_generation: dns.metadata.generation, conditions: kept, ..before }
}

/// Whether a condition says only why nothing was looked at: the cause may be another one by now.
fn is_of_no_look(condition: &Condition) -> bool {
    [REASON, super::failing::REASON].contains(&condition.reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, dns, first_status, from};
    use serde_json::json;

    fn unlisted(cause: Cause, others: usize) -> Unlisted {
        let why = "services is forbidden".to_owned();
        Unlisted { cause, kind: "services".to_owned(), others, why }
    }

    #[test]
    fn k23_the_status_of_an_unread_namespace_is_that_from_before_with_the_reason() {
        let one = |generation: i64, kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Before", "message": "before",
                "observedGeneration": generation, "lastTransitionTime": at(0).to_string()})
        };
        let condition = |kind: &str, status: &str| one(1, kind, status);
        let mut dns = dns("{}");
        dns.status = Some(from(json!({"clusterIPs": ["10.96.0.10"], "observedGeneration": 1,
            "replicas": {"desired": 2, "ready": 2, "onStableRevision": 2, "summary": "2/2"},
            "conditions": [one(0, "Ready", "True"), condition("Degraded", "False"),
                condition("Accepted", "True"), one(0, "UpToDate", "True"),
                condition("Reconciling", "True"), condition("OfOthers", "True")]})));
        let message = message("kube-system", &unlisted(Cause::Refused, 2));
        assert!(message.contains("cannot list services and 2 more kinds in namespace kube-system"));
        assert!(message.contains("services is forbidden"), "{message}");
        let status = of(&dns, REASON, &message, at(60));
        let shown = |kind: &str| {
            let mut all = status.conditions.iter().filter(|it| it.type_ == kind);
            let found = all.next().map(|it| (it.status.as_str(), it.reason.as_str()));
            assert!(all.next().is_none(), "{kind} once");
            found
        };
        let unknown = Some(("Unknown", "NamespaceUnread"));
        assert_eq!(shown("Ready"), unknown, "the pods may be gone with the namespace");
        assert_eq!(shown("Accepted"), Some(("True", "Before")), "of this spec");
        assert_eq!(shown("UpToDate"), Some(("False", "NamespaceUnread")), "it was another spec");
        assert_eq!(shown("Degraded"), Some(("True", "NamespaceUnread")));
        assert_eq!(shown("Stalled"), Some(("True", "NamespaceUnread")));
        assert_eq!((shown("Reconciling"), shown("OfOthers")), (None, None));
        let before = dns.status.clone().unwrap();
        assert_eq!(
            (&status.replicas, &status.cluster_ips),
            (&before.replicas, &before.cluster_ips)
        );
        dns.status = Some(status.clone());
        let ours = |status: ClusterDNSStatus| {
            let all = status.conditions.into_iter();
            all.map(|it| (it.type_, it.last_transition_time)).collect::<Vec<_>>()
        };
        assert_eq!(
            ours(of(&dns, REASON, &message, at(120))),
            ours(status),
            "nothing has changed since"
        );
    }

    #[test]
    fn k23_an_error_that_is_no_refusal_advises_to_delete_nothing() {
        let said = |cause| message("kube-system", &unlisted(cause, 0));
        assert!(said(Cause::Refused).contains("delete this ClusterDNS"));
        assert!(!said(Cause::Fails).contains("delete"), "{}", said(Cause::Fails));
        assert!(event("kube-system").contains("namespace kube-system"));
    }

    #[test]
    fn k23_what_has_no_namespace_is_said_to_be_missing_of_the_cluster() {
        let said = message("", &unlisted(Cause::Refused, 0));
        assert!(said.contains("cannot list services, so it changes nothing, and"), "{said}");
        assert!(said.contains("ClusterRole") && !said.contains("delete"), "{said}");
        assert!(event("").contains("of the cluster"));
    }

    #[test]
    fn k23_a_new_clusterdns_of_an_unread_namespace_is_not_ready() {
        let mut dns = dns("{}");
        dns.status = Some(first_status());
        let message = message("kube-system", &unlisted(Cause::Refused, 0));
        let mut status = of(&dns, REASON, &message, at(0));
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "NamespaceUnread"));
        assert_eq!(ready.last_transition_time.0, at(0), "no one has looked in 1970");
        // Server-side apply keeps what no client owns.
        let is_written = |kind: &str| status.conditions.iter().any(|it| it.type_ == kind);
        let stays = first_status().conditions.into_iter();
        let stays: Vec<_> = stays.filter(|it| !is_written(&it.type_)).collect();
        status.conditions.extend(stays);
        dns.status = Some(status.clone());
        assert_eq!(of(&dns, REASON, &message, at(30)), status, "nothing changes any more");
        // Another cause.
        let status = of(&dns, crate::report::status::failing::REASON, "two", at(60));
        for kind in ["Accepted", "UpToDate", "Ready"] {
            let all = status.conditions.iter().filter(|it| it.type_ == kind);
            let said: Vec<_> = all.map(|it| (&*it.message, it.last_transition_time.0)).collect();
            assert_eq!(said, [("two", at(0))], "{kind}");
        }
    }

    #[test]
    fn o14_what_was_not_ready_is_not_ready_either_when_nothing_is_read() {
        let mut dns = dns("{}");
        dns.status = Some(from(json!({"conditions": [{"type": "Ready", "status": "False",
            "reason": "TooFewPodsReady", "message": "1 of 8", "observedGeneration": 1,
            "lastTransitionTime": at(0).to_string()}]})));
        let status = of(&dns, REASON, "unread", at(60));
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!((&*ready.status, &*ready.reason), ("False", REASON));
        assert_eq!(ready.last_transition_time.0, at(0));
    }
}
