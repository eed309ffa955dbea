//! The Kubernetes DNS specification 1.1.0 as code: which names exist below the cluster domain and
//! what each is (docs/dns.md §3.1). Each function names its section of the specification, or says that it is an
//! extension (§3 there). NXDOMAIN for names of the cluster is decided here: a [`Lookup`] without a node; `route` decides
//! before whether an extra record has the name, and it decides for reverse names and special-use names.

use alloc::sync::Arc;

use crate::decide::federations::{Federated, federated};
use crate::decide::found::Found;
use crate::decide::reverse::{Claims, is_held_by};
use crate::object::Protocol;
use crate::records::endpoints::{EndpointName, PortFilter, Presence};
use crate::records::extra::{ExtraOwner, ExtraPointers};
use crate::records::{Kind, Needs, PortName, Records, ServiceEntry, ServiceObject};
use crate::settings::PodRecords;
use crate::wire::address::{Address, dashed};
use crate::wire::dname::Dname;
use crate::wire::labels::Labels;
use crate::wire::name::Name;

/// The kind of an existing name, which decides the records it has.
#[derive(Clone, Copy)]
pub(crate) enum Node<'r, 'q> {
    /// The apex of a zone of ours, with SOA and NS.
    Apex,
    /// An empty non-terminal: a name that only has names below it.
    EmptyNonTerminal,
    /// `ns.dns.Z`.
    NameServer,
    /// `dns-version.Z` (specification §2.2).
    Version,
    /// A ClusterIP Service (RR13-RR16).
    ClusterIp(&'r ServiceEntry, &'r ServiceObject),
    /// A named port of one (RR30), and the places of its ports in the list of the Service.
    ClusterIpPort(&'r ServiceEntry, &'r ServiceObject, &'r [u16]),
    /// A headless Service with published endpoints (RR17).
    Headless(&'r ServiceEntry),
    /// A named port of one (RR31).
    HeadlessPort(&'r ServiceEntry, PortName<'q>),
    /// An endpoint name (RR8).
    Endpoint(&'r ServiceEntry, EndpointName<'q>),
    /// A name that is an alias: ExternalName, or a CNAME among the extra records.
    Alias(&'r Arc<Name>, u32),
    /// A name below a DNAME among the extra records (RR85).
    Dname(&'r Arc<Dname>),
    /// A name of a federation (RR95): an alias, whose end is replaced as that DNAME would do it.
    Federated(&'r Arc<Dname>),
    /// A pod name (§3.6).
    PodAddress(Address),
    /// An owner of extra records (§3.9).
    Extra(&'r ExtraOwner),
    /// The reverse name of a cluster IP, and whose it is (RR60).
    ClusterIpPointer(&'r ServiceEntry),
    /// A reverse name with PTRs of endpoints, and who may have them.
    Pointers(Claims<'r>),
    /// A reverse name with PTRs from extra records only (RR64).
    ExtraPointers(&'r ExtraPointers),
    /// `localhost.` or below (A40).
    Localhost,
    /// The reverse name of a loopback address (A41).
    LocalhostPointer,
    /// A loop probe of ours, below `clusterdns-loop.` (A43), with the label in front of our number.
    LoopProbe(&'q [u8]),
}

/// The result of a lookup, and which data must be complete for it to be true (§4.4).
pub(crate) struct Lookup<'r, 'q> {
    /// `None`: the name does not exist. That is NXDOMAIN once the data of `needs` is complete.
    pub(crate) node: Option<Node<'r, 'q>>,
    pub(crate) needs: Needs,
}

impl<'r, 'q> Lookup<'r, 'q> {
    pub(crate) fn found(node: Node<'r, 'q>, needs: Needs) -> Self {
        Lookup { node: Some(node), needs }
    }

    pub(crate) fn missing(needs: Needs) -> Self {
        Lookup { node: None, needs }
    }

    fn found_if(exists: bool, node: Node<'r, 'q>, needs: Needs) -> Self {
        Lookup { node: exists.then_some(node), needs }
    }
}

/// A name at or below `Z`, `left` labels below it (A14; specification §2.1: all names are below the cluster domain).
/// Overriding extra records are handled before, in `route`.
pub(crate) fn cluster_name<'r, 'q>(
    records: &'r Records,
    name: &'q Labels,
    left: usize,
    found: &Found<'r>,
) -> Lookup<'r, 'q> {
    let lookup = below_apex(records, name, left, found);
    if lookup.node.is_none()
        && left > 1
        && name.label(left - 1) == b"svc"
        && let Some(federated) = federated(records, name, left)
    {
        return of_federation(federated, lookup.needs);
    }
    if lookup.node.is_none() && records.zone.extra.is_ancestor(name) {
        // RR84: an overriding record lies below this name, so it exists even if Kubernetes has no such name.
        return Lookup::found(Node::EmptyNonTerminal, lookup.needs);
    }
    if lookup.node.is_none() && lookup.needs != Needs::NOTHING {
        // §4.4 note 1: no NXDOMAIN without the Namespaces.
        return Lookup::missing(lookup.needs.and(Needs::NAMESPACES));
    }
    lookup
}

/// An extension (§3.11): `needs` is the data that shows that Kubernetes has no such name.
fn of_federation<'r, 'q>(federated: Federated<'r>, needs: Needs) -> Lookup<'r, 'q> {
    // Whether a Service is missing, and whether one has endpoints.
    let needs = needs.and(Needs::SERVICES).and(Needs::SLICES).and(Needs::NAMESPACES);
    match federated {
        Federated::Federation => Lookup::found(Node::EmptyNonTerminal, Needs::NOTHING),
        Federated::Namespace => Lookup::found(Node::EmptyNonTerminal, needs),
        Federated::To(end) => Lookup::found(Node::Federated(end), needs),
        Federated::TooLong => Lookup::missing(needs),
        Federated::Unplaced => Lookup::missing(needs.and(Needs::LOCATION)),
    }
}

/// The names directly below `Z`: `dns-version` (specification §2.2), `svc`, `pod` and `ns.dns`, which are extensions or
/// empty non-terminals of names that the specification has.
fn below_apex<'r, 'q>(
    records: &'r Records,
    name: &'q Labels,
    left: usize,
    found: &Found<'r>,
) -> Lookup<'r, 'q> {
    if left == 0 {
        return Lookup::found(Node::Apex, Needs::NOTHING);
    }
    match (name.label(left - 1), left) {
        (b"svc" | b"pod" | b"dns", 1) => Lookup::found(Node::EmptyNonTerminal, Needs::NOTHING),
        (b"dns-version", 1) => Lookup::found(Node::Version, Needs::NOTHING),
        (b"dns", 2) if name.label(0) == b"ns" => name_server(records),
        (b"svc", 2) => namespace(records, name),
        (b"svc", 3..=5) => below_namespace(records, name, left, found),
        (b"pod", 2) if records.zone.settings.pods != PodRecords::Disabled => {
            namespace(records, name)
        }
        (b"pod", 3) => pod(records, name),
        _ => Lookup::missing(Needs::NOTHING),
    }
}

/// `ns.dns.Z` exists always (RR3); its addresses may need the Services (RR72). An extension: the specification names no
/// name server.
fn name_server<'r, 'q>(records: &'r Records) -> Lookup<'r, 'q> {
    let needs = match records.zone.service_addresses {
        Some(_) => Needs::NOTHING,
        None => Needs::SERVICES,
    };
    Lookup::found(Node::NameServer, needs)
}

/// `<ns>.svc.Z` and `<ns>.pod.Z` are empty non-terminals (RR5, RR6; RFC 8020): names of the specification (§2.3 to §2.6)
/// are below them.
fn namespace<'r, 'q>(records: &'r Records, name: &Labels) -> Lookup<'r, 'q> {
    let exists = visible_namespace(records, name.range(0, 1)).is_some();
    Lookup::found_if(exists, Node::EmptyNonTerminal, Needs::SERVICES.and(Needs::NAMESPACES))
}

/// The place of a namespace, if clients may see it (N40): an extension, the specification shows all of them.
fn visible_namespace(records: &Records, label: &[u8]) -> Option<u32> {
    let slot = records.namespace(label)?;
    records.namespaces.get(slot)?.visible.then_some(slot)
}

/// A Service (RR7) and the names below it (RR8-RR10): specification §2.3 with a cluster IP, §2.4 headless, §2.5
/// ExternalName.
fn below_namespace<'r, 'q>(
    records: &'r Records,
    name: &'q Labels,
    left: usize,
    found: &Found<'r>,
) -> Lookup<'r, 'q> {
    let needs = Needs::of_service(&records.zone);
    let known = found.service(records, name.range(left - 3, left - 1));
    let Some((entry, object)) = known.and_then(|entry| Some((entry, records.visible(entry)?)))
    else {
        return Lookup::missing(needs);
    };
    match &object.kind {
        Kind::ClusterIp(_) => cluster_ip(entry, object, records, name, left, needs),
        Kind::Headless => headless(entry, records, name, left, needs.and(Needs::SLICES)),
        Kind::ExternalName(target) if left == 3 => {
            let alias = Node::Alias(target, records.zone.settings.ttl_s);
            Lookup::found(alias, Needs::of_alias(&records.zone))
        }
        // RR49; an unserved Service is not visible.
        Kind::ExternalName(_) | Kind::Unserved => Lookup::missing(Needs::of_alias(&records.zone)),
    }
}

/// Specification §2.3: A, AAAA (§2.3.1) and SRV (§2.3.2) of a Service with cluster IPs. Its endpoint names are an
/// extension (RR8).
fn cluster_ip<'r, 'q>(
    entry: &'r ServiceEntry,
    object: &'r ServiceObject,
    records: &'r Records,
    name: &'q Labels,
    left: usize,
    needs: Needs,
) -> Lookup<'r, 'q> {
    match below_service(name, left) {
        Below::Service => Lookup::found(Node::ClusterIp(entry, object), needs),
        Below::Protocol(protocol) => {
            let exists = object.ports.has_named(protocol) || object.ports.is_cut;
            Lookup::found_if(exists, Node::EmptyNonTerminal, needs)
        }
        Below::Port(port) => match port.of(&object.ports) {
            [] => Lookup::found_if(object.ports.is_cut, Node::EmptyNonTerminal, needs),
            places @ [_, ..] => Lookup::found(Node::ClusterIpPort(entry, object, places), needs),
        },
        Below::Endpoint(label) => endpoint(entry, records, label, needs.and(Needs::SLICES)),
        Below::Nothing => Lookup::missing(needs),
    }
}

/// Specification §2.4: A, AAAA (§2.4.1) and SRV (§2.4.2) of a headless Service; NXDOMAIN without a published endpoint.
fn headless<'r, 'q>(
    entry: &'r ServiceEntry,
    records: &'r Records,
    name: &'q Labels,
    left: usize,
    needs: Needs,
) -> Lookup<'r, 'q> {
    if entry.by_address.is_empty() {
        // RR18 (specification §2.4.1): neither it nor a name below it exists.
        return Lookup::missing(needs);
    }
    match below_service(name, left) {
        Below::Service => Lookup::found(Node::Headless(entry), needs),
        Below::Protocol(protocol) => {
            let exists = entry.has_protocol(records, protocol) != Presence::Absent;
            Lookup::found_if(exists, Node::EmptyNonTerminal, needs)
        }
        Below::Port(port) => match entry.presence(records, PortFilter::Named(port)) {
            Presence::Present => Lookup::found(Node::HeadlessPort(entry, port), needs),
            Presence::Absent => Lookup::missing(needs),
            // It may exist: no NXDOMAIN for a name that the limits leave out.
            Presence::Unknown => Lookup::found(Node::EmptyNonTerminal, needs),
        },
        Below::Endpoint(label) => endpoint(entry, records, label, needs),
        Below::Nothing => Lookup::missing(needs),
    }
}

/// The name of an endpoint exists while an endpoint with it is published (RR8; specification §2.4.1).
fn endpoint<'r, 'q>(
    entry: &'r ServiceEntry,
    records: &'r Records,
    label: &'q [u8],
    needs: Needs,
) -> Lookup<'r, 'q> {
    let name = EndpointName::read(label);
    let exists = entry.has_endpoint(records, name);
    Lookup::found_if(exists, Node::Endpoint(entry, name), needs)
}

/// The meaning of a name below a Service, by its shape.
enum Below<'q> {
    Service,
    Endpoint(&'q [u8]),
    /// `_<proto>`: an empty non-terminal above named ports (RR9).
    Protocol(Protocol),
    /// `_<port>._<proto>`: a named port (RR10; specification §2.3.2, §2.4.2).
    Port(PortName<'q>),
    Nothing,
}

/// What a name below a Service asks for: `_port._proto` (specification §2.3.2, §2.4.2) or an endpoint's hostname (§2.4.1).
fn below_service(name: &Labels, left: usize) -> Below<'_> {
    match left {
        3 => Below::Service,
        4 => match name.label(0) {
            [b'_', protocol @ ..] => protocol_of(protocol).map_or(Below::Nothing, Below::Protocol),
            label => Below::Endpoint(label),
        },
        5 => match (name.label(0), name.label(1)) {
            ([b'_', port @ ..], [b'_', protocol @ ..]) if !port.is_empty() => protocol_of(protocol)
                .map_or(Below::Nothing, |protocol| Below::Port(PortName { name: port, protocol })),
            _ => Below::Nothing,
        },
        _ => Below::Nothing,
    }
}

/// `_tcp`, `_udp` or `_sctp`: the `_proto` of SRV names (specification §2.3.2).
fn protocol_of(label: &[u8]) -> Option<Protocol> {
    match label {
        b"tcp" => Some(Protocol::Tcp),
        b"udp" => Some(Protocol::Udp),
        b"sctp" => Some(Protocol::Sctp),
        _ => None,
    }
}

/// A pod name, made of an address (RR11, §3.6): specification §2.6, which calls it deprecated.
fn pod<'r, 'q>(records: &'r Records, name: &Labels) -> Lookup<'r, 'q> {
    let needs = Needs::SERVICES.and(Needs::NAMESPACES);
    let needs = match records.zone.settings.pods {
        PodRecords::Disabled => return Lookup::missing(Needs::NOTHING),
        PodRecords::Insecure => needs,
        PodRecords::Verified => needs.and(Needs::PODS),
    };
    let (Some(namespace), Some(address)) =
        (visible_namespace(records, name.range(1, 2)), dashed(name.label(0)))
    else {
        return Lookup::missing(needs);
    };
    let exists = match records.zone.settings.pods {
        PodRecords::Disabled => false,
        PodRecords::Insecure => true,
        PodRecords::Verified => {
            is_held_by(records, address, namespace, false)
                || is_held_by(records, address, namespace, true)
        }
    };
    Lookup::found_if(exists, Node::PodAddress(address), needs)
}
