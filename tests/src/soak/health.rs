//! What must not grow, and what must not go back: memory and descriptors of the pod that is never killed, and the counters
//! of every process.

use std::collections::BTreeMap;

use super::pod::Pod;
use crate::usage::Usage;

/// Samples that a comparison needs.
const MIN_SAMPLES: usize = 40;
/// Of the samples, this part is of the warm-up.
const WARM_UP: usize = 5;
/// What memory may grow: by this part, and this much besides.
const GROWTH: f64 = 1.10;
const GROWTH_MIB: f64 = 2.0;
/// Descriptors that may be open besides: connections that end just then.
const DESCRIPTORS: usize = 8;

/// Memory and descriptors at one moment in which nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub mib: f64,
    pub descriptors: usize,
}

/// Reads a sample of a process.
pub fn sample(pod: &Pod) -> Option<Sample> {
    let usage = Usage::of(pod.plane()?.process.pid()?);
    Some(Sample { mib: usage.resident_mib(), descriptors: usage.descriptors() })
}

/// The medians of the first and of the last quarter after the warm-up; nothing with too few samples.
pub fn windows(samples: &[Sample]) -> Option<(Sample, Sample)> {
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    let samples = &samples[samples.len() / WARM_UP..];
    let quarter = samples.len() / 4;
    Some((median(&samples[..quarter]), median(&samples[samples.len() - quarter..])))
}

fn median(samples: &[Sample]) -> Sample {
    let mut mib: Vec<f64> = samples.iter().map(|sample| sample.mib).collect();
    let mut descriptors: Vec<usize> = samples.iter().map(|sample| sample.descriptors).collect();
    mib.sort_by(f64::total_cmp);
    descriptors.sort_unstable();
    Sample { mib: mib[mib.len() / 2], descriptors: descriptors[descriptors.len() / 2] }
}

/// What has grown between two windows.
pub fn growth(first: Sample, last: Sample) -> Vec<String> {
    let mut found = Vec::new();
    if last.mib > first.mib * GROWTH + GROWTH_MIB {
        found.push(format!("memory grew from {:.1} to {:.1} MiB", first.mib, last.mib));
    }
    if last.descriptors > first.descriptors + DESCRIPTORS {
        let (first, last) = (first.descriptors, last.descriptors);
        found.push(format!("open descriptors grew from {first} to {last}"));
    }
    found
}

/// The counters of a page of metrics, and the counts, sums and buckets of its histograms.
pub fn counters(page: &str) -> BTreeMap<String, f64> {
    let mut growing = Vec::new();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let mut words = rest.split(' ');
            let (name, kind) = (words.next().unwrap_or_default(), words.next());
            if matches!(kind, Some("counter" | "histogram")) {
                growing.push(name.to_owned());
            }
            continue;
        }
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or_default();
        let is_growing = growing.last().is_some_and(|last| name.starts_with(last.as_str()));
        if let (true, false, Ok(value)) = (is_growing, line.starts_with('#'), value.parse()) {
            found.insert(series.to_owned(), value);
        }
    }
    found
}

/// Counters that are lower than they were.
pub fn gone_back(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<String> {
    let lower = |(series, value): (&String, &f64)| {
        let now = after.get(series).filter(|now| *now < value)?;
        Some(format!("{series} went from {value} to {now}"))
    };
    before.iter().filter_map(lower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l11_memory_that_grows_after_the_warm_up_is_found() {
        let at = |mib, descriptors| Sample { mib, descriptors };
        let flat: Vec<Sample> =
            (0..100).map(|n| at(if n < 20 { 9.0 } else { 12.0 }, 30 + n % 3)).collect();
        let (first, last) = windows(&flat).unwrap();
        assert!(growth(first, last).is_empty());
        let growing: Vec<Sample> = (0..100).map(|n| at(12.0 + 0.1 * n as f64, 30 + n)).collect();
        let (first, last) = windows(&growing).unwrap();
        assert_eq!(growth(first, last).len(), 2);
        assert!(windows(&flat[..20]).is_none());
    }

    #[test]
    fn l11_a_counter_that_goes_back_is_found_and_a_gauge_is_not() {
        let page = |queries: u32, open: u32| {
            counters(&format!(
                "# TYPE queries_total counter\nqueries_total{{a=\"x\"}} {queries}\n\
                 # TYPE open gauge\nopen {open}\n# TYPE took histogram\ntook_count {queries}\n"
            ))
        };
        assert_eq!(gone_back(&page(3, 9), &page(4, 1)), Vec::<String>::new());
        assert_eq!(gone_back(&page(4, 1), &page(3, 1)).len(), 2);
        let new = BTreeMap::new();
        assert!(gone_back(&new, &page(1, 1)).is_empty());
    }
}
