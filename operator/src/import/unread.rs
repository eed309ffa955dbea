//! Objects of manifests that the importer does not read: each has a line of the report.

use super::Source;
use super::manifests::{Object, is_read};
use super::report::Outcome;

/// Kinds that no DNS server reads its settings from: what of it our pods need, the operator makes.
const NEEDLESS: [&str; 14] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "HorizontalPodAutoscaler",
    "Namespace",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodMonitor",
    "Role",
    "RoleBinding",
    "ServiceAccount",
    "ServiceMonitor",
];

/// A line for each object of a kind that is not read.
pub(super) fn unread(objects: &[Object]) -> Vec<Source> {
    let unread = objects.iter().filter(|object| !is_read(&object.value));
    let line = |object: &Object| {
        let kind = object.value["kind"].as_str().unwrap_or_default();
        let (outcome, message) = match NEEDLESS.contains(&kind) {
            true => (Outcome::NotNeeded, "what the pods need of this kind, the operator makes"),
            false => (
                Outcome::NotPossible,
                "objects of this kind are not read: if DNS is configured in it, name the ConfigMap or Corefile that is made \
                 of it, or use --from-cluster",
            ),
        };
        Source::Note {
            place: object.place(""),
            outcome,
            what: format!("{kind} {}", object.name()),
            message: message.to_owned(),
        }
    };
    unread.map(line).collect()
}
