//! On which nodes the pods of the other server ran, with which priority and resources: lines that say what to write to keep
//! it. Pure.

use crds::defaults::{PRIORITY_CLASS, RESOURCES};
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Map, Value};

use crate::desired::default_tolerations;
use crate::import::Source;
use crate::import::manifests::Object;
use crate::import::report::Outcome::{self, Changed, NotNeeded};

/// The label that pods of a ClusterDNS want of a node in any case, and its value.
const LINUX: (&str, &str) = ("kubernetes.io/os", "linux");
/// Taints that each pod tolerates for a while.
const OF_DEAD_NODES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// The path of what a node must have.
const REQUIRED: &str = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";

/// A line for each of these that is written.
pub(super) fn lines(object: &Object) -> Vec<Source> {
    let (pods, at) = object.pods();
    let line = |field: &str, what: &str, (outcome, message): (Outcome, String)| Source::Note {
        place: object.place(&format!("{at}.{field}")),
        outcome,
        what: format!("{what} of {} {}", object.kind(), object.name()),
        message,
    };
    let mut lines = Vec::new();
    let selector = pods["nodeSelector"].as_object().filter(|it| !it.is_empty());
    lines.extend(selector.map(|it| line("nodeSelector", "nodeSelector", node_selector(it))));
    let affinity = &pods["affinity"]["nodeAffinity"];
    if affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_object() {
        let message = "here pods run on any Linux node: to keep it, copy nodeAffinity to spec.placement.affinity";
        lines.push(line(REQUIRED, "required nodeAffinity", (Changed, message.to_owned())));
    }
    let tolerated = pods["tolerations"].as_array().filter(|it| !it.is_empty());
    lines.extend(tolerated.map(|it| line("tolerations", "tolerations", tolerations(it))));
    let class = pods["priorityClassName"].as_str().filter(|it| *it != PRIORITY_CLASS);
    lines.extend(class.map(|class| {
        let message = format!(
            "here it is {PRIORITY_CLASS}: to keep it, write spec.placement.priorityClassName: {class}"
        );
        line("priorityClassName", "priorityClassName", (Changed, message))
    }));
    let containers = pods["containers"].as_array().into_iter().flatten().enumerate();
    let sized =
        containers.filter(|(_, it)| it["resources"].as_object().is_some_and(|it| !it.is_empty()));
    lines.extend(sized.take(1).map(|(index, _)| {
        let field = format!("containers[{index}].resources");
        line(&field, "resources", (Changed, resources()))
    }));
    lines
}

fn node_selector(written: &Map<String, Value>) -> (Outcome, String) {
    let rest: Map<String, Value> = written
        .iter()
        .filter(|(key, value)| (key.as_str(), value.as_str()) != (LINUX.0, Some(LINUX.1)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    match rest.is_empty() {
        true => (NotNeeded, "pods run on Linux nodes in any case".to_owned()),
        false => (
            Changed,
            format!(
                "here pods run on any Linux node: to keep it, write spec.placement.nodeSelector: {}",
                Value::Object(rest)
            ),
        ),
    }
}

fn tolerations(written: &[Value]) -> (Outcome, String) {
    let ours = default_tolerations();
    let is_ours = |it: &Value| {
        let it: Toleration = serde_json::from_value(it.clone()).unwrap_or_default();
        let is_dead = it.key.as_deref().is_some_and(|key| OF_DEAD_NODES.contains(&key));
        let is_covered = |own: &Toleration| {
            own.key == it.key && (own.effect.is_none() || own.effect == it.effect)
        };
        is_dead || ours.iter().any(is_covered)
    };
    match written.iter().all(is_ours) {
        true => (NotNeeded, "pods tolerate these in any case".to_owned()),
        false => (
            Changed,
            "here pods tolerate CriticalAddonsOnly and the NoSchedule of control planes: to keep the others, write all that are \
             meant in spec.placement.tolerations"
                .to_owned(),
        ),
    }
}

fn resources() -> String {
    let all = RESOURCES.iter().map(|(resource, request, limit)| match limit {
        Some(limit) => format!("{request} of {resource}, at most {limit}"),
        None => format!("{request} of {resource}"),
    });
    let all: Vec<String> = all.collect();
    format!("here a pod asks for {}: spec.resources changes that", all.join(" and for "))
}
