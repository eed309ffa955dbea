//! Which changes are worth an Event: writes and their reasons, and changes of the status. Events of a rollout come
//! from `decide/rollout`. Pure.

use crds::ClusterDNS;
use crds::v1alpha1::{ClusterDNSStatus, ManagementState};
use k8s_openapi::api::core::v1::Service;

use crate::apply::memory::Why;
use crate::apply::outcome::{PutBack, Restored, Written};
use crate::decide::{adoption, config_map};
use crate::desired::Kind;
use crate::desired::adopted_service::lost_from_adopted_service;
use crate::names;
use crate::observe::observed::Observed;
use crate::report::status::conditions::{ALSO, NOT_SWITCHED};

/// The reason of `Degraded` about which `rollout` has an Event of its own.
const SAID_ELSEWHERE: &str = "CanaryFailed";

/// A change of status that is worth a Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// A warning, rather than something normal.
    pub is_warning: bool,
    /// One CamelCase word.
    pub reason: String,
    pub message: String,
}

fn change(is_warning: bool, reason: &str, message: String) -> Change {
    Change { is_warning, reason: reason.to_owned(), message }
}

/// What happened in one reconcile: `before` is the status that was reported before it, `status` the one after it.
pub fn of(
    before: Option<&ClusterDNSStatus>,
    status: &ClusterDNSStatus,
    written: &[Written],
    switched: Option<bool>,
) -> Vec<Change> {
    let none = ClusterDNSStatus::default();
    let before = before.unwrap_or(&none);
    let mut all = of_writes(before, written);
    all.extend(switched.map(of_switch));
    all.extend(of_adoption(before, status));
    all.extend(of_size(before, status));
    all.extend(of_degraded(before, status));
    all
}

fn of_writes(before: &ClusterDNSStatus, written: &[Written]) -> Vec<Change> {
    let (mut all, mut created) = (Vec::new(), Vec::new());
    for Written { kind, what, why, editor } in written {
        match why {
            Why::Missing if *kind == Kind::Service && !before.cluster_ips.is_empty() => {
                let ips = before.cluster_ips.join(", ");
                let message = format!(
                    "{what} was deleted; the operator created it again with the clusterIPs {ips}"
                );
                all.push(change(true, "ServiceRecreated", message));
            }
            Why::Missing => created.push(what.as_str()),
            Why::Edited => {
                let editor = editor.as_deref().unwrap_or("an unknown client");
                let message = format!(
                    "{editor} changed fields of {what} that are ours: the operator set them back to what the spec says"
                );
                all.push(change(true, "ForeignEditUndone", message));
            }
            Why::FirstTime | Why::Wanted => {}
        }
    }
    if !created.is_empty() {
        all.push(change(false, "Created", format!("created {}", created.join(", "))));
    }
    all
}

/// A Service got its addresses: kubelets must have them, or no pod asks there.
pub fn of_addresses(
    before: Option<&ClusterDNSStatus>,
    status: &ClusterDNSStatus,
    (namespace, name): (&str, &str),
) -> Option<Change> {
    let had_none = before.is_none_or(|before| before.cluster_ips.is_empty());
    if !had_none || status.cluster_ips.is_empty() {
        return None;
    }
    let ips = status.cluster_ips.join(", ");
    let domain = status.domain.as_deref().unwrap_or_default();
    let message = format!(
        "Service {namespace}/{name} has {ips}: pods ask it where the configuration of the kubelet has clusterDNS: [{ips}] and \
         clusterDomain: {domain} (or --cluster-dns and --cluster-domain); kubelets read that when they start, and pods when they \
         are created"
    );
    Some(change(false, "AddressAssigned", message))
}

