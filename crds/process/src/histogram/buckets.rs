//! The buckets of durations: the bounds of the classic histogram, and between them those of a native histogram of
//! Prometheus, so that one addition counts for both and no number is an estimate.
//!
//! Classic bounds are 1.024 s, doubled or halved. Native bounds of schema 3 are 1 s times each power of the eighth root of
//! two. Between two classic bounds there are eight native ones, so a bucket of ours lies in one bucket of each kind.

/// Sixteen times the lowest classic bound in nanoseconds. 250 us / 256 is 976.5625 ns, so that each bound of CoreDNS'
/// histograms (250 us, doubled) is a bound of ours too.
const LOWEST_NS_16: u64 = 15_625;
/// The schema of the native histogram: each power of two seconds is divided into two to this power (8) buckets.
pub const SCHEMA: i32 = 3;
/// Native bounds in each doubling.
const NATIVE: usize = 1 << SCHEMA;
/// Buckets in each doubling: one more, because the classic bound divides a native bucket.
const PARTS: usize = NATIVE + 1;
/// Two to this power is the lowest native bound in seconds, 0.95 us: what is not longer is native zero.
const LOWEST_EXPONENT: i32 = -20;
/// That bound.
pub const ZERO_THRESHOLD_S: f64 = 1.0 / 1_048_576.0;
/// The native bucket of what is longer than every bound: it has no upper bound, because the one before it ends at the
/// largest number that there is, 2^1024.
const INFINITE: i32 = (1024 << SCHEMA) + 1;

/// The powers of the eighth root of two, up to two.
const STEPS: [f64; NATIVE] = [
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
    2.0,
];

/// How many buckets this many classic bounds make: two up to the lowest, and those of each doubling.
pub(super) const fn buckets(classic_bounds: usize) -> usize {
    2 + PARTS * (classic_bounds - 1)
}

/// Buckets of the longest histogram, up to 524 s.
const MOST: usize = buckets(30);
/// More than these, so that an index needs no check.
const PLACES: usize = 512;

/// The longest duration of each bucket in whole nanoseconds; no bound beyond the last bucket.
static UPPER_NS: [u64; PLACES] = upper_ns();

const fn upper_ns() -> [u64; PLACES] {
    let mut upper = [u64::MAX; PLACES];
    let mut doubled = ZERO_THRESHOLD_S * 1e9;
    upper[0] = doubled as u64;
    upper[1] = LOWEST_NS_16 / 16;
    let mut place = 2;
    let mut doublings = 1;
    while place < MOST {
        let mut step = 0;
        while step < NATIVE {
            upper[place] = (doubled * STEPS[step]) as u64;
            place += 1;
            step += 1;
        }
        upper[place] = (LOWEST_NS_16 << doublings) / 16;
        place += 1;
        doublings += 1;
        doubled *= 2.0;
    }
    upper
}

/// Bits of a fraction that choose a cell: each doubling of nanoseconds has 64. A cell is 1/64 of its lower end or less, the
/// nearest two bounds are 1/42 apart: no cell has more than one bound in it.
const CELL_BITS: u32 = 6;
const CELLS: usize = 1 << CELL_BITS;
/// From 2^39 ns on, durations are longer than every bound.
const ALL_CELLS: usize = 39 * CELLS;
/// The cell of 1 ns, as the exponent and these bits of the fraction of a double are written (IEEE 754).
const FIRST_CELL: usize = 1023 << CELL_BITS;

/// The bucket in which each cell begins.
static GRID: [u16; ALL_CELLS] = grid();

const fn grid() -> [u16; ALL_CELLS] {
    let upper = upper_ns();
    let mut grid = [0; ALL_CELLS];
    let mut place = 0;
    let mut cell = 0;
    while cell < ALL_CELLS {
        let power = 1_u64 << (cell / CELLS);
        let first_ns = power + power * (cell % CELLS) as u64 / CELLS as u64;
        while upper[place] < first_ns {
            place += 1;
        }
        grid[cell] = place as u16;
        cell += 1;
    }
    grid
}

/// The bucket of a duration: the lowest whose bound is not below it. A number beyond every bucket where there is none.
///
/// Two table look-ups and no search: a reply has few instructions for this. A double has the cell in its upper bits; it is
/// exact up to 2^53 ns. Zero is no double of that form, so the lowest bit is set: that changes no cell with a bound in it.
#[inline]
pub(super) fn place(ns: u64) -> usize {
    let cell =
        (((ns | 1) as i64 as f64).to_bits() >> (f64::MANTISSA_DIGITS - 1 - CELL_BITS)) as usize;
    let Some(&begins) = GRID.get(cell.wrapping_sub(FIRST_CELL)) else { return usize::MAX };
    let begins = usize::from(begins) % PLACES;
    begins + usize::from(UPPER_NS[begins] < ns)
}

