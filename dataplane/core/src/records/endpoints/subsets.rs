//! For Services in which only some endpoints have the port that is asked for: records are looked for in the slices
//! that have the port, so that no reply pays for endpoints without it. A walk passes a bounded number of rows that give no
//! record, so it may miss some where many rows share an address or a name; it says so.

use super::seen::Seen;
use super::{LOOKS, Lists, Met, take_one};
use crate::random::{scaled, scrambled};
use crate::records::{Listed, Records, Row, ServiceEntry};
use crate::steps::step;
use crate::trees::chunks::Position;
use crate::wire::address::Address;
use crate::wire::text::ShortText;

/// Octets of the smallest record.
const SMALLEST: usize = 16;
/// Slots of the table of seen rows: for a datagram, and for the largest message.
const SMALL: usize = 512;
const LARGE: usize = 8_192;

/// Rows that may be passed because the row before has the same name: they cost less than others.
const SAME_NAMES: usize = 256;

/// Which rows of the slices are visited.
#[derive(Clone, Copy)]
enum Wanted {
    /// Those of a family; of rows of one address in one slice, the first.
    Addresses { ipv6: bool },
    /// All.
    Rows,
}

impl Wanted {
    fn are_in(self, listed: &Listed) -> bool {
        match self {
            Wanted::Addresses { ipv6 } => listed.ipv6() == ipv6,
            Wanted::Rows => true,
        }
    }

    /// Visits those of one slice; false when the visitor ended it.
    fn visit(self, rows: &[Row], visit: &mut dyn FnMut(&Row) -> bool) -> bool {
        match self {
            Wanted::Rows => rows.iter().all(visit),
            Wanted::Addresses { .. } => {
                let mut rest = rows;
                while let Some(row) = rest.first() {
                    if !visit(row) {
                        return false;
                    }
                    rest = past_address(rest);
                }
                true
            }
        }
    }
}

/// The rows behind those that have the address of the first one; they are in the order of addresses.
fn past_address(rows: &[Row]) -> &[Row] {
    let address = rows.first().map(|row| row.address);
    let is_like = |row: &Row| {
        step(1);
        Some(row.address) == address
    };
    // Nearly every address has one row.
    let count = match rows.get(1).is_some_and(is_like) {
        true => rows.partition_point(is_like),
        false => 1,
    };
    rows.get(count..).unwrap_or_default()
}

