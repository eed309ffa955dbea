//! Hostile objects: Services, slices and Pods of one or two namespaces, as large as the limits allow.

use core::net::IpAddr;

use proptest::prelude::*;
use proptest::sample::select;

use crate::object::{
    Change, Endpoint, Key, Namespace, Object, Pod, Protocol, Service, ServiceKind, ServicePort,
    Slice, SlicePort, TargetRef,
};

#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Slices of `wide`.
    pub(super) slices: usize,
    /// Endpoints of each.
    pub(super) endpoints: usize,
    /// Ports of a slice and of the Service.
    pub(super) ports: usize,
    /// Different lists of ports among the slices; the last has no ports.
    pub(super) subsets: usize,
    /// Different hostnames; 0 for none, more than endpoints for one each.
    pub(super) hostnames: usize,
    /// Each of this many endpoints in turn has no hostname; 0 for those that `hostnames` says.
    pub(super) unnamed: usize,
    /// A hostname is the name that the address of the endpoint before makes.
    pub(super) spelled: bool,
    /// All endpoints have the same address.
    pub(super) one_address: bool,
    /// Every second slice is of IPv6.
    pub(super) both_families: bool,
    /// The endpoints say that they are Pods of the namespace.
    pub(super) own_pods: bool,
    /// The Service has a cluster IP.
    pub(super) cluster_ip: bool,
    /// More Services like it, in two namespaces; every second one is not visible.
    pub(super) copies: usize,
}

impl Shape {
    pub(super) fn small() -> Shape {
        Shape {
            slices: 1,
            endpoints: 1,
            ports: 1,
            subsets: 1,
            hostnames: usize::MAX,
            unnamed: 0,
            spelled: false,
            one_address: false,
            both_families: false,
            own_pods: false,
            cluster_ip: false,
            copies: 0,
        }
    }
}

/// The smallest shapes, and those at the limits.
pub(super) fn hostile() -> impl Strategy<Value = Shape> {
    let sizes = (
        select(&[1, 2, 5, 40][..]),
        select(&[1, 3, 100, 600][..]),
        select(&[0, 1, 17, 300, 1_100][..]),
        select(&[1, 2, 3, 40][..]),
        select(&[0, 1, 2, 70, usize::MAX][..]),
    );
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let mixed = (select(&[0, 0, 2, 70][..]), any::<bool>());
    (sizes, flags, mixed, select(&[0, 0, 3, 70][..])).prop_map(|(sizes, flags, mixed, copies)| {
        let (slices, endpoints, ports, subsets, hostnames) = sizes;
        let (unnamed, spelled) = mixed;
        let (one_address, both_families, own_pods, cluster_ip) = flags;
        // Rows of all objects together; with more, cases take too long.
        let endpoints = endpoints.min(3_000 / slices);
        let ports = if slices > 5 { ports.min(300) } else { ports };
        Shape {
            slices,
            endpoints,
            ports,
            subsets,
            hostnames,
            unnamed,
            spelled,
            one_address,
            both_families,
            own_pods,
            cluster_ip,
            copies,
        }
    })
}

fn name_made_of(address: IpAddr) -> Box<str> {
    crate::wire::text::ShortText::of(address.into()).as_str().into()
}

pub(super) fn namespace(name: &str) -> Change {
    let name = name.into();
    Change::Apply(Object::Namespace(Namespace { name, uid: 1, version: 1, labels: Vec::new() }))
}

pub(super) fn cluster_ip(number: u16) -> ServiceKind {
    let [high, low] = number.to_be_bytes();
    ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, high, low])])
}

pub(super) fn service(
    namespace: &str,
    name: &str,
    kind: ServiceKind,
    ports: &[(&str, u16)],
) -> Change {
    let port = |&(name, port): &(&str, u16)| ServicePort {
        name: name.into(),
        port,
        protocol: Protocol::Tcp,
    };
    Change::Apply(Object::Service(Service {
        key: Key::new(namespace, name),
        uid: 1,
        version: 1,
        labels: Vec::new(),
        kind,
        ports: ports.iter().map(port).collect(),
    }))
}

/// Rows, names and ports of a change.
pub(super) fn size(change: &Change) -> usize {
    match change {
        Change::Apply(Object::Service(service)) => service.ports.len(),
        Change::Apply(Object::Slice(slice)) => {
            let addresses = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len());
            slice.ports.len() + addresses.sum::<usize>()
        }
        Change::Apply(Object::Namespace(_) | Object::Pod(_)) => 1,
        // The largest object of this kind: the deleted one may have been as large.
        Change::Delete(..) => 1_000,
    }
}

