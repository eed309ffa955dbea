//! Which objects a name rests on, and why one that exists is not shown.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::rules::{self, Rule};
use super::{Hop, MAX_SOURCES, Place, reverse_address};
use crate::decide::schema::Node;
use crate::records::{Kind, PortName, Records, ServiceEntry, ServiceObject};
use crate::settings::PodRecords;
use crate::trees::chunks::Position;
use crate::wire::address::Address;
use crate::wire::dname::Dname;
use crate::wire::labels::Labels;

/// An object as the published records know it. The index has its uid and version
/// ([`Index::identify`](crate::Index::identify)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A Service gave the records.
    Service {
        /// `metadata.namespace`.
        namespace: Box<str>,
        /// `metadata.name`.
        name: Box<str>,
    },
    /// An EndpointSlice; the records know its place and its Service, not its name.
    Slice {
        /// Namespace of the Service and of the slice.
        namespace: Box<str>,
        /// Label `kubernetes.io/service-name` of the slice.
        service: Box<str>,
        /// Where the records have it.
        place: u32,
    },
    /// A Namespace: it exists, or its labels select it.
    Namespace {
        /// `metadata.name`.
        name: Box<str>,
    },
    /// A Pod that has this address; the records know its place, not its name.
    Pod {
        /// `metadata.namespace`.
        namespace: Box<str>,
        /// Where the records have it.
        place: u32,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Service { namespace, name } => write!(f, "Service {namespace}/{name}"),
            Source::Slice { namespace, service, .. } => {
                write!(f, "EndpointSlice of {namespace}/{service}")
            }
            Source::Namespace { name } => write!(f, "Namespace {name}"),
            Source::Pod { namespace, .. } => write!(f, "Pod of {namespace}"),
        }
    }
}

fn text(octets: &[u8]) -> Box<str> {
    String::from_utf8_lossy(octets).into()
}

impl Hop {
    fn add(&mut self, source: Source) {
        if self.sources.contains(&source) {
            return;
        }
        self.source_count += 1;
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(source);
        }
    }

    fn add_service(&mut self, entry: &ServiceEntry) {
        let (name, namespace) = entry.labels();
        self.add(Source::Service { namespace: text(namespace), name: text(name) });
    }

    fn add_slice(&mut self, entry: &ServiceEntry, place: u32) {
        let (service, namespace) = entry.labels();
        self.add(Source::Slice { namespace: text(namespace), service: text(service), place });
    }

    fn why(&mut self, rule: Rule, note: String) {
        self.rules.push(rule);
        self.notes.push(note);
    }
}

/// The objects of a name that exists.
pub(super) fn of_node(records: &Records, node: Node<'_, '_>, hop: &mut Hop) {
    match node {
        Node::ClusterIp(entry, _)
        | Node::ClusterIpPort(entry, ..)
        | Node::ClusterIpPointer(entry) => {
            hop.add_service(entry);
        }
        Node::Headless(entry) => with_slices(records, entry, None, hop),
        Node::HeadlessPort(entry, port) => with_slices(records, entry, Some(port), hop),
        Node::Endpoint(entry, name) => {
            let rows = entry.endpoint_rows(records, name);
            with_rows(rows.map(|row| (entry, row.slice)), hop);
        }
        Node::Pointers(claims) => with_rows(claims.holders(records), hop),
        Node::Alias(..) | Node::EmptyNonTerminal if hop.place == Place::ClusterZone => {
            of_shape(records, hop);
        }
        Node::PodAddress(address) => of_pod_name(records, address, hop),
        Node::Extra(owner) => {
            let labels = Labels::of(&hop.name);
            if labels.wire() != owner.name.wire() {
                hop.notes.push(format!("the wildcard *.{} matches (RR82)", owner.name));
            }
        }
        Node::Dname(dname) => {
            let Dname { owner, target, .. } = &**dname;
            hop.notes.push(match dname.substitute(hop.name.wire()) {
                Some(_) => format!("the DNAME of {owner} leads to names below {target}"),
                None => format!(
                    "the DNAME of {owner} leads to names below {target}; this one would have more than 255 octets: YXDOMAIN"
                ),
            });
        }
        Node::Federated(end) => of_federation(records, end, hop),
        Node::ExtraPointers(_)
        | Node::Apex
        | Node::NameServer
        | Node::Version
        | Node::Alias(..)
        | Node::EmptyNonTerminal
        | Node::Localhost
        | Node::LocalhostPointer
        | Node::LoopProbe(_) => {}
    }
}

