//! A small universe of objects: few names and addresses, so that objects often share them.

use std::net::IpAddr;

use dataplane_core::{
    Endpoint, Key, Namespace, Object, Pod, Protocol, Resource, Service, ServiceKind, ServicePort,
    Slice, SlicePort, TargetRef,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) const NAMESPACES: [&str; 3] = ["shop", "data", "hidden"];
/// Ordinary, digit first, like an address, and as long as a label can be.
pub(crate) const SERVICES: [&str; 5] = ["cart", "db", "1st", "10-244-0-1", LONG];
pub(crate) const LONG: &str = "sixty-three-octets-long-sixty-three-octets-long-sixty-three-oct";
const SLICES: [&str; 3] = ["s1", "s2", "s3"];
const PODS: [&str; 3] = ["db-0", "cart-x7", "pod.with.dots"];
pub(crate) const HOSTNAMES: [&str; 10] =
    ["db-0", "db-1", "twin", "a", "a-b", "10-244-0-1", "_tcp", "a.b", "-x", LONG_HOSTNAME];
/// A label of 64 octets; 63 are allowed (RFC 1035 §2.3.4).
const LONG_HOSTNAME: &str = "sixty-four-octets-long--sixty-four-octets-long--sixty-four-octet";
pub(crate) const PORTS: [&str; 4] = ["", "http", "pg", "dns-tcp"];
const PORTS_WEIGHTED: [&str; 6] = ["", "http", "http", "http", "pg", "dns-tcp"];

/// Pod addresses, one outside every range, and two that are also cluster IPs.
pub(crate) const V4: [&str; 8] = [
    "10.244.0.1",
    "10.244.0.2",
    "10.244.0.200",
    "10.244.1.1",
    "198.51.100.20",
    "10.20.0.5",
    "10.96.0.1",
    "10.96.0.2",
];
pub(crate) const V6: [&str; 6] =
    ["fd00:244::", "fd00:244::1", "::5:5", "2001:db8::20", "fd00:96::1", "fd00:244:0:1::2"];
/// Never published (RR20).
const UNUSABLE: [&str; 7] =
    ["0.0.0.0", "127.0.0.1", "224.0.0.9", "::", "::1", "ff02::1", "::ffff:10.244.0.1"];
pub(crate) const CLUSTER_V4: [&str; 4] = ["10.96.0.1", "10.96.0.2", "10.96.0.10", "10.97.3.4"];
pub(crate) const CLUSTER_V6: [&str; 2] = ["fd00:96::1", "fd00:96::a"];

/// What ExternalName Services point to; `@` is the cluster domain.
const EXTERNAL_NAMES: [&str; 27] = [
    "cart.shop.svc.@",
    "db.data.svc.@.",
    "1st.shop.svc.@",
    "cart.data.svc.@",
    "DB.shop.svc.@",
    "db.hidden.svc.@",
    "missing.shop.svc.@",
    "shop.svc.@",
    "ns.dns.@",
    "@",
    "10-244-0-1.shop.pod.@",
    "_http._tcp.cart.shop.svc.@",
    "www.example.org",
    "Mail.Example.COM.",
    "host.corp.example",
    "registry.corp.example",
    "in.corp.example",
    "x.apps.corp.example",
    "localhost",
    "x.invalid",
    "1.0.96.10.in-addr.arpa",
    "1.0.244.10.in-addr.arpa",
    "192.0.2.1",
    "fd00::1",
    "",
    "a..b",
    LONG_HOSTNAME,
];

fn text(pool: &'static [&'static str]) -> impl Strategy<Value = Box<str>> {
    select(pool).prop_map(Box::from)
}

fn address(pool: &'static [&'static str]) -> impl Strategy<Value = IpAddr> {
    select(pool).prop_map(|text| text.parse().expect("an address"))
}

fn early_address(pool: &'static [&'static str]) -> impl Strategy<Value = IpAddr> {
    early(pool).prop_map(|text| text.parse().expect("an address"))
}

fn endpoint_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![6 => early_address(&V4), 4 => early_address(&V6), 1 => address(&UNUSABLE)]
}

/// A member of a pool, the first ones more often, so that questions find objects.
pub(crate) fn early(pool: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    let last = pool.len() - 1;
    (0..=last, 0..=last).prop_map(move |(one, other)| pool[one.min(other)])
}

