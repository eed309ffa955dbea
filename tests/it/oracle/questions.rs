//! Questions about every name that could exist in the universe, and about names next to those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dataplane_core::Transport;
use proptest::prelude::*;
use proptest::sample::select;
use tests::oracle::expected::{Edns, Question, rtype};

use crate::universe::{
    CLUSTER_V4, CLUSTER_V6, HOSTNAMES, NAMESPACES, PORTS, SERVICES, V4, V6, early,
};

/// A change of a name before it is asked.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    /// Upper case where the bit of the octet's position is set.
    Case(u64),
    /// One more label on the left.
    Below,
    /// The name without its first label.
    Above,
    /// The first two labels as one, with a dot in it.
    Merged,
}

const ADDRESS_LIKE: [&str; 14] = [
    "fd00-244--0",
    "fd00-244--1",
    "0--5-5",
    "2001-db8--20",
    "fd00-244-0-0-0-0-0-0",
    "FD00-0244--1",
    "300-0-0-1",
    "10-244-0-01",
    "1-2-3",
    "--ffff-af4-1",
    "--",
    "a-b-c-d",
    "cart-x7",
    "pod",
];

const FIXED: [&str; 43] = [
    "@",
    "svc.@",
    "pod.@",
    "dns.@",
    "ns.dns.@",
    "x.ns.dns.@",
    "dns-version.@",
    "x.@",
    "x.dns.@",
    "www.@",
    "er.nons.svc.@",
    "nons.svc.@",
    "nons.pod.@",
    "*.shop.svc.@",
    "any.shop.svc.@",
    "registry.corp.example",
    "second.corp.example",
    "x.registry.corp.example",
    "old.corp.example",
    "ext.corp.example",
    "in.corp.example",
    "loop.corp.example",
    "_ldap._tcp.corp.example",
    "_tcp.corp.example",
    "apps.corp.example",
    "y.apps.corp.example",
    "x.y.apps.corp.example",
    "z.lab.apps.corp.example",
    "lab.apps.corp.example.org",
    "api.apps.corp.example",
    "deep.er.nons.svc.@",
    "x.cart.data.svc.@",
    "10-244-0-1.shop.pod.@",
    "host.lab.corp.example",
    "moved.corp.example",
    "cart.moved.corp.example",
    "_http._tcp.cart.moved.corp.example",
    "db.ring.corp.example",
    "old.data.svc.@",
    "db.old.data.svc.@",
    "www.out.corp.example",
    "x.grow.corp.example",
    "a-label-of-thirty-octets-so-it-is-too-long.grow.corp.example",
];

const ELSEWHERE: [&str; 26] = [
    ".",
    "www.example.org",
    "printer.local",
    "kubernetes",
    "host.corp.example",
    "localhost",
    "a.b.localhost",
    "invalid",
    "x.invalid",
    "y.onion",
    "resolver.arpa",
    "_dns.resolver.arpa",
    "clusterdns-loop",
    "0123456789abcdef0123456789abcdef.0000000000005eed.clusterdns-loop",
    "x.y.0000000000005eed.clusterdns-loop",
    "0000000000005eed.clusterdns-loop",
    "0123456789abcdef0123456789abcdef.0000000000005eec.clusterdns-loop",
    "x.5eed.clusterdns-loop",
    "1.0.0.127.in-addr.arpa",
    "2.0.0.127.in-addr.arpa",
    "0.127.in-addr.arpa",
    "x.0.127.in-addr.arpa",
    "x.1.0.0.127.in-addr.arpa",
    "127.in-addr.arpa",
    "in-addr.arpa",
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
];

const CHAOS: [&str; 11] = [
    "version.bind",
    "version.server",
    "hostname.bind",
    "id.server",
    "cachesize.bind",
    "hits.bind",
    "misses.bind",
    "insertions.bind",
    "evictions.bind",
    "servers.bind",
    "nosuch.bind",
];

/// The reverse name of an address.
pub(crate) fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = format!("{:032x}", u128::from(address));
            let labels: Vec<String> = nibbles.chars().rev().map(String::from).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

