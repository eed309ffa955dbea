//! Distinct (endpoint name, port) pairs of a headless Service: a round over them that begins with a pair
//! drawn at random (WR24) and costs what the reply holds, not what the Service has. It meets every name: endpoints with a
//! hostname and those without are in lists of their own, so none of them hides the others.

use core::ops::{Bound, Range, RangeBounds};

use super::lists::Lists;
use super::{EndpointName, LOOKS, Met, past_run, take_one};
use crate::random::{scaled, scrambled};
use crate::records::{Records, Row, ServiceEntry};
use crate::trees::chunks::Position;
use crate::wire::address::Address;
use crate::wire::text::ShortText;

/// Rows of a name that are counted at most, when one of them is drawn.
const COUNTED_ROWS: usize = 8;
/// Random draws; the pair of the last one is taken in any case (WR24).
const DRAWS: u64 = 6;

/// The rows that share a name.
#[derive(Clone, Copy)]
enum Group<'r> {
    /// Endpoints carry this hostname (RR21).
    Borne(&'r [u8]),
    /// The name is made of this address.
    Derived(Address),
}

/// Where rounds begin: a pair drawn at random.
#[derive(Clone, Copy)]
pub(crate) struct FirstPair<'r> {
    name: Group<'r>,
    /// Number of ports of the name that come last instead of first.
    port: usize,
}

/// What is visited on the way round, and what may still be.
struct Round<'r, 'v> {
    records: &'r Records,
    lists: &'v Lists<'r>,
    /// The ports of the next name that are shown, by their number; of later names all are shown.
    ports: Range<usize>,
    /// Each name is shown once, with any port.
    names_only: bool,
    /// Rows that may still be passed without a pair.
    looks: usize,
    /// Rows named by their address are left to visit from here on, when there were too many without a pair.
    put_off: Option<Address>,
    /// Whether some ports of a name may be missing.
    is_cut: bool,
    visit: &'v mut dyn FnMut(&[u8], u16) -> bool,
}

impl Round<'_, '_> {
    /// Visits those ports of one name that are shown.
    fn visit_name(&mut self, entry: &ServiceEntry, name: &[u8]) -> bool {
        self.looks = self.looks.saturating_add(2);
        if self.names_only {
            return (self.visit)(name, 0);
        }
        let wanted = core::mem::replace(&mut self.ports, 0..usize::MAX);
        let mut place = 0..;
        let numbers = entry.name_numbers(self.records, name, self.lists);
        self.is_cut |= numbers.is_cut();
        numbers.visit(&mut |port| {
            let is_wanted = place.next().is_some_and(|place| wanted.contains(&place));
            !is_wanted || (self.visit)(name, port)
        })
    }
}

impl ServiceEntry {
    /// Calls `visit` with the distinct (endpoint name, port) pairs of these lists (RR31-RR33, RR37), from
    /// [`ServiceEntry::draw_pair`] on and coming round once, until it returns false; at most as many as
    /// fit into `room` octets. Returns whether some may be missing that the visitor wanted.
    pub(crate) fn visit_pairs<'r>(
        &'r self,
        records: &'r Records,
        lists: &Lists<'r>,
        (first, seed): (Option<FirstPair<'r>>, u64),
        room: usize,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) -> bool {
        match first {
            None => self.visit_subset_pairs(records, lists, (false, room), seed, visit),
            Some(first) => self.visit_round(records, lists, first, false, visit),
        }
    }

    /// The same for each endpoint name of such pairs once, in the same order.
    pub(crate) fn visit_names<'r>(
        &'r self,
        records: &'r Records,
        lists: &Lists<'r>,
        (first, seed): (Option<FirstPair<'r>>, u64),
        room: usize,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let visit = &mut |name: &[u8], _| visit(name);
        match first {
            None => self.visit_subset_pairs(records, lists, (true, room), seed, visit),
            Some(first) => self.visit_round(records, lists, first, true, visit),
        };
    }

