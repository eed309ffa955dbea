//! How many pods the other server had, and on which nodes: the rules of its autoscaler become `spec.scaling`, and the rest has
//! a line. `placement` has the nodes and resources, `rules` reads the rules.

mod placement;
mod rules;

use std::collections::BTreeMap;

use crds::ClusterDNSSpec;
use crds::defaults::{CORES_PER_REPLICA, MIN_REPLICAS, NODES_PER_REPLICA};

use super::draft::Draft;
use super::manifests::Object;
use super::node_local::is_node_local;
use super::platform::labels_of_ours;
use super::report::Outcome::{Changed, Kept, NotNeeded, NotPossible};
use super::report::Place;
use super::{Source, Text, per_node};

/// Kinds of workloads, which keep a number of pods.
const WORKLOADS: [&str; 4] = ["Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"];
/// The keys of the ConfigMap of an autoscaler in proportion to the cluster, and what the name of one for DNS has in it.
const RULES: [&str; 2] = ["linear", "ladder"];
const OF_DNS: &str = "dns";

/// What is decided after all configurations were read.
pub struct Size {
    /// The DaemonSet of NodeLocal DNSCache.
    cache: Option<(Place, String)>,
    /// Rules of autoscalers, by key.
    rules: Vec<(&'static str, Text)>,
    /// Workloads behind the Service.
    workloads: Vec<Workload>,
}

struct Workload {
    place: Place,
    what: String,
    /// None: one on each node.
    replicas: Option<u64>,
}

impl Size {
    /// The keys of ConfigMaps that it reads.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Text> {
        self.rules.iter().map(|(_, text)| text)
    }
}

/// What these objects say of it. `selector`: what the Service selects by, empty where that is not known.
pub(super) fn sources(objects: &[Object], selector: &BTreeMap<String, String>) -> Vec<Source> {
    // One that another one made, such as a ReplicaSet, has no size of its own.
    let is_own = |it: &&Object| {
        WORKLOADS.contains(&it.kind()) && !it.value["metadata"]["ownerReferences"].is_array()
    };
    let workloads: Vec<&Object> =
        objects.iter().filter(is_own).filter(|it| labels_of_ours(it, selector).is_some()).collect();
    let mut sources: Vec<Source> = workloads.iter().flat_map(|it| placement::lines(it)).collect();
    let named = |it: &Object| format!("{} {}", it.kind(), it.name());
    let cache = objects.iter().find(|it| is_node_local(it));
    let is_of_dns = |it: &&Object| it.is_map() && (it.is_named || it.name().contains(OF_DNS));
    let size = Size {
        cache: cache.map(|it| (it.place("metadata"), named(it))),
        rules: objects.iter().filter(is_of_dns).flat_map(rules_of).collect(),
        workloads: workloads.into_iter().filter_map(workload).collect(),
    };
    sources.push(Source::Size(size));
    sources
}

fn rules_of(map: &Object) -> Vec<(&'static str, Text)> {
    let mut keys = map.keys();
    RULES.iter().filter_map(|key| Some((*key, keys.remove(*key)?))).collect()
}

fn workload(object: &Object) -> Option<Workload> {
    let replicas = object.value["spec"]["replicas"].as_u64();
    let is_on_each = object.kind() == "DaemonSet";
    let field = if is_on_each { "metadata" } else { "spec.replicas" };
    let what = match is_on_each {
        true => format!("DaemonSet {}", object.name()),
        false => format!("replicas of {} {}", object.kind(), object.name()),
    };
    // Where no number is written, it is one, or an autoscaler has the number.
    (is_on_each || replicas.is_some_and(|it| it > 0)).then(|| Workload {
        place: object.place(field),
        what,
        replicas,
    })
}

/// Adds it to the draft, and says what became of each.
pub(super) fn convert(size: &Size, draft: &mut Draft) {
    if let Some((place, what)) = size.cache.as_ref().filter(|_| !per_node::is_there(draft)) {
        let (outcome, message) = match per_node::add(draft) {
            Ok(message) => (
                Changed,
                format!(
                    "{message}; the cache goes last, when no pod and no kubelet names its address: docs/switching.md (Leave \
                     NodeLocal DNSCache); if a CiliumLocalRedirectPolicy leads what pods ask to this cache, delete that policy \
                     when the ClusterDNS is Ready"
                ),
            ),
            Err(why) => (NotPossible, why),
        };
        draft.report.add(place, outcome, what, message);
    }
    for (key, text) in &size.rules {
        rule(key, text, draft);
    }
    for workload in &size.workloads {
        replicas(workload, draft);
    }
}

fn rule(key: &str, text: &Text, draft: &mut Draft) {
    let field = if key == "ladder" { "spec.scaling.ladder" } else { "spec.scaling.proportional" };
    let read = match key {
        "ladder" => rules::ladder(&text.text),
        _ => rules::linear(&text.text),
    };
    let known = draft.spec.scaling.is_some();
    let (outcome, message) = match read {
        Ok(_) if per_node::is_there(draft) => (
            NotNeeded,
            format!(
                "a pod runs on each node (spec.scaling.perNode); {field} takes the place of that"
            ),
        ),
        Ok(_) if known => {
            (NotPossible, "spec.scaling has the rules of another one already".to_owned())
        }
        Ok(scaling) => {
            let change = |spec: &mut ClusterDNSSpec| spec.scaling = Some(scaling.clone());
            match draft.change(change) {
                Ok(()) => (
                    Changed,
                    format!(
                        "{field}; where the cluster shrinks, pods are taken away a little later"
                    ),
                ),
                Err(why) => (NotPossible, why),
            }
        }
        Err(why) => {
            (NotPossible, format!("the autoscaler cannot use it, and so it is left out: {why}"))
        }
    };
    let (map, _) = text.map.clone().unwrap_or_default();
    draft.report.add(&text.place(), outcome, &format!("ConfigMap {map} {key}"), message);
}

fn replicas(workload: &Workload, draft: &mut Draft) {
    let by_default = format!(
        "here there is a pod for every {NODES_PER_REPLICA} nodes and every {CORES_PER_REPLICA} cores, and {MIN_REPLICAS} at \
         least"
    );
    let has_rules = draft.spec.scaling.is_some();
    let (outcome, message) = match (workload.replicas, per_node::is_there(draft), has_rules) {
        (None, true, _) => (Kept, "a pod on each node: spec.scaling.perNode".to_owned()),
        (Some(count), true, _) => {
            (Changed, format!("{count} before, and here one on each node (spec.scaling.perNode)"))
        }
        (_, false, true) => (
            NotNeeded,
            "the rules of the autoscaler say how many pods run (spec.scaling)".to_owned(),
        ),
        (None, false, false) => (
            Changed,
            format!(
                "a pod on each node before; {by_default}: spec.scaling: {{perNode: {{}}}} keeps that"
            ),
        ),
        (Some(count), false, false) => (
            Changed,
            format!(
                "{count} before; {by_default}: spec.scaling: {{fixed: {{replicas: {count}}}}} keeps the number"
            ),
        ),
    };
    draft.report.add(&workload.place, outcome, &workload.what, message);
}
