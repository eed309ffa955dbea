//! Whether pods may ask: `access.clients` against the addresses that pods have. The operator asks from one address only, so
//! that its own replies say nothing about all others. Pure.

use std::net::IpAddr;

use crds::Config;
use ipnet::IpNet;

use crate::observe::observed::{Check, CheckResult, Observed};
use crate::observe::pods;

/// The reason of a condition that says so.
pub const REASON: &str = "ClientsExcludePods";

/// Pods or ranges that a message names.
const MAX_NAMED: usize = 3;

/// Known pods that `access.clients` newly refuses; none if the list is empty or refused them before.
pub(super) fn check(config: &Config, before: &Config, observed: &Observed) -> Option<Check> {
    let clients = &config.access.clients;
    if clients.is_empty() || *clients == before.access.clients {
        return None;
    }
    let outcome = match refused(clients, &before.access.clients, observed) {
        None => CheckResult::Good,
        Some(Refused { words, is_most: true }) => {
            CheckResult::Worse(format!("{words}: add the ranges of pods"))
        }
        Some(Refused { words, is_most: false }) => CheckResult::Warning(words),
    };
    Some(Check { what: "access.clients".to_owned(), outcome })
}

/// The problem with a client list that excludes most pods; the list before it does not matter.
pub fn excluded(config: &Config, observed: &Observed) -> Option<String> {
    let refused = refused(&config.access.clients, &[], observed)?;
    refused.is_most.then_some(refused.words)
}

/// Pods that would get REFUSED.
struct Refused {
    words: String,
    /// They are more than those that may ask.
    is_most: bool,
}

/// Pods that the list excludes and that the list before did not. An empty list excludes none.
fn refused(clients: &[IpNet], before: &[IpNet], observed: &Observed) -> Option<Refused> {
    if clients.is_empty() {
        return None;
    }
    let pods: Vec<IpAddr> = observed.pods.iter().filter_map(pods::address).collect();
    let lost: Vec<IpAddr> = pods
        .iter()
        .copied()
        .filter(|ip| !allows(clients, (*ip).into()) && is_allowed(before, (*ip).into()))
        .collect();
    let ranges = &observed.pod_ranges;
    // Some network plug-ins give addresses of their own and ignore the ranges of nodes.
    let are_used = pods.iter().all(|ip| ranges.iter().any(|range| range.contains(ip)));
    let lost_ranges: Vec<&IpNet> = ranges
        .iter()
        .filter(|range| are_used && !allows(clients, **range) && is_allowed(before, **range))
        .collect();
    if lost.is_empty() && lost_ranges.is_empty() {
        return None;
    }
    let (counted, is_most) = match lost_ranges.is_empty() {
        false => {
            let named: Vec<String> =
                lost_ranges.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            let counted = format!(
                "{} of {} ranges of pods, such as {}",
                lost_ranges.len(),
                ranges.len(),
                named.join(", ")
            );
            (counted, lost_ranges.len() * 2 > ranges.len())
        }
        true => {
            let named: Vec<String> = lost.iter().take(MAX_NAMED).map(IpAddr::to_string).collect();
            let counted = format!(
                "{} of {} pods that are known, such as {}",
                lost.len(),
                pods.len(),
                named.join(", ")
            );
            (counted, lost.len() * 2 > pods.len())
        }
    };
    Some(Refused { words: format!("the list refuses {counted}"), is_most })
}

/// An empty list allows all.
fn is_allowed(clients: &[IpNet], range: IpNet) -> bool {
    clients.is_empty() || allows(clients, range)
}

/// May every address of this range ask, by one entry or by several together?
pub(crate) fn allows(clients: &[IpNet], range: IpNet) -> bool {
    let clients = IpNet::aggregate(&clients.to_vec());
    clients.iter().any(|client| client.contains(&range))
}
