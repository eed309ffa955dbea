//! What kstatus, and so Flux, Argo CD's fallback and `kubectl`-like waiters, computes for a custom resource: a port of its
//! generic rules. The tests beside the operator's status read this same file.

use serde_json::Value;

/// The states of kstatus (sigs.k8s.io/cli-utils).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    /// It is as its spec says.
    Current,
    /// It is not yet as its spec says.
    InProgress,
    /// It needs a person or another change.
    Failed,
    /// It is being deleted.
    Terminating,
}

/// Of an object as the API server returns it.
pub fn kstatus(object: &Value) -> Kstatus {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Kstatus::Terminating;
    }
    let observed = &object["status"]["observedGeneration"];
    if !observed.is_null() && *observed != object["metadata"]["generation"] {
        return Kstatus::InProgress;
    }
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    // The first of the two that is true, in the order in which they are listed.
    for condition in conditions.clone().filter(|condition| condition["status"] == "True") {
        match condition["type"].as_str() {
            Some("Reconciling") => return Kstatus::InProgress,
            Some("Stalled") => return Kstatus::Failed,
            Some(_) | None => {}
        }
    }
    match conditions.into_iter().find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => Kstatus::Current,
        Some(_) => Kstatus::InProgress,
        // An object without conditions counts as current. That is why ours has conditions from the first moment.
        None => Kstatus::Current,
    }
}
