//! How what we create is called and labelled. Label selectors never change: they are in a Deployment forever.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crds::ClusterDNS;

/// The field manager that owns the fields that we apply.
pub const FIELD_MANAGER: &str = "clusterdns-operator";
/// The field manager that holds `replicas` while an autoscaler takes it over.
pub const HANDOVER_MANAGER: &str = "clusterdns-operator-handover";
/// Which ClusterDNS an object belongs to; the only key of our matchLabels, and what the switch adds to the selector of
/// an adopted Service.
pub const INSTANCE: &str = "clusterdns.dev/instance";
/// On an adopted Service: whose it is, for an operator that starts after its ClusterDNS has gone.
pub const ADOPTED_BY: &str = "clusterdns.dev/adopted-by";
/// On a ClusterDNS: another value than when its configuration failed has it tried again at once.
pub const RETRY: &str = "clusterdns.dev/retry";
/// On a Secret that listeners may use as their certificate: the right to change the Secret is the right to allow this.
pub const CERTIFICATE: &str = "clusterdns.dev/certificate";
/// On pods whose ServiceAccount was deleted and made again: the uid of the one that they have.
pub const SERVICE_ACCOUNT: &str = "clusterdns.dev/service-account";
/// The rate of `clusterdns_queries_total` of a pod, as a metrics adapter must call it.
pub const QUERIES_PER_SECOND: &str = "clusterdns_queries_per_second";
/// Label of every object that we create; its value names the operator.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of an EndpointSlice: its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a pod and of its ReplicaSet: the template of their Deployment.
pub const TEMPLATE_HASH: &str = "pod-template-hash";

/// The name of every child of a ClusterDNS except the Service.
pub fn child(instance: &str) -> String {
    format!("clusterdns-{instance}")
}

/// Namespace and name of the Service that a ClusterDNS names.
pub fn service(dns: &ClusterDNS) -> (String, String) {
    let service = dns.spec.service.clone().unwrap_or_default();
    (service.namespace, service.name)
}

/// The name of the PTR of an address (RFC 1035 §3.5, RFC 3596 §2.5), without the last dot.
pub fn reverse(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let nibbles = ip.octets().into_iter().rev().flat_map(|octet| [octet & 15, octet >> 4]);
            let labels: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

/// Labels of everything we create for a ClusterDNS.
pub fn labels(instance: &str) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    [
        label(INSTANCE, instance),
        label(MANAGED_BY, FIELD_MANAGER),
        label("app.kubernetes.io/name", "clusterdns"),
        label("app.kubernetes.io/instance", instance),
        label("app.kubernetes.io/component", "dataplane"),
    ]
    .into()
}

/// The selector of our workload and of our own Service.
pub fn selector(instance: &str) -> BTreeMap<String, String> {
    [(INSTANCE.to_owned(), instance.to_owned())].into()
}
