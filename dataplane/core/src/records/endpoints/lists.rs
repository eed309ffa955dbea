//! The lists of ports that the endpoints of a Service have: a port is looked for once in each list,
//! however many endpoints and slices have it.

#![allow(clippy::indexing_slicing, reason = "places that the index gave, in lists that it filled")]

use super::EndpointName;
use crate::records::{Port, PortName, Ports, Records, Row, ServiceEntry};
use crate::steps::step;
use crate::trees::chunks::Position;

/// Lists of ports of one Service that are looked at; nearly every Service has one or two.
pub(crate) const MAX_LISTS: usize = 16;
/// Lists of one name that its ports are taken from, and rows of the name that are asked for theirs.
pub(super) const NAME_LISTS: usize = 8;
const NAME_ROWS: usize = 16;

/// Which ports pass: all, or the one named in the question.
#[derive(Clone, Copy)]
pub(crate) enum PortFilter<'q> {
    Any,
    Named(PortName<'q>),
}

/// Whether an endpoint has a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
    /// Not all ports or lists of the Service were looked at.
    Unknown,
}

/// The distinct port numbers of one list that pass a filter.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'r> {
    all: &'r [Port],
    numbers: &'r [u16],
    /// `numbers` are places in `all`.
    are_places: bool,
}

impl<'r> Numbers<'r> {
    const NONE: Numbers<'static> = Numbers { all: &[], numbers: &[], are_places: false };

    pub(super) fn of(ports: &'r Ports, filter: PortFilter<'_>) -> Numbers<'r> {
        match filter {
            PortFilter::Any => Numbers { all: &[], numbers: &ports.numbers, are_places: false },
            PortFilter::Named(name) => {
                Numbers { all: &ports.all, numbers: name.of(ports), are_places: true }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u16> + Clone + 'r {
        let number = move |&number: &u16| match stepped(self.are_places) {
            true => self.all[usize::from(number)].number,
            false => number,
        };
        self.numbers.iter().map(number)
    }
}

fn stepped<T>(value: T) -> T {
    step(1);
    value
}

/// One list of a Service.
#[derive(Clone, Copy)]
pub(super) struct List<'r> {
    /// Number of the list; see [`Ports::number`].
    pub(super) number: u32,
    pub(super) numbers: Numbers<'r>,
}

/// The lists of a Service whose ports pass a filter.
pub(crate) struct Lists<'r> {
    lists: [List<'r>; MAX_LISTS],
    count: usize,
    /// No endpoint has another list.
    pub(super) is_all: bool,
    /// There are lists or ports that were not looked at.
    is_cut: bool,
}

impl<'r> Lists<'r> {
    pub(super) fn iter(&self) -> core::slice::Iter<'_, List<'r>> {
        self.lists[..self.count].iter()
    }

    pub(super) fn get(&self, number: u32) -> Option<&List<'r>> {
        self.iter().find(|list| list.number == number)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether an endpoint has a port that passes.
    pub(crate) fn presence(&self) -> Presence {
        match (self.count, self.is_cut) {
            (0, false) => Presence::Absent,
            (0, true) => Presence::Unknown,
            _ => Presence::Present,
        }
    }

    /// Whether all published endpoints have a port that passes.
    pub(crate) fn are_all(&self) -> bool {
        self.is_all
    }
}

