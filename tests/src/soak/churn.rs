//! The changes of a soak: what users, controllers and the operator do to the objects, from random numbers.

use std::net::IpAddr;

use dataplane_core::{
    Endpoint, Key, Namespace, Object, Pod, Protocol, Resource, Service, ServiceKind, ServicePort,
    Slice, SlicePort, TargetRef,
};

use super::objects::{Configuration, NAMESPACES};
use crate::mutate::Random;

/// Ordinary, digit first, and like an address.
pub const SERVICES: [&str; 5] = ["cart", "db", "1st", "10-244-0-1", "web"];
const SLICES: [&str; 4] = ["s1", "s2", "s3", "s4"];
const PODS: [&str; 3] = ["db-0", "cart-x7", "pod.with.dots"];
pub const HOSTNAMES: [&str; 6] = ["db-0", "db-1", "twin", "a", "10-244-0-1", "_tcp"];
pub const PORTS: [&str; 4] = ["", "http", "pg", "dns-tcp"];
/// Pod addresses; the last are cluster IPs too, or outside of every range.
pub const V4: [&str; 7] = [
    "10.244.0.1",
    "10.244.0.2",
    "10.244.0.200",
    "10.244.1.1",
    "10.20.0.5",
    "10.96.0.1",
    "198.51.100.20",
];
pub const V6: [&str; 3] = ["fd00:244::1", "fd00:244:0:1::2", "2001:db8::20"];
pub const CLUSTER_V4: [&str; 4] = ["10.96.0.1", "10.96.0.2", "10.96.0.10", "10.97.3.4"];
pub const CLUSTER_V6: [&str; 2] = ["fd00:96::1", "fd00:96::a"];
/// What ExternalName Services point to; the last ones are asked of upstreams.
const EXTERNAL_NAMES: [&str; 8] = [
    "cart.shop.svc.cluster.local",
    "db.data.svc.cluster.local.",
    "web.back.svc.cluster.local",
    "missing.shop.svc.cluster.local",
    "registry.corp.example",
    "w0.example.org",
    "w1.example.org.",
    "none.example.org",
];
/// Endpoints of a wide slice: more than a datagram holds.
const WIDE: usize = 60;

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Object),
    /// Of an object that may not be there.
    Delete(Resource, Key),
    Configure(Configuration),
}

/// The next change; `mark` is that of the configuration, if it is one.
pub fn change(random: &mut Random, mark: u64) -> Change {
    match random.below(24) {
        0..=6 => Change::Put(slice(random)),
        7..=12 => Change::Put(service(random)),
        13..=14 => Change::Put(pod(random)),
        15 => Change::Put(namespace(random)),
        16..=18 => Change::Delete(Resource::EndpointSlices, key(random, &SLICES)),
        19..=20 => Change::Delete(Resource::Services, key(random, &SERVICES)),
        21..=22 => Change::Delete(Resource::Pods, key(random, &PODS)),
        _ => Change::Configure(Configuration {
            ttl_s: *random.choose(&[5, 5, 0, 30]),
            by_pod_name: random.below(3) == 0,
            hides_empty_services: random.below(4) == 0,
            hosts: random.below(16) as u8,
            mark,
        }),
    }
}

fn key(random: &mut Random, names: &[&str]) -> Key {
    Key::new(*random.choose(&NAMESPACES), *random.choose(names))
}

fn address(random: &mut Random, pool: &[&str]) -> IpAddr {
    random.choose(pool).parse().expect("an address of the pools")
}

fn protocol(random: &mut Random) -> Protocol {
    *random.choose(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp])
}

fn ports(random: &mut Random, numbers: &[u16]) -> Vec<(Box<str>, u16, Protocol)> {
    (0..random.below(3))
        .map(|_| ((*random.choose(&PORTS)).into(), *random.choose(numbers), protocol(random)))
        .collect()
}

/// A Service of any type.
pub fn service(random: &mut Random) -> Object {
    let kind = match random.below(8) {
        0..=2 => ServiceKind::ClusterIp(vec![address(random, &CLUSTER_V4)]),
        3 => {
            let both = [address(random, &CLUSTER_V4), address(random, &CLUSTER_V6)];
            ServiceKind::ClusterIp(both.to_vec())
        }
        4..=6 => ServiceKind::Headless,
        _ => ServiceKind::ExternalName((*random.choose(&EXTERNAL_NAMES)).into()),
    };
    let ports = ports(random, &[53, 80, 5432]).into_iter();
    Object::Service(Service {
        key: key(random, &SERVICES),
        uid: 0,
        version: 0,
        labels: Vec::new(),
        kind,
        ports: ports.map(|(name, port, protocol)| ServicePort { name, port, protocol }).collect(),
    })
}

fn slice(random: &mut Random) -> Object {
    let ipv6 = random.below(4) == 0;
    let is_wide = random.below(16) == 0 && !ipv6;
    let endpoints = match is_wide {
        true => (1..=WIDE).map(wide).collect(),
        false => (0..random.below(5)).map(|_| endpoint(random, ipv6)).collect(),
    };
    let ports = ports(random, &[53, 8080, 5432]).into_iter();
    Object::Slice(Slice {
        key: key(random, &SLICES),
        uid: 0,
        version: 0,
        service: (*random.choose(&SERVICES)).into(),
        ipv6,
        ports: ports.map(|(name, port, protocol)| SlicePort { name, port, protocol }).collect(),
        endpoints,
    })
}

fn wide(number: usize) -> Endpoint {
    let addresses = vec![IpAddr::from([10, 245, 0, number as u8])];
    Endpoint { addresses, ready: true, hostname: None, target: None }
}

fn endpoint(random: &mut Random, ipv6: bool) -> Endpoint {
    let pool: &[&str] = if ipv6 { &V6 } else { &V4 };
    let target = random.below(2) == 0;
    Endpoint {
        addresses: vec![address(random, pool)],
        ready: random.below(5) > 0,
        hostname: (random.below(5) < 2).then(|| (*random.choose(&HOSTNAMES)).into()),
        target: target.then(|| TargetRef {
            namespace: random.choose(&["", "", "shop", "data"]).to_owned().into(),
            name: (*random.choose(&PODS)).into(),
        }),
    }
}

fn namespace(random: &mut Random) -> Object {
    let label = ("team".into(), (*random.choose(&["blue", "red"])).into());
    Object::Namespace(Namespace {
        name: (*random.choose(&NAMESPACES)).into(),
        uid: 0,
        version: 0,
        labels: vec![label],
    })
}

fn pod(random: &mut Random) -> Object {
    let (v4, v6) = (address(random, &V4[..5]), address(random, &V6[..2]));
    Object::Pod(Pod {
        key: key(random, &PODS),
        uid: 0,
        version: 0,
        addresses: if random.below(2) == 0 { vec![v4] } else { vec![v4, v6] },
        host_network: random.below(8) == 0,
        finished: random.below(6) == 0,
    })
}
