//! For Services in which only some endpoints have the port that is asked for: records are looked for in the slices
//! that have the port, so that no reply pays for endpoints without it.

use super::seen::Seen;
use super::{LOOKS, Lists};
use crate::random::{scaled, scrambled};
use crate::records::{Listed, Records, Row, ServiceEntry};
use crate::trees::chunks::Position;
use crate::wire::address::Address;
use crate::wire::text::ShortText;

/// Octets of the smallest record.
const SMALLEST: usize = 16;
/// Slots of the table of seen rows: for a datagram, and for the largest message.
const SMALL: usize = 512;
const LARGE: usize = 8_192;

/// Which rows of a slice are wanted.
type Wanted<'a> = &'a dyn Fn(&Listed) -> bool;

impl ServiceEntry {
    /// Visits the distinct addresses of a family whose endpoints have one of these lists (RR36), from a
    /// random one on; at most as many as fit into `room` octets. Returns whether there is any.
    pub(crate) fn visit_subset_addresses(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        (ipv6, room): (bool, usize),
        seed: u64,
        visit: &mut dyn FnMut(Address) -> bool,
    ) -> bool {
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
    ) -> bool {
        let (mut seen, mut looks, mut any) = (Seen::<N>::new(), LOOKS, false);
        let wanted = |listed: &Listed| listed.ipv6() == ipv6;
        self.visit_rows(records, lists, &wanted, seed, &mut |_, row| {
            let address = row.address;
            if seen.insert(&records.hasher, address.octets(), 0) {
                (looks, any) = (looks + 2, true);
                return visit(address) && !seen.is_full();
            }
            looks -= 1;
            looks > 0
        });
        any
    }

    /// Visits the distinct (endpoint name, port) pairs of the endpoints that have one of these lists
    /// (RR31), or the first pair of each name only, as [`ServiceEntry::visit_subset_addresses`] does
    /// addresses.
    pub(super) fn visit_subset_pairs(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        (names_only, room): (bool, usize),
        seed: u64,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) {
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
    ) {
        let (mut seen, mut looks) = (Seen::<N>::new(), LOOKS);
        self.visit_rows(records, lists, &|_| true, seed, &mut |number, row| {
            let Some(list) = lists.get(number) else {
                return true;
            };
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
                looks -= 1;
                looks > 0
            })
        });
    }

    /// Visits the rows of the slices that have one of these lists and are wanted, with the number of the
    /// list, beginning with a random row and coming round once.
    fn visit_rows(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        wanted: Wanted<'_>,
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
            if !wanted(listed) {
                let group = (listed.number(), listed.ipv6());
                at = self.by_list.end_of_run(at, |other| (other.number(), other.ipv6()) == group);
                continue;
            }
            let skipped = if at == first && !has_turned { split } else { 0 };
            let shown = rows(listed).and_then(|rows| rows.get(skipped..)).unwrap_or(&[]);
            if !shown.iter().all(|row| visit(listed.number(), row)) {
                return;
            }
            at = self.by_list.after(at);
        }
        if let Some(listed) = self.by_list.at(first) {
            let shown = rows(listed).and_then(|rows| rows.get(..split)).unwrap_or(&[]);
            shown.iter().all(|row| visit(listed.number(), row));
        }
    }

    /// A random slice of those wanted, and a random place among its rows; each row is equally likely while most rows
    /// are wanted (WR24).
    fn draw_slice(
        &self,
        records: &Records,
        lists: &Lists<'_>,
        wanted: Wanted<'_>,
        seed: u64,
    ) -> Option<(Position, usize)> {
        let position = |listed: Listed| self.by_list.seek(|other| other.cmp(&listed));
        for turn in 0..super::DRAWS {
            let (from, to) = (Position::START, self.by_address.end());
            let row = self.by_address.at(self.by_address.draw(from, to, scrambled(seed, turn)))?;
            let slice = records.slices.get(row.slice)?;
            let listed = Listed::new(slice.ports.number, !row.address.is_v4(), row.slice);
            if lists.get(listed.number()).is_some() && wanted(&listed) {
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
            if from < to && self.by_list.at(from).is_some_and(wanted) {
                let at = self.by_list.draw(from, to, scrambled(seed, super::DRAWS + 1));
                let rows = records.slices.get(self.by_list.at(at)?.slice)?.rows.len();
                return Some((at, scaled(scrambled(seed, super::DRAWS + 2), rows)));
            }
        }
        None
    }
}
