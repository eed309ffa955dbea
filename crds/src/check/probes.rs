//! Probes as the sidecar of kube-dns had them.

use std::collections::HashSet;

use super::bounds::in_range;
use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;
use crate::config::{Config, Probe};
use crate::names::is_target_name;

/// Adds what is wrong with probes.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    let mut seen = HashSet::new();
    for (index, probe) in config.metrics.probes.iter().enumerate() {
        let field = |name: &str| format!("spec.metrics.probes[{index}].{name}");
        let Probe { label, name, qtype: _, interval_seconds } = probe;
        if !is_label(label) {
            let message = format!(
                "{} is part of the name of a metric: write 1-{} letters, digits and underscores",
                shown(label),
                limit::LABEL
            );
            violations.add(field("label"), Reason::InvalidLabel, message);
        } else if !seen.insert(label) {
            let message = format!("{label} is there already: write each probe once");
            violations.add(field("label"), Reason::Duplicate, message);
        }
        if !is_target_name(name) {
            let message = format!(
                "{} is not a domain name: write one such as kubernetes.default.svc.{}, lower case, without a trailing dot",
                shown(name),
                config.domain
            );
            violations.add(field("name"), Reason::InvalidName, message);
        }
        let seconds = *interval_seconds;
        in_range(&field("intervalSeconds"), seconds, 1, limit::SCRAPE_SECONDS, violations);
    }
}

fn is_label(label: &str) -> bool {
    let is_inner = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    (1..=limit::LABEL).contains(&label.len()) && label.bytes().all(is_inner)
}
