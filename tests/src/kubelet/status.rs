//! What a kubelet writes into the status of a Pod.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::netns::NODE_ADDRESS;

/// What is known of the Pod now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) pod_started: Timestamp,
    pub(super) restarts: u32,
    pub(super) ready: bool,
    pub(super) container: Container,
    /// How the run before ended.
    pub(super) last_exit: Option<i32>,
}

/// The state of the container.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Container {
    Waiting(String),
    Running(Timestamp),
    Ended(i32),
}

/// Writes it. False when the API server did not take it: to be written again.
pub(super) async fn write(client: &Client, pod: &Pod, known: &Known) -> bool {
    let (Some(name), Some(namespace)) = (&pod.metadata.name, &pod.metadata.namespace) else {
        return true;
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // Strategic: conditions of others, such as the scheduler's, stay.
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status(pod, known)});
    match pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(refusal)) => [404, 409].contains(&refusal.code),
        Err(_) => false,
    }
}

fn status(pod: &Pod, known: &Known) -> Value {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let why = if known.restarts == 0 { "ContainerCreating" } else { "CrashLoopBackOff" };
    let statuses: Vec<Value> = containers
        .iter()
        .map(|container| {
            let (state, started) = match &known.container {
                Container::Waiting(reason) => {
                    (json!({"waiting": {"reason": why, "message": reason}}), false)
                }
                Container::Running(since) => (json!({"running": {"startedAt": since.to_string()}}), true),
                Container::Ended(code) => (json!({"terminated": {"exitCode": code, "reason": end(*code)}}), false),
            };
            let last = known.last_exit.map(|code| json!({"terminated": {"exitCode": code, "reason": end(code)}}));
            json!({
                "name": container.name, "image": container.image, "imageID": "", "ready": known.ready,
                "started": started, "restartCount": known.restarts, "state": state,
                "lastState": last.unwrap_or(json!({})),
            })
        })
        .collect();
    let phase = match known.container {
        Container::Waiting(_) if known.restarts == 0 => "Pending",
        Container::Waiting(_) | Container::Running(_) => "Running",
        Container::Ended(0) => "Succeeded",
        Container::Ended(_) => "Failed",
    };
    json!({
        "phase": phase,
        "hostIP": NODE_ADDRESS,
        "podIP": known.addresses.first(),
        "podIPs": known.addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
        "startTime": known.pod_started.to_string(),
        "containerStatuses": statuses,
        "conditions": [
            condition(pod, "Initialized", true),
            condition(pod, "ContainersReady", known.ready),
            condition(pod, "Ready", known.ready),
        ],
    })
}

fn end(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

/// The time of a condition is that of its last flip: ReplicaSets count availability from it.
fn condition(pod: &Pod, kind: &str, is: bool) -> Value {
    let status = if is { "True" } else { "False" };
    let before = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let before = before.into_iter().flatten().find(|c| c.type_ == kind && c.status == status);
    let since = before.and_then(|condition| condition.last_transition_time.as_ref());
    let since = since.map_or_else(now, |time| time.0);
    json!({"type": kind, "status": status, "lastTransitionTime": since.to_string()})
}

/// In whole seconds, as Kubernetes keeps times.
pub(super) fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).expect("the present is in range")
}
