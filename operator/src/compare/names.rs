//! What is asked: the names that a cluster has by the Kubernetes DNS specification, and a few that do not exist.
//! Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crds::ClusterDNS;
use crds::config::RecordType as Written;
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Questions of one run. A name of each Service of a cluster with 10,000 of them, and its ports, fit.
pub(super) const MAX_QUESTIONS: usize = 100_000;
/// A Service that does not exist: how a server denies.
const NO_SERVICE: &str = "clusterdns-compare-no-such-service";
/// A label below a wildcard or a DNAME, that no other record has.
const BELOW: &str = "clusterdns-compare";
/// The label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// One question of class IN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    /// In lower case.
    pub(super) name: Name,
    pub(super) kind: RecordType,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.kind)
    }
}

/// Questions, each once, in the order in which they came, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Questions {
    list: Vec<Asked>,
    known: BTreeSet<Asked>,
    /// Those that did not fit.
    pub(super) left_out: usize,
}

impl Questions {
    /// Adds one, unless it is there; texts that are no names are no questions.
    pub(super) fn add(&mut self, name: &str, kind: RecordType) {
        if let Some(name) = absolute(name) {
            self.push(Asked { name, kind });
        }
    }

    /// The same for a label below a name. It may begin with a hyphen, as no name of a host does.
    fn add_below(&mut self, label: &str, base: &str, kind: RecordType) {
        let name = absolute(base).and_then(|base| base.prepend_label(label.as_bytes()).ok());
        if let Some(name) = name {
            self.push(Asked { name: name.to_lowercase(), kind });
        }
    }

    /// Adds one, unless it is there.
    pub(super) fn push(&mut self, asked: Asked) {
        if self.known.contains(&asked) {
            return;
        }
        if self.list.len() >= MAX_QUESTIONS {
            self.left_out += 1;
            return;
        }
        self.known.insert(asked.clone());
        self.list.push(asked);
    }

    pub(super) fn list(&self) -> &[Asked] {
        &self.list
    }
}

/// The name of a text, with or without its final dot, in lower case.
pub(super) fn absolute(text: &str) -> Option<Name> {
    let name = Name::from_ascii(format!("{}.", text.trim_end_matches('.'))).ok()?;
    Some(name.to_lowercase())
}

/// Objects that names are made of.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) services: Vec<Service>,
    pub(super) slices: Vec<EndpointSlice>,
    /// Whose hosts and records are asked for.
    pub(super) resources: Vec<ClusterDNS>,
    /// What was not read because there is too much of it, one sentence each.
    pub(super) cut: Vec<String>,
}

/// Adds all names of the cluster with this domain.
pub(super) fn of_cluster(objects: &Objects, domain: &str, to: &mut Questions) {
    zone(domain, to);
    for service in &objects.services {
        of_service(service, domain, to);
    }
    for slice in &objects.slices {
        of_slice(slice, &objects.services, domain, to);
    }
    for resource in objects.resources.iter().filter(|it| it.spec.domain == domain) {
        of_resource(resource, to);
    }
    // Last: there may be as many as pods, and the names of Services count more.
    for slice in &objects.slices {
        of_pods(slice, domain, to);
    }
}

fn zone(domain: &str, to: &mut Questions) {
    for kind in [RecordType::SOA, RecordType::NS, RecordType::A] {
        to.add(domain, kind);
    }
    to.add(&format!("dns-version.{domain}"), RecordType::TXT);
    to.add(&format!("svc.{domain}"), RecordType::A);
    for kind in [RecordType::A, RecordType::SRV, RecordType::SOA] {
        to.add(&format!("{NO_SERVICE}.default.svc.{domain}"), kind);
    }
}

fn of_service(service: &Service, domain: &str, to: &mut Questions) {
    let Some(base) = base(service, domain) else { return };
    for kind in [RecordType::A, RecordType::AAAA, RecordType::SRV] {
        to.add(&base, kind);
    }
    let Some(spec) = &service.spec else { return };
    for port in spec.ports.iter().flatten() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            to.add(&format!("_{name}._{protocol}.{base}"), RecordType::SRV);
        }
    }
    for ip in spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()) {
        to.add(&reverse(ip), RecordType::PTR);
    }
}

