//! Configurations that the check would accept, from small pools.

use std::net::IpAddr;

use dataplane_core::{
    EndpointNames, Exposure, ExtraData, ExtraRecord, Federation, Name, PodRecords, Requirement,
    Selector, SelectorOperator, ServiceAddresses, Settings, SrvData,
};
use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The usual domain, one under a stub domain, and one that leaves no room below it.
pub(crate) const ZONES: [&str; 3] = ["cluster.local", "k8s.corp.example", LONG_ZONE];
const LONG_ZONE: &str = "a-domain-of-119-octets.a-domain-of-119-octets.a-domain-of-119-octets.a-domain-of-119-octets.and-some-more-octets.example";

/// Types that are withheld from the default upstreams (AAAA, MX), and from the first stub domain (A).
const WITHHELD: [[&[u16]; 2]; 5] =
    [[&[], &[]], [&[], &[]], [&[], &[]], [&[28], &[]], [&[15, 28], &[1]]];

fn name(text: &str) -> Name {
    Name::from_text(text).expect("a name of the pools")
}

fn addresses(list: &[&str]) -> ExtraData {
    ExtraData::Addresses(list.iter().map(|text| text.parse().expect("an address")).collect())
}

fn srv(port: u16, target: &str) -> SrvData {
    SrvData { priority: 0, weight: 100, port, target: name(target) }
}

/// Every extra record that configurations choose from; `@` is the cluster domain.
fn catalogue(zone: &str) -> Vec<ExtraRecord> {
    let cname = |target: &str| ExtraData::Cname(name(&target.replace('@', zone)));
    let dname = |target: &str| ExtraData::Dname(name(&target.replace('@', zone)));
    let text =
        |text: &str| ExtraData::Txt(vec![text.as_bytes().into(), b"second".as_slice().into()]);
    let services = ExtraData::Srv(vec![
        srv(389, "registry.corp.example"),
        srv(390, &format!("cart.shop.svc.{zone}")),
        srv(391, "www.example.org"),
        srv(392, &format!("db.data.svc.{zone}")),
        srv(393, "y.apps.corp.example"),
    ]);
    [
        ("registry.corp.example", addresses(&["10.20.0.5", "fd00:20::5", "10.20.0.6"])),
        ("registry.corp.example", text("a registry")),
        ("second.corp.example", addresses(&["10.20.0.5", "10.244.0.1", "198.51.100.20"])),
        ("old.corp.example", cname("registry.corp.example")),
        ("ext.corp.example", cname("www.example.org")),
        ("in.corp.example", cname("cart.shop.svc.@")),
        ("loop.corp.example", cname("pool.corp.example")),
        ("pool.corp.example", cname("loop.corp.example")),
        ("_ldap._tcp.corp.example", services),
        ("*.apps.corp.example", addresses(&["10.20.0.80", "10.20.0.80"])),
        ("*.lab.apps.corp.example", cname("db.data.svc.@")),
        ("*.lab.apps.corp.example.org", text("wild")),
        ("api.apps.corp.example", addresses(&["fd00:20::81"])),
        ("quiet.corp.example", addresses(&["10.96.0.2", "10.244.9.9"])),
        ("cart.shop.svc.@", addresses(&["192.0.2.9", "10.96.0.77"])),
        ("db.data.svc.@", cname("cart.shop.svc.@")),
        ("deep.er.nons.svc.@", addresses(&["192.0.2.10"])),
        ("x.cart.data.svc.@", text("below a Service")),
        ("10-244-0-1.shop.pod.@", addresses(&["192.0.2.11"])),
        ("www.@", cname("www.example.org")),
        ("moved.corp.example", dname("shop.svc.@")),
        ("moved.corp.example", text("moved")),
        ("ring.corp.example", dname("moved.corp.example")),
        ("old.data.svc.@", dname("data.svc.@")),
        ("out.corp.example", dname("example.org")),
        ("grow.corp.example", dname(&["a-label-of-many-octets"; 10].join("."))),
    ]
    .into_iter()
    .enumerate()
    .map(|(at, (owner, data))| {
        let wildcard = owner.starts_with("*.");
        ExtraRecord {
            owner: name(&owner.trim_start_matches("*.").replace('@', zone)),
            wildcard,
            ttl_s: [30, 0, 60, 86_400][at % 4],
            data,
            reverse: !owner.starts_with("quiet"),
            override_cluster_zone: owner.ends_with('@'),
        }
    })
    .collect()
}

fn selector() -> impl Strategy<Value = Selector> {
    let values = || vec![Box::from("blue"), Box::from("red")];
    let operator = select(vec![
        SelectorOperator::In(values()),
        SelectorOperator::NotIn(values()),
        SelectorOperator::Exists,
        SelectorOperator::DoesNotExist,
    ]);
    let requirement = (select(vec!["team", "dns"]), operator)
        .prop_map(|(key, operator)| Requirement { key: key.into(), operator });
    prop_oneof![
        12 => Just(Selector::default()),
        2 => proptest::collection::vec(requirement, 1..3).prop_map(Selector),
    ]
}

