//! Size of the cluster: nodes and cores, and the addresses of nodes. Only the needed fields of a Node are kept, and its labels as one
//! text, because one Node has 10 KB and a cluster may have many thousands.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

use crate::observe::observed::ClusterSize;

/// Taints of a node that are kept, of those that keep pods off, and first those that end pods. Further ones count as tolerated.
const MAX_TAINTS: usize = 16;

/// Internal addresses of a node that are kept: kubelets have one of each family.
const MAX_ADDRESSES: usize = 4;

/// The effect of a taint: pods that do not tolerate it end.
pub(super) const NO_EXECUTE: &str = "NoExecute";
/// No new pod that does not tolerate it comes; those that run stay.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";

/// The part of a Node that is kept.
#[derive(Clone, Debug, Default, Resource, Deserialize, Serialize)]
#[resource(inherit = "Node")]
#[serde(from = "ReadNode")]
pub(super) struct SlimNode {
    /// Its names, and its version.
    metadata: ObjectMeta,
    labels: Labels,
    spec: SlimSpec,
    status: SlimStatus,
}

/// The same as it is read.
#[derive(Deserialize)]
struct ReadNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

impl From<ReadNode> for SlimNode {
    fn from(ReadNode { metadata: full, spec, status }: ReadNode) -> SlimNode {
        let labels = Labels::of(full.labels.unwrap_or_default());
        let mut metadata = ObjectMeta::default();
        (metadata.name, metadata.resource_version) = (full.name, full.resource_version);
        SlimNode { metadata, labels, spec, status }
    }
}

/// Each key and its value, one after the other, each with [`END`] behind it. A map of thirty labels takes four times as much.
#[derive(Clone, Debug, Default, Serialize)]
struct Labels(Box<str>);

/// Is in no label.
const END: char = '\n';

impl Labels {
    fn of(labels: BTreeMap<String, String>) -> Labels {
        let mut text = String::new();
        for part in labels.iter().flat_map(|(key, value)| [key, value]) {
            text.push_str(part);
            text.push(END);
        }
        Labels(text.into_boxed_str())
    }

    fn value(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split(END);
        while let (Some(found), Some(value)) = (parts.next(), parts.next()) {
            if found == key {
                return Some(value);
            }
        }
        None
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimSpec {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default, rename = "podCIDRs")]
    pod_ranges: Vec<String>,
    #[serde(default, deserialize_with = "hard_taints")]
    taints: Vec<Taint>,
}

/// A taint that keeps pods off which do not tolerate it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Taint {
    #[serde(default)]
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
    #[serde(default)]
    pub(super) effect: String,
}

