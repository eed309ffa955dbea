//! A status for a CustomResourceDefinition that is older than this operator. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// What the API server says of a field that its schema lacks. It drops such a field of a spec, but refuses the whole of a
/// server-side apply with one (kubernetes/kubernetes#139253).
const NOT_DECLARED: &str = ": field not declared in schema";
/// What the path of a field of the status begins with.
const STATUS: &str = ".status.";

/// The status without the fields that the schema of the API server lacks, if it was refused for these. Else `Degraded` with
/// the reason `CRDOutdated` could not be written either, and the conditions from before would stay. Conditions themselves
/// are never taken out.
pub(super) fn for_older_crd(status: &Value, refusal: &str) -> Option<Value> {
    let unknown: BTreeSet<&str> =
        refusal.match_indices(NOT_DECLARED).filter_map(|(at, _)| field(&refusal[..at])).collect();
    let fields = status.as_object()?;
    let known: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| *name == "conditions" || !unknown.contains(name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (known.len() < fields.len()).then_some(Value::Object(known))
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
        let known = |fields: &[&str]| for_older_crd(&status, &refusal(fields));
        let without = |names: &[&str]| {
            let mut status = status.clone();
            names.iter().for_each(|name| drop(status.as_object_mut().unwrap().remove(*name)));
            Some(status)
        };
        assert_eq!(known(&[".status.revision"]), without(&["revision"]));
        assert_eq!(
            known(&[".status.domain", ".status.revision.desired"]),
            without(&["domain", "revision"])
        );
        assert_eq!(known(&[".status.clusterIPs[0].name"]), without(&["clusterIPs"]));
        // One error stands on the same line as its beginning.
        let alone = "failed to create typed patch object (/a; g/v1, Kind=K): .status.domain: field not declared in schema";
        assert_eq!(for_older_crd(&status, alone), without(&["domain"]));
    }

    #[test]
    fn another_refusal_is_no_reason_to_leave_out_anything() {
        let status = json!({"conditions": [], "domain": "cluster.local"});
        let known = |refusal: &str| for_older_crd(&status, refusal);
        assert_eq!(known("etcdserver: request timed out (.status.domain)"), None);
        assert_eq!(known(&refusal(&[".spec.domain"])), None);
        assert_eq!(known(&refusal(&[".status.conditions[type=\"Ready\"].since"])), None);
        assert_eq!(known(&refusal(&[".status.other"])), None, "it was not in there");
        assert_eq!(known(": field not declared in schema"), None);
    }
}
