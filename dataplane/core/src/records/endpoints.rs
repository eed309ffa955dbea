//! The published endpoints of one Service as RRsets need them: distinct addresses, the rows of one name,
//! the lists of ports, and in `pairs` what SRV records are made of.
//!
//! Each walk begins at a place drawn at random (WR24) and looks at a bounded number of rows beside those
//! that give a record. What one reply does not reach, others do; [`Met::Part`] says so.

mod lists;
mod pairs;
mod subsets;
mod seen;

use crate::random::{scaled, scrambled};
use crate::records::{Records, Row, ServiceEntry};
use crate::steps::step;
use crate::trees::chunks::{Chunks, Position};
use crate::wire::address::{Address, dashed};
use crate::wire::text::ShortText;

pub(crate) use lists::{Lists, MAX_LISTS, PortFilter, Presence};

/// Rows of one address or name that are passed one by one; a search skips more.
const NEAR_ROWS: usize = 4;
/// Draws of a row. The last one is taken even if it is not the first row of its address (WR24).
const DRAWS: u64 = 8;
/// Rows that a walk may pass without a record, besides two for each record.
const LOOKS: usize = 24;

/// What a walk met of the records that it looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// There is none.
    Nothing,
    /// All of them, or as many as were wanted.
    All,
    /// Perhaps not all: it would have taken a look at too many rows (row L12).
    Part,
}

impl Met {
    /// Of a walk that leaves nothing out.
    pub(crate) fn all(any: bool) -> Met {
        if any { Met::All } else { Met::Nothing }
    }
}

/// One label that may name endpoints.
#[derive(Clone, Copy)]
pub(crate) struct EndpointName<'q> {
    label: &'q [u8],
    /// The address whose derived name it is.
    derived: Option<Address>,
}

impl<'q> EndpointName<'q> {
    /// Reads a lower-case label. Only the one spelling of RR23 is an endpoint name.
    pub(crate) fn read(label: &'q [u8]) -> EndpointName<'q> {
        // The `0` that RR23 adds to a leading or trailing dash reads as part of the same address.
        let derived = dashed(label).filter(|&a| ShortText::of(a).as_bytes() == label);
        EndpointName { label, derived }
    }

    /// The label without its length octet.
    pub(crate) fn label(&self) -> &'q [u8] {
        self.label
    }
}

impl ServiceEntry {
    /// The rows that are named by their address, in the order of addresses.
    fn unnamed(&self) -> &Chunks<Row> {
        if self.by_name.is_empty() { &self.by_address } else { &self.beside_named }
    }

    /// The position of the first row with an IPv6 address.
    fn first_v6(&self) -> Position {
        match self.v4_rows as usize {
            0 => Position::START,
            v4_rows if v4_rows == self.by_address.len() => self.by_address.end(),
            _ => self.by_address.seek(|row| row.address.is_v4().cmp(&false).reverse()),
        }
    }

    /// Calls `visit` with each distinct address of a family, beginning with one drawn at random and
    /// coming round once (WR24), until it returns false. Returns whether there is any.
    pub(crate) fn visit_addresses(
        &self,
        ipv6: bool,
        seed: u64,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> bool {
        let v4_rows = self.v4_rows as usize;
        let rows = if ipv6 { self.by_address.len() - v4_rows } else { v4_rows };
        if rows == 0 {
            return false;
        }
        let (from, to) = match ipv6 {
            true => (self.first_v6(), self.by_address.end()),
            false => (Position::START, self.first_v6()),
        };
        let repeated = if ipv6 { self.repeated_v6 } else { self.repeated_v4 };
        if repeated > 0 {
            visit_distinct(&self.by_address, from, to, seed, visit);
            return true;
        }
        let start = self.by_address.draw(from, to, seed);
        let mut rows = self.by_address.between(start, to);
        if rows.all(|row| visit(row.address)) {
            self.by_address.between(from, start).all(|row| visit(row.address));
        }
        true
    }

    /// The rows with an IPv4 address as [`ServiceEntry::visit_addresses`] visits them: from one drawn at random on, then
    /// those before it. `None` when there is none, when some share an address, or when they are in several chunks.
    pub(crate) fn turned_v4(&self, seed: u64) -> Option<(&[Row], &[Row])> {
        let rows = self.by_address.as_one()?.get(..self.v4_rows as usize)?;
        if rows.is_empty() || self.repeated_v4 > 0 {
            return None;
        }
        step(rows.len());
        let (before, first) = rows.split_at_checked(scaled(seed, rows.len()))?;
        Some((first, before))
    }

    /// Whether an endpoint has this address.
    pub(crate) fn has_address(&self, address: Address) -> bool {
        let at = self.by_address.seek(|row| row.address.cmp(&address));
        self.by_address.at(at).is_some_and(|row| row.address == address)
    }

    /// Whether an endpoint has this name (RR8).
    pub(crate) fn has_endpoint(&self, records: &Records, name: EndpointName<'_>) -> bool {
        self.bearer(records, name.label).is_some() || self.spells(name)
    }

    /// Whether an endpoint without another name has the address that the name is made of.
    fn spells(&self, name: EndpointName<'_>) -> bool {
        name.derived.is_some_and(|address| {
            let at = self.by_address.seek(|row| row.address.cmp(&address));
            // Rows named by their address are the first of it.
            let row = self.by_address.at(at);
            row.is_some_and(|row| row.address == address && row.label.is_derived())
        })
    }

    /// A row that has this name, not one whose address spells it.
    fn bearer(&self, records: &Records, label: &[u8]) -> Option<&Row> {
        let at = self.by_name.seek(|row| records.name_of(row).cmp(&Some(label)));
        self.by_name.at(at).filter(|row| records.name_of(row) == Some(label))
    }

    /// The rows of one endpoint name: those that have it, then those whose address spells it.
    pub(crate) fn endpoint_rows<'a>(
        &'a self,
        records: &'a Records,
        name: EndpointName<'a>,
    ) -> impl Iterator<Item = &'a Row> + Clone + 'a {
        let at = self.by_name.seek(|row| records.name_of(row).cmp(&Some(name.label)));
        let named =
            self.by_name.from(at).take_while(move |row| records.name_of(row) == Some(name.label));
        named.chain(self.spelling(name.derived))
    }