/// Another client took away what the spec needs of an adopted Service. `Accepted` names it for as long as it is missing, but
/// stays true, and clients have lost it now. What it had is remembered only while the ClusterDNS is managed.
pub fn of_adopted_service(dns: &ClusterDNS, observed: &Observed) -> Option<Change> {
    let is_foreign =
        dns.spec.management_state == ManagementState::Managed && !adoption::has_own(dns, observed);
    let service = observed.service.as_ref().filter(|_| is_foreign)?;
    let before = config_map::state(observed).service.manifest?;
    let before: Service = serde_json::from_value(before).ok()?;
    let lost = lost_from_adopted_service(dns, &before, service, &observed.offers);
    let (namespace, name) = names::service(dns);
    let message = format!(
        "another client took out of Service {namespace}/{name} what these fields need: {}. The condition Accepted says what to \
         add again, and until then they have no effect",
        lost.join(", ")
    );
    (!lost.is_empty()).then(|| change(true, "ServiceFieldsLost", message))
}

/// What was put back while the spec is refused.
pub fn of_put_back(dns: &ClusterDNS, put_back: &PutBack) -> Vec<Change> {
    let (namespace, name) = names::service(dns);
    let of_service = match &put_back.service {
        Restored::Unneeded => None,
        Restored::Created => {
            let message =
                format!("Service {namespace}/{name} was deleted; the operator created it again");
            Some(change(true, "ServiceRecreated", message))
        }
        Restored::Failed(why) => {
            let message = format!(
                "Service {namespace}/{name} was deleted, and the operator cannot create it again: {why}. Delete what has its \
                 addresses (kubectl get services -A)"
            );
            Some(change(true, "ServiceGone", message))
        }
    };
    let before = dns.status.clone().unwrap_or_default();
    let others = of_writes(&before, &put_back.outcome.written);
    of_service.into_iter().chain(others).collect()
}

fn of_switch(is_added: bool) -> Change {
    match is_added {
        true => change(
            false,
            "Switched",
            "the adopted Service now leads to the pods of this ClusterDNS".to_owned(),
        ),
        false => change(
            false,
            "GivenBack",
            "the Service leads to the pods of the other DNS server again".to_owned(),
        ),
    }
}

fn of_adoption(before: &ClusterDNSStatus, status: &ClusterDNSStatus) -> Option<Change> {
    let is_switching = |status: &ClusterDNSStatus| {
        status.conditions.iter().any(|it| it.type_ == "Ready" && it.reason == NOT_SWITCHED)
    };
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready")?;
    let is_new = is_switching(status) && !is_switching(before);
    is_new.then(|| change(false, "Adopting", ready.message.clone()))
}

fn of_size(before: &ClusterDNSStatus, status: &ClusterDNSStatus) -> Option<Change> {
    let (before, now) = (before.replicas.as_ref()?.desired, status.replicas.as_ref()?.desired);
    let is_scaled = before != now && before > 0 && now > 0;
    is_scaled.then(|| change(false, "Scaled", format!("from {before} to {now} pods")))
}

