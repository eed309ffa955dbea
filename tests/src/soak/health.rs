//! What must not grow, and what must not go back: memory and descriptors of the pod that is never killed, and the counters
//! of every process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::pod::Pod;
use crate::descriptors::Descriptors;
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
/// Time without questions after which no socket towards an upstream is open: several times the 30 s after which one that
/// is not used is closed (FW10). Not all are closed at once, because closed ports cannot be used for 30 s.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Memory and descriptors at one moment in which nothing is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub mib: f64,
    pub descriptors: Descriptors,
}

impl Sample {
    /// Open descriptors without those of queries over UDP. How many of these are open follows from how many queries left in
    /// the last half minute: a server that has few ports left keeps its sockets for 30 s (FW10).
    pub fn lasting(&self) -> usize {
        self.descriptors.count() - self.descriptors.udp_towards_peers()
    }
}

/// Reads a sample of a process.
pub fn sample(pod: &Pod) -> Option<Sample> {
    let pid = pod.plane()?.process.pid()?;
    Some(Sample { mib: Usage::of(pid).resident_mib(), descriptors: Descriptors::of(pid) })
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
    let mut by_descriptors: Vec<&Sample> = samples.iter().collect();
    mib.sort_by(f64::total_cmp);
    by_descriptors.sort_by_key(|sample| sample.lasting());
    let descriptors = by_descriptors[by_descriptors.len() / 2].descriptors.clone();
    Sample { mib: mib[mib.len() / 2], descriptors }
}

/// What has grown between two windows.
pub fn growth(first: &Sample, last: &Sample) -> Vec<String> {
    let mut found = Vec::new();
    if last.mib > first.mib * GROWTH + GROWTH_MIB {
        found.push(format!("memory grew from {:.1} to {:.1} MiB", first.mib, last.mib));
    }
    if last.lasting() > first.lasting() + DESCRIPTORS {
        found.push(format!(
            "open descriptors, without those of queries over UDP, grew from {} to {}\n  after the warm-up: {}\n  \
             at the end: {}",
            first.lasting(),
            last.lasting(),
            first.descriptors,
            last.descriptors
        ));
    }
    found
}

/// Waits until what queries had open is closed, where no question is asked any more. A leak stays: this says what is open.
pub fn unsettled(pod: &Pod) -> Option<String> {
    let began = Instant::now();
    loop {
        match left_open(&sample(pod)?.descriptors) {
            Some(_) if began.elapsed() < SETTLED_WITHIN => std::thread::sleep(LOOK_EVERY),
            left => return left,
        }
    }
}

/// What should be closed by itself when nothing is asked, and is not.
fn left_open(open: &Descriptors) -> Option<String> {
    let sockets = open.udp_towards_peers();
    // Upstreams are probed now and then.
    (sockets > DESCRIPTORS).then(|| {
        format!(
            "{sockets} sockets of queries over UDP are open {SETTLED_WITHIN:?} after the last question: {open}"
        )
    })
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
    use crate::descriptors::Kind;

    /// A sample with this memory, files, and sockets towards an upstream.
    fn at(mib: f64, files: usize, towards_upstreams: usize) -> Sample {
        let upstream = Kind::UdpTowards("192.0.2.1:53".parse().unwrap());
        let kinds = [(Kind::File("a".into()), files), (upstream, towards_upstreams)];
        Sample { mib, descriptors: Descriptors(kinds.into()) }
    }

    #[test]
    fn l11_memory_that_grows_after_the_warm_up_is_found() {
        let flat: Vec<Sample> =
            (0..100).map(|n| at(if n < 20 { 9.0 } else { 12.0 }, 30 + n % 3, 0)).collect();
        let (first, last) = windows(&flat).unwrap();
        assert!(growth(&first, &last).is_empty());
        let growing: Vec<Sample> = (0..100).map(|n| at(12.0 + 0.1 * n as f64, 30 + n, 0)).collect();
        let (first, last) = windows(&growing).unwrap();
        assert_eq!(growth(&first, &last).len(), 2);
        assert!(windows(&flat[..20]).is_none());
    }

    #[test]
    fn l11_sockets_of_queries_may_rise_and_must_be_closed_when_nothing_is_asked() {
        let busy: Vec<Sample> =
            (0..100).map(|n| at(12.0, 40, if n < 60 { 1 } else { 240 })).collect();
        let (first, last) = windows(&busy).unwrap();
        assert!(growth(&first, &last).is_empty());
        assert_eq!(left_open(&at(12.0, 40, 1).descriptors), None);
        let found = left_open(&at(12.0, 40, 240).descriptors).unwrap();
        assert!(found.contains("240 UDP towards 192.0.2.1:53"), "{found}");
    }

    #[test]
    fn l11_a_find_says_what_is_open() {
        let found = growth(&at(12.0, 40, 3), &at(12.0, 60, 5));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("from 40 to 60"), "{found:?}");
        assert!(found[0].contains("at the end: 5 UDP towards 192.0.2.1:53, 60 a"), "{found:?}");
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
