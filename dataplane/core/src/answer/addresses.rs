//! A and AAAA of every kind of node: as answers, and as additional data of other records.

use crate::address::Address;
use crate::answer::{Answer, LOCALHOST_TTL_S};
use crate::endpoints::scaled;
use crate::message::{CLASS_IN, rtype};
use crate::name::Name;
use crate::object::Resource;
use crate::records::{DataSource, Kind, ServiceObject};
use crate::reply::{Owner, Rdata, Reply, Section};
use crate::schema::Node;
use crate::settings::ServiceAddresses;

impl Answer<'_> {
    pub(super) fn write_addresses(
        &self,
        node: Node<'_, '_>,
        qtype: u16,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let ipv6 = qtype == rtype::AAAA;
        if let Some(address) = only_address(node) {
            let ttl_s = self.records.zone.settings.ttl_s;
            let found = address.is_v4() != ipv6;
            let rdata = Rdata::Octets(address.octets());
            let _ = found && reply.answer(self.owner, qtype, ttl_s, rdata).is_ok();
            return found;
        }
        let node = match node {
            // As nearly always: then they are known without a look at each.
            Node::HeadlessPort(entry, port) if entry.has_port_everywhere(self.records, port) => {
                Node::Headless(entry)
            }
            other => other,
        };
        let count = self.address_count(node, ipv6);
        if count == 0 {
            return false;
        }
        self.visit_addresses(node, ipv6, self.start(count), &mut |address, ttl_s| {
            reply.answer(self.owner, qtype, ttl_s, Rdata::Octets(address.octets())).is_ok()
        });
        true
    }

    /// A uniformly random position in an RRset (WR24).
    pub(super) fn start(&self, count: usize) -> usize {
        scaled(self.seed, count)
    }

    /// Adds A and AAAA of a node to the additional section, each whole or not at all (WR22).
    pub(super) fn add_addresses(
        &self,
        node: Node<'_, '_>,
        owner: &[u8],
        reply: &mut Reply<'_, '_>,
    ) {
        if reply.is_truncated() {
            return;
        }
        if let Some(address) = only_address(node) {
            let ttl_s = self.records.zone.settings.ttl_s;
            let qtype = if address.is_v4() { rtype::A } else { rtype::AAAA };
            let rdata = Rdata::Octets(address.octets());
            let (section, owner) = (Section::Additional, Owner::Name(owner));
            // What does not fit leaves no trace.
            let _ = reply.record(section, owner, qtype, CLASS_IN, ttl_s, rdata);
            return;
        }
        for (ipv6, qtype) in [(false, rtype::A), (true, rtype::AAAA)] {
            let count = self.address_count(node, ipv6);
            if count == 0 {
                continue;
            }
            let mark = reply.mark();
            let mut fits = true;
            self.visit_addresses(node, ipv6, self.start(count), &mut |address, ttl_s| {
                let rdata = Rdata::Octets(address.octets());
                let section = Section::Additional;
                fits = reply
                    .record(section, Owner::Name(owner), qtype, CLASS_IN, ttl_s, rdata)
                    .is_ok();
                fits
            });
            if !fits {
                reply.back_to(mark);
            }
        }
    }

    /// Number of distinct addresses of a family at a node.
    pub(super) fn address_count(&self, node: Node<'_, '_>, ipv6: bool) -> usize {
        match node {
            Node::Headless(entry) => entry.address_count(ipv6),
            Node::HeadlessPort(entry, port) => {
                entry.addresses_with_port(self.records, ipv6, port).count()
            }
            Node::Endpoint(entry, name) => {
                entry.endpoint_addresses(self.records, name, ipv6).count()
            }
            Node::Apex
            | Node::EmptyNonTerminal
            | Node::NameServer
            | Node::Version
            | Node::ClusterIp(..)
            | Node::ClusterIpPort(..)
            | Node::Alias(..)
            | Node::PodAddress(_)
            | Node::Extra(_)
            | Node::ClusterIpPointer(_)
            | Node::Pointers(_)
            | Node::ExtraPointers(_)
            | Node::Localhost
            | Node::LocalhostPointer
            | Node::LoopProbe => {
                let mut count = 0;
                self.visit_addresses(node, ipv6, 0, &mut |_, _| {
                    count += 1;
                    true
                });
                count
            }
        }
    }

    /// Calls `visit` with each distinct address of a family and its TTL, starting with number
    /// `start`, until it returns false.
    fn visit_addresses(
        &self,
        node: Node<'_, '_>,
        ipv6: bool,
        start: usize,
        visit: &mut dyn FnMut(Address, u32) -> bool,
    ) {
        let ttl_s = self.records.zone.settings.ttl_s;
        let mut from_kubernetes = |address| visit(address, ttl_s);
        match node {
            Node::ClusterIp(_, object) | Node::ClusterIpPort(_, object, _) => {
                rotated(cluster_ips(object), ipv6, start, &mut from_kubernetes);
            }
            Node::Headless(entry) => {
                entry.addresses(ipv6, start).all(from_kubernetes);
            }
            Node::HeadlessPort(entry, port) => {
                let all = || entry.addresses_with_port(self.records, ipv6, port);
                all().skip(start).chain(all().take(start)).all(from_kubernetes);
            }
            Node::Endpoint(entry, name) => {
                let all = || entry.endpoint_addresses(self.records, name, ipv6);
                all().skip(start).chain(all().take(start)).all(from_kubernetes);
            }
            Node::NameServer => {
                rotated(self.service_addresses(), ipv6, start, &mut from_kubernetes);
            }
            Node::PodAddress(address) => {
                let _ = address.is_v4() != ipv6 && from_kubernetes(address);
            }
            Node::Localhost => {
                let loopback: std::net::IpAddr = match ipv6 {
                    true => std::net::Ipv6Addr::LOCALHOST.into(),
                    false => std::net::Ipv4Addr::LOCALHOST.into(),
                };
                visit(loopback.into(), LOCALHOST_TTL_S);
            }
            Node::Extra(owner) => {
                let all = || owner.addresses.iter().filter(|(a, _)| a.is_v4() != ipv6);
                all()
                    .skip(start)
                    .chain(all().take(start))
                    .all(|&(address, ttl)| visit(address, ttl));
            }
            Node::Apex
            | Node::EmptyNonTerminal
            | Node::Version
            | Node::Alias(..)
            | Node::ClusterIpPointer(_)
            | Node::Pointers(_)
            | Node::ExtraPointers(_)
            | Node::LocalhostPointer
            | Node::LoopProbe => {}
        }
    }

    /// RR72.
    fn service_addresses(&self) -> &[Address] {
        let zone = &self.records.zone;
        if let Some(addresses) = &zone.service_addresses {
            return addresses;
        }
        let ServiceAddresses::OfService { namespace, name } = &zone.settings.service_addresses
        else {
            return &[];
        };
        if self.records.source(Resource::Services) == DataSource::None {
            return &[];
        }
        let parts: [&[u8]; 5] = [
            &[name.len() as u8],
            name.as_bytes(),
            &[namespace.len() as u8],
            namespace.as_bytes(),
            b"\0",
        ];
        let wire = Name::compose(&parts).unwrap_or(Name::ROOT);
        let wire = &wire.wire()[..wire.wire().len() - 1];
        let entry = self.records.service(wire).map(|(_, entry)| entry);
        // Not subject to exposure (N43).
        entry.and_then(|entry| entry.object.as_ref()).map_or(&[], cluster_ips)
    }
}

/// The address of a node that has one for sure: what is asked most, and nothing to count or rotate.
fn only_address<'r>(node: Node<'r, '_>) -> Option<&'r Address> {
    let (Node::ClusterIp(_, object) | Node::ClusterIpPort(_, object, _)) = node else {
        return None;
    };
    match cluster_ips(object) {
        [address] => Some(address),
        [] | [_, _, ..] => None,
    }
}

fn cluster_ips(object: &ServiceObject) -> &[Address] {
    match &object.kind {
        Kind::ClusterIp(addresses) => addresses,
        Kind::Headless | Kind::ExternalName(_) | Kind::Unserved => &[],
    }
}

/// The addresses of one family in a list, from number `start` on and coming round once.
fn rotated(
    addresses: &[Address],
    ipv6: bool,
    start: usize,
    visit: &mut dyn FnMut(Address) -> bool,
) {
    let all = || addresses.iter().copied().filter(move |a| a.is_v4() != ipv6);
    all().skip(start).chain(all().take(start)).all(visit);
}
