//! Which other Services of a namespace serve DNS, and to whose pods they lead: our pods must not answer beside those of
//! another DNS server. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crds::ClusterDNS;
use crds::defaults::DNS_PORT;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::core::DynamicObject;

use super::possible_labels::PossibleLabels;
use crate::desired::{FOLLOWS_KUBE_DNS, counts_for_own_labels, selects, would_join_another};
use crate::names;
use crate::observe::pods;

/// Other Services with port 53 whose endpoints one reconcile looks at: the oldest. Anyone who edits the namespace can make
/// thousands.
pub(super) const MAX_LOOKED_AT: usize = 32;
/// Of these, Services whose EndpointSlices it reads from the API server, because no watch keeps them whole.
pub(super) const MAX_READ: usize = 4;

/// A Service that counts: its name and selector.
pub(super) type Rival = (String, BTreeMap<String, String>);

/// Services that serve DNS and would lead to pods of this ClusterDNS by the label of kube-dns, or by labels of the Service that it
/// adopts, the oldest first; and how many more there are that are not looked at. `own` is the Service that it names, if it exists.
pub(super) fn rivals(
    services: &[Arc<DynamicObject>],
    own: Option<&Service>,
    dns: &ClusterDNS,
    possible: &PossibleLabels,
) -> (Vec<Rival>, usize) {
    let mut found = Vec::new();
    let (_, own_name) = names::service(dns);
    let adopts = dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    let theirs = own.filter(|_| adopts).and_then(|service| service.spec.as_ref()?.selector.clone());
    let counts = |name: &str, selector: &BTreeMap<String, String>| {
        let joins = |theirs| would_join_another(dns, theirs, name, selector);
        counts_for_own_labels(dns, name, selector) || theirs.as_ref().is_some_and(joins)
    };
    for service in services.iter().filter(|service| serves_dns(service)) {
        let name = service.name_any();
        let Some(selector) = possible.selector(service).filter(|_| name != own_name) else {
            continue;
        };
        if counts(&name, &selector) {
            let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
            found.push((created, name, selector));
        }
    }
    found.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let more = found.len().saturating_sub(MAX_LOOKED_AT);
    found.truncate(MAX_LOOKED_AT);
    (found.into_iter().map(|(_, name, selector)| (name, selector)).collect(), more)
}

/// Can clients ask it for names? It has a clusterIP and port 53: a headless Service for metrics has neither.
pub(super) fn serves_dns(service: &DynamicObject) -> bool {
    let spec = &service.data["spec"];
    let has_address = spec["clusterIP"].as_str().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    has_address && ports.any(|port| port["port"].as_u64() == Some(DNS_PORT.into()))
}

/// Whether the Service of NodeLocal DNSCache, among those of the namespace, leads to pods of ours.
pub(super) fn leads_node_local(
    services: &[Arc<DynamicObject>],
    possible: &PossibleLabels,
    ours: &[Pod],
) -> bool {
    let mut services = services.iter().filter(|service| service.name_any() == FOLLOWS_KUBE_DNS);
    let Some(selector) = services.find_map(|service| possible.selector(service)) else {
        return false;
    };
    ours.iter().any(|pod| pod.metadata.labels.as_ref().is_some_and(|it| selects(&selector, it)))
}

/// By their names, pods of this ClusterDNS.
#[derive(Debug)]
pub(crate) struct Workload {
    name: String,
    /// Workloads of others whose names begin with this one: of `default-2` for `default`.
    longer: Vec<String>,
}

impl Workload {
    pub(crate) fn of(dns: &ClusterDNS, others: &[Arc<ClusterDNS>]) -> Workload {
        let name = names::child(&dns.name_any());
        let others = others.iter().map(|other| names::child(&other.name_any()));
        let longer = others.filter(|other| is_of(other, &name)).collect();
        Workload { name, longer }
    }

    fn has(&self, pod: &str) -> bool {
        is_of(pod, &self.name) && !self.longer.iter().any(|other| is_of(pod, other))
    }
}