fn early_text(pool: &'static [&'static str]) -> impl Strategy<Value = Box<str>> {
    early(pool).prop_map(Box::from)
}

fn key(names: &'static [&'static str]) -> impl Strategy<Value = Key> {
    (early_text(&NAMESPACES), early_text(names))
        .prop_map(|(namespace, name)| Key::new(namespace, name))
}

fn labels() -> impl Strategy<Value = Vec<(Box<str>, Box<str>)>> {
    let label = (text(&["team", "dns"]), text(&["blue", "red", "off"]));
    vec(label, 0..3).prop_map(|mut labels| {
        labels.dedup_by(|a, b| a.0 == b.0);
        labels
    })
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![4 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 1 => Just(Protocol::Sctp)]
}

fn kind(zone: &'static str) -> impl Strategy<Value = ServiceKind> {
    let cluster_ips = prop_oneof![
        4 => address(&CLUSTER_V4).prop_map(|v4| vec![v4]),
        3 => (address(&CLUSTER_V4), address(&CLUSTER_V6)).prop_map(|(v4, v6)| vec![v4, v6]),
        1 => address(&CLUSTER_V6).prop_map(|v6| vec![v6]),
        1 => Just(Vec::new()),
    ];
    prop_oneof![
        4 => cluster_ips.prop_map(ServiceKind::ClusterIp),
        4 => Just(ServiceKind::Headless),
        3 => select(&EXTERNAL_NAMES[..])
            .prop_map(move |name| ServiceKind::ExternalName(name.replace('@', zone).into())),
    ]
}

pub(crate) fn service(zone: &'static str) -> impl Strategy<Value = Object> {
    let port = (
        select(&PORTS_WEIGHTED[..]).prop_map(Box::from),
        select(&[53u16, 80, 5432][..]),
        protocol(),
    )
        .prop_map(|(name, port, protocol)| ServicePort { name, port, protocol });
    (key(&SERVICES), kind(zone), vec(port, 0..4), labels()).prop_map(
        |(key, kind, ports, labels)| {
            Object::Service(Service { key, uid: 0, version: 0, labels, kind, ports })
        },
    )
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let namespace = prop_oneof![3 => Just(Box::from("")), 2 => text(&NAMESPACES)];
    let target =
        (namespace, text(&PODS)).prop_map(|(namespace, name)| TargetRef { namespace, name });
    (
        vec(endpoint_address(), 1..3),
        prop::bool::weighted(0.8),
        prop::option::weighted(0.4, text(&HOSTNAMES)),
        prop::option::weighted(0.5, target),
    )
        .prop_map(|(addresses, ready, hostname, target)| Endpoint {
            addresses,
            ready,
            hostname,
            target,
        })
}

/// A few endpoints, or more than a datagram can hold (WR21, WR22): none of them with a hostname, or all but some.
fn endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
    let wide = (20u8..80, select(&[0u8, 0, 2, 40][..])).prop_map(|(count, unnamed)| {
        let endpoint = |last: u8| Endpoint {
            addresses: vec![IpAddr::from([10, 245, 0, last])],
            ready: true,
            hostname: last
                .checked_rem(unnamed)
                .filter(|&rest| rest > 0)
                .map(|_| format!("wide-{last}").into()),
            target: None,
        };
        (1..=count).map(endpoint).collect()
    });
    prop_oneof![5 => vec(endpoint(), 0..5), 1 => wide]
}

pub(crate) fn slice() -> impl Strategy<Value = Object> {
    let port = (
        select(&PORTS_WEIGHTED[..]).prop_map(Box::from),
        select(&[53u16, 8080, 5432][..]),
        protocol(),
    )
        .prop_map(|(name, port, protocol)| SlicePort { name, port, protocol });
    (key(&SLICES), early_text(&SERVICES), prop::bool::weighted(0.35), vec(port, 0..4), endpoints())
        .prop_map(|(key, service, ipv6, ports, endpoints)| {
            Object::Slice(Slice { key, uid: 0, version: 0, service, ipv6, ports, endpoints })
        })
}

pub(crate) fn namespace() -> impl Strategy<Value = Object> {
    (text(&NAMESPACES), labels()).prop_map(|(name, labels)| {
        Object::Namespace(Namespace { name, uid: 0, version: 0, labels })
    })
}