impl ServiceEntry {
    /// Visits the distinct addresses of a family whose endpoints have one of these lists (RR36), from a
    /// random one on; at most as many as fit into `room` octets.
    pub(crate) fn visit_subset_addresses(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        (ipv6, room): (bool, usize),
        seed: u64,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> Met {
        match room / SMALLEST < SMALL / 4 * 3 {
            true => self.addresses_in::<SMALL>(records, lists, ipv6, seed, visit),
            false => self.addresses_in::<LARGE>(records, lists, ipv6, seed, visit),
        }
    }

    #[inline(never)]
    fn addresses_in<const N: usize>(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        ipv6: bool,
        seed: u64,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> Met {
        let (mut seen, mut looks, mut met) = (Seen::<N>::new(), LOOKS, Met::Nothing);
        self.visit_rows(records, lists, Wanted::Addresses { ipv6 }, seed, &mut |_, row| {
            let address = row.address;
            if seen.insert(&records.hasher, address.octets(), 0) {
                (looks, met) = (looks + 2, Met::All);
                return visit(address) && !seen.is_full();
            }
            if !take_one(&mut looks) {
                met = Met::Part;
            }
            met != Met::Part
        });
        met
    }

    /// Visits the distinct (endpoint name, port) pairs of the endpoints that have one of these lists
    /// (RR31), or the first pair of each name only, as [`ServiceEntry::visit_subset_addresses`] does
    /// addresses. Returns whether some may be missing that the visitor wanted.
    pub(super) fn visit_subset_pairs(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        (names_only, room): (bool, usize),
        seed: u64,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) -> bool {
        match room / SMALLEST < SMALL / 4 * 3 {
            true => self.pairs_in::<SMALL>(records, lists, names_only, seed, visit),
            false => self.pairs_in::<LARGE>(records, lists, names_only, seed, visit),
        }
    }

    #[inline(never)]
    fn pairs_in<const N: usize>(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        names_only: bool,
        seed: u64,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) -> bool {
        let (mut seen, mut looks, mut is_cut) = (Seen::<N>::new(), LOOKS, false);
        let (mut same_names, mut last) = (SAME_NAMES, None);
        self.visit_rows(records, lists, Wanted::Rows, seed, &mut |number, row| {
            let Some(list) = lists.get(number) else {
                return true;
            };
            // Endpoints of one slice have the same ports: what has the name of the row before adds no pair.
            let name = (!row.label.is_derived()).then_some((row.slice, row.label));
            let before = core::mem::replace(&mut last, name);
            if name.is_some() && name == before {
                step(1);
                is_cut = !take_one(&mut same_names);
                return !is_cut;
            }
            let mut place = ShortText::EMPTY;
            let label = records.label(row, &mut place);
            let first = scaled(scrambled(seed, 1), list.numbers.len());
            let in_turn = list.numbers.iter().skip(first).chain(list.numbers.iter().take(first));
            let count = if names_only { 1 } else { list.numbers.len() };
            in_turn.take(count).all(|port| {
                let known_by = if names_only { 0 } else { port };
                if seen.insert(&records.hasher, label, known_by) {
                    looks += 2;
                    return visit(label, port) && !seen.is_full();
                }
                is_cut = !take_one(&mut looks);
                !is_cut
            })
        });
        is_cut
    }

    /// Visits the rows of the slices that have one of these lists and are wanted, with the number of the
    /// list, beginning with a random row and coming round once.
    fn visit_rows(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        wanted: Wanted,
        seed: u64,
        visit: &mut dyn FnMut(u32, &Row) -> bool,
    ) {
        let Some((first, split)) = self.draw_slice(records, lists, wanted, seed) else {
            return;
        };
        let mut at = first;
        let position = |listed: Listed| self.by_list.seek(|other| other.cmp(&listed));
        let rows = |listed: &Listed| records.slices.get(listed.slice).map(|slice| &*slice.rows);
        let mut has_turned = false;
        loop {
            let Some(listed) = self.by_list.at(at) else {
                if core::mem::replace(&mut has_turned, true) {
                    return;
                }
                at = Position::START;
                continue;
            };
            if has_turned && at >= first {
                break;
            }
            if lists.get(listed.number()).is_none() {
                let next = lists.iter().find(|list| list.number > listed.number());
                at = match next {
                    Some(list) => position(Listed::new(list.number, false, 0)),
                    None => self.by_list.end(),
                };
                continue;
            }
            if !wanted.are_in(listed) {
                let group = (listed.number(), listed.ipv6());
                at = self.by_list.end_of_run(at, |other| (other.number(), other.ipv6()) == group);
                continue;
            }
            let skipped = if at == first && !has_turned { split } else { 0 };
            let shown = rows(listed).and_then(|rows| rows.get(skipped..)).unwrap_or(&[]);
            if !wanted.visit(shown, &mut |row| visit(listed.number(), row)) {
                return;
            }
            at = self.by_list.after(at);
        }
        if let Some(listed) = self.by_list.at(first) {
            let shown = rows(listed).and_then(|rows| rows.get(..split)).unwrap_or(&[]);
            wanted.visit(shown, &mut |row| visit(listed.number(), row));
        }
    }

    /// A random slice of those wanted, and a random place among its rows; each row is equally likely while most rows
    /// are wanted (WR24).
    fn draw_slice(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        wanted: Wanted,
        seed: u64,
    ) -> Option<(Position, usize)> {
        let position = |listed: Listed| self.by_list.seek(|other| other.cmp(&listed));
        for turn in 0..super::DRAWS {
            let (from, to) = (Position::START, self.by_address.end());
            let row = self.by_address.at(self.by_address.draw(from, to, scrambled(seed, turn)))?;
            let slice = records.slices.get(row.slice)?;
            let listed = Listed::new(slice.ports.number, !row.address.is_v4(), row.slice);
            if lists.get(listed.number()).is_some() && wanted.are_in(&listed) {
                let place =
                    slice.rows.binary_search_by(|other| crate::records::address_order(other, row));
                return Some((position(listed), place.unwrap_or(0)));
            }
        }
        // Few rows are wanted: a slice of any of the lists.
        let first = scaled(scrambled(seed, super::DRAWS), lists.len());
        let in_turn = lists.iter().skip(first).chain(lists.iter().take(first));
        let families = in_turn.flat_map(|list| [(list.number, false), (list.number, true)]);
        for (number, ipv6) in families {
            let from = position(Listed::new(number, ipv6, 0));
            let to = position(Listed::new(number, ipv6, u32::MAX));
            if from < to && self.by_list.at(from).is_some_and(|at| wanted.are_in(at)) {
                let at = self.by_list.draw(from, to, scrambled(seed, super::DRAWS + 1));
                let rows = records.slices.get(self.by_list.at(at)?.slice)?.rows.len();
                return Some((at, scaled(scrambled(seed, super::DRAWS + 2), rows)));
            }
        }
        None
    }
}
