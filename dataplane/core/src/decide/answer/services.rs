//! SRV records (docs/dns.md §3.4): of Services, of their endpoints, and of extra records, with the
//! addresses of their targets as additional data.

#![allow(clippy::indexing_slicing, reason = "the start of a rotation is drawn below the length")]

use crate::decide::answer::Answer;
use crate::decide::answer::addresses::only_address;
use crate::decide::found::Found;
use crate::decide::route::{Route, route};
use crate::decide::schema::Node;
use crate::random::scaled;
use crate::records::endpoints::{EndpointName, Met, PortFilter, Presence};
use crate::records::extra::ExtraOwner;
use crate::records::{Needs, ServiceEntry, ServiceObject};
use crate::wire::labels::Labels;
use crate::wire::message::rtype;
use crate::wire::name::Name;
use crate::wire::reply::{Owner, Rdata, Reply};

/// Priority and weight of every SRV record derived from Kubernetes (§3.4).
const SRV_PRIORITY: u16 = 0;
const SRV_WEIGHT: u16 = 100;

/// Labels of `_port._proto`, below the name of a Service.
const PORT_LABELS: usize = 2;

/// At least what an SRV record has besides the labels of its target and the zone: head, numbers and length of the first label.
const PAIR_OCTETS: usize = 20;

