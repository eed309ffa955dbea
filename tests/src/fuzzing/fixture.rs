//! A small cluster in the core with one of everything that is answered in its own way, and the questions of it that
//! are forwarded.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use dataplane_core::{
    Action, Change, DataSource, Endpoint, EndpointNames, Exposure, ExtraData, ExtraRecord, Index,
    Key, Name, Namespace, Object, PodRecords, Protocol, Records, Resource, Service,
    ServiceAddresses, ServiceKind, ServicePort, Settings, Slice, SlicePort, SrvData, Transport,
    Waiting,
};

use crate::in_process::InProcess;

/// The ID of our queries to upstreams.
pub const UPSTREAM_ID: u16 = 0x1001;
/// Endpoints of `big.shop`: more than a datagram holds.
const BIG: u16 = 200;

/// The one cluster of this process, to be asked.
pub fn fixture() -> &'static InProcess {
    static FIXTURE: OnceLock<InProcess> = OnceLock::new();
    FIXTURE.get_or_init(|| InProcess::new(records()))
}

/// A question that is forwarded.
#[derive(Debug)]
pub struct Asked {
    pub packet: Vec<u8>,
    name: &'static str,
}

impl Asked {
    /// What is kept while the upstream is asked.
    ///
    /// # Panics
    /// The core does not forward it.
    pub fn waiting(&self, transport: Transport) -> Waiting {
        match fixture().decide(&self.packet, transport, 0, &mut vec![0; 65_535]) {
            (Action::Forward(forward), _) => forward.keep(),
            (_, reason) => panic!("{} is not forwarded: {reason:?}", self.name),
        }
    }
}

/// Questions that are forwarded: plain, with DO, behind a CNAME of ours, of each way replies are selected.
pub fn relayed_questions() -> &'static [Asked] {
    static QUESTIONS: OnceLock<Vec<Asked>> = OnceLock::new();
    QUESTIONS.get_or_init(|| {
        let asked = |name, qtype, dnssec| Asked { packet: question(name, qtype, dnssec), name };
        vec![
            asked("www.example.org", 1, Some(false)),
            asked("www.example.org", 28, None),
            asked("WWW.example.org", 1, Some(true)),
            asked("outside.shop.svc.cluster.local", 1, Some(false)),
            asked("example.org", 15, Some(false)),
            asked("example.org", 255, Some(true)),
            asked("_sip._tcp.corp.example", 33, Some(false)),
            asked("example.org", 6, None),
        ]
    })
}

/// A query with RD=1; with an OPT of 1232 octets and this DO bit, or without any.
fn question(name: &str, qtype: u16, dnssec: Option<bool>) -> Vec<u8> {
    let mut packet = vec![0x47, 0x31, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(dnssec.is_some())];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1]);
    if let Some(dnssec) = dnssec {
        packet.extend([0, 0, 41, 0x04, 0xd0, 0, 0, u8::from(dnssec) << 7, 0, 0, 0]);
    }
    packet
}

fn records() -> Arc<Records> {
    let mut index = Index::new(settings());
    for object in objects() {
        let applied = index.apply(Change::Apply(object));
        assert!(applied.problems.is_empty(), "{:?}", applied.problems);
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1_760_000_000);
    index.records()
}

fn name(text: &str) -> Name {
    Name::from_text(text).expect("a name")
}

pub(super) fn settings() -> Settings {
    Settings {
        cluster_domain: name("cluster.local"),
        ttl_s: 5,
        pods: PodRecords::Insecure,
        endpoint_names: EndpointNames::Address,
        hide_empty_services: false,
        reverse_cidrs: ["10.96.0.0/12", "fd00:96::/112"].map(|c| c.parse().expect("range")).into(),
        service_addresses: ServiceAddresses::Fixed {
            addresses: addresses(&["10.96.0.10", "fd00:96::a"]),
            service: None,
        },
        exposure: Exposure::default(),
        federations: Vec::new(),
        extra: extra(),
        stub_domains: vec![name("corp.example")],
        withheld_types: Vec::new(),
        default_upstreams: true,
        udp_payload_size: 1232,
        chaos: true,
        nsid: true,
        clients: Vec::new(),
        cache_entries: 16_384,
    }
}

