//! Distinct (endpoint name, port) pairs of a headless Service: a round over them that begins with a pair
//! drawn at random (WR24) and costs what the reply holds, not what the Service has.

use std::ops::{Bound, Range, RangeBounds};

use super::{EndpointName, PortFilter, distinct};
use crate::address::Address;
use crate::records::{Port, Records, Row, ServiceEntry, SliceEntry};
use crate::text::ShortText;

/// (name, port) pairs looked at for one SRV RRset: more than a TCP reply can hold five times over.
const MAX_PAIRS: usize = 16_384;
/// Ports of one endpoint name that are compared one by one; more are marked in a bitmap.
const FEW_PORTS: usize = 16;
/// Lists of ports of one endpoint name that are remembered, so that each is read once however many rows have it.
const FEW_LISTS: usize = 8;
/// Rows of a Service whose pairs are counted; of more, the pair to begin with is drawn.
const FEW_ROWS: usize = 32;
/// Draws until the pairs are counted after all, and rows of one name above which they are at once.
const DRAWS: u64 = 64;
const CROWDED_ROWS: usize = 64;

/// A pair to begin a round with.
#[derive(Clone, Copy)]
pub(crate) struct FirstPair<'r> {
    name: Group<'r>,
    /// So many ports of the name come last instead of first.
    port: usize,
}

/// The rows that share a name.
#[derive(Clone, Copy)]
enum Group<'r> {
    /// Endpoints bear it.
    Borne(&'r [u8]),
    /// It is made of this address.
    Derived(Address),
}

/// What is visited on the way round, and what may still be.
struct Round<'r, 'v> {
    records: &'r Records,
    filter: PortFilter<'r>,
    budget: usize,
    /// The ports of the next name that are shown, by their number; all of those behind it.
    ports: Range<usize>,
    visit: &'v mut dyn FnMut(&[u8], u16) -> bool,
}

impl Round<'_, '_> {
    /// The ports of one name, of those that are shown of it.
    fn visit_name<'a>(&mut self, name: &[u8], rows: impl Iterator<Item = &'a Row> + Clone) -> bool {
        let wanted = std::mem::replace(&mut self.ports, 0..usize::MAX);
        let mut numbers = 0..;
        visit_ports(self.records, rows, self.filter, &mut self.budget, &mut |port| {
            let is_wanted = numbers.next().is_some_and(|number| wanted.contains(&number));
            !is_wanted || (self.visit)(name, port)
        })
    }
}

impl ServiceEntry {
    /// Calls `visit` with each distinct (endpoint name, port) pair (RR31-RR33, RR37), beginning with
    /// this one, else the first, and coming round once, until it returns false. Ends after a bounded
    /// number of pairs.
    pub(crate) fn visit_pairs(
        &self,
        records: &Records,
        filter: PortFilter<'_>,
        first: Option<FirstPair<'_>>,
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) {
        let port = first.map_or(0, |first| first.port);
        let round =
            &mut Round { records, filter, budget: MAX_PAIRS, ports: port..usize::MAX, visit };
        // What was left out of the first name comes last.
        let rest = |round: &mut Round<'_, '_>| round.ports = 0..port;
        let _ = match first.map(|first| first.name) {
            None => {
                self.visit_borne(None, Bound::Unbounded, round)
                    && self.visit_derived(None, Bound::Unbounded, round)
            }
            Some(Group::Borne(name)) => {
                self.visit_borne(Some(name), Bound::Unbounded, round)
                    && self.visit_derived(None, Bound::Unbounded, round)
                    && self.visit_borne(None, Bound::Excluded(name), round)
                    && {
                        rest(round);
                        self.visit_borne(Some(name), Bound::Included(name), round)
                    }
            }
            Some(Group::Derived(address)) => {
                self.visit_derived(Some(address), Bound::Unbounded, round)
                    && self.visit_borne(None, Bound::Unbounded, round)
                    && self.visit_derived(None, Bound::Excluded(address), round)
                    && {
                        rest(round);
                        self.visit_derived(Some(address), Bound::Included(address), round)
                    }
            }
        };
    }

