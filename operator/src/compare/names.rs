//! What is asked: the names that a cluster has by the Kubernetes DNS specification, and a few that do not exist.
//! Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

use crds::ClusterDNS;
use crds::config::RecordType as Written;
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::names::SERVICE_NAME;

/// Questions of one run. A name of each Service of a cluster with 10,000 of them, and its ports, fit.
pub(super) const MAX_QUESTIONS: usize = 100_000;
/// A Service that does not exist: how a server denies.
const NO_SERVICE: &str = "clusterdns-compare-no-such-service";
/// A label below a wildcard or a DNAME, that no other record has.
const BELOW: &str = "clusterdns-compare";

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
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Questions {
    list: Vec<Asked>,
    known: BTreeSet<Asked>,
    /// Those that did not fit.
    pub(super) left_out: usize,
}

impl Questions {
    /// Adds one, unless it is there; texts that are no names are no questions.
    pub(super) fn add(&mut self, name: &str, kind: RecordType) {
        if let Some(asked) = asked(name, kind) {
            self.push(asked);
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

    /// Adds those of another list, and what it left out.
    pub(super) fn append(&mut self, more: Questions) {
        more.list.into_iter().for_each(|asked| self.push(asked));
        self.left_out += more.left_out;
    }

    pub(super) fn list(&self) -> &[Asked] {
        &self.list
    }
}

/// A question for a name, if the text is one.
fn asked(name: &str, kind: RecordType) -> Option<Asked> {
    absolute(name).map(|name| Asked { name, kind })
}

/// The same for a label below a name. It may begin with a hyphen, as no name of a host does.
fn asked_below(label: &str, base: &str, kind: RecordType) -> Option<Asked> {
    let name = absolute(base)?.prepend_label(label.as_bytes()).ok()?;
    Some(Asked { name: name.to_lowercase(), kind })
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

/// Adds all names of the cluster with this domain. Namespaces take turns: who may edit one can give it more names than can be
/// asked, and takes no place of the others.
pub(super) fn of_cluster(objects: &Objects, domain: &str, to: &mut Questions) {
    zone(domain, to);
    let namespaces = by_namespace(objects);
    by_turns(namespaces.values().map(|it| it.names(domain)), to);
    for resource in objects.resources.iter().filter(|it| it.spec.domain == domain) {
        of_resource(resource, to);
    }
    // Last: there may be as many as pods, and the names of Services count more.
    by_turns(namespaces.values().map(|it| it.pods(domain)), to);
}

/// The objects of one namespace.
#[derive(Default)]
struct InNamespace<'a> {
    services: Vec<&'a Service>,
    headless: HashMap<&'a str, &'a Service>,
    slices: Vec<&'a EndpointSlice>,
}

fn by_namespace(objects: &Objects) -> BTreeMap<Option<&str>, InNamespace<'_>> {
    let mut all: BTreeMap<Option<&str>, InNamespace<'_>> = BTreeMap::new();
    for service in &objects.services {
        let own = all.entry(service.metadata.namespace.as_deref()).or_default();
        own.services.push(service);
        if let Some(name) = service.metadata.name.as_deref().filter(|_| is_headless(service)) {
            own.headless.entry(name).or_insert(service);
        }
    }
    for slice in &objects.slices {
        all.entry(slice.metadata.namespace.as_deref()).or_default().slices.push(slice);
    }
    all
}

impl<'a> InNamespace<'a> {
    /// The names of its Services, and of the endpoints of those that are headless.
    fn names(&'a self, domain: &'a str) -> impl Iterator<Item = Asked> + 'a {
        let services = self.services.iter().flat_map(move |service| of_service(service, domain));
        let slices = self.slices.iter().flat_map(move |slice| {
            let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
            let service = name.and_then(|name| self.headless.get(name.as_str()));
            service.map(|service| of_slice(slice, service, domain)).unwrap_or_default()
        });
        services.chain(slices)
    }

    fn pods(&'a self, domain: &'a str) -> impl Iterator<Item = Asked> + 'a {
        self.slices.iter().flat_map(move |slice| of_pods(slice, domain))
    }
}

/// One of each, until all are there.
fn by_turns<I: Iterator<Item = Asked>>(all: impl Iterator<Item = I>, to: &mut Questions) {
    let mut left: Vec<I> = all.collect();
    while !left.is_empty() {
        left.retain_mut(|questions| questions.next().map(|asked| to.push(asked)).is_some());
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

fn of_service(service: &Service, domain: &str) -> Vec<Asked> {
    let Some(base) = base(service, domain) else { return Vec::new() };
    let types = [RecordType::A, RecordType::AAAA, RecordType::SRV];
    let mut all: Vec<Asked> = types.into_iter().filter_map(|kind| asked(&base, kind)).collect();
    let Some(spec) = &service.spec else { return all };
    for port in spec.ports.iter().flatten() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            all.extend(asked(&format!("_{name}._{protocol}.{base}"), RecordType::SRV));
        }
    }
    for ip in spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()) {
        all.extend(asked(&reverse(ip), RecordType::PTR));
    }
    all
}

/// Endpoints of headless Services have names of their own.
fn of_slice(slice: &EndpointSlice, service: &Service, domain: &str) -> Vec<Asked> {
    let Some(base) = base(service, domain) else { return Vec::new() };
    let mut all = Vec::new();
    for endpoint in &slice.endpoints {
        for text in &endpoint.addresses {
            let Ok(ip) = text.parse::<IpAddr>() else { continue };
            let labels = match &endpoint.hostname {
                Some(hostname) => vec![hostname.clone()],
                None => labels_of(text, ip),
            };
            all.extend(labels.iter().filter_map(|label| asked_below(label, &base, kind_of(ip))));
            all.extend(asked(&reverse(ip), RecordType::PTR));
        }
    }
    all
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
            // CoreDNS rewrites a question and has no alias: only what is behind it is the same (RR77).
            Written::Cname => {
                to.add(&name, RecordType::A);
                to.add(&name, RecordType::AAAA);
                continue;
            }
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
fn of_pods(slice: &EndpointSlice, domain: &str) -> Vec<Asked> {
    let mut all = Vec::new();
    for endpoint in &slice.endpoints {
        let pod = endpoint.target_ref.as_ref().filter(|it| it.kind.as_deref() == Some("Pod"));
        let namespace =
            pod.and_then(|it| it.namespace.as_ref().or(slice.metadata.namespace.as_ref()));
        let Some(namespace) = namespace else { continue };
        for ip in endpoint.addresses.iter().filter_map(|text| text.parse().ok()) {
            all.extend(asked(&format!("{}.{namespace}.pod.{domain}", label_of(ip)), kind_of(ip)));
        }
    }
    all
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
mod tests;