fn of_degraded(before: &ClusterDNSStatus, status: &ClusterDNSStatus) -> Option<Change> {
    let degraded = |status: &ClusterDNSStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == "Degraded" && it.status == "True");
        found.map(|it| (it.reason.clone(), it.message.clone()))
    };
    match (degraded(before), degraded(status)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => {
            let (reason, message) = now;
            // It may stay for days, and what is wrong besides is said only here.
            let is_said = reason == SAID_ELSEWHERE && !message.starts_with(ALSO);
            (!is_said).then(|| change(true, &reason, message))
        }
        (Some((reason, _)), None) => {
            Some(change(false, "Recovered", format!("the problem {reason} is over")))
        }
        (_, Some(_)) | (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(value: serde_json::Value) -> ClusterDNSStatus {
        serde_json::from_value(value).unwrap()
    }

    fn written(kind: Kind, what: &str, why: Why, editor: Option<&str>) -> Written {
        Written { kind, what: what.to_owned(), why, editor: editor.map(str::to_owned) }
    }

    fn lines(all: &[Change]) -> Vec<String> {
        let kind = |is_warning| if is_warning { "Warning" } else { "Normal" };
        all.iter()
            .map(|it| format!("{} {}: {}", kind(it.is_warning), it.reason, it.message))
            .collect()
    }

    #[test]
    fn o14_what_was_created_recreated_and_undone_is_news() {
        let service = || written(Kind::Service, "Service dns/kube-dns", Why::Missing, None);
        let workload = written(Kind::Deployment, "Deployment dns/x", Why::Missing, None);
        let first = of(None, &status(json!({})), &[service(), workload], None);
        assert_eq!(
            lines(&first),
            ["Normal Created: created Service dns/kube-dns, Deployment dns/x"]
        );
        let before = status(json!({"clusterIPs": ["10.96.0.10"]}));
        let edited =
            written(Kind::Deployment, "Deployment dns/x", Why::Edited, Some("kubectl-edit"));
        let wanted = written(Kind::ConfigMap, "ConfigMap dns/x", Why::Wanted, None);
        let again = of(Some(&before), &before, &[service(), edited, wanted], None);
        let expected = [
            "Warning ServiceRecreated: Service dns/kube-dns was deleted; the operator created it again with the clusterIPs 10.96.0.10",
            "Warning ForeignEditUndone: kubectl-edit changed fields of Deployment dns/x that are ours: the operator set them back to what the spec says",
        ];
        assert_eq!(lines(&again), expected);
    }

    #[test]
    fn o14_the_address_of_a_first_install_is_news_with_what_kubelets_need() {
        let with = status(json!({"clusterIPs": ["10.96.0.10"], "domain": "cluster.local"}));
        let service = ("kube-system", "kube-dns");
        let first = of_addresses(None, &with, service).expect("news");
        assert!(!first.is_warning && first.reason == "AddressAssigned");
        for words in [
            "kube-system/kube-dns has 10.96.0.10",
            "clusterDNS: [10.96.0.10]",
            "clusterDomain: cluster.local",
        ] {
            assert!(first.message.contains(words), "{words}: {}", first.message);
        }
        assert_eq!(of_addresses(Some(&with), &with, service), None, "it is known");
        assert_eq!(of_addresses(None, &status(json!({})), service), None, "there is none yet");
    }

    #[test]
    fn o14_adoption_switch_and_scaling_are_news_once() {
        let ready = |reason: &str| {
            json!([{"type": "Ready", "status": "False", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let before = status(json!({"replicas": {"desired": 2}}));
        let after = status(json!({"replicas": {"desired": 3},
            "conditions": ready("NotSwitched")}));
        let all = lines(&of(Some(&before), &after, &[], Some(true)));
        let expected = ["Normal Switched", "Normal Adopting: m", "Normal Scaled: from 2 to 3"];
        assert!(all.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{all:?}");
        assert_eq!(all.len(), expected.len());
        assert_eq!(of(Some(&after), &after, &[], None), []);
        let back = of(Some(&after), &status(json!({})), &[], Some(false));
        assert_eq!(back[0].reason, "GivenBack");
    }

    #[test]
    fn o19_a_problem_is_news_when_it_comes_changes_and_goes() {
        let with = |reason: &str, message: &str, value: &str| {
            status(
                json!({"conditions": [{"type": "Degraded", "status": value, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            )
        };
        let (fine, one) =
            (with("AsExpected", "", "False"), with("ImagePullFailed", "dns-0", "True"));
        assert_eq!(lines(&of(Some(&fine), &one, &[], None)), ["Warning ImagePullFailed: dns-0"]);
        assert_eq!(of(Some(&one), &one, &[], None), []);
        let two = with("ImagePullFailed", "dns-0, dns-1", "True");
        assert_eq!(of(Some(&one), &two, &[], None).len(), 1);
        assert_eq!(of(Some(&two), &fine, &[], None)[0].reason, "Recovered");
        // Rollout has an Event of it, but not of what is wrong besides.
        let failed = with("CanaryFailed", "m", "True");
        assert_eq!(of(Some(&fine), &failed, &[], None), []);
        let next = with("CanaryFailed", "m, and again later", "True");
        assert_eq!(of(Some(&failed), &next, &[], None), []);
        let both = with("CanaryFailed", "also: NoUsableUpstream; m; no server", "True");
        let news = "Warning CanaryFailed: also: NoUsableUpstream; m; no server";
        assert_eq!(lines(&of(Some(&failed), &both, &[], None)), [news]);
        assert_eq!(of(Some(&both), &failed, &[], None), [], "the other one is over");
    }
}