/// The classic bounds of these buckets in seconds, each with the sum of its counts.
pub(super) fn classic(counts: &[u64]) -> Vec<(f64, u64)> {
    let (lowest, rest) = counts.split_at(2.min(counts.len()));
    let sums = std::iter::once(lowest).chain(rest.chunks(PARTS)).map(|part| part.iter().sum());
    let bound = |doublings: usize| LOWEST_NS_16 as f64 / 16e9 * 2_f64.powi(doublings as i32);
    sums.enumerate().map(|(doublings, sum)| (bound(doublings), sum)).collect()
}

/// The native buckets of `counts`, whose last is of what is longer than every bound: index and count, ascending; none that is
/// empty. An index `i` is of what is longer than 2^((i-1)/8) s and not longer than 2^(i/8) s. What is native zero, the
/// first of `counts`, is in none.
pub(super) fn native(counts: &[u64]) -> Vec<(i32, u64)> {
    let Some((longer, bounded)) = counts.split_last() else { return Vec::new() };
    let mut native: Vec<(i32, u64)> = Vec::new();
    for (place, count) in bounded.iter().enumerate().skip(1).filter(|(_, count)| **count > 0) {
        // The buckets on both sides of a classic bound are one native bucket.
        let (doubling, part) = ((place + NATIVE - 1) / PARTS, (place + NATIVE - 1) % PARTS);
        let index = ((doubling as i32 - 1 + LOWEST_EXPONENT) << SCHEMA) + part as i32 + 1;
        match native.last_mut().filter(|(last, _)| *last == index) {
            Some((_, sum)) => *sum += count,
            None => native.push((index, *count)),
        }
    }
    native.extend((*longer > 0).then_some((INFINITE, *longer)));
    native
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_powers_of_the_eighth_root_of_two() {
        for (step, power) in STEPS.iter().zip(1..) {
            assert!((step.powi(8) / 2_f64.powi(power) - 1.0).abs() < 1e-14, "{power}");
        }
    }

    #[test]
    fn bounds_ascend_and_no_cell_of_the_grid_has_two() {
        assert_eq!(MOST, 263, "docs/limits.md");
        assert!(UPPER_NS[..MOST].is_sorted_by(|one, next| one < next));
        for cells in GRID.windows(2) {
            assert!(cells[1] - cells[0] <= 1, "{cells:?}");
        }
    }

    /// Each bound, what is one below and one above it, and numbers between.
    fn durations() -> impl Iterator<Item = u64> {
        let near = UPPER_NS[..MOST].iter().flat_map(|upper| [upper - 1, *upper, upper + 1]);
        let between = (0..2_000_u64).map(|n| n * n * n * 70 + n);
        near.chain(between).chain([0, 1, 511, 512, 513, u64::MAX])
    }

    #[test]
    fn a_duration_is_in_the_bucket_of_the_lowest_bound_not_below_it() {
        for ns in durations() {
            let expected = UPPER_NS[..MOST].iter().position(|upper| *upper >= ns);
            let found = place(ns);
            assert_eq!((found < MOST).then_some(found), expected, "{ns} ns");
        }
    }

    #[test]
    fn a_bucket_lies_in_one_classic_and_one_native_bucket_as_their_formulas_say() {
        for ns in durations().filter(|ns| *ns <= UPPER_NS[MOST - 1]) {
            let seconds = ns as f64 / 1e9;
            let mut counts = vec![0; MOST + 1];
            counts[place(ns)] = 1;
            let of_classic = classic(&counts[..MOST]);
            assert_eq!(of_classic.len(), 30);
            let bound = of_classic.iter().find(|(_, count)| *count == 1).unwrap().0;
            let is_lowest = bound == of_classic[0].0;
            assert!(seconds <= bound && (is_lowest || seconds > bound / 2.0), "{ns} ns: {bound}");
            match native(&counts)[..] {
                [] => assert!(seconds <= ZERO_THRESHOLD_S, "{ns} ns"),
                [(index, 1)] => {
                    let upper = |index: i32| (f64::from(index) / 8.0).exp2();
                    let is_in = seconds > upper(index - 1) && seconds <= upper(index);
                    assert!(is_in, "{ns} ns: {index}");
                }
                ref more => panic!("{ns} ns: {more:?}"),
            }
        }
    }

    #[test]
    fn both_sides_of_a_classic_bound_are_one_native_bucket() {
        let mut counts = vec![0; buckets(24) + 1];
        for ns in [1, 960, 1_000, 1_024_000_000, 1_024_000_001, 8_192_000_000] {
            counts[place(ns)] += 1;
        }
        *counts.last_mut().unwrap() = 7;
        // 2^(-159/8) s is 1.04 us; (2^0, 2^(1/8)] s; (2^3, 2^(25/8)] s.
        assert_eq!(native(&counts), [(-159, 2), (1, 2), (25, 1), (8193, 7)]);
        assert_eq!(native(&[]), []);
    }
}