    /// The pairs of names that endpoints bear, in the order of names.
    fn visit_borne<'n>(
        &'n self,
        from: Option<&'n [u8]>,
        to: Bound<&'n [u8]>,
        round: &mut Round<'n, '_>,
    ) -> bool {
        let records = round.records;
        let at = self.by_name.seek(|row| match from {
            None => std::cmp::Ordering::Greater,
            Some(name) => records.name_of(row).cmp(&Some(name)),
        });
        let mut rows = self.by_name.from(at).peekable();
        while let Some(name) = rows.peek().and_then(|row| records.name_of(row))
            && (Bound::Unbounded, to).contains(&name)
        {
            let bearers = rows.clone().take_while(|row| records.name_of(row) == Some(name));
            // Those whose address spells it are met with it.
            let name = EndpointName::read(name);
            let spelled = self.spelling(name.derived);
            if !round.visit_name(name.label, bearers.clone().chain(spelled)) {
                return false;
            }
            rows.by_ref().take(bearers.count()).for_each(drop);
        }
        true
    }

    /// The pairs of endpoints named by their address, in the order of addresses.
    fn visit_derived(
        &self,
        from: Option<Address>,
        to: Bound<Address>,
        round: &mut Round<'_, '_>,
    ) -> bool {
        let at = self.by_address.seek(|row| match from {
            None => std::cmp::Ordering::Greater,
            Some(address) => row.address.cmp(&address),
        });
        let derived = self.by_address.from(at).filter(|row| row.label.is_derived());
        let addresses = distinct(derived.map(|row| row.address));
        for address in addresses.take_while(|address| (Bound::Unbounded, to).contains(address)) {
            let label = ShortText::of(address);
            // A name that some endpoint bears as hostname is visited with it.
            if self.bearer(round.records, label.as_bytes()).is_none()
                && !round.visit_name(label.as_bytes(), self.spelling(Some(address)))
            {
                return false;
            }
        }
        true
    }

    /// A row that bears this name, not one whose address spells it.
    fn bearer(&self, records: &Records, label: &[u8]) -> Option<&Row> {
        let at = self.by_name.seek(|row| records.name_of(row).cmp(&Some(label)));
        self.by_name.at(at).filter(|row| records.name_of(row) == Some(label))
    }

    /// A pair drawn at random, each as likely as any other (WR24), without a look at them all; `None`
    /// when they are few, or too unlike one another for that, or there is none: count them.
    pub(crate) fn draw_pair<'r>(
        &'r self,
        records: &'r Records,
        filter: PortFilter<'_>,
        seed: u64,
    ) -> Option<FirstPair<'r>> {
        let rows = self.by_address.len();
        if rows <= FEW_ROWS {
            return None;
        }
        let passing =
            |slice: &SliceEntry| slice.ports.all.iter().filter(|p| filter.passes(p)).count();
        let slices = self.slices.iter().filter_map(|&slot| records.slices.get(slot));
        let most = slices.filter(|slice| slice.rows > 0).map(passing).max()?;
        let mut numbers = (1..=DRAWS * 3).map(|turn| scrambled(seed, turn));
        let mut draw = |bound: usize| numbers.next().map(|number| scaled(number, bound));
        loop {
            let row = self.by_address.starting_at(draw(rows)?).next()?;
            let mut place = ShortText::EMPTY;
            let name = EndpointName::read(records.label(row, &mut place));
            let of_name = self.endpoint_rows(records, name).take(CROWDED_ROWS + 1).count();
            if of_name > CROWDED_ROWS {
                return None;
            }
            let mut pairs = 0;
            let all = self.endpoint_rows(records, name);
            visit_ports(records, all, filter, &mut { MAX_PAIRS }, &mut |_| {
                pairs += 1;
                true
            });
            // A name was drawn as often as it has rows; taken as often as it has pairs, of which it
            // has no more than `most` a row, each pair is as likely as any other.
            if draw(of_name * most)? < pairs {
                return Some(FirstPair { name: self.group_of(records, row), port: draw(pairs)? });
            }
        }
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
        visit: &mut dyn FnMut(&[u8], u16) -> bool,
    ) {
        let mut budget = MAX_PAIRS;
        let rows = self.endpoint_rows(records, name);
        let visit = &mut |port| visit(name.label, port);
        visit_ports(records, rows, PortFilter::Any, &mut budget, visit);
    }
}

/// The lists of ports of these rows, each once as long as they are few.
fn port_lists<'r, 'a>(
    records: &'r Records,
    rows: impl Iterator<Item = &'a Row> + Clone,
) -> impl Iterator<Item = &'r [Port]> + Clone {
    let mut known: [&[Port]; FEW_LISTS] = [&[]; FEW_LISTS];
    let mut count = 0;
    rows.map(|row| records.ports(row)).filter(move |&list| {
        if known[..count].iter().any(|&other| std::ptr::eq(other, list)) {
            return false;
        }
        if count < FEW_LISTS {
            known[count] = list;
            count += 1;
        }
        true
    })
}

/// Output number `turn` of SplitMix64 from this seed: uniform, and independent of the others.
fn scrambled(seed: u64, turn: u64) -> u64 {
    let z = seed.wrapping_add(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A uniform number below a bound, of a uniform number.
pub(crate) fn scaled(number: u64, bound: usize) -> usize {
    // The high part of a wide product is uniform up to bound / 2^64.
    ((u128::from(number) * bound as u128) >> 64) as usize
}

/// Visits the distinct ports of rows that share a name; false when the visitor or the budget ends it.
fn visit_ports<'a>(
    records: &Records,
    rows: impl Iterator<Item = &'a Row> + Clone,
    filter: PortFilter<'_>,
    budget: &mut usize,
    visit: &mut dyn FnMut(u16) -> bool,
) -> bool {
    let ports = port_lists(records, rows)
        .flatten()
        .filter(|port| filter.passes(port))
        .map(|port| port.number);
    let total = ports.clone().take(FEW_PORTS + 1).count();
    if total > FEW_PORTS {
        return visit_many(ports, budget, visit);
    }
    let mut seen = [0; FEW_PORTS];
    let mut count = 0;
    for port in ports {
        if seen[..count].contains(&port) {
            continue;
        }
        seen[count] = port;
        count += 1;
        if !spend(budget) || !visit(port) {
            return false;
        }
    }
    true
}

/// As above with one bit per port number: 8 KiB on the stack, for crowded names only.
#[cold]
fn visit_many(
    ports: impl Iterator<Item = u16>,
    budget: &mut usize,
    visit: &mut dyn FnMut(u16) -> bool,
) -> bool {
    let mut seen = [0_u64; 1024];
    for port in ports {
        let (word, bit) = (usize::from(port >> 6), 1 << (port & 63));
        if !spend(budget) {
            return false;
        }
        if seen[word] & bit == 0 {
            seen[word] |= bit;
            if !visit(port) {
                return false;
            }
        }
    }
    true
}

fn spend(budget: &mut usize) -> bool {
    *budget = budget.saturating_sub(1);
    *budget > 0
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