fn hard_taints<'de, D: Deserializer<'de>>(taints: D) -> Result<Vec<Taint>, D::Error> {
    let mut taints = Option::<Vec<Taint>>::deserialize(taints)?.unwrap_or_default();
    taints.retain(|taint| [NO_EXECUTE, NO_SCHEDULE].contains(&taint.effect.as_str()));
    taints.sort_by_key(|taint| taint.effect != NO_EXECUTE);
    taints.truncate(MAX_TAINTS);
    Ok(taints)
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimStatus {
    #[serde(default)]
    allocatable: Allocatable,
    /// The internal ones: from them it asks for names, unless its network writes others into packets.
    #[serde(default, deserialize_with = "internal")]
    addresses: Vec<IpAddr>,
    /// Only whether the kubelet is ready is kept of the conditions.
    #[serde(default, rename = "conditions", deserialize_with = "is_dead", skip_serializing)]
    is_dead: bool,
}

/// One address of a Node.
#[derive(Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

fn internal<'de, D: Deserializer<'de>>(addresses: D) -> Result<Vec<IpAddr>, D::Error> {
    let addresses = Option::<Vec<NodeAddress>>::deserialize(addresses)?.unwrap_or_default();
    let internal = addresses.iter().filter(|it| it.kind == "InternalIP");
    Ok(internal.filter_map(|it| it.address.parse().ok()).take(MAX_ADDRESSES).collect())
}

/// The part of a Node's condition that is read.
#[derive(Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// Whether the condition Ready is there and not True: Unknown means that the kubelet does not report.
fn is_dead<'de, D: Deserializer<'de>>(conditions: D) -> Result<bool, D::Error> {
    let conditions = Option::<Vec<NodeCondition>>::deserialize(conditions)?.unwrap_or_default();
    Ok(conditions.iter().any(|it| it.kind == "Ready" && it.status != "True"))
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Allocatable {
    #[serde(default)]
    cpu: String,
}

impl SlimNode {
    /// Whether its kubelet is not ready, or not heard of.
    pub(super) fn is_dead(&self) -> bool {
        self.status.is_dead
    }

    /// Whether it takes no new pods.
    pub(super) fn is_cordoned(&self) -> bool {
        self.spec.unschedulable
    }

    /// `metadata.name`.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.value(key)
    }

    /// Its taints with the effect `NoExecute` or `NoSchedule`.
    pub(super) fn taints(&self) -> &[Taint] {
        &self.spec.taints
    }
}

/// Adds up the nodes. Virtual nodes run no DNS pods and need none of their own.
pub(super) fn of<'a>(nodes: impl IntoIterator<Item = &'a SlimNode>) -> ClusterSize {
    let (mut size, mut millicores, mut schedulable_millicores) = (ClusterSize::default(), 0, 0);
    for node in nodes.into_iter().filter(|node| !is_virtual(node)) {
        let cores = millicores_of(&node.status.allocatable.cpu);
        size.nodes += 1;
        millicores += cores;
        if !node.spec.unschedulable {
            size.schedulable_nodes += 1;
            schedulable_millicores += cores;
        }
    }
    let cores = |millicores: u64| u32::try_from(millicores.div_ceil(1_000)).unwrap_or(u32::MAX);
    size.cores = cores(millicores);
    size.schedulable_cores = cores(schedulable_millicores);
    size
}

/// Ranges from which nodes give addresses to pods, where they say so.
pub(super) fn pod_ranges<'a>(nodes: impl IntoIterator<Item = &'a SlimNode>) -> Vec<IpNet> {
    let all = nodes.into_iter().flat_map(|node| &node.spec.pod_ranges);
    let mut ranges: Vec<IpNet> = all.filter_map(|text| text.parse().ok()).collect();
    ranges.sort();
    ranges.dedup();
    ranges
}

