//! A and AAAA of every kind of node: as answers, and as additional data of other records.

use crate::decide::answer::{Answer, LOCALHOST_TTL_S};
use crate::decide::schema::Node;
use crate::object::Resource;
use crate::random::scaled;
use crate::records::endpoints::{Met, PortFilter};
use crate::records::{DataSource, Kind, ServiceObject};
use crate::wire::address::Address;
use crate::wire::message::{CLASS_IN, rtype};
use crate::wire::reply::{Owner, Rdata, Reply, Section};

/// Octets of additional RRsets that were begun and did not fit, after which no more are begun.
const MAX_WASTED: usize = 1_024;

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
        if let (Owner::Question, Node::Headless(entry), false) = (self.owner, node, ipv6)
            && let Some((first, rest)) = entry.turned_v4(self.seed)
        {
            let ttl_s = self.records.zone.settings.ttl_s;
            reply.answer_v4(ttl_s, first.iter().map(|row| row.address.last_octets()));
            reply.answer_v4(ttl_s, rest.iter().map(|row| row.address.last_octets()));
            return true;
        }
        let room = reply.room();
        let met = self.visit_addresses(node, ipv6, room, &mut |address, ttl_s| {
            reply.answer(self.owner, qtype, ttl_s, Rdata::Octets(address.octets())).is_ok()
        });
        if met == Met::Part {
            // As if it did not fit (WR21, WR23).
            reply.truncate();
        }
        met != Met::Nothing
    }

    /// A random position in an RRset, each equally often (WR24).
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
        if reply.is_truncated() || reply.wasted() > MAX_WASTED {
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
            let (mark, room) = (reply.mark(), reply.room());
            // Not begun when it is certainly too large.
            let mut fits = match node {
                Node::Endpoint(entry, name) => !entry.exceeds(self.records, name, room),
                _ => true,
            };
            let is_cut = fits
                && self.visit_addresses(node, ipv6, room, &mut |address, ttl_s| {
                    let rdata = Rdata::Octets(address.octets());
                    let section = Section::Additional;
                    fits = reply
                        .record(section, Owner::Name(owner), qtype, CLASS_IN, ttl_s, rdata)
                        .is_ok();
                    fits
                }) == Met::Part;
            if !fits || is_cut {
                reply.back_to(mark);
            }
        }
    }

    /// Whether a node has an address of a family.
    pub(super) fn has_address(&self, node: Node<'_, '_>, ipv6: bool) -> bool {
        self.visit_addresses(node, ipv6, 0, &mut |_, _| false) != Met::Nothing
    }

    /// Calls `visit` with each distinct address of a family and its TTL, starting with a random one,
    /// until it returns false; with no more than fit into `room` octets.
    fn visit_addresses(
        &self,
        node: Node<'_, '_>,
        ipv6: bool,
        room: usize,
        visit: &mut dyn FnMut(Address, u32) -> bool,
    ) -> Met {
        let (records, seed) = (self.records, self.seed);
        let ttl_s = records.zone.settings.ttl_s;
        let from_kubernetes = &mut |address| visit(address, ttl_s);
        let any = match node {
            Node::ClusterIp(_, object) | Node::ClusterIpPort(_, object, _) => {
                self.rotated(cluster_ips(object), ipv6, from_kubernetes)
            }
            Node::Headless(entry) => entry.visit_addresses(ipv6, seed, from_kubernetes),
            Node::HeadlessPort(entry, port) => {
                let lists = entry.lists(records, PortFilter::Named(port));
                // The usual case: all endpoints have the port.
                if !lists.are_all() {
                    let of = (ipv6, room);
                    return entry.visit_subset_addresses(
                        records,
                        &lists,
                        of,
                        seed,
                        from_kubernetes,
                    );
                }
                entry.visit_addresses(ipv6, seed, from_kubernetes)
            }
            Node::Endpoint(entry, name) => {
                entry.visit_endpoint_addresses(records, name, ipv6, seed, from_kubernetes)
            }
            Node::NameServer => self.rotated(self.service_addresses(), ipv6, from_kubernetes),
            Node::PodAddress(address) => {
                let found = address.is_v4() != ipv6;
                let _ = found && from_kubernetes(address);
                found
            }
            Node::Localhost => {
                let loopback: core::net::IpAddr = match ipv6 {
                    true => core::net::Ipv6Addr::LOCALHOST.into(),
                    false => core::net::Ipv4Addr::LOCALHOST.into(),
                };
                visit(loopback.into(), LOCALHOST_TTL_S);
                true
            }
            Node::Extra(owner) => {
                let all = || owner.addresses.iter().filter(|(a, _)| a.is_v4() != ipv6);
                let count = all().count();
                let start = self.start(count);
                let mut in_turn = all().skip(start).chain(all().take(start));
                in_turn.all(|&(address, ttl)| visit(address, ttl));
                count > 0
            }
            Node::Apex
            | Node::EmptyNonTerminal
            | Node::Version
            | Node::Alias(..)
            | Node::Dname(_)
            | Node::Federated(_)
            | Node::ClusterIpPointer(_)
            | Node::Pointers(_)
            | Node::ExtraPointers(_)
            | Node::LocalhostPointer
            | Node::LoopProbe(_) => false,
        };
        Met::all(any)
    }

    /// Visits the addresses of one family in a list, from a random one on and coming round once.
    fn rotated(
        &self,
        addresses: &[Address],
        ipv6: bool,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> bool {
        let all = || addresses.iter().copied().filter(move |a| a.is_v4() != ipv6);
        let count = all().count();
        let start = self.start(count);
        all().skip(start).chain(all().take(start)).all(visit);
        count > 0
    }

    /// Addresses of `ns.dns.Z`: as configured, else the cluster IPs of our own Service (RR72).
    fn service_addresses(&self) -> &[Address] {
        let zone = &self.records.zone;
        if let Some(addresses) = &zone.service_addresses {
            return addresses;
        }
        if self.records.source(Resource::Services) == DataSource::None {
            return &[];
        }
        // Not subject to exposure (N43).
        let object = self.records.own_service().and_then(|entry| entry.object.as_ref());
        object.map_or(&[], cluster_ips)
    }
}

/// The address of a node that certainly has one only. It is the most frequent question, and there is nothing to count
/// or rotate.
pub(super) fn only_address<'r>(node: Node<'r, '_>) -> Option<&'r Address> {
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