fn exposure() -> impl Strategy<Value = Exposure> {
    let namespaces =
        select(vec![vec![], vec![], vec![], vec![], vec!["shop", "data"], vec!["data"]]);
    (namespaces, selector(), selector()).prop_map(
        |(namespaces, namespace_selector, service_selector)| Exposure {
            namespaces: namespaces.into_iter().map(Box::from).collect(),
            namespace_selector,
            service_selector,
        },
    )
}

fn reverse_cidrs() -> impl Strategy<Value = Vec<IpNet>> {
    let all = [
        "10.96.0.0/16",
        "10.96.0.0/12",
        "10.244.0.0/16",
        "10.244.0.0/25",
        "10.0.0.0/8",
        "10.96.0.7/24",
        "fd00:96::/112",
        "fd00:244::/62",
        "fd00:244::/127",
    ];
    let all: Vec<IpNet> = all.iter().map(|text| text.parse().expect("a range")).collect();
    subsequence(all, 0..5)
}

fn service_addresses() -> impl Strategy<Value = ServiceAddresses> {
    let fixed = |list: &[&str]| ServiceAddresses::Fixed {
        addresses: list.iter().map(|text| text.parse::<IpAddr>().expect("one")).collect(),
        service: None,
    };
    let of = |namespace: &str, name: &str| ServiceAddresses::OfService {
        namespace: namespace.into(),
        name: name.into(),
    };
    select(vec![
        fixed(&["10.96.0.10", "fd00:96::a"]),
        fixed(&["10.96.0.10"]),
        fixed(&[]),
        of("shop", "cart"),
        of("hidden", "db"),
    ])
}

/// A federation with a place, one without, one with the name of a namespace, and one whose names are too long for some
/// Services.
fn federations() -> impl Strategy<Value = Vec<Federation>> {
    let long = format!("w1-b.w1.{}.example", ["a-label-of-many-octets"; 7].join("."));
    let all = [
        ("west", Some("w1-b.w1.west.example.com")),
        ("east", None),
        ("shop", Some("w1-b.w1.corp.example")),
        ("far", Some(&*long)),
    ];
    let all = all.map(|(label, domain)| Federation { name: name(label), domain: domain.map(name) });
    prop_oneof![1 => Just(Vec::new()), 2 => subsequence(all.to_vec(), 1..=4)]
}

/// A33: none at or below an owned reverse zone, none equal to or below `Z`.
fn allowed_stub(stub: &Name, zone: &Name, ranges: &[IpNet]) -> bool {
    let reverse = stub.to_string();
    let taken = match &*reverse {
        "20.10.in-addr.arpa." => {
            ranges.iter().any(|range| range.to_string().starts_with("10.0.0.0/8"))
        }
        "0.244.10.in-addr.arpa." => {
            let address = IpAddr::from([10, 244, 0, 1]);
            ranges.iter().any(|range| range.prefix_len() <= 24 && range.contains(&address))
        }
        _ => false,
    };
    !taken && !stub.is_at_or_below(zone)
}

/// Settings of a data plane for this cluster domain.
pub(crate) fn settings(zone: &'static str) -> impl Strategy<Value = Settings> {
    let stubs = vec![
        "corp.example",
        "lab.corp.example",
        "local",
        "example.org",
        "20.10.in-addr.arpa",
        "100.51.198.in-addr.arpa",
        "0.244.10.in-addr.arpa",
    ];
    let names = (
        select(vec![PodRecords::Disabled, PodRecords::Insecure, PodRecords::Verified]),
        select(vec![EndpointNames::Address, EndpointNames::PodName]),
        prop::bool::weighted(0.2),
        exposure(),
        service_addresses(),
        federations(),
    );
    let routes = (
        reverse_cidrs(),
        subsequence(catalogue(zone), 0..14),
        subsequence(stubs, 0..5),
        prop::bool::weighted(0.8),
    );
    let wire = (
        select(vec![512u16, 1232, 1232, 4096]),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.5),
        prop::bool::weighted(0.15),
        select(vec![5u32, 5, 0, 3, 30, 3600]),
        select(WITHHELD.to_vec()),
    );
    // Boxed, as the shrinkable values of all of them together are too large for the stack of a test.
    (names.boxed(), routes.boxed(), wire.boxed()).prop_map(move |(names, routes, wire)| {
        let (pods, endpoint_names, hide_empty_services, exposure, service_addresses, federations) =
            names;
        let (reverse_cidrs, extra, stubs, default_upstreams) = routes;
        let (udp_payload_size, chaos, nsid, limited, ttl_s, withheld_types) = wire;
        let zone = name(zone);
        let stub_domains = stubs.into_iter().map(name);
        let stub_domains =
            stub_domains.filter(|stub| allowed_stub(stub, &zone, &reverse_cidrs)).collect();
        let clients = ["10.0.0.0/8", "127.0.0.0/8"].map(|text| text.parse().expect("a range"));
        Settings {
            cluster_domain: zone,
            ttl_s,
            pods,
            endpoint_names,
            hide_empty_services,
            reverse_cidrs,
            service_addresses,
            exposure,
            extra,
            stub_domains,
            federations,
            withheld_types: withheld_types.map(<[u16]>::to_vec).to_vec(),
            default_upstreams,
            udp_payload_size,
            chaos,
            nsid,
            clients: if limited { clients.to_vec() } else { Vec::new() },
            cache_entries: 16_384,
        }
    })
}
