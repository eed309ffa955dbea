//! Reads the text format 0.0.4 of Prometheus as far as the tests need it.

use std::collections::{BTreeMap, BTreeSet};

/// One metric with the labels that its rows have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    pub name: String,
    pub kind: String,
    /// The labels without `le`; empty if the metric has no row.
    pub labels: BTreeSet<String>,
}

/// One row of a page.
#[derive(Clone, Debug)]
pub struct Sample {
    /// With the suffix of a histogram.
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// The rows of a page.
///
/// # Panics
/// A line is no row.
pub fn samples(page: &str) -> Vec<Sample> {
    let rows = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| {
        let series = line.rsplit_once(' ').expect("a value").0;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').expect("labels end");
        // No value has a comma or a quote.
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            let (key, value) = label.split_once('=').expect("a label");
            (key.to_owned(), value.trim_matches('"').to_owned())
        });
        Sample { name: name.to_owned(), labels: labels.collect() }
    })
    .collect()
}

/// The metrics of a page.
pub fn families(page: &str) -> BTreeSet<Family> {
    let samples = samples(page);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let families = types.map(|(name, kind)| {
        let is_of = |sample: &&Sample| match kind {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| sample.name.strip_suffix(end) == Some(name)),
            _ => sample.name == name,
        };
        let labels = samples.iter().filter(is_of).flat_map(|sample| sample.labels.keys().cloned());
        Family {
            name: name.to_owned(),
            kind: kind.to_owned(),
            labels: labels.filter(|label| label != "le").collect(),
        }
    });
    families.collect()
}

/// The bounds of a histogram, as numbers: programs write them in different ways.
///
/// # Panics
/// A bound is no number.
pub fn bounds(samples: &[Sample], name: &str) -> Vec<f64> {
    let of = samples.iter().filter(|sample| sample.name.strip_suffix("_bucket") == Some(name));
    let mut bounds: Vec<f64> =
        of.map(|sample| sample.labels["le"].parse().expect("a bound is a number")).collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}
