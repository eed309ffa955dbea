//! A status for a CustomResourceDefinition that is older than this operator. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// What the API server says of a field that its schema lacks. It drops such a field of a spec, but refuses the whole of a
/// server-side apply with one (kubernetes/kubernetes#139253).
const NOT_DECLARED: &str = ": field not declared in schema";
/// What the path of a field of the status begins with.
const STATUS: &str = ".status.";

/// The fields of the status that the schema of the API server lacks, if it was refused for these. Without them the rest is
/// written: else `Degraded` with the reason `CRDOutdated` could not be, and the conditions from before would stay. Conditions
/// themselves are never taken out.
pub(super) fn lacking(status: &Value, refusal: &str) -> BTreeSet<String> {
    let unknown = refusal.match_indices(NOT_DECLARED).filter_map(|(at, _)| field(&refusal[..at]));
    let is_ours = |name: &&str| *name != "conditions" && status.get(*name).is_some();
    unknown.filter(is_ours).map(str::to_owned).collect()
}

/// The status without these fields.
pub(super) fn without(mut status: Value, fields: &BTreeSet<String>) -> Value {
    if let Some(all) = status.as_object_mut() {
        all.retain(|name, _| !fields.contains(name));
    }
    status
}

/// The first part of the path of a field of the status: a refusal lists one path after another, each behind a space.
fn field(until_its_end: &str) -> Option<&str> {
    let path = &until_its_end[until_its_end.rfind(STATUS)? + STATUS.len()..];
    let is_one_path = !path.contains(char::is_whitespace);
    is_one_path.then(|| path.split(['.', '[']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(fields: &[&str]) -> String {
        let errors: String = fields
            .iter()
            .map(|field| format!("\n  {field}: field not declared in schema"))
            .collect();
        format!(
            "ApiError: failed to create typed patch object (/a; clusterdns.dev/v1alpha1, Kind=ClusterDNS): errors:{errors}: (500)"
        )
    }

    #[test]
    fn a_status_is_written_without_the_fields_that_the_crd_lacks() {
        let status = json!({"conditions": [{"type": "Ready"}], "domain": "cluster.local",
            "revision": {"desired": "a"}, "clusterIPs": ["10.96.0.10"]});
        let left = |fields: &[&str]| without(status.clone(), &lacking(&status, &refusal(fields)));
        let rest = |names: &[&str]| {
            let mut status = status.clone();
            names.iter().for_each(|name| drop(status.as_object_mut().unwrap().remove(*name)));
            status
        };
        assert_eq!(left(&[".status.revision"]), rest(&["revision"]));
        assert_eq!(
            left(&[".status.domain", ".status.revision.desired"]),
            rest(&["domain", "revision"])
        );
        assert_eq!(left(&[".status.clusterIPs[0].name"]), rest(&["clusterIPs"]));
        // One error stands on the same line as its beginning.
        let alone = "failed to create typed patch object (/a; g/v1, Kind=K): .status.domain: field not declared in schema";
        assert_eq!(without(status.clone(), &lacking(&status, alone)), rest(&["domain"]));
    }

    #[test]
    fn another_refusal_is_no_reason_to_leave_out_anything() {
        let status = json!({"conditions": [], "domain": "cluster.local"});
        let none = BTreeSet::new();
        for other in [
            "etcdserver: request timed out (.status.domain)".to_owned(),
            refusal(&[".spec.domain"]),
            refusal(&[".status.conditions[type=\"Ready\"].since"]),
            // It was not in there.
            refusal(&[".status.other"]),
            ": field not declared in schema".to_owned(),
        ] {
            assert_eq!(lacking(&status, &other), none, "{other}");
        }
    }
}
