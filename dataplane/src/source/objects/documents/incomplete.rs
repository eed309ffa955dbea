//! What a Service of a file must say itself, because no API server has completed or refused it.

use dataplane_core::ServiceKind;

use crate::source::objects::slim::ServiceSpec;

/// A `type` that an API server would refuse.
pub(super) fn unknown_type(spec: &ServiceSpec) -> Option<String> {
    match spec.kind.as_deref() {
        None | Some("" | "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName") => None,
        Some(other) => Some(format!(
            "type {other:?} is not ClusterIP, NodePort, LoadBalancer or ExternalName, and is read as ClusterIP; a headless \
             Service has no type of its own, but clusterIP: None"
        )),
    }
}

/// An address that an API server would allocate.
pub(super) fn without_address(spec: &ServiceSpec, kind: &ServiceKind) -> Option<String> {
    if *kind != ServiceKind::ClusterIp(Vec::new()) {
        return None;
    }
    let reason = match spec.external_name.as_deref() {
        Some(name) if !name.is_empty() => {
            "it has externalName, and its type is not ExternalName, so it has no records: write type: ExternalName"
        }
        Some(_) | None => {
            "it needs a clusterIP and has none, so it has no addresses: an API server would allocate one; in a file write \
             spec.clusterIP, such as 10.96.0.20, or None for a headless Service"
        }
    };
    Some(reason.to_owned())
}