pub(crate) fn pod() -> impl Strategy<Value = Object> {
    let addresses = (address(&V4[..5]), prop::option::of(address(&V6[..3])));
    (key(&PODS), addresses, prop::bool::weighted(0.15), prop::bool::weighted(0.2)).prop_map(
        |(key, (v4, v6), host_network, finished)| {
            let addresses = [v4].into_iter().chain(v6).collect();
            Object::Pod(Pod { key, uid: 0, version: 0, addresses, host_network, finished })
        },
    )
}

pub(crate) fn service_key() -> impl Strategy<Value = Key> {
    key(&SERVICES)
}

/// A Service with this cluster IP and nothing else.
pub(crate) fn claim(key: Key, address: IpAddr) -> Object {
    let (labels, ports) = (Vec::new(), Vec::new());
    let kind = ServiceKind::ClusterIp(vec![address]);
    Object::Service(Service { key, uid: 0, version: 0, labels, kind, ports })
}

/// Any object; slices most often, as in real clusters.
pub(crate) fn object(zone: &'static str) -> impl Strategy<Value = Object> {
    prop_oneof![4 => service(zone), 5 => slice(), 1 => namespace(), 2 => pod()]
}

/// A resource and a key that objects of it have.
pub(crate) fn object_key() -> impl Strategy<Value = (Resource, Key)> {
    prop_oneof![
        2 => key(&SERVICES).prop_map(|key| (Resource::Services, key)),
        3 => key(&SLICES).prop_map(|key| (Resource::EndpointSlices, key)),
        1 => text(&NAMESPACES).prop_map(|name| (Resource::Namespaces, Key::new("", name))),
        1 => key(&PODS).prop_map(|key| (Resource::Pods, key)),
    ]
}

/// The object with this uid and version.
pub(crate) fn stamped(mut object: Object, new_uid: u128, new_version: u64) -> Object {
    let (uid, version) = match &mut object {
        Object::Service(service) => (&mut service.uid, &mut service.version),
        Object::Slice(slice) => (&mut slice.uid, &mut slice.version),
        Object::Namespace(namespace) => (&mut namespace.uid, &mut namespace.version),
        Object::Pod(pod) => (&mut pod.uid, &mut pod.version),
    };
    (*uid, *version) = (new_uid, new_version);
    object
}

/// uid and version of an object.
pub(crate) fn stamp(object: &Object) -> (u128, u64) {
    match object {
        Object::Service(service) => (service.uid, service.version),
        Object::Slice(slice) => (slice.uid, slice.version),
        Object::Namespace(namespace) => (namespace.uid, namespace.version),
        Object::Pod(pod) => (pod.uid, pod.version),
    }
}

pub(crate) fn describe(object: &Object) -> String {
    let port =
        |name: &str, number: u16, protocol: Protocol| format!("{name}:{number}/{protocol:?}");
    match object {
        Object::Service(service) => {
            let ports: Vec<_> = service
                .ports
                .iter()
                .map(|held| port(&held.name, held.port, held.protocol))
                .collect();
            format!("service {} {:?} {ports:?} {:?}", service.key, service.kind, service.labels)
        }
        Object::Slice(slice) => {
            let ports: Vec<_> =
                slice.ports.iter().map(|held| port(&held.name, held.port, held.protocol)).collect();
            let family = if slice.ipv6 { "IPv6" } else { "IPv4" };
            let mut line = format!("slice {} of {} {family} {ports:?}", slice.key, slice.service);
            for endpoint in &slice.endpoints {
                line += &format!("\n        {:?}", endpoint.addresses);
                line += if endpoint.ready { "" } else { " not ready" };
                if let Some(hostname) = &endpoint.hostname {
                    line += &format!(" hostname {hostname:?}");
                }
                if let Some(target) = &endpoint.target {
                    line += &format!(" Pod {:?}/{:?}", target.namespace, target.name);
                }
            }
            line
        }
        Object::Namespace(namespace) => {
            format!("namespace {} {:?}", namespace.name, namespace.labels)
        }
        Object::Pod(pod) => {
            let host = if pod.host_network { " hostNetwork" } else { "" };
            let finished = if pod.finished { " finished" } else { "" };
            format!("pod {} {:?}{host}{finished}", pod.key, pod.addresses)
        }
    }
}
