//! The objects as the API server and the slice controller would write them, with everything that DNS passes over:
//! what a list costs depends on that.

use serde_json::{Value, json};

use super::{Cluster, Kind};

/// Where the names of pods of a Deployment end.
const POD_HASH: &str = "7d4b9c6f5";
const NODES: usize = 500;

impl Cluster {
    pub(crate) fn namespace_objects(&self) -> Vec<Value> {
        let names = (0..self.namespaces).map(|number| self.namespace(number * 100));
        names
            .map(
                |name| json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}),
            )
            .collect()
    }

    pub fn service_object(&self, service: usize) -> Value {
        let name = self.name(service);
        let port = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": port + 8000});
        let mut spec = json!({
            "ports": [port("http", 80)],
            "selector": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name},
        });
        match self.kind(service) {
            Kind::ClusterIp => spec["clusterIP"] = self.address(service).to_string().into(),
            Kind::TwoPorts => {
                spec["clusterIP"] = self.address(service).to_string().into();
                spec["ports"] = json!([port("http", 80), port("grpc", 81)]);
            }
            Kind::Headless { .. } => spec["clusterIP"] = "None".into(),
            Kind::ExternalName => {
                spec = json!({"type": "ExternalName", "externalName": self.external(service)});
            }
        }
        json!({"kind": "Service", "apiVersion": "v1", "spec": spec, "metadata": {
            "name": name, "namespace": self.namespace(service),
            "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/instance": name, "helm.sh/chart": "service-1.2.3"},
            "annotations": {"meta.helm.sh/release-name": name,
                "meta.helm.sh/release-namespace": self.namespace(service)},
        }})
    }

    /// Its EndpointSlice; an alias has none.
    pub fn slice_object(&self, service: usize) -> Option<Value> {
        let kind = self.kind(service);
        if kind == Kind::ExternalName {
            return None;
        }
        let name = self.name(service);
        let mut ports = vec![json!({"name": "http", "port": 8080, "protocol": "TCP"})];
        if kind == Kind::TwoPorts {
            ports.push(json!({"name": "grpc", "port": 8081, "protocol": "TCP"}));
        }
        let mut labels = json!({"kubernetes.io/service-name": name, "app.kubernetes.io/name": name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
        if matches!(kind, Kind::Headless { .. }) {
            labels["service.kubernetes.io/headless"] = "".into();
        }
        Some(json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"name": self.slice_name(service), "namespace": self.namespace(service),
                "generateName": format!("{name}-"), "labels": labels,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name,
                    "controller": true, "blockOwnerDeletion": true, "uid": uid(1, service)}]},
            "ports": ports,
            "endpoints": self.endpoint_objects(service),
        }))
    }

    /// The endpoints of its slice as they are now.
    pub fn endpoint_objects(&self, service: usize) -> Vec<Value> {
        let kind = self.kind(service);
        let is_named = kind == Kind::Headless { named: true };
        (0..self.endpoints_of(service))
            .map(|at| {
                let pod = match is_named {
                    true => self.endpoint_label(service, at),
                    false => format!("{}-{POD_HASH}-{at:05x}", self.name(service)),
                };
                let mut endpoint = json!({
                    "addresses": [self.endpoint(service, at).to_string()],
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                    "nodeName": format!("node-{}", (service + at) % NODES),
                    "zone": format!("zone-{}", (service + at) % 3),
                    "targetRef": {"kind": "Pod", "name": pod, "namespace": self.namespace(service),
                        "uid": uid(2, service * 100 + at)},
                });
                if is_named {
                    endpoint["hostname"] = pod.into();
                }
                endpoint
            })
            .collect()
    }

    /// The name of its slice.
    pub fn slice_name(&self, service: usize) -> String {
        format!("{}-x7k2p", self.name(service))
    }

    /// What an alias leads to.
    pub(crate) fn external(&self, service: usize) -> String {
        format!("service-{service}.example.com")
    }
}

fn uid(kind: u16, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}