/// Where a name of a federation leads, and the local Service if there is one.
fn of_federation(records: &Records, end: &Dname, hop: &mut Hop) {
    let labels = Labels::of(&hop.name);
    let local = records.service(labels.range(0, 2)).map(|(_, entry)| entry);
    let local = local.and_then(|entry| Some((entry, entry.object.as_ref()?)));
    if let Some((entry, _)) = local {
        hop.add_service(entry);
    }
    let is_alias = matches!(local, Some((_, ServiceObject { kind: Kind::ExternalName(_), .. })));
    hop.notes.push(match (*end.target.wire() == *records.zone.svc, is_alias) {
        (true, true) => {
            "the local Service is an ExternalName, so the name leads to it (RR96)".into()
        }
        (true, false) => "the local Service has an endpoint, so the name leads to it (RR96)".into(),
        (false, _) => format!(
            "no local Service with a published endpoint: the name leads to names below {} (RR97)",
            end.target
        ),
    });
}

/// Rows as Services and slices. Each is added once, since [`Hop::add`] knows only those that are listed.
fn with_rows<'r>(rows: impl Iterator<Item = (&'r ServiceEntry, u32)>, hop: &mut Hop) {
    let (mut services, mut slices) = (BTreeSet::new(), BTreeSet::new());
    for (entry, slice) in rows {
        if services.insert(&entry.wire[..]) {
            hop.add_service(entry);
        }
        if slices.insert(slice) {
            hop.add_slice(entry, slice);
        }
    }
}

fn with_slices(records: &Records, entry: &ServiceEntry, port: Option<PortName<'_>>, hop: &mut Hop) {
    hop.add_service(entry);
    for listed in entry.by_list.from(Position::START) {
        let slice = records.slices.get(listed.slice);
        let has_port =
            |port: PortName<'_>| slice.is_some_and(|slice| !port.of(&slice.ports).is_empty());
        if port.is_none_or(has_port) {
            hop.add_slice(entry, listed.slice);
        }
    }
}

/// Names whose node does not name an object: aliases, and empty non-terminals.
fn of_shape(records: &Records, hop: &mut Hop) {
    let labels = Labels::of(&hop.name);
    let Some(left) = labels.below(records.zone.apex(), records.zone.apex_labels) else { return };
    match left {
        2 => hop.add(Source::Namespace { name: text(labels.label(0)) }),
        3..=5 => {
            if let Some((_, entry)) = records.service(labels.range(left - 3, left - 1)) {
                hop.add_service(entry);
            }
        }
        _ => {}
    }
}

/// The Pods that hold the address, where pod names are verified (RR54).
fn of_pod_name(records: &Records, address: Address, hop: &mut Hop) {
    let labels = Labels::of(&hop.name);
    let namespace = text(labels.label(1));
    hop.add(Source::Namespace { name: namespace.clone() });
    match records.zone.settings.pods {
        PodRecords::Disabled => {}
        PodRecords::Insecure => hop.notes.push(
            "podRecords is Insecure: any address has a name in every visible namespace (RR53)"
                .into(),
        ),
        PodRecords::Verified => {
            let Some(slot) = records.namespace(labels.range(1, 2)) else { return };
            let pods = records.pod_addresses.get(address).iter();
            for (_, pod) in pods.filter(|(_, pod)| pod.namespace == slot) {
                hop.add(Source::Pod { namespace: namespace.clone(), place: pod.pod });
            }
        }
    }
}

/// A namespace publishes the address of a reverse name and has no PTR of it.
pub(super) fn withheld(hop: &mut Hop) {
    let note = "a namespace that publishes the address gets no PTR: the address is a Pod's of another one, or which one owns it cannot be determined";
    hop.why(rules::WITHHELD, note.into());
}

/// Why a name of ours does not exist.
pub(super) fn why_missing(records: &Records, labels: &Labels, hop: &mut Hop) {
    match hop.place {
        Place::ClusterZone => {}
        Place::Reverse => return hidden_cluster_ip(records, labels, hop),
        Place::SpecialUse
        | Place::ExtraRecord
        | Place::Group(_)
        | Place::NoGroup
        | Place::NotConfigured => return,
    }
    let Some(left) = labels.below(records.zone.apex(), records.zone.apex_labels) else { return };
    match (labels.label(left.saturating_sub(1)), left) {
        (b"svc", 2) => missing_namespace(records, labels.range(0, 1), hop),
        (b"svc", 3..=5) => missing_service(records, labels, left, hop),
        (b"pod", 2..) if records.zone.settings.pods == PodRecords::Disabled => {
            hop.why(rules::NO_PODS, "podRecords is Disabled".into());
        }
        (b"pod", 2) => missing_namespace(records, labels.range(0, 1), hop),
        (b"pod", 3) => {
            missing_namespace(records, labels.range(1, 2), hop);
            if hop.notes.is_empty() {
                let what = match crate::wire::address::dashed(labels.label(0)) {
                    None => "the first label is not an address (RR50)",
                    Some(_) => "no Pod of this namespace has the address (RR54)",
                };
                hop.notes.push(what.into());
            }
        }
        _ => hop.rules.push(rules::NO_OTHER_NAME),
    }
}