/// Endpoints of headless Services have names of their own.
fn of_slice(slice: &EndpointSlice, services: &[Service], domain: &str, to: &mut Questions) {
    let labels = slice.metadata.labels.as_ref();
    let Some(name) = labels.and_then(|labels| labels.get(SERVICE_NAME)) else { return };
    let is_its = |service: &&Service| {
        service.metadata.name.as_ref() == Some(name)
            && service.metadata.namespace == slice.metadata.namespace
    };
    let Some(service) = services.iter().find(is_its).filter(|it| is_headless(it)) else { return };
    let Some(base) = base(service, domain) else { return };
    for endpoint in &slice.endpoints {
        for text in &endpoint.addresses {
            let Ok(ip) = text.parse::<IpAddr>() else { continue };
            let labels = match &endpoint.hostname {
                Some(hostname) => vec![hostname.clone()],
                None => labels_of(text, ip),
            };
            labels.iter().for_each(|label| to.add_below(label, &base, kind_of(ip)));
            to.add(&reverse(ip), RecordType::PTR);
        }
    }
}

/// An address as a label: as we write it (RR23), and as CoreDNS does, which takes the text of the object (DF14).
fn labels_of(text: &str, ip: IpAddr) -> Vec<String> {
    let theirs = text.to_ascii_lowercase().replace(['.', ':'], "-");
    let mut labels = vec![label_of(ip), theirs];
    labels.dedup();
    labels
}

/// An address as a label of ours (RR23): a hyphen at an end gets a `0`.
pub(super) fn label_of(ip: IpAddr) -> String {
    let label = ip.to_string().replace(['.', ':'], "-");
    let begin = if label.starts_with('-') { "0" } else { "" };
    let end = if label.ends_with('-') { "0" } else { "" };
    format!("{begin}{label}{end}")
}

fn kind_of(ip: IpAddr) -> RecordType {
    if ip.is_ipv4() { RecordType::A } else { RecordType::AAAA }
}

/// What a ClusterDNS adds: names of its hosts, reverse names of their addresses, and its records.
fn of_resource(resource: &ClusterDNS, to: &mut Questions) {
    for host in resource.spec.hosts.iter().flatten() {
        let name = host.name.replacen('*', BELOW, 1);
        to.add(&name, RecordType::A);
        to.add(&name, RecordType::AAAA);
        let reversed = host.reverse && name == host.name;
        let ips = host.addresses.iter().filter(|_| reversed);
        for ip in ips.filter_map(|text| text.parse().ok()) {
            to.add(&reverse(ip), RecordType::PTR);
        }
    }
    for record in resource.spec.records.iter().flatten() {
        let name = record.name.replacen('*', BELOW, 1);
        let kind = match record.record_type {
            Written::A => RecordType::A,
            Written::Aaaa => RecordType::AAAA,
            Written::Cname => RecordType::CNAME,
            Written::Srv => RecordType::SRV,
            Written::Txt => RecordType::TXT,
            // What is below it is led elsewhere.
            Written::Dname => {
                to.add(&format!("{BELOW}.{name}"), RecordType::A);
                continue;
            }
        };
        to.add(&name, kind);
    }
}

/// The pods behind Services have names made of their addresses.
fn of_pods(slice: &EndpointSlice, domain: &str, to: &mut Questions) {
    for endpoint in &slice.endpoints {
        let pod = endpoint.target_ref.as_ref().filter(|it| it.kind.as_deref() == Some("Pod"));
        let namespace =
            pod.and_then(|it| it.namespace.as_ref().or(slice.metadata.namespace.as_ref()));
        let Some(namespace) = namespace else { continue };
        for ip in endpoint.addresses.iter().filter_map(|text| text.parse().ok()) {
            to.add(&format!("{}.{namespace}.pod.{domain}", label_of(ip)), kind_of(ip));
        }
    }
}

fn base(service: &Service, domain: &str) -> Option<String> {
    let name = service.metadata.name.as_deref()?;
    let namespace = service.metadata.namespace.as_deref().unwrap_or("default");
    Some(format!("{name}.{namespace}.svc.{domain}"))
}

fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

