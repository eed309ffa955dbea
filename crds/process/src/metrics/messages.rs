//! The page as messages of Protocol Buffers, which is how Prometheus scrapes native histograms: `MetricFamily` of
//! <https://github.com/prometheus/client_model>, each after its length. Fields that we never write are left out.

use prost::{Enumeration, Message};

use crate::histogram::{Distribution, SCHEMA, ZERO_THRESHOLD_S};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Family {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) help: Option<String>,
    #[prost(enumeration = "Kind", optional, tag = "3")]
    pub(super) kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(super) metrics: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

/// One series.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) value: Option<String>,
}

/// `Gauge` and `Counter`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(double, optional, tag = "1")]
    pub(super) value: Option<f64>,
}

/// Classic buckets, and beside them native ones.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(super) count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) buckets: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub(super) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(super) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) spans: Vec<Span>,
    /// Counts of the buckets of all spans, each as its difference from the one before.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(super) deltas: Vec<i64>,
}

/// A classic bucket.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Bucket {
    /// Values up to the bound, those of lower buckets included.
    #[prost(uint64, optional, tag = "1")]
    pub(super) cumulative: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) upper: Option<f64>,
}

/// Native buckets with successive indices.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    /// The first index; in later spans, how many indices lie between.
    #[prost(sint32, optional, tag = "1")]
    pub(super) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
}

/// The families, each after its length.
pub(super) fn octets(families: &[Family]) -> Vec<u8> {
    families.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

impl From<&Distribution> for Histogram {
    fn from(distribution: &Distribution) -> Histogram {
        let mut cumulative = 0;
        let buckets = distribution.buckets.iter().map(|&(upper, count)| {
            cumulative += count;
            Bucket { cumulative: Some(cumulative), upper: Some(upper) }
        });
        let classic = Histogram {
            buckets: buckets.collect(),
            count: Some(distribution.count()),
            sum: Some(distribution.sum),
            ..Histogram::default()
        };
        let Some(native) = distribution.native() else { return classic };
        let (mut spans, mut deltas) = (Vec::<Span>::new(), Vec::new());
        let (mut next, mut before) = (0, 0);
        for (index, count) in native.buckets {
            match spans.last_mut().filter(|_| index == next) {
                Some(Span { length: Some(length), .. }) => *length += 1,
                Some(_) | None => spans.push(Span { offset: Some(index - next), length: Some(1) }),
            }
            deltas.push(count as i64 - before);
            (next, before) = (index + 1, count as i64);
        }
        Histogram {
            // Above zero, which says that this is a native histogram also while it is empty.
            zero_threshold: Some(ZERO_THRESHOLD_S),
            schema: Some(SCHEMA),
            zero_count: Some(native.zero),
            spans,
            deltas,
            ..classic
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::histogram::{Durations, QUERY_BUCKETS, Sizes, Writers};

    fn of(all_ns: &[u64]) -> Histogram {
        let durations = Durations::<QUERY_BUCKETS>::default();
        all_ns.iter().for_each(|ns| durations.add(Duration::from_nanos(*ns), Writers::One));
        Histogram::from(&durations.read())
    }

    #[test]
    fn native_buckets_are_sparse_and_stand_beside_classic_ones() {
        let second = 1_000_000_000;
        let histogram = of(&[5, second, second, second + 1, 2 * second, 9 * second]);
        assert_eq!((histogram.count, histogram.zero_count), (Some(6), Some(1)));
        let span = |offset, length| Span { offset: Some(offset), length: Some(length) };
        // Indices 0 and 1 end at 1 s and 1.09 s, 8 at 2 s; 8193 has no bound.
        assert_eq!(histogram.spans, [span(0, 2), span(6, 1), span(8184, 1)]);
        assert_eq!(histogram.deltas, [2, -1, 0, 0]);
        assert_eq!(histogram.schema, Some(3));
        let last = histogram.buckets.last().unwrap();
        assert_eq!((last.cumulative, last.upper), (Some(5), Some(8.192)));
        assert_eq!(histogram.buckets.len(), 24);
    }

    #[test]
    fn an_empty_histogram_is_native_too_and_one_of_sizes_is_not() {
        let empty = of(&[]);
        assert!(empty.zero_threshold.is_some_and(|threshold| threshold > 0.0));
        assert_eq!((empty.count, empty.spans.len()), (Some(0), 0));
        let sizes = Histogram::from(&Sizes::default().read());
        assert_eq!((sizes.schema, sizes.zero_threshold), (None, None));
        assert_eq!(sizes.buckets.len(), 14);
    }

    #[test]
    fn a_family_has_the_octets_of_its_schema() {
        let label = Label { name: Some("a".to_owned()), value: Some("b".to_owned()) };
        let metric = Metric {
            labels: vec![label],
            counter: Some(Number { value: Some(2.0) }),
            ..Metric::default()
        };
        let family = Family {
            name: Some("n_total".to_owned()),
            help: Some("h".to_owned()),
            kind: Some(Kind::Counter as i32),
            metrics: vec![metric],
        };
        let mut expected = vec![0x23, 0x0a, 7];
        expected.extend(b"n_total\x12\x01h\x18\x00\x22\x13\x0a\x06\x0a\x01a\x12\x01b\x1a\x09\x09");
        expected.extend(2.0_f64.to_le_bytes());
        assert_eq!(octets(&[family]), expected);
    }
}