    /// The rows whose name is made of this address, if it is one.
    fn spelling(&self, address: Option<Address>) -> impl Iterator<Item = &Row> + Clone {
        address.into_iter().flat_map(move |address| {
            let at = self.by_address.seek(|row| row.address.cmp(&address));
            let rows = self.by_address.from(at);
            rows.take_while(move |row| row.address == address && row.label.is_derived())
        })
    }

    /// The same as [`ServiceEntry::visit_addresses`] for the endpoints of one name (RR25).
    pub(crate) fn visit_endpoint_addresses(
        &self,
        records: &Records,
        name: EndpointName<'_>,
        ipv6: bool,
        seed: u64,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> bool {
        let spelled = name.derived.filter(|address| address.is_v4() != ipv6 && self.spells(name));
        let order = |row: &Row| {
            let family = (!row.address.is_v4()).cmp(&ipv6);
            records.name_of(row).cmp(&Some(name.label)).then(family)
        };
        let from = self.by_name.seek(order);
        let is_borne = self.by_name.at(from).is_some_and(|row| order(row).is_eq());
        if !is_borne {
            return spelled.is_some_and(|address| {
                visit(address);
                true
            });
        }
        let to = self.by_name.seek(|row| order(row).then(core::cmp::Ordering::Less));
        // The address that the name is made of may also have a row that has the name.
        let spelled = spelled.filter(|&address| {
            let order = |row: &Row| {
                let name = records.name_of(row).cmp(&Some(name.label));
                name.then(row.address.cmp(&address))
            };
            let at = self.by_name.seek(order);
            self.by_name.at(at).is_none_or(|row| order(row).is_ne())
        });
        let is_first = seed & 1 == 0;
        if let Some(address) = spelled
            && is_first
            && !visit(address)
        {
            return true;
        }
        let wants_more = visit_distinct(&self.by_name, from, to, seed, visit);
        if let Some(address) = spelled
            && !is_first
            && wants_more
        {
            visit(address);
        }
        true
    }

    /// Whether this many rows have a name that their addresses take more than this many octets.
    pub(crate) fn exceeds(&self, records: &Records, name: EndpointName<'_>, octets: usize) -> bool {
        let smallest = 16;
        let at = self.by_name.seek(|row| records.name_of(row).cmp(&Some(name.label)));
        let past = self.by_name.skipped(at, octets / smallest + NEAR_ROWS);
        self.by_name.at(past).is_some_and(|row| records.name_of(row) == Some(name.label))
    }
}

/// Visits the distinct addresses of rows in the order of addresses, from a random one on; false when the visitor
/// ended it.
fn visit_distinct(
    rows: &Chunks<Row>,
    from: Position,
    to: Position,
    seed: u64,
    visit: &mut dyn FnMut(Address) -> bool,
) -> bool {
    let mut start = from;
    for turn in 0..DRAWS {
        start = rows.draw(from, to, scrambled(seed, turn));
        // Each address is first equally often when only its first row may be drawn (WR24).
        let before = if start > from { rows.before(start) } else { None };
        if before.map(|row| row.address) != rows.at(start).map(|row| row.address) {
            break;
        }
    }
    let first = rows.at(start).map(|row| row.address);
    let mut at = start;
    let mut has_turned = false;
    loop {
        if at >= to {
            if core::mem::replace(&mut has_turned, true) {
                return true;
            }
            at = from;
        }
        let Some(address) = rows.at(at).map(|row| row.address) else {
            return true;
        };
        if has_turned && first == Some(address) {
            return true;
        }
        if !visit(address) {
            return false;
        }
        at = past_run(rows, at, to, |row| row.address == address);
    }
}

/// Takes one of those that are left; false when none is.
fn take_one(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left -= usize::from(is_left);
    is_left
}

/// The position behind the rows that are like the one at `at`, which lie together, at most `to`.
fn past_run(
    rows: &Chunks<Row>,
    at: Position,
    to: Position,
    is_like: impl Fn(&Row) -> bool,
) -> Position {
    let mut next = at;
    for _ in 0..NEAR_ROWS {
        next = rows.after(next);
        if next >= to || !rows.at(next).is_some_and(&is_like) {
            return next;
        }
    }
    rows.end_of_run(next, is_like)
}

#[cfg(test)]
mod tests;