impl ServiceEntry {
    /// The lists of ports of published endpoints, by number; [`MAX_LISTS`] at most.
    fn port_lists<'r>(
        &'r self,
        records: &'r Records,
    ) -> impl Iterator<Item = (u32, Option<&'r Ports>)> {
        let mut next = Position::START;
        core::iter::from_fn(move || {
            let listed = *self.by_list.at(next)?;
            let ports = records.slices.get(listed.slice).map(|slice| &*slice.ports);
            next = self.by_list.end_of_run(next, |other| other.number() == listed.number());
            Some((listed.number(), ports))
        })
        .take(MAX_LISTS + 1)
    }

    /// How many lists of ports there are; [`MAX_LISTS`] and one at most.
    pub(crate) fn list_count(&self, records: &Records) -> usize {
        self.port_lists(records).count()
    }

    /// Whether an endpoint has a port that passes.
    pub(crate) fn presence(&self, records: &Records, filter: PortFilter<'_>) -> Presence {
        let mut presence = Presence::Absent;
        for (looked_at, (_, ports)) in self.port_lists(records).enumerate() {
            let Some(ports) = ports.filter(|_| looked_at < MAX_LISTS) else {
                return Presence::Unknown;
            };
            if Numbers::of(ports, filter).len() > 0 {
                return Presence::Present;
            }
            if ports.is_cut {
                presence = Presence::Unknown;
            }
        }
        presence
    }

    /// The lists of ports that have one that passes.
    pub(crate) fn lists<'r>(&'r self, records: &'r Records, filter: PortFilter<'_>) -> Lists<'r> {
        let none = List { number: 0, numbers: Numbers::NONE };
        let mut lists = Lists { lists: [none; MAX_LISTS], count: 0, is_all: true, is_cut: false };
        for (looked_at, (number, ports)) in self.port_lists(records).enumerate() {
            let Some(ports) = ports.filter(|_| looked_at < MAX_LISTS) else {
                (lists.is_all, lists.is_cut) = (false, true);
                break;
            };
            lists.is_cut |= ports.is_cut;
            let numbers = Numbers::of(ports, filter);
            if numbers.len() == 0 {
                lists.is_all = false;
                continue;
            }
            lists.lists[lists.count] = List { number, numbers };
            lists.count += 1;
        }
        lists
    }

    /// Whether an endpoint has a named port of a protocol (RR9).
    pub(crate) fn has_protocol(
        &self,
        records: &Records,
        protocol: crate::object::Protocol,
    ) -> Presence {
        let mut presence = Presence::Absent;
        for (looked_at, (_, ports)) in self.port_lists(records).enumerate() {
            match ports {
                Some(ports) if looked_at < MAX_LISTS => {
                    if ports.has_named(protocol) {
                        return Presence::Present;
                    }
                    if ports.is_cut {
                        presence = Presence::Unknown;
                    }
                }
                Some(_) | None => return Presence::Unknown,
            }
        }
        presence
    }

    /// The port numbers of one endpoint name by list, those of each list once. Of a name that very many
    /// endpoints share, some are asked; [`NameNumbers::is_cut`] says so.
    pub(super) fn name_numbers<'r>(
        &'r self,
        records: &'r Records,
        name: &[u8],
        lists: &Lists<'r>,
    ) -> NameNumbers<'r> {
        let mut of_name =
            NameNumbers { lists: [Numbers::NONE; NAME_LISTS], count: 0, is_cut: false };
        if let ([only], true) = (&lists.lists[..lists.count], lists.is_all) {
            of_name.lists[0] = only.numbers;
            of_name.count = 1;
            return of_name;
        }
        let mut known = [0; NAME_LISTS];
        let mut rows = self.endpoint_rows(records, EndpointName::read(name));
        for row in rows.by_ref().take(NAME_ROWS) {
            let Some(list) = lists.of_row(records, row) else {
                continue;
            };
            if known[..of_name.count].contains(&list.number) {
                continue;
            }
            known[of_name.count] = list.number;
            of_name.lists[of_name.count] = list.numbers;
            of_name.count += 1;
            if of_name.count == NAME_LISTS.min(lists.len()) {
                break;
            }
        }
        of_name.is_cut = of_name.count < lists.len() && rows.next().is_some();
        of_name
    }
}

impl<'r> Lists<'r> {
    /// The list of a row, if its ports pass.
    pub(super) fn of_row(&self, records: &Records, row: &Row) -> Option<&List<'r>> {
        self.get(records.slices.get(row.slice)?.ports.number)
    }
}

/// The port numbers of one endpoint name, by list.
pub(super) struct NameNumbers<'r> {
    lists: [Numbers<'r>; NAME_LISTS],
    count: usize,
    is_cut: bool,
}

/// Port numbers that are compared one by one; more are marked in a bitmap.
const FEW_PORTS: usize = 16;

impl NameNumbers<'_> {
    fn all(&self) -> impl Iterator<Item = u16> + Clone {
        self.lists[..self.count].iter().flat_map(|numbers| numbers.iter())
    }

    /// Whether endpoints that were not asked may have other numbers.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many distinct numbers there are; if there are several long lists, how many the first one has.
    pub(super) fn count(&self) -> usize {
        let total: usize = self.lists[..self.count].iter().map(Numbers::len).sum();
        if self.count == 1 || total > FEW_PORTS {
            return self.lists[0].len();
        }
        let mut count = 0;
        self.visit_few(&mut |_| {
            count += 1;
            true
        });
        count
    }

    /// Visits each distinct number until the visitor returns false; false when it did.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(u16) -> bool) -> bool {
        if self.count == 1 {
            return self.lists[0].iter().all(visit);
        }
        let total: usize = self.lists[..self.count].iter().map(Numbers::len).sum();
        match total > FEW_PORTS {
            true => self.visit_many(visit),
            false => self.visit_few(visit),
        }
    }

    fn visit_few(&self, visit: &mut dyn FnMut(u16) -> bool) -> bool {
        let mut seen = [0; FEW_PORTS];
        let mut count = 0;
        for number in self.all() {
            if seen[..count].contains(&number) {
                continue;
            }
            seen[count] = number;
            count += 1;
            if !visit(number) {
                return false;
            }
        }
        true
    }

    /// As above with one bit per port number: 8 KiB on the stack.
    #[cold]
    fn visit_many(&self, visit: &mut dyn FnMut(u16) -> bool) -> bool {
        step(32);
        let mut seen = [0_u64; 1024];
        for number in self.all() {
            let (word, bit) = (usize::from(number >> 6), 1 << (number & 63));
            if seen[word] & bit == 0 {
                seen[word] |= bit;
                if !visit(number) {
                    return false;
                }
            }
        }
        true
    }
}