impl Shape {
    /// All that is made, in the order of its making.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mut changes = self.service_and_slices("evil", "wide", self.slices);
        for copy in 0..self.copies {
            let namespace = if copy % 2 == 0 { "evil" } else { "evil-2" };
            changes.extend(self.service_and_slices(namespace, &format!("copy-{copy}"), 1));
        }
        if self.own_pods {
            changes.push(self.pod("evil"));
        }
        changes
    }

    /// A Pod that has the first address.
    pub(super) fn pod(&self, namespace: &str) -> Change {
        Change::Apply(Object::Pod(Pod {
            key: Key::new(namespace, "pod"),
            uid: 1,
            version: 1,
            addresses: vec![self.address(0, 0)],
            host_network: false,
            finished: false,
        }))
    }

    /// The events that move each slice of `wide` to another Service, or back.
    pub(super) fn moves(&self, to: &str) -> Vec<Change> {
        let moved = |number| match self.slice("evil", "wide", number) {
            Change::Apply(Object::Slice(slice)) => {
                Change::Apply(Object::Slice(Slice { service: to.into(), version: 0, ..slice }))
            }
            other => other,
        };
        (0..self.slices).map(moved).collect()
    }

    /// The events that delete all objects again.
    pub(super) fn deletions(&self) -> Vec<Change> {
        let delete = |change| match change {
            Change::Apply(object) => Change::Delete(object.resource(), object.key()),
            Change::Delete(resource, key) => Change::Delete(resource, key),
        };
        self.changes().into_iter().map(delete).collect()
    }

    pub(super) fn service_and_slices(
        &self,
        namespace: &str,
        name: &str,
        slices: usize,
    ) -> Vec<Change> {
        let kind = match (self.cluster_ip, name.ends_with('1')) {
            // It has no visible record.
            (_, true) => ServiceKind::ExternalName("service-7.victim.svc.cluster.local".into()),
            (true, false) => cluster_ip(9_999),
            (false, false) => ServiceKind::Headless,
        };
        let ports: Vec<(String, u16)> =
            (0..self.ports).map(|port| (format!("p{port}"), port as u16 + 1)).collect();
        let ports: Vec<(&str, u16)> = ports.iter().map(|(name, port)| (&**name, *port)).collect();
        let mut changes = vec![service(namespace, name, kind, &ports)];
        changes.extend((0..slices).map(|number| self.slice(namespace, name, number)));
        changes
    }

    fn slice(&self, namespace: &str, service: &str, number: usize) -> Change {
        let subset = number % self.subsets;
        let is_without = self.subsets > 1 && subset + 1 == self.subsets;
        let port = |port: usize| SlicePort {
            name: format!("p{port}").into(),
            // Lists that nearly agree: the same numbers except for one.
            port: if port == 0 { 60_000 + subset as u16 } else { port as u16 + 1 },
            protocol: Protocol::Tcp,
        };
        let ports = if is_without { 0 } else { self.ports };
        Change::Apply(Object::Slice(Slice {
            key: Key::new(namespace, format!("{service}-{number}")),
            uid: 1,
            version: 1,
            service: service.into(),
            ipv6: self.is_v6(number),
            ports: (0..ports).map(port).collect(),
            endpoints: (0..self.endpoints).map(|end| self.endpoint(number, end)).collect(),
        }))
    }

    fn endpoint(&self, slice: usize, number: usize) -> Endpoint {
        let of_all = slice * self.endpoints + number;
        let is_unnamed = of_all.checked_rem(self.unnamed) == Some(0);
        let hostname = of_all.checked_rem(self.hostnames).filter(|_| !is_unnamed);
        let hostname = hostname.map(|name| match self.spelled {
            true => name_made_of(self.address(slice, number.saturating_sub(1))),
            // As long and as much alike as names can be.
            false => format!("{}-{name}", "a".repeat(50)).into(),
        });
        let target = self.own_pods.then(|| TargetRef { namespace: "".into(), name: "pod".into() });
        Endpoint { addresses: vec![self.address(slice, number)], ready: true, hostname, target }
    }

    fn is_v6(&self, slice: usize) -> bool {
        self.both_families && slice % 2 == 1
    }

    fn address(&self, slice: usize, number: usize) -> IpAddr {
        let number = match self.one_address {
            true => 1,
            false => (slice * self.endpoints + number + 1) as u32,
        };
        let [_, a, b, c] = number.to_be_bytes();
        match self.is_v6(slice) {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, a.into(), b.into(), c.into()]),
            false => IpAddr::from([10, 9 + a, b, c]),
        }
    }

    /// Every kind of name that the objects give, and some that they do not.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = [
            "wide",
            "_tcp.wide",
            "_udp.wide",
            "_p0._tcp.wide",
            "_p1._tcp.wide",
            "_p299._tcp.wide",
            "_p1099._tcp.wide",
            "_none._tcp.wide",
            "10-9-0-1.wide",
            "none.wide",
            "copy-1",
            "copy-2",
        ]
        .map(|name| format!("{name}.evil.svc.cluster.local."))
        .into();
        names.push(format!("{}-0.wide.evil.svc.cluster.local.", "a".repeat(50)));
        names.extend(
            ["1.0.9.10.in-addr.arpa.", "2.0.9.10.in-addr.arpa.", "15.39.96.10.in-addr.arpa."]
                .map(String::from),
        );
        names
    }
}