impl Answer<'_> {
    /// Writes SRV records from one drawn at random on: `write` gets the seed of the draw. Those that do not fit into a datagram
    /// are written from the first one on (`None`): there are clients that use them and do not ask over TCP, and take each record
    /// that is missing for a server that is gone (WR24). `is_long` says that they hardly fit: then this is tried first.
    fn write_services(
        &self,
        is_long: bool,
        reply: &mut Reply<'_, '_>,
        mut write: impl FnMut(Option<u64>, &mut Reply<'_, '_>) -> bool,
    ) -> bool {
        let (mark, was_truncated) = (reply.mark(), reply.is_truncated());
        if is_long && reply.is_datagram() {
            let found = write(None, reply);
            if reply.is_truncated() {
                return found;
            }
            reply.write_again(mark);
        }
        let found = write(Some(self.seed), reply);
        if !reply.is_truncated() || was_truncated || !reply.is_datagram() {
            return found;
        }
        reply.write_again(mark);
        write(None, reply)
    }

    /// RR32: the ports of a Service, each with the Service as target.
    pub(super) fn write_service_ports(
        &self,
        entry: &ServiceEntry,
        object: &ServiceObject,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let numbers = &object.ports.numbers;
        if numbers.is_empty() {
            return false;
        }
        self.write_services(false, reply, |seed, reply| {
            let start = start(seed, numbers.len());
            let mut in_turn = numbers[start..].iter().chain(&numbers[..start]);
            in_turn.all(|&port| self.write_own_port(0, port, reply))
        });
        self.add_service(0, Node::ClusterIp(entry, object), reply);
        true
    }

    /// RR30: the ports with one name, which are at these places, by their numbers. Nearly always it is one.
    pub(super) fn write_named_port(
        &self,
        entry: &ServiceEntry,
        object: &ServiceObject,
        places: &[u16],
        reply: &mut Reply<'_, '_>,
    ) {
        let mut ports = places.iter().map(|&place| object.ports.all[usize::from(place)].number);
        ports.all(|port| self.write_own_port(PORT_LABELS, port, reply));
        self.add_service(PORT_LABELS, Node::ClusterIp(entry, object), reply);
    }

    /// An SRV record whose target is its owner without its first labels; false when it does not fit.
    fn write_own_port(&self, labels: usize, port: u16, reply: &mut Reply<'_, '_>) -> bool {
        match self.owner {
            Owner::Question => {
                let (ttl_s, numbers) =
                    (self.records.zone.settings.ttl_s, [SRV_PRIORITY, SRV_WEIGHT, port]);
                reply.answer_service(labels, ttl_s, numbers).is_ok()
            }
            Owner::Name(owner) => self.write_service(below(owner, labels), port, reply),
        }
    }

    /// The addresses of that target.
    fn add_service(&self, labels: usize, node: Node<'_, '_>, reply: &mut Reply<'_, '_>) {
        match (self.owner, only_address(node).and_then(|address| address.v4())) {
            (Owner::Question, Some(v4)) if !self.is_overridden(reply.asked_below(labels)) => {
                reply.add_v4_of_asked(labels, self.records.zone.settings.ttl_s, v4);
            }
            (Owner::Question, _) => self.add_target(reply.asked_below(labels), node, reply),
            (Owner::Name(owner), _) => self.add_target(below(owner, labels), node, reply),
        }
    }

    /// Whether an extra record replaces what Kubernetes says of a name (RR84).
    fn is_overridden(&self, name: &[u8]) -> bool {
        self.records.zone.extra.overriding(name).is_some()
    }

    fn write_service(&self, target: &[u8], port: u16, reply: &mut Reply<'_, '_>) -> bool {
        let rdata = Rdata::Srv { priority: SRV_PRIORITY, weight: SRV_WEIGHT, port, target };
        reply.answer(self.owner, rtype::SRV, self.records.zone.settings.ttl_s, rdata).is_ok()
    }

    /// RR31, RR32 of a headless Service.
    pub(super) fn write_pairs(
        &self,
        entry: &ServiceEntry,
        filter: PortFilter<'_>,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let lists = entry.lists(self.records, filter);
        if lists.presence() != Presence::Present {
            return false;
        }
        let room = reply.room();
        let drawn = entry.draw_pair(self.records, &lists, self.seed);
        let first = (drawn, self.seed);
        // Those of a large Service are not written twice. Most names have one address of each family.
        let v4 = entry.v4_rows as usize;
        let names = v4.max(entry.by_address.len() - v4);
        let octets = PAIR_OCTETS + entry.wire.len() + self.records.zone.svc.len();
        let is_long = drawn.is_some() && names * octets > room;
        let is_cut = self.write_services(is_long, reply, |seed, reply| {
            let first = match seed {
                Some(_) => first,
                // Where only some endpoints have the port, a subset is drawn.
                None => (drawn.map(|_| ServiceEntry::first_pair()), 0),
            };
            entry.visit_pairs(self.records, &lists, first, room, &mut |label, port| {
                self.endpoint_target(entry, label)
                    .is_none_or(|target| self.write_service(target.wire(), port, reply))
            })
        });
        if is_cut {
            // As if it did not fit (WR21, WR23).
            reply.truncate();
        }
        if reply.is_truncated() {
            return true;
        }
        // RR38: the addresses of every target, once each, in the order of the answer section, so that the target that
        // a client reads first has its addresses for longest when room is short.
        entry.visit_names(self.records, &lists, first, room, &mut |label| {
            if let Some(target) = self.endpoint_target(entry, label) {
                let node = Node::Endpoint(entry, EndpointName::read(label));
                self.add_target(target.wire(), node, reply);
            }
            reply.has_room()
        });
        true
    }

    fn endpoint_target(&self, entry: &ServiceEntry, label: &[u8]) -> Option<Name> {
        Name::compose(&[&[label.len() as u8], label, &entry.wire, &self.records.zone.svc])
    }

    /// SRV of an endpoint name: one per port, with itself as target (RR33).
    pub(super) fn write_endpoint_ports(
        &self,
        entry: &ServiceEntry,
        name: EndpointName<'_>,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let Some(target) = self.endpoint_target(entry, name.label()) else {
            return false;
        };
        let mut met = Met::Nothing;
        self.write_services(false, reply, |seed, reply| {
            met = entry.visit_endpoint_ports(self.records, name, seed.unwrap_or(0), &mut |port| {
                self.write_service(target.wire(), port, reply)
            });
            true
        });
        match met {
            Met::Nothing => {}
            Met::All => self.add_target(target.wire(), Node::Endpoint(entry, name), reply),
            Met::Part => reply.truncate(),
        }
        met != Met::Nothing
    }

    /// Adds a target's addresses; if an extra record overrides the name, those of that record (RR84).
    fn add_target(&self, target: &[u8], node: Node<'_, '_>, reply: &mut Reply<'_, '_>) {
        match self.records.zone.extra.overriding(target) {
            Some(owner) => self.add_addresses(Node::Extra(owner), target, reply),
            None => self.add_addresses(node, target, reply),
        }
    }

    /// RR78: targets that are ours appear in additional.
    pub(super) fn write_extra_services(
        &self,
        owner: &ExtraOwner,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let Some((services, ttl_s)) = &owner.srv else {
            return false;
        };
        let in_turn = |start: usize| services[start..].iter().chain(&services[..start]);
        self.write_services(false, reply, |seed, reply| {
            for service in in_turn(start(seed, services.len())) {
                let rdata = Rdata::Srv {
                    priority: service.priority,
                    weight: service.weight,
                    port: service.port,
                    target: service.target.wire(),
                };
                let _ = reply.answer(self.owner, rtype::SRV, *ttl_s, rdata);
            }
            true
        });
        let in_turn = || in_turn(start(Some(self.seed), services.len()));
        for (index, service) in in_turn().enumerate() {
            let known = in_turn().take(index).any(|other| other.target == service.target);
            if !known && !reply.is_truncated() {
                self.add_own_name(&service.target, reply);
            }
        }
        true
    }

    /// Adds what we would answer for A and AAAA of a name, if it is ours and known.
    fn add_own_name(&self, target: &Name, reply: &mut Reply<'_, '_>) {
        let labels = Labels::of(target);
        let leads = route(self.records, &labels, &Found::Unknown, rtype::A, &mut false);
        if let Route::Own(lookup, _) = leads
            && let Some(node) = lookup.node
            && (lookup.needs == Needs::NOTHING || !self.records.lacks(lookup.needs))
        {
            self.add_addresses(node, target.wire(), reply);
        }
    }
}

/// The place of the first record, of this many.
fn start(seed: Option<u64>, count: usize) -> usize {
    seed.map_or(0, |seed| scaled(seed, count))
}

/// A name in wire form without its first labels.
fn below(name: &[u8], labels: usize) -> &[u8] {
    (0..labels).fold(name, |name, _| match name {
        [0, ..] | [] => name,
        [length, ..] => name.get(usize::from(*length) + 1..).unwrap_or_default(),
    })
}
