//! Octets to events: objects of small pools, so that one event meets another.

use std::net::IpAddr;

use dataplane_core::{
    Endpoint, EndpointNames, Key, Namespace, Object, Pod, PodRecords, Protocol, Resource, Service,
    ServiceKind, ServicePort, Settings, Slice, SlicePort, TargetRef,
};

use crate::fuzzing::fixture::settings;

pub(super) const NAMESPACES: [&str; 2] = ["shop", "evil"];
pub(super) const SERVICES: [&str; 3] = ["cart", "db", "10-9-0-1"];
const SLICES: [&str; 3] = ["s1", "s2", "s3"];
const PODS: [&str; 2] = ["pod", "pod-2"];
const HOSTNAMES: [&str; 4] = ["a", "b", "10-9-0-1", "_tcp"];
const PORTS: [&str; 3] = ["", "http", "pg"];

/// The input, one octet after the other; zeros behind its end.
pub(super) struct Octets<'a>(pub(super) &'a [u8]);

impl Octets<'_> {
    pub(super) fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(super) fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.next()) % from.len()]
    }
}

/// What happens to the index. Uids and versions are given later, by what is held.
#[derive(Debug)]
pub(super) enum Event {
    /// An object is added or changed.
    Apply(Object, Stamp),
    /// An object is deleted, known or not.
    Delete(Resource, Key),
    /// A list of the objects held that the bits keep; one that is not complete removes nothing (E22).
    List { resource: Resource, keep: u8, is_complete: bool },
    /// Another configuration (E5).
    Configure(Box<Settings>),
}

/// Which version of an object comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stamp {
    Next,
    /// One older than that held (E14).
    Late,
    /// The object was deleted and made again.
    AnotherUid,
}

/// One event. Objects are so small that no limit cuts an answer; `scale` multiplies the endpoints of slices.
pub(super) fn event(octets: &mut Octets<'_>, scale: u8) -> Event {
    let kind = octets.next() % 16;
    let namespace = octets.one_of(&NAMESPACES);
    match kind {
        0..=4 => Event::Apply(slice(octets, namespace, scale), stamp(octets)),
        5..=8 => Event::Apply(service(octets, namespace), stamp(octets)),
        9 => Event::Apply(pod(octets, namespace), stamp(octets)),
        10 => Event::Apply(
            Object::Namespace(Namespace {
                name: namespace.into(),
                uid: 0,
                version: 0,
                labels: Vec::new(),
            }),
            stamp(octets),
        ),
        11 => delete(Resource::Services, namespace, octets.one_of(&SERVICES)),
        12 => delete(Resource::EndpointSlices, namespace, octets.one_of(&SLICES)),
        13 => match octets.next() % 4 {
            0 => delete(Resource::Namespaces, "", namespace),
            _ => delete(Resource::Pods, namespace, octets.one_of(&PODS)),
        },
        14 => {
            let (resource, keep) = (octets.one_of(&Resource::ALL), octets.next());
            Event::List { resource, keep, is_complete: !octets.next().is_multiple_of(4) }
        }
        _ => Event::Configure(Box::new(configuration(octets))),
    }
}

fn delete(resource: Resource, namespace: &str, name: &str) -> Event {
    Event::Delete(resource, Key::new(namespace, name))
}

fn stamp(octets: &mut Octets<'_>) -> Stamp {
    match octets.next() % 8 {
        0 => Stamp::Late,
        1 => Stamp::AnotherUid,
        _ => Stamp::Next,
    }
}

/// What of the settings decides which objects answer, and for which names.
pub(super) fn configuration(octets: &mut Octets<'_>) -> Settings {
    Settings {
        pods: octets.one_of(&[PodRecords::Insecure, PodRecords::Verified, PodRecords::Disabled]),
        endpoint_names: octets.one_of(&[EndpointNames::Address, EndpointNames::PodName]),
        hide_empty_services: octets.next() % 4 == 1,
        reverse_cidrs: vec!["10.0.0.0/8".parse().expect("a range")],
        ..settings()
    }
}

fn service(octets: &mut Octets<'_>, namespace: &str) -> Object {
    Object::Service(Service {
        key: Key::new(namespace, octets.one_of(&SERVICES)),
        uid: 0,
        version: 0,
        labels: Vec::new(),
        kind: match octets.next() % 4 {
            0 => ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, octets.next() % 4])]),
            1 => ServiceKind::ExternalName("cart.shop.svc.cluster.local".into()),
            _ => ServiceKind::Headless,
        },
        ports: ports(octets)
            .map(|(name, port, protocol)| ServicePort { name: name.into(), port, protocol })
            .collect(),
    })
}

fn pod(octets: &mut Octets<'_>, namespace: &str) -> Object {
    let name = octets.one_of(&PODS);
    let (address, flags) = (octets.next() % 4, octets.next());
    Object::Pod(Pod {
        key: Key::new(namespace, name),
        uid: 0,
        version: 0,
        addresses: vec![IpAddr::from([10, 9, 0, address])],
        host_network: flags % 8 == 1,
        finished: flags % 8 == 2,
    })
}

fn ports(octets: &mut Octets<'_>) -> impl Iterator<Item = (&'static str, u16, Protocol)> {
    let count = octets.next() % 3;
    let ports: Vec<_> = (0..count)
        .map(|_| {
            let protocol = octets.one_of(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]);
            (octets.one_of(&PORTS), octets.one_of(&[53, 80, 5432]), protocol)
        })
        .collect();
    ports.into_iter()
}

fn slice(octets: &mut Octets<'_>, namespace: &str, scale: u8) -> Object {
    let (service, name) = (octets.one_of(&SERVICES), octets.one_of(&SLICES));
    let ports = ports(octets);
    let ports = ports.map(|(name, port, protocol)| SlicePort { name: name.into(), port, protocol });
    let ports = ports.collect();
    let ipv6 = octets.next().is_multiple_of(4);
    let count = octets.next() % 5 * scale;
    let (first, stride, hostname) = (octets.next() % 4, octets.next() % 2, octets.next());
    let endpoint = |number: u8| {
        let last = first.wrapping_add(number * stride);
        Endpoint {
            addresses: vec![match ipv6 {
                true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 9, u16::from(last)]),
                false => IpAddr::from([10, 9, 0, last]),
            }],
            ready: number % 7 != 6,
            hostname: match hostname % 4 {
                0 => None,
                1 => Some(HOSTNAMES[usize::from(hostname / 4) % HOSTNAMES.len()].into()),
                2 => Some(format!("host-{number}").into()),
                _ => number.is_multiple_of(2).then(|| "a".into()),
            },
            target: (hostname & 128 != 0)
                .then(|| TargetRef { namespace: namespace.into(), name: PODS[0].into() }),
        }
    };
    Object::Slice(Slice {
        key: Key::new(namespace, name),
        uid: 0,
        version: 0,
        service: service.into(),
        ipv6,
        ports,
        endpoints: (0..count).map(endpoint).collect(),
    })
}
