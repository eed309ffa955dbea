//! A persistent sorted list of plain rows in chunks: an insertion copies one chunk, so that one
//! endpoint of five thousand costs what one of five does.

#![allow(
    clippy::indexing_slicing,
    reason = "digits below the width of a node, places that a search found"
)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::random::{scaled, scrambled};
use crate::steps::step;

/// Rows of a full chunk; one more splits it. 64 rows of 24 octets are copied in about 50 ns.
const CHUNK: usize = 64;

/// Rows in the order of a comparison that the caller passes, always the same one.
#[derive(Clone, Debug)]
pub(crate) enum Chunks<R> {
    /// The usual case: one chunk, which may be empty.
    One(Arc<[R]>),
    Several(Arc<Several<R>>),
}

/// Several chunks; none of them is empty.
#[derive(Clone, Debug)]
pub(crate) struct Several<R> {
    chunks: Vec<Arc<[R]>>,
    len: usize,
}

impl<R> Default for Chunks<R> {
    fn default() -> Self {
        Chunks::One(Arc::default())
    }
}

/// Up to this many chunks, all rows are counted to draw one; with more, a chunk and a place in it are drawn until the
/// place has a row.
const NEAR_CHUNKS: usize = 64;
/// Draws; if none finds a row, the first row is taken.
const DRAWS: u64 = 16;

/// Where a row is or would be. The position after the last row of a chunk is the start of the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    chunk: usize,
    row: usize,
}

impl Position {
    /// The first row, if there is any.
    pub(crate) const START: Position = Position { chunk: 0, row: 0 };
}

impl<R: Copy> Chunks<R> {
    /// Rows that are sorted already, each once. Where they fit into one chunk, the list shares them with the caller.
    pub(crate) fn of(rows: &Arc<[R]>) -> Self {
        step(rows.len());
        if rows.len() <= CHUNK {
            return Chunks::One(Arc::clone(rows));
        }
        let chunks = rows.chunks(CHUNK).map(Arc::from).collect();
        Chunks::Several(Arc::new(Several { chunks, len: rows.len() }))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Chunks::One(rows) => rows.len(),
            Chunks::Several(several) => several.len,
        }
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows, when they are in one chunk.
    pub(crate) fn as_one(&self) -> Option<&[R]> {
        match self {
            Chunks::One(rows) => Some(rows),
            Chunks::Several(_) => None,
        }
    }

    pub(crate) fn first(&self) -> Option<&R> {
        self.chunks().first()?.first()
    }

    fn chunks(&self) -> &[Arc<[R]>] {
        match self {
            Chunks::One(rows) if rows.is_empty() => &[],
            Chunks::One(rows) => core::slice::from_ref(rows),
            Chunks::Several(several) => &several.chunks,
        }
    }

    /// Changes the chunks, and the number of rows to `len`.
    fn edit(&mut self, len: usize, change: impl FnOnce(&mut Vec<Arc<[R]>>)) {
        // One chunk is copied, and the list of chunks if a reader still has it.
        step(CHUNK);
        if let Chunks::Several(several) = self
            && Arc::get_mut(several).is_none()
        {
            step(several.chunks.len());
        }
        if let Chunks::Several(several) = self {
            let several = Arc::make_mut(several);
            several.len = len;
            change(&mut several.chunks);
            if let [rows] = &several.chunks[..] {
                *self = Chunks::One(Arc::clone(rows));
            }
            return;
        }
        let mut chunks = self.chunks().to_vec();
        change(&mut chunks);
        *self = match &chunks[..] {
            [] => Chunks::default(),
            [rows] => Chunks::One(Arc::clone(rows)),
            [..] => Chunks::Several(Arc::new(Several { chunks, len })),
        };
    }

    /// The first row that is not before the sought one; `order` compares a row with it.
    pub(crate) fn seek(&self, order: impl Fn(&R) -> Ordering) -> Position {
        let order = |row: &R| {
            step(1);
            order(row)
        };
        // The chunk sought is the last whose first row is before; else the first.
        let after = self.chunks().partition_point(|chunk| order(&chunk[0]) == Ordering::Less);
        let chunk = after.saturating_sub(1);
        match self.chunks().get(chunk) {
            None => Position { chunk: 0, row: 0 },
            Some(rows) => {
                let row = rows.partition_point(|row| order(row) == Ordering::Less);
                if row == rows.len() {
                    Position { chunk: chunk + 1, row: 0 }
                } else {
                    Position { chunk, row }
                }
            }
        }
    }

    /// The rows from this position to the end.
    pub(crate) fn from(&self, position: Position) -> impl Iterator<Item = &R> + Clone {
        let chunks = self.chunks().get(position.chunk..).unwrap_or(&[]);
        let mut skip = position.row;
        let rows = chunks.iter().flat_map(move |chunk| chunk[core::mem::take(&mut skip)..].iter());
        rows.inspect(|_| step(1))
    }