fn below_services() -> impl Strategy<Value = String> {
    let derived: Vec<String> = V4
        .iter()
        .map(|address| address.replace('.', "-"))
        .chain(ADDRESS_LIKE.map(String::from))
        .chain(HOSTNAMES.iter().filter(|name| name.len() < 64).map(|name| name.to_string()))
        .collect();
    let protocol = || {
        select(vec![
            "_tcp", "_tcp", "_tcp", "_tcp", "_tcp", "_udp", "_udp", "_sctp", "tcp", "_zone",
        ])
    };
    let port = (select(PORTS.iter().chain(&["http"; 3]).copied().collect::<Vec<_>>()), protocol())
        .prop_map(|(port, protocol)| {
            format!("_{}.{protocol}.", if port.is_empty() { "ftp" } else { port })
        });
    prop_oneof![
        10 => Just(String::new()),
        2 => early(&V4).prop_map(|address| format!("{}.", address.replace('.', "-"))),
        2 => select(derived).prop_map(|label| format!("{label}.")),
        4 => port,
        1 => protocol().prop_map(|protocol| format!("{protocol}.")),
        1 => Just("a.b.c.".to_owned()),
    ]
}

/// A name as text and the types worth asking it for; `@` is the cluster domain.
fn name() -> impl Strategy<Value = (String, u16)> {
    let usual = || {
        prop_oneof![
            8 => Just(rtype::A),
            5 => Just(rtype::AAAA),
            6 => Just(rtype::SRV),
            2 => Just(rtype::ANY),
            3 => select(vec![
                rtype::CNAME, rtype::TXT, rtype::SOA, rtype::NS, rtype::PTR, rtype::HTTPS,
                rtype::DS, rtype::DNSKEY, rtype::MX, rtype::DNAME,
            ]),
        ]
    };
    let service = (below_services(), early(&SERVICES), early(&NAMESPACES))
        .prop_map(|(below, service, namespace)| format!("{below}{service}.{namespace}.svc.@"));
    let namespace = (select(&NAMESPACES[..]), select(vec!["svc", "pod"]))
        .prop_map(|(namespace, branch)| format!("{namespace}.{branch}.@"));
    let federated = (
        prop_oneof![1 => Just(String::new()), 9 => early(&SERVICES).prop_map(|it| format!("{it}."))],
        select(vec!["shop.", "shop.", "data.", "hidden.", "nowhere.", "a_b.", ""]),
        select(vec!["west", "west", "east", "far", "shop", "north"]),
    )
        .prop_map(|(service, namespace, label)| format!("{service}{namespace}{label}.svc.@"));
    let labels: Vec<String> = V4
        .iter()
        .map(|address| address.replace('.', "-"))
        .chain(ADDRESS_LIKE.map(String::from))
        .collect();
    let pod = (select(labels), select(&NAMESPACES[..]))
        .prop_map(|(label, namespace)| format!("{label}.{namespace}.pod.@"));
    let pointer = || prop_oneof![5 => Just(rtype::PTR), 1 => usual()];
    prop_oneof![
        20 => (service.boxed(), usual()),
        1 => (namespace, usual()),
        3 => (federated.boxed(), usual()),
        3 => (pod, usual()),
        5 => (select(&FIXED[..]).prop_map(String::from), usual()),
        1 => (Just("@".to_owned()), select(vec![rtype::SOA, rtype::NS, rtype::DS])),
        1 => (Just("dns-version.@".to_owned()), select(vec![rtype::TXT, rtype::TXT, rtype::A])),
        2 => (select(&ELSEWHERE[..]).prop_map(String::from), prop_oneof![usual(), Just(rtype::PTR)]),
        5 => (reverse(), pointer()),
    ]
}