fn reverse(ip: IpAddr) -> String {
    Name::from(ip).to_ascii()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn each_object_of_a_cluster_gives_the_names_that_the_specification_gives_it() {
        let service = |name: &str, ip: &str| {
            from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {
                "clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": "http", "port": 80}]}}))
            .unwrap()
        };
        let slice = from_value(json!({
            "metadata": {"name": "x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.1"], "hostname": "db-0"}, {"addresses": ["10.244.0.2"], "targetRef": {"kind": "Pod", "name": "p"}}],
        }))
        .unwrap();
        let objects = Objects {
            services: vec![service("cart", "10.96.0.1"), service("db", "None")],
            slices: vec![slice],
            ..Objects::default()
        };
        let mut questions = Questions::default();
        of_cluster(&objects, "c.example", &mut questions);
        of_cluster(&objects, "c.example", &mut questions);
        let all: Vec<String> = questions.list().iter().map(ToString::to_string).collect();
        assert_eq!(
            all[8..],
            [
                "cart.shop.svc.c.example. A",
                "cart.shop.svc.c.example. AAAA",
                "cart.shop.svc.c.example. SRV",
                "_http._tcp.cart.shop.svc.c.example. SRV",
                "1.0.96.10.in-addr.arpa. PTR",
                "db.shop.svc.c.example. A",
                "db.shop.svc.c.example. AAAA",
                "db.shop.svc.c.example. SRV",
                "_http._tcp.db.shop.svc.c.example. SRV",
                "db-0.db.shop.svc.c.example. A",
                "1.0.244.10.in-addr.arpa. PTR",
                "10-244-0-2.db.shop.svc.c.example. A",
                "2.0.244.10.in-addr.arpa. PTR",
                "10-244-0-2.shop.pod.c.example. A",
            ]
        );
    }

    #[test]
    fn ipv6_endpoints_and_what_a_cluster_dns_adds_have_names_too() {
        let service = json!({"metadata": {"name": "six", "namespace": "data"}, "spec": {"clusterIP": "None"}});
        let target = json!({"kind": "Pod", "name": "p"});
        let slice = json!({
            "metadata": {"name": "x", "namespace": "data", "labels": {"kubernetes.io/service-name": "six"}},
            "addressType": "IPv6",
            "endpoints": [{"addresses": ["fd00:244::66"], "targetRef": target}, {"addresses": ["fd00:244::"]},
                {"addresses": ["::0a:1"], "targetRef": target}],
        });
        let resource = json!({"metadata": {"name": "a"}, "spec": {"domain": "c.example",
            "hosts": [{"name": "*.h.example", "addresses": ["10.0.0.1"]}, {"name": "i.example", "addresses": ["fd00::1"]}],
            "records": [{"name": "t.example", "type": "TXT", "strings": ["x"]}, {"name": "d.example", "type": "DNAME", "target": "e.example"}]}});
        let objects = Objects {
            services: vec![from_value(service).unwrap()],
            slices: vec![from_value(slice).unwrap()],
            resources: vec![from_value(resource).unwrap()],
            ..Objects::default()
        };
        let mut questions = Questions::default();
        of_cluster(&objects, "c.example", &mut questions);
        let all: Vec<String> = questions.list().iter().map(ToString::to_string).collect();
        for expected in [
            "fd00-244--66.six.data.svc.c.example. AAAA",
            "fd00-244--66.data.pod.c.example. AAAA",
            // As we write them, and as CoreDNS does.
            "fd00-244--0.six.data.svc.c.example. AAAA",
            "fd00-244--.six.data.svc.c.example. AAAA",
            "0--a-1.six.data.svc.c.example. AAAA",
            "\\--0a-1.six.data.svc.c.example. AAAA",
            "0--a-1.data.pod.c.example. AAAA",
            "clusterdns-compare.h.example. A",
            "i.example. AAAA",
            "t.example. TXT",
            "clusterdns-compare.d.example. A",
        ] {
            assert!(all.iter().any(|it| it == expected), "{expected}: {all:#?}");
        }
        // Three endpoints, and the host that is no wildcard.
        let pointers = all.iter().filter(|it| it.ends_with("ip6.arpa. PTR")).count();
        assert_eq!(pointers, 4, "{all:#?}");
    }

    #[test]
    fn questions_are_bounded_and_those_beyond_are_counted() {
        let mut questions = Questions::default();
        for number in 0..MAX_QUESTIONS + 3 {
            questions.add(&format!("n{number}.example"), RecordType::A);
        }
        questions.add("a..b", RecordType::A);
        assert_eq!((questions.list().len(), questions.left_out), (MAX_QUESTIONS, 3));
    }
}