    /// The position behind the last row.
    pub(crate) fn end(&self) -> Position {
        Position { chunk: self.chunks().len(), row: 0 }
    }

    /// The position behind this one, which has a row.
    pub(crate) fn after(&self, position: Position) -> Position {
        let Position { chunk, row } = position;
        match self.chunks().get(chunk) {
            Some(rows) if row + 1 < rows.len() => Position { chunk, row: row + 1 },
            Some(_) | None => Position { chunk: chunk + 1, row: 0 },
        }
    }

    /// The position behind the rows from this one on that are alike; no such row comes after others.
    pub(crate) fn end_of_run(&self, from: Position, is_like: impl Fn(&R) -> bool) -> Position {
        let is_like = |row: &R| {
            step(1);
            is_like(row)
        };
        let later = self.chunks().get(from.chunk + 1..).unwrap_or(&[]);
        let more = later.partition_point(|chunk| is_like(&chunk[0]));
        let start = if more == 0 { from.row } else { 0 };
        let chunk = from.chunk + more;
        let rows = self.chunks().get(chunk).map_or(&[][..], |rows| rows);
        let row = start + rows[start.min(rows.len())..].partition_point(is_like);
        match row < rows.len() {
            true => Position { chunk, row },
            false => Position { chunk: chunk + 1, row: 0 },
        }
    }

    /// The position this many rows behind this one, or the end.
    pub(crate) fn skipped(&self, from: Position, count: usize) -> Position {
        let mut row = from.row + count;
        let mut chunk = from.chunk;
        while let Some(rows) = self.chunks().get(chunk)
            && row >= rows.len()
        {
            row -= rows.len();
            chunk += 1;
            step(1);
        }
        Position { chunk, row: if chunk < self.chunks().len() { row } else { 0 } }
    }

    /// The rows from one position to before another.
    pub(crate) fn between(&self, from: Position, to: Position) -> impl Iterator<Item = &R> {
        let chunks = self.chunks().get(from.chunk..).unwrap_or(&[]);
        let count = (to.chunk + usize::from(to.row > 0)).saturating_sub(from.chunk);
        let last = to.chunk.wrapping_sub(from.chunk);
        chunks.iter().take(count).enumerate().flat_map(move |(index, rows)| {
            let start = if index == 0 { from.row } else { 0 };
            let end = if index == last { to.row } else { rows.len() };
            rows[start.min(end)..end].iter().inspect(|_| step(1))
        })
    }

    /// A row between two positions (there is at least one), drawn at random: each equally likely if `seed` is
    /// uniform.
    pub(crate) fn draw(&self, from: Position, to: Position, seed: u64) -> Position {
        let chunks = to.chunk - from.chunk + usize::from(to.row > 0);
        if chunks <= NEAR_CHUNKS {
            step(chunks);
            let whole = self.chunks()[from.chunk..to.chunk].iter().map(|rows| rows.len());
            let count = whole.sum::<usize>() + to.row - from.row;
            return self.skipped(from, scaled(seed, count));
        }
        for turn in 0..DRAWS {
            step(2);
            let number = scrambled(seed, turn);
            let chunk = from.chunk + scaled(number, chunks);
            let row = scaled(scrambled(number, 1), CHUNK);
            let drawn = Position { chunk, row };
            if row < self.chunks()[chunk].len() && (from..to).contains(&drawn) {
                return drawn;
            }
        }
        from
    }

    /// The rows from number `index` on.
    #[cfg(test)]
    pub(crate) fn starting_at(&self, index: usize) -> impl Iterator<Item = &R> + Clone {
        self.from(self.skipped(Position::START, index))
    }

    /// In order.
    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = &R> + Clone {
        self.starting_at(0)
    }

    /// The row just before this position.
    pub(crate) fn before(&self, position: Position) -> Option<&R> {
        if position.row > 0 {
            return self.chunks().get(position.chunk)?.get(position.row - 1);
        }
        self.chunks().get(position.chunk.checked_sub(1)?)?.last()
    }

    /// The row at this position.
    pub(crate) fn at(&self, position: Position) -> Option<&R> {
        step(1);
        self.chunks().get(position.chunk)?.get(position.row)
    }

    /// Adds a row that is not there yet.
    pub(crate) fn insert(&mut self, row: R, order: impl Fn(&R, &R) -> Ordering) {
        let mut at = self.seek(|other| order(other, &row));
        let chunks = self.chunks();
        if at.row == 0 && at.chunk > 0 {
            // Between two chunks, the earlier one grows, so that ascending inserts fill chunks.
            at = Position { chunk: at.chunk - 1, row: chunks[at.chunk - 1].len() };
        }
        let old = chunks.get(at.chunk).map_or(&[][..], |rows| rows);
        let rows = [&old[..at.row], &[row], &old[at.row..]].concat();
        self.edit(self.len() + 1, |chunks| {
            if chunks.is_empty() {
                chunks.push(rows.into());
            } else if rows.len() <= CHUNK {
                chunks[at.chunk] = rows.into();
            } else {
                // An append leaves a full chunk behind, anything else splits in the middle.
                let split = if at.row == CHUNK { CHUNK } else { CHUNK / 2 };
                chunks[at.chunk] = Arc::from(&rows[..split]);
                chunks.insert(at.chunk + 1, Arc::from(&rows[split..]));
            }
        });
    }