/// The Service whose cluster IP the address of a reverse name is, although it has no PTR.
fn hidden_cluster_ip(records: &Records, labels: &Labels, hop: &mut Hop) {
    let Some(address) = reverse_address(labels) else { return };
    let first = records.addresses.get(address.into()).first();
    let first = first.filter(|(_, row)| row.is_cluster_ip());
    let Some(entry) = first.and_then(|(_, row)| records.services.get(row.service)) else { return };
    hop.add_service(entry);
    let (name, namespace) = entry.labels();
    let shown = format!("{}/{}", text(namespace), text(name));
    let why = "exposure hides it, or hideEmptyServices while it has no published endpoint";
    hop.why(
        rules::CLUSTER_IP,
        format!("the address is a cluster IP of the Service {shown}, which has no PTR: {why}"),
    );
}

fn missing_namespace(records: &Records, wire: &[u8], hop: &mut Hop) {
    let name = text(wire.get(1..).unwrap_or_default());
    match namespace_hidden_by(records, wire) {
        None => {}
        Some(None) => hop
            .notes
            .push(format!("there is no Namespace {name} and no Service in one of that name")),
        Some(Some(why)) => {
            hop.why(rules::HIDDEN, format!("the Namespace {name} is hidden: {why}"));
            hop.add(Source::Namespace { name });
        }
    }
}

/// `None`: it is visible; `Some(None)`: there is none; else what hides it (N40).
fn namespace_hidden_by(records: &Records, wire: &[u8]) -> Option<Option<&'static str>> {
    let entry = records.namespace(wire).and_then(|slot| records.namespaces.get(slot));
    let Some(entry) = entry else { return Some(None) };
    if entry.visible {
        return None;
    }
    Some(match (entry.is_listed, entry.has_object) {
        (false, _) => Some("it is not in exposure.namespaces"),
        (true, true) => Some("its labels do not match exposure.namespaceSelector"),
        (true, false) if records.zone.selects_namespaces() => {
            Some("exposure.namespaceSelector reads its labels, and there is no such object yet")
        }
        (true, false) => None,
    })
}

fn missing_service(records: &Records, labels: &Labels, left: usize, hop: &mut Hop) {
    missing_namespace(records, labels.range(left - 2, left - 1), hop);
    let wire = labels.range(left - 3, left - 1);
    let shown = format!("{}/{}", text(labels.label(left - 2)), text(labels.label(left - 3)));
    let known = records.service(wire).map(|(_, entry)| entry);
    let Some((entry, object)) = known.and_then(|entry| Some((entry, entry.object.as_ref()?)))
    else {
        hop.notes.push(format!("there is no Service {shown}"));
        return;
    };
    hop.add_service(entry);
    if !object.is_selected {
        let why = format!(
            "the Service {shown} is hidden: its labels do not match exposure.serviceSelector"
        );
        hop.why(rules::HIDDEN, why);
    }
    match &object.kind {
        Kind::Unserved => hop.rules.push(rules::BAD_EXTERNAL_NAME),
        Kind::ExternalName(_) if left > 3 => hop.rules.push(rules::BELOW_EXTERNAL_NAME),
        Kind::Headless if entry.by_address.is_empty() => {
            let slices = entry.slices;
            let note = format!(
                "the Service {shown} is headless and no endpoint of its {slices} slices is published"
            );
            hop.why(rules::EMPTY_HEADLESS, note);
        }
        Kind::ClusterIp(_)
            if records.zone.settings.hide_empty_services && entry.by_address.is_empty() =>
        {
            hop.why(rules::EMPTY_HIDDEN, format!("the Service {shown} has no published endpoint"));
        }
        Kind::ClusterIp(_) | Kind::Headless | Kind::ExternalName(_) if hop.notes.is_empty() => {
            let what = match (left, labels.label(0)) {
                (4, [b'_', ..]) => "has no named port of this protocol (RR9)",
                (5, _) => "has no port of this name (RR10)",
                _ => "has no published endpoint of this name (RR8)",
            };
            hop.notes.push(format!("the Service {shown} {what}"));
        }
        Kind::ClusterIp(_) | Kind::Headless | Kind::ExternalName(_) => {}
    }
}

/// Records of the resource that lose to those of Kubernetes at a reverse name (RR79).
pub(super) fn hidden_pointers(
    records: &Records,
    labels: &Labels,
    node: Option<Node<'_, '_>>,
    hop: &mut Hop,
) {
    if !matches!(node, Some(Node::ClusterIpPointer(_) | Node::Pointers(_))) {
        return;
    }
    let Some(address) = reverse_address(labels) else { return };
    let names: Vec<String> = records
        .zone
        .extra
        .pointers(address.into())
        .into_iter()
        .flat_map(|pointers| &pointers.names)
        .take(MAX_SOURCES)
        .map(|name| format!("{name}"))
        .collect();
    if !names.is_empty() {
        hop.notes.push(format!(
            "records of the resource lose to Kubernetes here (RR79): {}",
            names.join(", ")
        ));
    }
}
