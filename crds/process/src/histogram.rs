//! Histograms that a serving thread can afford: fixed buckets, plain additions, no allocation.
//!
//! A thread that alone writes a histogram adds without a locked instruction; where several threads write, it is
//! [`Writers::Several`]. Anyone may read at any time: a read during an addition may see a count without its sum.

mod buckets;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many threads add to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// One thread: a load and a store.
    One,
    /// Any thread: an atomic addition.
    Several,
}

impl Writers {
    /// Adds to a counter that this many threads write.
    #[inline]
    pub fn add(self, counter: &AtomicU64, amount: u64) {
        match self {
            Writers::One => {
                let sum = counter.load(Ordering::Relaxed).wrapping_add(amount);
                counter.store(sum, Ordering::Relaxed);
            }
            Writers::Several => {
                counter.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }
}

use buckets::buckets;
pub use buckets::{SCHEMA, ZERO_THRESHOLD_S};

/// Buckets of times of queries: 24 classic bounds from 0.98 us to 8.2 s, which is the highest bound of CoreDNS.
pub const QUERY_BUCKETS: usize = buckets(24);
/// Buckets of how late changes are seen: 30 classic bounds, up to 524 s, as in CoreDNS' programming duration.
pub const DELAY_BUCKETS: usize = buckets(30);

/// Durations by bucket; what is longer is in a bucket of its own.
#[derive(Debug)]
pub struct Durations<const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    longer: AtomicU64,
    sum_ns: AtomicU64,
}

impl<const BUCKETS: usize> Default for Durations<BUCKETS> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::default());
        Durations { counts, longer: AtomicU64::default(), sum_ns: AtomicU64::default() }
    }
}

impl<const BUCKETS: usize> Durations<BUCKETS> {
    /// Adds one duration to its bucket and to the sum.
    #[inline]
    pub fn add(&self, duration: Duration, writers: Writers) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        writers.add(self.counts.get(buckets::place(ns)).unwrap_or(&self.longer), 1);
        writers.add(&self.sum_ns, ns);
    }

    /// What was counted so far, in seconds.
    pub fn read(&self) -> Distribution {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut parts: Vec<u64> = self.counts.iter().map(load).collect();
        let (buckets, above) = (buckets::classic(&parts), load(&self.longer));
        parts.push(above);
        Distribution { buckets, above, sum: load(&self.sum_ns) as f64 / 1e9, parts }
    }
}

/// CoreDNS' bounds of message sizes, in octets.
const SIZE_BOUNDS: [u32; 14] =
    [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16_000, 32_000, 48_000, 64_000];

/// Sizes of messages by bucket.
#[derive(Debug, Default)]
pub struct Sizes {
    counts: [AtomicU64; SIZE_BOUNDS.len()],
    longer: AtomicU64,
    sum: AtomicU64,
}

impl Sizes {
    /// Counts one message of this many octets.
    #[inline]
    pub fn add(&self, octets: usize, writers: Writers) {
        let place = match octets {
            // Nearly every message, without a search.
            0..=400 => octets.div_ceil(100),
            401..=511 => 5,
            _ => SIZE_BOUNDS.partition_point(|bound| (*bound as usize) < octets),
        };
        writers.add(self.counts.get(place).unwrap_or(&self.longer), 1);
        writers.add(&self.sum, octets as u64);
    }

    /// What was counted so far, in octets.
    pub fn read(&self) -> Distribution {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = SIZE_BOUNDS.iter().zip(&self.counts);
        Distribution {
            buckets: counts.map(|(bound, count)| (f64::from(*bound), load(count))).collect(),
            above: load(&self.longer),
            sum: load(&self.sum) as f64,
            parts: Vec::new(),
        }
    }
}

/// A histogram as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Upper bounds, ascending, and how many values lie above the bound before and not above this one.
    pub buckets: Vec<(f64, u64)>,
    /// Values above every bound.
    pub above: u64,
    /// The sum of all values.
    pub sum: f64,
    /// The same values in the buckets of [`buckets`], then those above every bound; empty for what is not in seconds.
    parts: Vec<u64>,
}

/// The buckets of a native histogram of Prometheus, of schema [`SCHEMA`].
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    /// Values that are not above [`ZERO_THRESHOLD_S`].
    pub zero: u64,
    /// Index and count, ascending; none that is empty.
    pub buckets: Vec<(i32, u64)>,
}