    /// Removes a row; false if it is not there.
    pub(crate) fn remove(&mut self, row: &R, order: impl Fn(&R, &R) -> Ordering) -> bool {
        let at = self.seek(|other| order(other, row));
        if self.at(at).is_none_or(|found| order(found, row) != Ordering::Equal) {
            return false;
        }
        let rows = &self.chunks()[at.chunk];
        let rows = [&rows[..at.row], &rows[at.row + 1..]].concat();
        self.edit(self.len() - 1, |chunks| match chunks.get(at.chunk + 1) {
            _ if rows.is_empty() => {
                chunks.remove(at.chunk);
            }
            // Two small neighbours become one, so that a shrunken list does not keep many chunks.
            Some(next) if rows.len() + next.len() <= CHUNK / 2 => {
                chunks[at.chunk] = [&rows, &**next].concat().into();
                chunks.remove(at.chunk + 1);
            }
            Some(_) | None => chunks[at.chunk] = rows.into(),
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers 0..n in a fixed mixed order, so that inserts are not sorted.
    fn mixed(n: u32) -> impl Iterator<Item = u32> {
        (0..n).map(move |i| i.wrapping_mul(7_919) % n)
    }

    #[test]
    fn a_sorted_list_is_the_same_at_once_and_one_by_one() {
        for len in [0, 1, 63, 64, 65, 128, 1_000] {
            let rows: Arc<[u32]> = (0..len).collect();
            let mut one_by_one = Chunks::default();
            rows.iter().for_each(|row| one_by_one.insert(*row, u32::cmp));
            let at_once = Chunks::of(&rows);
            assert_eq!(at_once.len(), one_by_one.len());
            assert_eq!(at_once.chunks(), one_by_one.chunks());
        }
    }

    #[test]
    fn any_insertion_order_gives_the_sorted_list() {
        let mut list = Chunks::default();
        mixed(1_000).for_each(|row| list.insert(row, u32::cmp));
        assert!(list.iter().copied().eq(0..1_000));
        assert!(list.starting_at(700).copied().eq(700..1_000));
        assert!(list.from(list.seek(|row| row.cmp(&333))).copied().eq(333..1_000));
        assert_eq!(list.before(list.seek(|row| row.cmp(&333))), Some(&332));
        assert_eq!(list.starting_at(1_000).count(), 0);
    }

    #[test]
    fn runs_are_passed_and_rows_are_drawn_evenly() {
        let mut list = Chunks::default();
        (0..10_000).for_each(|row| list.insert(row, u32::cmp));
        let at = |row: u32| list.seek(|other| other.cmp(&row));
        for (row, end) in [(0, 1_000), (500, 1_000), (9_000, 10_000), (9_999, 10_000), (63, 64)] {
            let size = if end == 64 { 64 } else { 1_000 };
            assert_eq!(list.end_of_run(at(row), |other| other / size == row / size), at(end));
        }
        assert!(list.between(at(10), at(130)).copied().eq(10..130));
        assert!(list.between(at(64), at(128)).copied().eq(64..128));
        assert_eq!(list.between(at(64), at(64)).count(), 0);
        assert_eq!((list.after(at(63)), list.after(at(9_999))), (at(64), list.end()));
        for (from, to) in [(10, 130), (100, 9_900)] {
            let mut counts = [0; 10];
            for seed in 0..10_000 {
                let drawn = list.draw(at(from), at(to), scrambled(7, seed));
                let row = *list.at(drawn).unwrap();
                assert!((from..to).contains(&row));
                counts[((row - from) * 10 / (to - from)) as usize] += 1;
            }
            assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn removals_leave_the_rest_and_old_clones_whole() {
        let mut list = Chunks::default();
        (0..1_000).for_each(|row| list.insert(row, u32::cmp));
        let before = list.clone();
        for row in mixed(1_000).filter(|row| row % 10 != 0) {
            assert!(list.remove(&row, u32::cmp));
            assert!(!list.remove(&row, u32::cmp));
        }
        assert!(list.iter().copied().eq((0..100).map(|row| row * 10)));
        assert_eq!((list.len(), before.len()), (100, 1_000));
        assert!(before.iter().copied().eq(0..1_000));
        assert!(list.chunks().len() <= 8);
    }
}
