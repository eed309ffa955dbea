//! Which fields of objects the caches keep: those that a decision reads. Pure.

use crds::ClusterDNS;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, ContainerStatus, NodeAffinity, NodeSelector, ObjectReference, Pod,
    PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};
use kube::Resource;
use kube::core::DynamicObject;

use crate::controller::triggers;
use crate::desired::ports;
use crate::names;

/// What client-side apply writes: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Of its spec a pod's node and our ports of its containers are read, and no annotation. A network policy keeps each of them open
/// until the pod is replaced. While it has no node, that for which a DaemonSet made it is read from its affinity. A large cluster
/// may have one on each node.
pub(super) fn slim_pod(pod: &mut Pod) {
    let metadata = &mut pod.metadata;
    (metadata.managed_fields, metadata.annotations) = (None, None);
    (metadata.finalizers, metadata.generate_name) = (None, None);
    // What made it.
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|owner| owner.controller == Some(true));
    }
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let full = std::mem::take(container);
        let is_read = |port: &ContainerPort| {
            port.name.as_ref().is_some_and(|name| ports::NAMES.contains(&name.as_str()))
        };
        let slim = |port: ContainerPort| ContainerPort {
            name: port.name,
            container_port: port.container_port,
            ..ContainerPort::default()
        };
        let ports = full.ports.map(|all| all.into_iter().filter(is_read).map(slim).collect());
        (container.name, container.ports) = (full.name, ports);
    }
    pod.status = pod.status.take().map(slim_status);
    let full = pod.spec.take();
    pod.spec = full.map(|full| {
        let affinity = full.affinity.filter(|_| full.node_name.is_none()).and_then(to_its_node);
        let mut spec = PodSpec::default();
        (spec.node_name, spec.containers, spec.affinity) =
            (full.node_name, full.containers, affinity);
        spec
    });
}

/// Whether it is ready, ended or has no node, where it is, and what its containers do.
fn slim_status(full: PodStatus) -> PodStatus {
    let is_read = |it: &PodCondition| {
        it.type_ == "Ready" || it.type_ == "PodScheduled" && it.status == "False"
    };
    let conditions = full.conditions.map(|all| all.into_iter().filter(is_read).collect());
    let is_other = |it: &PodIP| full.pod_ip.as_ref() != Some(&it.ip);
    let others = full.pod_ips.map(|all| all.into_iter().filter(is_other).collect());
    let containers = |all: Option<Vec<ContainerStatus>>| {
        all.map(|all| all.into_iter().map(slim_container).collect())
    };
    PodStatus {
        conditions,
        pod_ips: others,
        pod_ip: full.pod_ip,
        phase: full.phase,
        reason: full.reason,
        message: full.message,
        container_statuses: containers(full.container_statuses),
        init_container_statuses: containers(full.init_container_statuses),
        ..PodStatus::default()
    }
}

/// The image is named where it cannot be had.
fn slim_container(full: ContainerStatus) -> ContainerStatus {
    let waits = full.state.as_ref().is_some_and(|state| state.waiting.is_some());
    ContainerStatus {
        name: full.name,
        state: full.state,
        last_state: full.last_state,
        ready: full.ready,
        restart_count: full.restart_count,
        image: if waits { full.image } else { String::new() },
        ..ContainerStatus::default()
    }
}

/// The controller of DaemonSets writes the node into each term.
fn to_its_node(full: Affinity) -> Option<Affinity> {
    let required = full.node_affinity?.required_during_scheduling_ignored_during_execution?;
    let mut terms = required.node_selector_terms;
    terms.truncate(1);
    terms.iter_mut().for_each(|term| term.match_expressions = None);
    let required = Some(NodeSelector { node_selector_terms: terms });
    let nodes = NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        ..NodeAffinity::default()
    };
    Some(Affinity { node_affinity: Some(nodes), ..Affinity::default() })
}

/// Which template of pods is the newest is in its metadata.
pub(super) fn slim_replica_set(set: &mut ReplicaSet) {
    (set.metadata.managed_fields, set.spec, set.status) = (None, None, None);
}

/// Whose pods are behind a Service, and which of them are ready: Services of large clusters have an endpoint on each node.
pub(in crate::observe) fn slim_slice(slice: &mut EndpointSlice) {
    keep_labels(slice);
    slice.ports = None;
    for endpoint in &mut slice.endpoints {
        let Endpoint { conditions, target_ref, .. } = std::mem::take(endpoint);
        endpoint.conditions = conditions
            .map(|it| EndpointConditions { ready: it.ready, ..EndpointConditions::default() });
        endpoint.target_ref = target_ref.map(|it| ObjectReference {
            name: it.name,
            uid: it.uid,
            ..ObjectReference::default()
        });
    }
}

pub(super) fn has_our_label(object: &impl Resource) -> bool {
    triggers::label(object.meta(), names::INSTANCE).is_some()
}

/// Of the metadata of a slice only its names and its labels are read.
fn keep_labels<K: Resource>(object: &mut K) {
    let metadata = object.meta_mut();
    (metadata.managed_fields, metadata.annotations) = (None, None);
    (metadata.owner_references, metadata.finalizers) = (None, None);
}

/// Of the metadata of a ClusterDNS only what names it and one annotation of ours is read. `kubectl apply` writes the whole spec
/// into another one.
pub(super) fn slim_resource(dns: &mut ClusterDNS) {
    let annotations = dns.metadata.annotations.take();
    keep_labels(dns);
    dns.metadata.labels = None;
    let retry = annotations.and_then(|mut all| all.remove_entry(names::RETRY));
    dns.metadata.annotations = retry.map(|entry| [entry].into());
}

/// ConfigMaps of others are kept because a ClusterDNS may refer to one: their binary data, and what `kubectl apply`
/// wrote into annotations, is not needed.
pub(super) fn keep_what_is_read(object: &mut DynamicObject) {
    if has_our_label(object) {
        return;
    }
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("binaryData");
    }
    let annotations = object.metadata.annotations.as_mut();
    annotations.map(|annotations| annotations.remove(LAST_APPLIED));
}
