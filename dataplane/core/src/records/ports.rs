//! Lists of ports, and how a named port is found in one.

#![allow(clippy::indexing_slicing, reason = "places that the index gave, in lists that it filled")]

use alloc::boxed::Box;
use alloc::vec::Vec;

use core::hash::{Hash, Hasher};
use hashbrown::HashSet;

use crate::object::Protocol;
use crate::steps::step;

/// The ports of a Service or a slice, shared by all that have the same.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) all: Box<[Port]>,
    /// Port numbers, each once, in the same order.
    pub(crate) numbers: Box<[u16]>,
    /// Places in `all` by (name, protocol, port number), each such port once.
    by_name: Box<[u16]>,
    /// Protocols that have a port with a name, one bit each.
    named: u8,
    /// The object has more ports than are kept.
    pub(crate) is_cut: bool,
    /// Number of this list, which no other one in use has, chosen by the writer.
    pub(crate) number: u32,
}

/// Ports among which a name is looked for one by one, which is faster than a search.
const FEW_PORTS: usize = 8;

impl Ports {
    /// Makes a list of ports in the order in which they are answered.
    pub(crate) fn new(all: Vec<Port>, is_cut: bool) -> Ports {
        step(2 * all.len());
        let mut seen = HashSet::<u16, foldhash::fast::RandomState>::default();
        let numbers = all.iter().map(|port| port.number).filter(|&number| seen.insert(number));
        let numbers = numbers.collect();
        fn key(port: &Port) -> (&[u8], Protocol, u16) {
            (&port.name, port.protocol, port.number)
        }
        let mut by_name: Vec<u16> = (0..all.len().min(usize::from(u16::MAX)) as u16).collect();
        by_name
            .sort_unstable_by(|&a, &b| key(&all[usize::from(a)]).cmp(&key(&all[usize::from(b)])));
        by_name.dedup_by(|a, b| all[usize::from(*a)] == all[usize::from(*b)]);
        let with_name = all.iter().filter(|port| !port.name.is_empty());
        let named = with_name.fold(0, |bits, port| bits | 1 << port.protocol as u8);
        Ports { numbers, by_name: by_name.into(), named, is_cut, number: 0, all: all.into() }
    }

    /// The places in `all` of the ports with this name and protocol, by port number.
    pub(crate) fn named(&self, name: &[u8], protocol: Protocol) -> &[u16] {
        let port = |&place: &u16| {
            step(1);
            &self.all[usize::from(place)]
        };
        let is_named = |place: &u16| {
            let port = port(place);
            *port.name == *name && port.protocol == protocol
        };
        let start = match self.by_name.len() <= FEW_PORTS {
            true => self.by_name.iter().position(is_named).unwrap_or(self.by_name.len()),
            false => self.by_name.partition_point(|place| {
                let port = port(place);
                (&*port.name, port.protocol) < (name, protocol)
            }),
        };
        let count = self.by_name[start..].iter().take_while(|&place| is_named(place)).count();
        &self.by_name[start..start + count]
    }

    /// Whether a port of this protocol has a name (RR9).
    pub(crate) fn has_named(&self, protocol: Protocol) -> bool {
        self.named >> protocol as u8 & 1 == 1
    }
}

/// Lists are equal if their ports are; their numbers do not count.
impl PartialEq for Ports {
    fn eq(&self, other: &Ports) -> bool {
        self.all == other.all && self.is_cut == other.is_cut
    }
}

impl Eq for Ports {}

impl Hash for Ports {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all.hash(state);
        self.is_cut.hash(state);
    }
}

/// A port of a Service or a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Port {
    /// Lower case, empty when unnamed.
    pub(crate) name: Box<[u8]>,
    pub(crate) number: u16,
    pub(crate) protocol: Protocol,
}

/// The labels of a named port.
#[derive(Clone, Copy)]
pub(crate) struct PortName<'q> {
    pub(crate) name: &'q [u8],
    pub(crate) protocol: Protocol,
}

impl PortName<'_> {
    /// The places of the ports with this name in a list.
    pub(crate) fn of<'r>(&self, ports: &'r Ports) -> &'r [u16] {
        ports.named(self.name, self.protocol)
    }
}
