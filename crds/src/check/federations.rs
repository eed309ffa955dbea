//! Federations: well-formed names that lead out of the cluster (RR95-RR97).

use std::collections::HashSet;

use super::violations::{Reason, Violations, shown};
use crate::bounds as limit;
use crate::config::{Config, Federation};
use crate::names::{is_at_or_below, is_host_name, is_label};

/// The shortest labels that may be in front of the domain of a federation, without its own name: `a.a.NAME.svc.`.
const SHORTEST: usize = "a.a..svc.".len();

/// Adds what is wrong with federations.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    let mut seen = HashSet::new();
    for (index, federation) in config.federations.iter().enumerate() {
        let field = |name: &str| format!("spec.federations[{index}].{name}");
        let Federation { name, domain, zone, region } = federation;
        if !is_label(name) {
            let message = format!(
                "{} is not one label: write a name such as west, of a-z, 0-9 and '-'",
                shown(name)
            );
            violations.add(field("name"), Reason::InvalidName, message);
        } else if !seen.insert(name) {
            let message = format!("{name} is there already: write each federation once");
            violations.add(field("name"), Reason::Duplicate, message);
        }
        if !is_host_name(domain, limit::DOMAIN_NAME) {
            let message = format!(
                "{} is not a domain name: write one such as west.example.com, lower case, without a trailing dot",
                shown(domain)
            );
            violations.add(field("domain"), Reason::InvalidName, message);
        } else if is_at_or_below(domain, &config.domain) {
            let message = format!(
                "{domain} is in the cluster domain {}, so the names of this federation would lead back here: write the \
                 domain that has the Services of all clusters",
                config.domain
            );
            violations.add(field("domain"), Reason::UnderClusterDomain, message);
        }
        for (what, place) in [("zone", zone), ("region", region)] {
            if let Some(place) = place.as_ref().filter(|place| !is_host_name(place, limit::LABEL)) {
                let message = format!(
                    "{} cannot be part of a domain name: write one such as us-west1, as in the names of {domain}",
                    shown(place)
                );
                violations.add(field(what), Reason::InvalidName, message);
            }
        }
        let place = |place: &Option<String>| place.as_ref().map_or(1, String::len) + 1;
        let octets = SHORTEST + name.len() + place(zone) + place(region) + domain.len();
        if octets > limit::DOMAIN_NAME {
            let message = format!(
                "no name fits below it: one has {octets} characters or more, and {} at most",
                limit::DOMAIN_NAME
            );
            violations.add(field("domain"), Reason::TooLong, message);
        }
    }
}