/// Reverse names: of every address, and cut, widened or spoilt ones.
fn reverse() -> impl Strategy<Value = String> {
    let others = ["10.20.0.6", "10.20.0.80", "10.96.0.77", "10.99.0.1", "10.244.9.9", "192.0.2.9"];
    let addresses: Vec<IpAddr> = V4
        .iter()
        .chain(&V6)
        .chain(&CLUSTER_V4)
        .chain(&CLUSTER_V6)
        .chain(&others)
        .map(|text| text.parse().expect("an address"))
        .collect();
    let parsed = |text: &str| text.parse::<IpAddr>().expect("an address");
    let address = prop_oneof![
        3 => early(&V4).prop_map(parsed),
        1 => early(&V6).prop_map(parsed),
        3 => select(addresses),
    ];
    (address, select(vec![0usize, 0, 0, 0, 0, 1, 2, 3]), 0u8..24).prop_map(
        |(address, cut, spoil)| {
            let name = reverse_name(address);
            let cut = if address.is_ipv6() { cut * 9 } else { cut };
            let name = name.splitn(cut + 1, '.').last().expect("at least one part").to_owned();
            match spoil {
                0 => format!("x.{name}"),
                1 => format!("0{name}"),
                2 => format!("7.{name}"),
                3 => format!("256.{name}"),
                _ => name,
            }
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => Just(Change::Nothing),
        3 => any::<u64>().prop_map(Change::Case),
        1 => Just(Change::Below),
        1 => Just(Change::Above),
        1 => Just(Change::Merged),
    ]
}

/// The wire form of a name after the change; `None` when it would be no name.
fn wire(text: &str, change: Change) -> Option<Vec<u8>> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut labels: Vec<Vec<u8>> =
        text.split('.').filter(|label| !label.is_empty()).map(|label| label.into()).collect();
    match change {
        Change::Nothing | Change::Case(_) => {}
        Change::Below => labels.insert(0, b"below".to_vec()),
        Change::Above => drop(labels.drain(..labels.len().min(1))),
        Change::Merged if labels.len() > 1 => {
            let first = labels.remove(0);
            labels[0] = [first, b".".to_vec(), labels[0].clone()].concat();
        }
        Change::Merged => {}
    }
    let mut wire = Vec::new();
    for label in labels {
        if label.len() > 63 {
            return None;
        }
        wire.push(label.len() as u8);
        for octet in label {
            let upper = matches!(change, Change::Case(bits) if bits >> (wire.len() % 64) & 1 == 1);
            wire.push(if upper { octet.to_ascii_uppercase() } else { octet });
        }
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

fn edns() -> impl Strategy<Value = Option<Edns>> {
    let payload = select(vec![1232u16, 1232, 512, 100, 4096, 65_535]);
    let version = prop_oneof![30 => Just(0u8), 1 => Just(1)];
    let edns = (payload, version, any::<bool>(), any::<bool>())
        .prop_map(|(payload, version, dnssec_ok, nsid)| Edns { payload, version, dnssec_ok, nsid });
    prop::option::weighted(0.8, edns)
}

fn client() -> impl Strategy<Value = SocketAddr> {
    let mapped = Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped();
    let clients = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(mapped),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    select(clients.map(|address| SocketAddr::new(address, 4242)).to_vec())
}

pub(crate) fn question(zone: &'static str) -> impl Strategy<Value = Question> {
    let class = prop_oneof![60 => Just(rtype::CLASS_IN), 1 => select(vec![4u16, 254, 255])];
    let ordinary = (name(), change(), class);
    let ordinary = ordinary.prop_map(|((name, qtype), change, class)| (name, qtype, change, class));
    let odd = (name(), select(vec![0u16, rtype::OPT, rtype::TSIG, rtype::IXFR, rtype::AXFR]))
        .prop_map(|((name, _), qtype)| (name, qtype, Change::Nothing, rtype::CLASS_IN));
    let chaos =
        (select(&CHAOS[..]), select(vec![rtype::TXT, rtype::TXT, rtype::ANY, rtype::A]), change())
            .prop_map(|(name, qtype, change)| (name.to_owned(), qtype, change, rtype::CLASS_CH));
    let what = prop_oneof![60 => ordinary, 1 => odd, 2 => chaos];
    let transport = prop_oneof![3 => Just(Transport::Tcp), 2 => Just(Transport::Udp)];
    let how = (prop::bool::weighted(0.9), prop::bool::weighted(0.2), edns(), client(), transport);
    (what, how).prop_map(
        move |((name, qtype, change, class), (rd, cd, edns, client, transport))| {
            let text = name.replace('@', zone);
            let name = wire(&text, change).or_else(|| wire(&text, Change::Nothing));
            let name = name.unwrap_or_else(|| vec![0]);
            Question { name, qtype, class, rd, cd, edns, client, transport }
        },
    )
}