fn extra() -> Vec<ExtraRecord> {
    let record = |owner, wildcard, override_cluster_zone, data| {
        let owner = name(owner);
        ExtraRecord { owner, wildcard, ttl_s: 30, data, reverse: true, override_cluster_zone }
    };
    let srv = SrvData { priority: 1, weight: 2, port: 389, target: name("host.corp.example") };
    let own = SrvData { target: name("db.shop.svc.cluster.local"), ..srv.clone() };
    let text: Vec<Box<[u8]>> = vec![b"one".as_slice().into(), vec![b'x'; 255].into()];
    vec![
        record("host.corp.example", false, false, addresses_of(&["10.20.0.5", "fd00:20::5"])),
        record("apps.corp.example", true, false, addresses_of(&["10.20.0.80"])),
        record("out.corp.example", false, false, ExtraData::Cname(name("www.example.org"))),
        record(
            "moved.corp.example",
            false,
            false,
            ExtraData::Dname(name("shop.svc.cluster.local")),
        ),
        record("gone.corp.example", false, false, ExtraData::Dname(name("example.org"))),
        record(
            "old.shop.svc.cluster.local",
            false,
            true,
            ExtraData::Dname(name("moved.corp.example")),
        ),
        record("note.corp.example", false, false, ExtraData::Txt(text)),
        record("_ldap._tcp.corp.example", false, false, ExtraData::Srv(vec![srv, own])),
        record("pinned.shop.svc.cluster.local", false, true, addresses_of(&["10.20.0.7"])),
    ]
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

fn addresses_of(texts: &[&str]) -> ExtraData {
    ExtraData::Addresses(addresses(texts))
}

fn objects() -> Vec<Object> {
    let namespace = Namespace { name: "shop".into(), uid: 1, version: 1, labels: Vec::new() };
    let cluster_ip = |addresses_of: &[&str]| ServiceKind::ClusterIp(addresses(addresses_of));
    let alias = |target: &str| ServiceKind::ExternalName(target.into());
    let named = [Some("db-0"), Some("db-0"), Some("db-1"), None];
    let v4 = (0..4).map(|n| endpoint(IpAddr::from([10, 100, 1, n]), named[usize::from(n)]));
    let v6 = (0..2).map(|n| {
        let address = IpAddr::from([0xfd00, 0x244, 0, 0, 0, 0, 0, n]);
        endpoint(address, named[usize::from(n)])
    });
    let many = (0..BIG).map(|n| endpoint(IpAddr::from([10, 101, (n >> 8) as u8, n as u8]), None));
    let chain = (1..=11).map(|n| {
        service(
            &format!("chain-{n}"),
            alias(&format!("chain-{}.shop.svc.cluster.local", n + 1)),
            &[],
        )
    });
    let mut objects = vec![
        Object::Namespace(namespace),
        service("cart", cluster_ip(&["10.96.10.1", "fd00:96::1"]), &[("http", 80), ("grpc", 90)]),
        service("bare", cluster_ip(&["10.96.10.2"]), &[]),
        service("db", ServiceKind::Headless, &[("pg", 5432)]),
        service("big", ServiceKind::Headless, &[("http", 80)]),
        service("empty", ServiceKind::Headless, &[("http", 80)]),
        service("alias", alias("cart.shop.svc.cluster.local"), &[]),
        service("to-bare", alias("bare.shop.svc.cluster.local"), &[]),
        service("to-big", alias("big.shop.svc.cluster.local"), &[]),
        service("gone", alias("nothere.shop.svc.cluster.local"), &[]),
        service("loop", alias("loop.shop.svc.cluster.local"), &[]),
        service("outside", alias("www.example.org"), &[]),
        slice("db", "db-v4", false, &[("pg", 5432), ("", 9187)], v4.collect()),
        slice("db", "db-v6", true, &[("pg", 5432)], v6.collect()),
        slice("big", "big", false, &[("http", 80)], many.collect()),
    ];
    objects.extend(chain);
    objects
}

fn service(name: &str, kind: ServiceKind, ports: &[(&str, u16)]) -> Object {
    let port = |&(name, port): &(&str, u16)| ServicePort {
        name: name.into(),
        port,
        protocol: Protocol::Tcp,
    };
    Object::Service(Service {
        key: Key::new("shop", name),
        uid: 1,
        version: 1,
        labels: Vec::new(),
        kind,
        ports: ports.iter().map(port).collect(),
    })
}

fn slice(
    service: &str,
    name: &str,
    ipv6: bool,
    ports: &[(&str, u16)],
    endpoints: Vec<Endpoint>,
) -> Object {
    let port = |&(name, port): &(&str, u16)| SlicePort {
        name: name.into(),
        port,
        protocol: Protocol::Tcp,
    };
    Object::Slice(Slice {
        key: Key::new("shop", name),
        uid: 1,
        version: 1,
        service: service.into(),
        ipv6,
        ports: ports.iter().map(port).collect(),
        endpoints,
    })
}

fn endpoint(address: IpAddr, hostname: Option<&str>) -> Endpoint {
    let hostname = hostname.map(Into::into);
    Endpoint { addresses: vec![address], ready: true, hostname, target: None }
}
