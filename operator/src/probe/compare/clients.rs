//! Whether pods may ask: `access.clients` against the addresses that pods have. The operator asks from one address only, so
//! that its own replies say nothing about all others. Pure.

use std::net::IpAddr;

use crds::Config;
use ipnet::IpNet;

use crate::observe::observed::{Check, CheckResult, Observed};
use crate::observe::pods;

/// Pods that a message names.
const MAX_NAMED: usize = 3;

/// Known pods that `access.clients` newly refuses; none if the list is empty or refused them before.
pub(super) fn check(config: &Config, before: &Config, observed: &Observed) -> Option<Check> {
    let clients = &config.access.clients;
    if clients.is_empty() || *clients == before.access.clients {
        return None;
    }
    let addresses: Vec<IpAddr> = observed.pods.iter().filter_map(pods::address).collect();
    let refused: Vec<IpAddr> =
        addresses.iter().copied().filter(|ip| !allows(clients, *ip)).collect();
    let were_refused = addresses
        .iter()
        .all(|ip| !before.access.clients.is_empty() && !allows(&before.access.clients, *ip));
    let reaches_a_range = observed.pod_ranges.iter().any(|range| overlaps(clients, range));
    let names = refused.iter().take(MAX_NAMED).map(IpAddr::to_string).collect::<Vec<_>>();
    let outcome = if refused.is_empty() {
        CheckResult::Good
    } else if refused.len() == addresses.len() && !reaches_a_range && !were_refused {
        let ranges: Vec<String> =
            observed.pod_ranges.iter().take(MAX_NAMED).map(IpNet::to_string).collect();
        let ranges = match ranges.is_empty() {
            true => String::new(),
            false => format!(" (nodes give them addresses of {}, ...)", ranges.join(", ")),
        };
        CheckResult::Worse(format!(
            "every pod that is known would be REFUSED, such as {}{ranges}: add the ranges of pods",
            names.join(", ")
        ))
    } else {
        CheckResult::Warning(format!("pods such as {} are REFUSED", names.join(", ")))
    };
    Some(Check { what: "access.clients".to_owned(), outcome })
}

fn allows(clients: &[IpNet], ip: IpAddr) -> bool {
    clients.iter().any(|range| range.contains(&ip))
}

fn overlaps(clients: &[IpNet], range: &IpNet) -> bool {
    clients.iter().any(|client| client.contains(range) || range.contains(client))
}