impl Distribution {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum::<u64>() + self.above
    }

    /// The lowest bound that this part of the values does not exceed; `None` without values, or if no bound is high
    /// enough.
    pub fn at_most(&self, part: f64) -> Option<f64> {
        let (count, mut below) = (self.count(), 0);
        self.buckets.iter().find_map(|&(bound, more)| {
            below += more;
            (count > 0 && below as f64 >= part * count as f64).then_some(bound)
        })
    }

    /// Both together; they have the same bounds, or one of them has none.
    pub fn plus(mut self, other: &Distribution) -> Distribution {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
                *count += more;
            }
        }
        if self.parts.is_empty() {
            self.parts.clone_from(&other.parts);
        } else {
            self.parts.iter_mut().zip(&other.parts).for_each(|(count, more)| *count += more);
        }
        self.above += other.above;
        self.sum += other.sum;
        self
    }

    /// The native buckets; none for what is not in seconds.
    pub fn native(&self) -> Option<Native> {
        let zero = *self.parts.first()?;
        Some(Native { zero, buckets: buckets::native(&self.parts) })
    }

    /// The same durations in milliseconds, without native buckets: their bounds are powers of two seconds.
    pub fn in_ms(&self) -> Distribution {
        let buckets = self.buckets.iter().map(|&(bound, count)| (bound * 1e3, count)).collect();
        Distribution { buckets, above: self.above, sum: self.sum * 1e3, parts: Vec::new() }
    }

    /// The same values with fewer classic bounds: only those from `lowest` on, up to this number. Native buckets stay.
    pub fn coarser(&self, lowest: f64, bounds: usize) -> Distribution {
        let parts = self.parts.clone();
        let mut coarse =
            Distribution { buckets: Vec::new(), above: self.above, sum: self.sum, parts };
        let mut below = 0;
        for &(bound, count) in &self.buckets {
            if bound < lowest * 0.999 {
                below += count;
            } else if coarse.buckets.len() < bounds {
                coarse.buckets.push((bound, count + std::mem::take(&mut below)));
            } else {
                coarse.above += count;
            }
        }
        coarse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound_of(ns: u64) -> Option<f64> {
        let durations = Durations::<QUERY_BUCKETS>::default();
        durations.add(Duration::from_nanos(ns), Writers::One);
        let read = durations.read();
        assert_eq!(read.count(), 1);
        read.buckets.iter().find(|(_, count)| *count == 1).map(|(bound, _)| *bound)
    }

    #[test]
    fn a_duration_is_in_the_bucket_of_the_lowest_bound_not_below_it() {
        let bounds = Durations::<QUERY_BUCKETS>::default().read().buckets;
        assert_eq!(bounds[0].0, 976.5625e-9);
        assert_eq!(bounds[8].0, 0.000_25, "the lowest of CoreDNS");
        assert_eq!(bounds[23].0, 8.192, "the highest of CoreDNS");
        for (ns, bound) in [
            (0, bounds[0].0),
            (976, bounds[0].0),
            (977, bounds[1].0),
            (250_000, 0.000_25),
            (250_001, 0.000_5),
            (8_192_000_000, 8.192),
        ] {
            assert_eq!(bound_of(ns), Some(bound), "{ns} ns");
        }
        assert_eq!(bound_of(8_192_000_001), None);
        assert_eq!(bound_of(u64::MAX), None);
    }

    #[test]
    fn a_size_is_in_the_bucket_of_the_lowest_bound_not_below_it() {
        for octets in (0..=1100).chain([4095, 4096, 64_000, 64_001, 65_535]) {
            let sizes = Sizes::default();
            sizes.add(octets, Writers::Several);
            let read = sizes.read();
            let found = read.buckets.iter().find(|(_, count)| *count == 1).map(|(bound, _)| *bound);
            let expected = SIZE_BOUNDS.iter().find(|bound| **bound as usize >= octets);
            assert_eq!(found, expected.map(|bound| f64::from(*bound)), "{octets} octets");
            assert_eq!((read.count(), read.sum), (1, octets as f64));
        }
    }

    #[test]
    fn a_part_of_the_values_does_not_exceed_its_bound() {
        let buckets = vec![(1.0, 50), (2.0, 49), (4.0, 0)];
        let values = Distribution { buckets, above: 1, ..Distribution::default() };
        assert_eq!(
            [0.5, 0.51, 0.99].map(|part| values.at_most(part)),
            [Some(1.0), Some(2.0), Some(2.0)]
        );
        assert_eq!(values.at_most(1.0), None, "above every bound");
        assert_eq!(Distribution::default().at_most(0.5), None);
    }

    #[test]
    fn fewer_bounds_keep_every_value() {
        let durations = Durations::<QUERY_BUCKETS>::default();
        for ns in [1, 100_000, 250_000, 250_001, 5_000_000_000, 9_000_000_000] {
            durations.add(Duration::from_nanos(ns), Writers::One);
        }
        let coarse = durations.read().coarser(0.000_25, 15);
        assert_eq!(coarse.buckets[0], (0.000_25, 3));
        assert_eq!(coarse.buckets[1], (0.000_5, 1));
        assert_eq!(coarse.buckets.len(), 15);
        assert_eq!((coarse.above, coarse.count()), (2, 6));
        let native = coarse.native().unwrap();
        assert_eq!(native, durations.read().native().unwrap(), "native buckets stay");
        let in_buckets: u64 = native.buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(native.zero + in_buckets, 6);
    }
}
