//! The status of a ClusterDNS that this version cannot read, and what is taken out of a status that cannot be read. Pure.

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::not_ready::not_looked_at;
use super::{ConditionState, Conditions};

/// The reason of the conditions, and of the Event.
pub const REASON: &str = "Unreadable";

/// What cannot be read, and what to do.
pub fn message(why: &str) -> String {
    format!(
        "this version of the operator ({}) cannot read this ClusterDNS, so it changes nothing of it, and pods continue as they \
         are: {why}. If a newer version wrote it, upgrade the operator again, or write only what this version knows",
        env!("CARGO_PKG_VERSION")
    )
}

/// The status from before, with this problem.
pub fn of(dns: &ClusterDNS, message: &str, now: Timestamp) -> ClusterDNSStatus {
    let before = dns.status.clone().unwrap_or_default();
    let no = ConditionState::no(REASON, message);
    let mut conditions = Conditions::of(dns, now);
    conditions.set("Accepted", no.clone());
    // Pods may answer: they are not looked at.
    conditions.set_unknown("Ready", no.clone());
    conditions.set("UpToDate", no.clone());
    conditions.set("Progressing", no.clone());
    conditions.set("Degraded", ConditionState::yes(REASON, &not_looked_at(dns, message)));
    conditions.set("Stalled", no.negated());
    let conditions = conditions.listed();
    ClusterDNSStatus { observed_generation: dns.metadata.generation, conditions, ..before }
}

/// What names it, and its status; the spec is the default one, and nothing may follow from it.
pub fn as_far_as_it_can_be_read(object: &Value) -> Option<ClusterDNS> {
    let metadata = object["metadata"].as_object()?;
    let names = ["name", "uid", "resourceVersion", "generation"];
    let known = metadata.iter().filter(|(key, _)| names.contains(&key.as_str()));
    let known: Map<String, Value> =
        known.map(|(key, value)| (key.clone(), value.clone())).collect();
    let dns = json!({"metadata": known, "spec": {}, "status": object["status"]});
    serde_json::from_value(dns).ok()
}

/// The merge patch that takes out of a status what no type holds, such as a condition with an invalid time; no patch where all of
/// it can be read. It is for this version of the object only.
pub fn mended(object: &Value) -> Option<Value> {
    let can_be_read = |field: &String, value: Value| {
        serde_json::from_value::<ClusterDNSStatus>(json!({ field: value })).is_ok()
    };
    let mut patch = Map::new();
    for (field, value) in object["status"].as_object()? {
        if can_be_read(field, value.clone()) {
            continue;
        }
        let list = value.as_array().filter(|_| field == "conditions");
        let left = list.map(|all| {
            let good = all.iter().filter(|one| can_be_read(field, json!([one])));
            good.cloned().collect()
        });
        patch.insert(field.clone(), left.map_or(Value::Null, Value::Array));
    }
    let version = &object["metadata"]["resourceVersion"];
    (!patch.is_empty()).then(|| json!({"metadata": {"resourceVersion": version}, "status": patch}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn condition(kind: &str, time: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "Before", "message": "m", "lastTransitionTime": time})
    }

    #[test]
    fn k23_what_no_type_holds_is_taken_out_of_a_status_and_nothing_else() {
        let (good, bad) = ("2026-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00");
        let object = |conditions: Value, replicas: Value| {
            json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"podRecords": "Future"},
                "status": {"clusterIPs": ["10.96.0.10"], "fromTheFuture": 7, "conditions": conditions,
                    "replicas": replicas}})
        };
        let fine = object(json!([condition("Ready", good)]), json!({"desired": 2}));
        assert_eq!(mended(&fine), None, "the spec is not its business, nor unknown fields");
        let conditions = json!([
            condition("Ready", bad),
            condition("Audited", good),
            condition("Theirs", bad),
            7
        ]);
        let spoiled = object(conditions, json!({"desired": -1}));
        let expected = json!({"metadata": {"resourceVersion": "7"},
            "status": {"conditions": [condition("Audited", good)], "replicas": null}});
        assert_eq!(mended(&spoiled), Some(expected));
        assert_eq!(mended(&json!({"metadata": {"name": "a"}})), None, "no status");
        let no_list = object(json!("text"), json!({}));
        assert_eq!(mended(&no_list).unwrap()["status"], json!({"conditions": null}));
    }

    #[test]
    fn k23_the_status_of_an_unreadable_one_says_so_and_keeps_what_was_known() {
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3,
                "deletionTimestamp": "no time"}, "spec": {"podRecords": "Future"},
            "status": {"clusterIPs": ["10.96.0.10"], "observedGeneration": 2,
                "conditions": [condition("Ready", "2026-01-01T00:00:00Z"), condition("Audited", "2026-01-01T00:00:00Z")]}});
        let mut dns = as_far_as_it_can_be_read(&object).unwrap();
        let status = of(&dns, &message("unknown variant `Future`"), at(60));
        let shown = |kind: &str| {
            let found = status.conditions.iter().find(|it| it.type_ == kind);
            found.map(|it| (it.status.as_str(), it.reason.as_str(), it.observed_generation))
        };
        for (kind, value) in [
            ("Accepted", "False"),
            ("Ready", "Unknown"),
            ("UpToDate", "False"),
            ("Progressing", "False"),
            ("Degraded", "True"),
            ("Stalled", "True"),
        ] {
            assert_eq!(shown(kind), Some((value, REASON, Some(3))), "{kind}");
        }
        assert_eq!(shown("Audited"), None, "others keep theirs");
        assert_eq!(
            (status.cluster_ips.as_slice(), status.observed_generation),
            (&["10.96.0.10".to_owned()][..], Some(3))
        );
        assert!(status.conditions[0].message.contains("unknown variant `Future`"));
        dns.status = Some(status.clone());
        assert_eq!(
            of(&dns, &message("unknown variant `Future`"), at(120)),
            status,
            "not written again"
        );
    }
}