/// Addresses of nodes. A virtual node has one, and asks for no names.
pub(super) fn addresses<'a>(nodes: impl IntoIterator<Item = &'a SlimNode>) -> Vec<IpAddr> {
    let real = nodes.into_iter().filter(|node| !is_virtual(node));
    let mut all: Vec<IpAddr> = real.flat_map(|node| &node.status.addresses).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn is_virtual(node: &SlimNode) -> bool {
    node.label("type") == Some("virtual-kubelet")
}

/// A Kubernetes quantity as kubelets write CPU: `4`, `3920m`, `1.5`, `250u`, `2k`. What cannot be read counts nothing.
fn millicores_of(quantity: &str) -> u64 {
    let end = quantity.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(end);
    let factor = match unit {
        "" => 1e3,
        "m" => 1.0,
        "u" => 1e-3,
        "n" => 1e-6,
        "k" => 1e6,
        _ => return 0,
    };
    number.parse::<f64>().map_or(0, |number| (number * factor).clamp(0.0, 1e12) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(value: serde_json::Value) -> SlimNode {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn o12_virtual_nodes_do_not_count_and_cordoned_ones_apart() {
        let nodes = [
            node(
                json!({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "3920m", "memory": "1Gi"}}}),
            ),
            node(json!({"metadata": {"name": "b"}, "spec": {"unschedulable": true},
                "status": {"allocatable": {"cpu": "4"}}})),
            node(json!({"metadata": {"name": "v", "labels": {"type": "virtual-kubelet"}},
                "status": {"allocatable": {"cpu": "1k"}}})),
            node(json!({"metadata": {"name": "new"}})),
        ];
        let expected =
            ClusterSize { nodes: 3, schedulable_nodes: 2, cores: 8, schedulable_cores: 4 };
        assert_eq!(of(&nodes), expected);
    }

    #[test]
    fn labels_of_a_node_are_found_by_their_whole_key() {
        let all = json!({"a": "b", "b": "", "c.example/a": "a", "topology.kubernetes.io/zone": "eu-west-1a"});
        let labelled = node(json!({"metadata": {"name": "n", "labels": all}}));
        for (key, value) in all.as_object().unwrap() {
            assert_eq!(labelled.label(key), value.as_str(), "{key}");
        }
        for key in ["", "c.example", "eu-west-1a", "zone", "a\nb"] {
            assert_eq!(labelled.label(key), None, "{key}");
        }
        assert_eq!(node(json!({"metadata": {"name": "n"}})).label("a"), None);
    }

    #[test]
    fn a_node_is_dead_when_its_kubelet_is_not_ready_or_not_heard_of() {
        let ready = |status: &str| {
            let conditions = json!([{"type": "MemoryPressure", "status": "Unknown"},
                {"type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]);
            node(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}})).is_dead()
        };
        assert_eq!(["True", "False", "Unknown"].map(ready), [false, true, true]);
        let unknown = [
            json!({"metadata": {}}),
            json!({"metadata": {}, "status": {"conditions": null}}),
            json!({"metadata": {}, "status": {"conditions": []}}),
        ];
        assert!(unknown.into_iter().all(|new| !node(new).is_dead()), "it said nothing yet");
    }

    #[test]
    fn k23_of_the_taints_of_a_node_few_are_kept_and_first_those_that_end_pods() {
        let taint = |effect: &str| json!({"key": "k", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
        let of = |taints: Vec<serde_json::Value>| -> Vec<String> {
            let node = node(json!({"metadata": {"name": "a"}, "spec": {"taints": taints}}));
            node.taints().iter().map(|taint| taint.effect.clone()).collect()
        };
        let kept = of(vec![taint("NoSchedule"), taint("PreferNoSchedule"), taint("NoExecute")]);
        assert_eq!(kept, [NO_EXECUTE, NO_SCHEDULE]);
        let mut many = vec![taint("NoSchedule"); 1_000];
        many.push(taint("NoExecute"));
        let kept = of(many);
        assert_eq!((kept.len(), kept[0].as_str()), (MAX_TAINTS, NO_EXECUTE));
    }

    #[test]
    fn o17_ranges_of_pods_are_what_nodes_say() {
        let nodes = [
            node(
                json!({"metadata": {"name": "b"}, "spec": {"podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]}}),
            ),
            node(json!({"metadata": {"name": "a"}, "spec": {"podCIDRs": ["10.244.0.0/24", "x"]}})),
        ];
        let ranges: Vec<String> = pod_ranges(&nodes).iter().map(IpNet::to_string).collect();
        assert_eq!(ranges, ["10.244.0.0/24", "10.244.1.0/24", "fd00:1::/64"]);
    }

    #[test]
    fn o17_of_the_addresses_of_nodes_few_are_kept_and_only_internal_ones() {
        let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
        let with = |name: &str, kind: &str, addresses: Vec<serde_json::Value>| {
            node(
                json!({"metadata": {"name": name, "labels": {"type": kind}}, "status": {"addresses": addresses}}),
            )
        };
        let both = vec![
            address("Hostname", "b"),
            address("InternalIP", "10.0.0.2"),
            address("ExternalIP", "192.0.2.2"),
            address("InternalIP", "fd00::2"),
            address("InternalIP", "x"),
        ];
        let many = (1..=250).map(|n| address("InternalIP", &format!("10.0.1.{n}"))).collect();
        let nodes = [
            with("b", "", both),
            with("many", "", many),
            with("virtual", "virtual-kubelet", vec![address("InternalIP", "10.244.0.9")]),
            node(json!({"metadata": {"name": "new"}, "status": {"addresses": null}})),
        ];
        let found: Vec<String> = addresses(&nodes).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["10.0.0.2", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "fd00::2"]);
        assert_eq!(nodes[1].status.addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn quantities_are_read_as_kubelets_write_them() {
        for (text, millicores) in [
            ("4", 4_000),
            ("3920m", 3_920),
            ("1.5", 1_500),
            ("250000u", 250),
            ("2k", 2_000_000),
            ("", 0),
            ("x", 0),
        ] {
            assert_eq!(millicores_of(text), millicores, "{text}");
        }
    }
}
