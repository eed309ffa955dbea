//! What the spec asks of a Service that was adopted and does not get, because the operator changes nothing but its selector:
//! fields without effect, and what people do instead.

use std::collections::BTreeSet;

use crds::ClusterDNS;
use crds::without_effect::WithoutEffect;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::ports::{self, Port};
use super::service::{KNOWS_SAME_NODE, distribution};
use crate::names;
use crate::observe::observed::Offers;

/// What the Service that was adopted does not have: the operator changes nothing but its selector. Listeners that clients
/// cannot reach at it, and the pods that they should prefer.
pub fn of_adopted_service(
    dns: &ClusterDNS,
    service: Option<&Service>,
    offers: &Offers,
) -> Vec<WithoutEffect> {
    let is_adopted = dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    let Some(service) = service.filter(|_| is_adopted) else { return Vec::new() };
    let there = || service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let leads_to = |wanted: &Port| {
        there().any(|port| {
            let target = match &port.target_port {
                None => port.port == i32::from(wanted.pod),
                Some(IntOrString::Int(number)) => *number == i32::from(wanted.pod),
                Some(IntOrString::String(name)) => name == wanted.name,
            };
            target && port.protocol.as_deref().unwrap_or("TCP") == wanted.protocol
        })
    };
    let fields = [
        (ports::DNS_TLS, "spec.listeners.tls"),
        (ports::DNS_HTTPS, "spec.listeners.https"),
        (ports::DNS_QUIC, "spec.listeners.quic"),
    ];
    let wanted = ports::of(&dns.spec);
    let missing = wanted.iter().filter(|port| !leads_to(port));
    let field = |port: &Port| fields.iter().find(|(name, _)| *name == port.name);
    missing
        .filter_map(field)
        .map(|(_, field)| WithoutEffect {
            field: (*field).to_owned(),
            instead: "the adopted Service has no port that leads to it, and the operator leaves its ports as they are: add one there".into(),
        })
        .chain(of_distribution(dns, service, offers))
        .collect()
}

/// Fields for which the adopted Service had what they need when it was seen last, and has it no more: another client, such as
/// `kubeadm upgrade`, replaced its ports.
pub fn lost_from_adopted_service(
    dns: &ClusterDNS,
    before: &Service,
    now: &Service,
    offers: &Offers,
) -> Vec<String> {
    let without = |service| of_adopted_service(dns, Some(service), offers).into_iter();
    let had_none: BTreeSet<String> = without(before).map(|it| it.field).collect();
    without(now).map(|it| it.field).filter(|field| !had_none.contains(field)).collect()
}

/// The pods that clients prefer, where the adopted Service says something else. Also where `scaling.perNode` implies it:
/// people pay a pod on each node for that.
fn of_distribution(dns: &ClusterDNS, service: &Service, offers: &Offers) -> Option<WithoutEffect> {
    let written = dns.spec.service.as_ref().and_then(|service| service.traffic_distribution);
    let is_per_node = dns.spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some());
    let wanted = distribution(written, is_per_node, offers.minor)?;
    let there = service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref());
    // The same as PreferSameZone, by its older name.
    let there = if offers.minor >= KNOWS_SAME_NODE && there == Some("PreferClose") {
        Some("PreferSameZone")
    } else {
        there
    };
    if there == Some(wanted) {
        return None;
    }
    let why = if written.is_some() { "" } else { "scaling.perNode implies PreferSameNode, and " };
    let field = "spec.service.trafficDistribution".to_owned();
    let instead = format!("{why}{}", patched_by_people(&names::service(dns), wanted)).into();
    Some(WithoutEffect { field, instead })
}