fn is_of(pod: &str, workload: &str) -> bool {
    pod.strip_prefix(workload).is_some_and(|rest| rest.starts_with('-'))
}

/// Does any of its endpoints belong to a pod that is not ours, ready or not? One that names no pod does. Slices and pods
/// come by different watches, so a pod of ours that has just come or gone is known by the name of its workload.
pub(super) fn has_other_pods<'a>(
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    ours: &[Pod],
    workload: &Workload,
) -> bool {
    let mut endpoints = slices.into_iter().flat_map(|slice| &slice.endpoints);
    endpoints.any(|endpoint| is_of_others(endpoint, ours, workload))
}

/// The same of one endpoint.
pub(crate) fn is_of_others(endpoint: &Endpoint, ours: &[Pod], workload: &Workload) -> bool {
    let target = endpoint.target_ref.as_ref();
    let uid = target.and_then(|target| target.uid.as_deref());
    let name = target.and_then(|target| target.name.as_deref());
    !name.is_some_and(|name| workload.has(name))
        && !ours.iter().any(|pod| Some(pods::uid(pod)) == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{expose, from, pod};
    use crate::observe::observed::Observed;
    use serde_json::json;

    #[test]
    fn o2_only_a_service_that_clients_can_ask_for_names_serves_dns() {
        let service = |ip: &str, ports: &[u16]| -> DynamicObject {
            let ports: Vec<_> = ports.iter().map(|port| json!({"port": port})).collect();
            from(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"},
                "spec": {"clusterIP": ip, "ports": ports}}))
        };
        assert!(serves_dns(&service("10.96.0.11", &[9153, 53])));
        assert!(serves_dns(&service("fd00::b", &[53])));
        // kube-prometheus-stack makes this one for CoreDNS and kube-dns.
        assert!(!serves_dns(&service("None", &[9153, 10054])));
        assert!(!serves_dns(&service("10.96.0.11", &[9153])));
        assert!(!serves_dns(&service("None", &[53])));
        assert!(!serves_dns(&from(json!({"metadata": {"name": "x"}}))));
    }

    #[test]
    fn k23_of_thousands_of_services_for_dns_the_oldest_few_are_looked_at() {
        let dns = crate::fixtures::dns("{}");
        let service = |name: &str, day: u32, port: u16, selector: serde_json::Value| {
            let created = format!("2026-01-{day:02}T00:00:00Z");
            Arc::new(from(json!({"metadata": {"name": name, "creationTimestamp": created},
                "spec": {"clusterIP": "10.96.0.11", "ports": [{"port": port}], "selector": selector}})))
        };
        let by_label = || json!({"k8s-app": "kube-dns"});
        let mut services: Vec<Arc<DynamicObject>> =
            (0..5_000).map(|n| service(&format!("a{n:04}"), 9, 53, by_label())).collect();
        services.push(service("kube-dns", 1, 53, by_label()));
        services.push(service("kube-dns-upstream", 1, 53, by_label()));
        services.push(service("metrics", 1, 9153, by_label()));
        services.push(service("without", 1, 53, json!({})));
        services.push(service("of-another", 1, 53, json!({"clusterdns.dev/instance": "other"})));
        services.push(service("web", 1, 53, json!({"k8s-app": "kube-dns", "app": "web"})));
        services.push(service("second", 5, 53, by_label()));
        let possible = PossibleLabels::of(&dns, None, None);
        let (found, more) = rivals(&services, None, &dns, &possible);
        assert_eq!((found.len(), more), (MAX_LOOKED_AT, 5_001 - MAX_LOOKED_AT));
        assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("second", "a0000"));
        let other = crate::fixtures::dns("{service: {name: dns}}");
        let possible = PossibleLabels::of(&other, None, None);
        assert!(rivals(&services, None, &other, &possible).0.is_empty(), "its pods lack the label");
    }

    #[test]
    fn o17_node_local_dns_cache_is_known_by_its_service_to_pods_of_ours() {
        let dns = crate::fixtures::dns("{}");
        let possible = PossibleLabels::of(&dns, None, None);
        let service = |name: &str, app: &str| -> Vec<Arc<DynamicObject>> {
            let spec = json!({"clusterIP": "10.96.0.11", "ports": [{"port": 53}], "selector": {"k8s-app": app}});
            vec![Arc::new(from(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}),
            ))]
        };
        let labelled = |app: &str| {
            let mut pod = pod("dns-0", 0, 0);
            pod.metadata
                .labels
                .get_or_insert_default()
                .insert("k8s-app".to_owned(), app.to_owned());
            [pod]
        };
        let leads = |service: &[Arc<DynamicObject>], app: &str| {
            leads_node_local(service, &possible, &labelled(app))
        };
        let upstream = service("kube-dns-upstream", "kube-dns");
        assert!(leads(&upstream, "kube-dns"));
        assert!(!leads(&upstream, "other"), "a ClusterDNS beside that of the cluster");
        assert!(!leads(&service("kube-dns-upstream", "coredns"), "kube-dns"));
        assert!(!leads(&service("kube-dns", "kube-dns"), "kube-dns") && !leads(&[], "kube-dns"));
        assert!(!leads_node_local(&upstream, &possible, &[]), "no pod");
    }

    #[test]
    fn s14_services_that_share_pods_with_an_adopted_one_are_looked_at() {
        let selector = || json!({"k8s-app": "kube-dns"});
        let spec = |selector| json!({"clusterIP": "10.96.0.11", "ports": [{"port": 53}], "selector": selector});
        let services = ["kube-dns", "test"].map(|name| {
            Arc::new(from(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": spec(selector())}),
            ))
        });
        let found = |dns: &str, own: serde_json::Value| {
            let (dns, own) = (crate::fixtures::dns(dns), from(json!({"spec": spec(own)})));
            let possible = PossibleLabels::of(&dns, Some(&own), None);
            let found = rivals(&services, Some(&own), &dns, &possible).0;
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let test = "{service: {name: test, adopt: true}}";
        assert_eq!(found(test, selector()), ["kube-dns"]);
        assert!(found(test, json!({"k8s-app": "test"})).is_empty());
        assert!(found("{service: {name: test}}", selector()).is_empty(), "it is not adopted");
    }

    #[test]
    fn o2_a_service_has_other_pods_when_one_endpoint_is_not_ours() {
        let mut observed = Observed { pods: vec![pod("dns-0", 0, 0)], ..Observed::default() };
        expose(&mut observed);
        let workload = Workload::of(&crate::fixtures::dns("{}"), &[]);
        assert!(!has_other_pods(&observed.slices, &observed.pods, &workload));
        assert!(!has_other_pods([], &observed.pods, &workload));
        assert!(has_other_pods(&observed.slices, &[pod("dns-1", 0, 0)], &workload));
    }

    #[test]
    fn o2_a_pod_of_ours_that_has_gone_is_no_other_pod_while_its_endpoint_stays() {
        let slice = |name: &str| -> EndpointSlice {
            from(json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.244.0.9"],
                "targetRef": {"kind": "Pod", "name": name, "uid": "gone"}}]}))
        };
        let named = |name: &str| {
            let mut dns = crate::fixtures::dns("{}");
            dns.metadata.name = Some(name.to_owned());
            dns
        };
        let others = ["default-2", "def", "default2"].map(|name| Arc::new(named(name)));
        let workload = Workload::of(&named("default"), &others);
        let has_others = |name: &str| has_other_pods(&[slice(name)], &[], &workload);
        assert!(!has_others("clusterdns-default-7d9c-x2x"));
        assert!(has_others("coredns-5d78c9869d-abcde"));
        assert!(has_others("clusterdns-defaulted"));
        assert!(has_others("clusterdns-default-2-7d9c-x2x"), "of the ClusterDNS default-2");
        assert!(!has_others("clusterdns-default-2x7d9c-x2x"));
    }
}
