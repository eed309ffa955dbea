//! SRV records (docs/dns.md §3.4): of Services, of their endpoints, and of extra records, with the
//! addresses of their targets as additional data.

use crate::answer::Answer;
use crate::endpoints::{EndpointName, PortFilter};
use crate::extra::ExtraOwner;
use crate::message::{Labels, rtype};
use crate::name::Name;
use crate::records::{Needs, ServiceEntry, ServiceObject};
use crate::reply::{Rdata, Reply};
use crate::route::{Route, route};
use crate::schema::Node;

/// Priority and weight of every SRV record derived from Kubernetes (§3.4).
const SRV_PRIORITY: u16 = 0;
const SRV_WEIGHT: u16 = 100;

/// Shows (endpoint name, port) pairs in a fixed order until it is told to stop.
type Walk<'a> = &'a dyn Fn(&mut dyn FnMut(&[u8], u16) -> bool);

/// A walk from pair number `start` on, coming round once.
fn walk_round(walk: Walk<'_>, start: usize, visit: &mut dyn FnMut(&[u8], u16) -> bool) {
    let mut index = 0;
    let mut goes_on = true;
    walk(&mut |label, port| {
        index += 1;
        goes_on = index <= start || visit(label, port);
        goes_on
    });
    let mut left = if goes_on { start } else { 0 };
    if left > 0 {
        walk(&mut |label, port| {
            left -= 1;
            visit(label, port) && left > 0
        });
    }
}

impl Answer<'_> {
    /// RR30, RR32: the Service's ports, with itself as target.
    pub(super) fn write_service_ports(
        &self,
        entry: &ServiceEntry,
        object: &ServiceObject,
        filter: PortFilter<'_>,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let Some(target) = Name::compose(&[&entry.wire, &self.records.zone.svc]) else {
            return false;
        };
        let found = match filter {
            PortFilter::Any => {
                let numbers = &object.ports.numbers[..];
                let start = self.start(numbers.len());
                for number in numbers[start..].iter().chain(&numbers[..start]) {
                    self.write_service(target.wire(), *number, reply);
                }
                !numbers.is_empty()
            }
            PortFilter::Named(port) => {
                // The name may stand twice in an object from a file; each number is one record.
                let matching = || object.ports.all.iter().filter(|p| port.matches(p));
                for (index, port) in matching().enumerate() {
                    if !matching().take(index).any(|other| other.number == port.number) {
                        self.write_service(target.wire(), port.number, reply);
                    }
                }
                matching().next().is_some()
            }
        };
        if found {
            self.add_target(target.wire(), Node::ClusterIp(entry, object), reply);
        }
        found
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
        let first = entry.draw_pair(self.records, filter, self.seed);
        let walk: Walk<'_> = &|visit| entry.visit_pairs(self.records, filter, first, visit);
        let start = if first.is_some() { Some(0) } else { self.drawn_of_all(walk) };
        let Some(start) = start else {
            return false;
        };
        self.write_walked(entry, walk, start, reply);
        self.add_endpoint_targets(entry, walk, start, reply);
        true
    }

    /// The number of a random pair of a walk; `None` when it has none.
    fn drawn_of_all(&self, walk: Walk<'_>) -> Option<usize> {
        let mut count = 0;
        walk(&mut |_, _| {
            count += 1;
            true
        });
        (count > 0).then(|| self.start(count))
    }

    /// An SRV record for each (endpoint name, port) pair of a walk, from pair number `start` on.
    fn write_walked(
        &self,
        entry: &ServiceEntry,
        walk: Walk<'_>,
        start: usize,
        reply: &mut Reply<'_, '_>,
    ) {
        walk_round(walk, start, &mut |label, port| {
            self.endpoint_target(entry, label)
                .is_none_or(|target| self.write_service(target.wire(), port, reply))
        });
    }

    /// RR38: the addresses of every target, once each, in the order of the answer section, so that
    /// the target a client reads first is the last to go without.
    fn add_endpoint_targets(
        &self,
        entry: &ServiceEntry,
        walk: Walk<'_>,
        start: usize,
        reply: &mut Reply<'_, '_>,
    ) {
        if reply.is_truncated() {
            return;
        }
        let (mut first, mut last): (Option<Name>, Option<Name>) = (None, None);
        walk_round(walk, start, &mut |label, _| {
            let Some(target) = self.endpoint_target(entry, label) else {
                return true;
            };
            // The pairs of one name follow one another; those of the first may come round again.
            if last.as_ref() != Some(&target) && first.as_ref() != Some(&target) {
                let node = Node::Endpoint(entry, EndpointName::read(label));
                self.add_target(target.wire(), node, reply);
                first.get_or_insert_with(|| target.clone());
                last = Some(target);
            }
            reply.has_room()
        });
    }

    fn endpoint_target(&self, entry: &ServiceEntry, label: &[u8]) -> Option<Name> {
        Name::compose(&[&[label.len() as u8], label, &entry.wire, &self.records.zone.svc])
    }

    /// RR33.
    pub(super) fn write_endpoint_ports(
        &self,
        entry: &ServiceEntry,
        name: EndpointName<'_>,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let Some(target) = self.endpoint_target(entry, name.label()) else {
            return false;
        };
        let walk: Walk<'_> = &|visit| entry.visit_endpoint_ports(self.records, name, visit);
        let Some(start) = self.drawn_of_all(walk) else {
            return false;
        };
        self.write_walked(entry, walk, start, reply);
        self.add_target(target.wire(), Node::Endpoint(entry, name), reply);
        true
    }

    /// Adds a target's addresses; an overriding extra record speaks for its name (RR84).
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
        let start = self.start(services.len());
        let in_turn = || services[start..].iter().chain(&services[..start]);
        for service in in_turn() {
            let rdata = Rdata::Srv {
                priority: service.priority,
                weight: service.weight,
                port: service.port,
                target: service.target.wire(),
            };
            let _ = reply.answer(self.owner, rtype::SRV, *ttl_s, rdata);
        }
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
        if let Route::Own(lookup, _) = route(self.records, &labels, rtype::A)
            && let Some(node) = lookup.node
            && (lookup.needs == Needs::NOTHING || !self.records.lacks(lookup.needs))
        {
            self.add_addresses(node, target.wire(), reply);
        }
    }
}