/// How people set the field of an adopted Service that the operator does not set.
pub fn patched_by_people((namespace, name): &(String, String), distribution: &str) -> String {
    format!(
        "the operator leaves the adopted Service as it is: kubectl -n {namespace} patch service {name} -p \
         '{{\"spec\":{{\"trafficDistribution\":\"{distribution}\"}}}}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, fields};

    #[test]
    fn o18_listeners_for_which_the_adopted_service_has_no_port_are_named() {
        let spec = "{service: {adopt: true}, listeners: {tls: {certificate: {name: a}}, quic: {certificate: {name: a}}}}";
        let service = |ports: &str| -> Service {
            let text = format!("{{metadata: {{name: kube-dns}}, spec: {{ports: [{ports}]}}}}");
            serde_saphyr::from_str(&text).unwrap()
        };
        let port = "{name: dns, port: 53, protocol: UDP, targetPort: 53}";
        let offers = Offers::default();
        for (ports, expected) in [
            (port, &["listeners.tls", "listeners.quic"][..]),
            ("{name: a, port: 853}", &["listeners.quic"]),
            ("{name: a, port: 853, protocol: UDP, targetPort: dns-quic}", &["listeners.tls"]),
            ("{name: a, port: 8853, targetPort: 853}, {name: b, port: 853, protocol: UDP}", &[]),
        ] {
            let found = of_adopted_service(&dns(spec), Some(&service(ports)), &offers);
            assert_eq!(fields(&found), expected, "{ports}");
        }
        assert!(of_adopted_service(&dns(spec), None, &offers).is_empty());
        let own = "{listeners: {tls: {certificate: {name: a}}}}";
        assert!(of_adopted_service(&dns(own), Some(&service(port)), &offers).is_empty());
    }

    #[test]
    fn o18_the_preferred_pods_that_the_adopted_service_does_not_have_are_named() {
        let service = |distribution: &str| -> Service {
            let text = format!("{{metadata: {{name: kube-dns}}, spec: {{{distribution}}}}}");
            serde_saphyr::from_str(&text).unwrap()
        };
        let (same_zone, same_node) =
            ("trafficDistribution: PreferSameZone", "trafficDistribution: PreferSameNode");
        let (close, per_node) = ("trafficDistribution: PreferClose", "scaling: {perNode: {}}");
        for (written, scaling, there, minor, expected) in [
            ("", "", "", 34, None),
            ("", "", same_zone, 34, None),
            (same_zone, "", "", 34, Some("PreferSameZone")),
            (same_zone, "", same_node, 34, Some("PreferSameZone")),
            (same_zone, "", same_zone, 34, None),
            (same_zone, "", close, 34, None),
            (same_zone, "", close, 33, None),
            ("", per_node, "", 34, Some("PreferSameNode")),
            ("", per_node, same_node, 34, None),
            ("", per_node, close, 34, Some("PreferSameNode")),
            ("", per_node, close, 33, None),
            ("", per_node, "", 33, Some("PreferClose")),
            (same_node, per_node, "", 34, Some("PreferSameNode")),
        ] {
            let offers = Offers { minor, ..Offers::default() };
            let found = |adopt: bool| {
                let spec = format!("{{service: {{adopt: {adopt}, {written}}}, {scaling}}}");
                of_adopted_service(&dns(&spec), Some(&service(there)), &offers)
            };
            let what = format!("{written} {scaling} {there} {minor}");
            assert!(found(false).is_empty(), "{what}");
            let expected = expected.map(|value| {
                format!("patch service kube-dns -p '{{\"spec\":{{\"trafficDistribution\":\"{value}\"}}}}'")
            });
            let found = found(true);
            assert_eq!(fields(&found).len(), usize::from(expected.is_some()), "{what}: {found:?}");
            for (row, expected) in found.iter().zip(expected) {
                assert_eq!(row.field, "spec.service.trafficDistribution");
                assert!(row.instead.ends_with(&expected), "{what}: {}", row.instead);
                let is_implied = row.instead.starts_with("scaling.perNode implies");
                assert_eq!(is_implied, written.is_empty(), "{what}: {}", row.instead);
            }
        }
    }
}
