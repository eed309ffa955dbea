//! Whether the ports of an existing Service lead to ports on which our pods answer.

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::desired::ports::Port;

/// The first port of the Service that leads nowhere, and what to do about it.
pub(super) fn unserved(service: &ServiceSpec, served: &[Port]) -> Option<String> {
    service.ports.iter().flatten().find_map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
        if served.iter().any(|ours| ours.is_target(&target, protocol)) {
            return None;
        }
        let target = match target {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(name) => name,
        };
        let ours = served.iter().map(|port| format!("{} {}/{}", port.name, port.pod, port.protocol));
        Some(format!(
            "its port {} leads to port {target}/{protocol} of a pod, and ours serve {}: change that port, or \
             spec.service.podPort or spec.listeners",
            port.port,
            ours.collect::<Vec<_>>().join(", ")
        ))
    })
}