    /// A round over all names: all endpoints have one of these lists. Returns whether some ports may be missing.
    fn visit_round<'r>(
        &'r self,
        records: &'r Records,
        lists: &Lists<'r>,
        FirstPair { name, port }: FirstPair<'r>,
        names_only: bool,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) -> bool {
        let (ports, looks) = (port..usize::MAX, LOOKS);
        let (put_off, is_cut) = (None, false);
        let round = &mut Round { records, lists, ports, names_only, looks, put_off, is_cut, visit };
        // What was left out of the first name comes last.
        let rest = |round: &mut Round<'_, '_>| {
            round.ports = 0..port;
            !round.names_only
        };
        let _ = match name {
            Group::Borne(name) => {
                self.visit_borne(Some(name), Bound::Unbounded, round)
                    && self.visit_derived(None, Bound::Unbounded, round)
                    && self.visit_borne(None, Bound::Excluded(name), round)
                    && self.visit_put_off(round)
                    && rest(round)
                    && self.visit_borne(Some(name), Bound::Included(name), round)
            }
            Group::Derived(address) => {
                self.visit_derived(Some(address), Bound::Unbounded, round)
                    && self.visit_borne(None, Bound::Unbounded, round)
                    && self.visit_put_off(round)
                    && self.visit_derived(None, Bound::Excluded(address), round)
                    && rest(round)
                    && self.visit_derived(Some(address), Bound::Included(address), round)
            }
        };
        round.is_cut
    }

    /// The pairs of names that endpoints have as hostname, in the order of names.
    fn visit_borne(
        &self,
        from: Option<&[u8]>,
        to: Bound<&[u8]>,
        round: &mut Round<'_, '_>,
    ) -> bool {
        let records = round.records;
        let rows = &self.by_name;
        let mut at = match from {
            None => Position::START,
            Some(name) => rows.seek(|row| records.name_of(row).cmp(&Some(name))),
        };
        while let Some(name) = rows.at(at).and_then(|row| records.name_of(row))
            && (Bound::Unbounded, to).contains(&name)
        {
            if !round.visit_name(self, name) {
                return false;
            }
            at = past_run(rows, at, rows.end(), |row| records.name_of(row) == Some(name));
        }
        true
    }

    /// The pairs of endpoints named by their address, in the order of addresses. Where too many of them in a row have names
    /// that are hostnames of others too, the rest is put off.
    fn visit_derived(
        &self,
        from: Option<Address>,
        to: Bound<Address>,
        round: &mut Round<'_, '_>,
    ) -> bool {
        let rows = self.unnamed();
        let mut at = match from {
            None => Position::START,
            Some(address) => rows.seek(|row| row.address.cmp(&address)),
        };
        while let Some(row) = rows.at(at)
            && (Bound::Unbounded, to).contains(&row.address)
        {
            let label = ShortText::of(row.address);
            let name = label.as_bytes();
            // A name that some endpoint has as hostname is visited with it.
            if self.bearer(round.records, name).is_none() {
                if !round.visit_name(self, name) {
                    return false;
                }
            } else if !take_one(&mut round.looks) {
                round.put_off = Some(row.address);
                return true;
            }
            at = past_run(rows, at, rows.end(), |other| other.address == row.address);
        }
        true
    }

    /// What was put off, when every hostname has been visited. Each row that is passed from now on shares its name with one
    /// of those, so there are no more such rows than names that gave a pair.
    fn visit_put_off(&self, round: &mut Round<'_, '_>) -> bool {
        round.looks = usize::MAX;
        let from = round.put_off.take();
        from.is_none_or(|from| self.visit_derived(Some(from), Bound::Unbounded, round))
    }

    /// A pair drawn at random; `None` when some endpoints have none of these lists. Each pair is equally likely
    /// (WR24), unless more than 7 endpoints share a name or numbers of ports differ much: exact chances would take a
    /// look at all endpoints.
    ///
    /// To take the first row drawn would be 20 lines shorter, and unfair: an endpoint in two slices, as while they are
    /// rewritten, or with two addresses beside others with one, would come first twice as often. Clients that use the
    /// first SRV record would send it twice the load.
    pub(crate) fn draw_pair<'r>(
        &'r self,
        records: &'r Records,
        lists: &Lists<'r>,
        seed: u64,
    ) -> Option<FirstPair<'r>> {
        if !lists.is_all {
            return None;
        }
        let most = lists.iter().map(|list| list.numbers.len()).max()?;
        let end = self.by_address.end();
        for turn in 0..DRAWS {
            let number = |part| scrambled(seed, 3 * turn + part);
            let row = self.by_address.at(self.by_address.draw(Position::START, end, number(0)))?;
            let mut place = ShortText::EMPTY;
            let label = records.label(row, &mut place);
            let rows = self.endpoint_rows(records, EndpointName::read(label));
            let rows = rows.take(COUNTED_ROWS).count();
            let pairs = match rows < COUNTED_ROWS {
                true => self.name_numbers(records, label, lists).count(),
                // A name of many rows counts as if all of them had the ports of this row.
                false => lists.of_row(records, row)?.numbers.len(),
            };
            // A name is drawn in proportion to its rows. It is accepted in proportion to its pairs per row, of which
            // there are at most `most`. So each pair is equally likely.
            if turn + 1 == DRAWS || scaled(number(1), rows * most) < pairs {
                let (name, port) = (self.group_of(records, row), scaled(number(2), pairs));
                return Some(FirstPair { name, port });
            }
        }
        None
    }

    /// Where a round begins that has the same order each time: names made of addresses, then hostnames.
    pub(crate) fn first_pair() -> FirstPair<'static> {
        FirstPair { name: Group::Derived(Address::of_v4([0; 4])), port: 0 }
    }

    /// The name that a row belongs to.
    fn group_of<'r>(&'r self, records: &'r Records, row: &'r Row) -> Group<'r> {
        let own = records.name_of(row);
        let bearer =
            || records.name_of(self.bearer(records, ShortText::of(row.address).as_bytes())?);
        own.or_else(bearer).map_or(Group::Derived(row.address), Group::Borne)
    }

    /// The same for the ports of one endpoint name (RR33).
    pub(crate) fn visit_endpoint_ports(
        &self,
        records: &Records,
        name: EndpointName<'_>,
        seed: u64,
        visit: &mut dyn FnMut(u16) -> bool,
    ) -> Met {
        let lists = self.lists(records, super::PortFilter::Any);
        let numbers = self.name_numbers(records, name.label, &lists);
        let count = numbers.count();
        if count == 0 {
            return Met::Nothing;
        }
        let start = scaled(seed, count);
        let mut place = 0..;
        let wants_more = numbers
            .visit(&mut |port| place.next().is_some_and(|place| place < start) || visit(port));
        if wants_more && start > 0 {
            let mut left = start;
            numbers.visit(&mut |port| {
                left -= 1;
                visit(port) && left > 0
            });
        }
        if numbers.is_cut() { Met::Part } else { Met::All }
    }
}
