//! Lines of a hosts file: an address and its names.

use std::net::IpAddr;

use super::Text;
use super::draft::Draft;
use super::report::{Outcome, Place};
use super::values::name;

/// Names of one line that a message lists.
const MAX_NAMED: usize = 3;

/// Which of two names of an address is answered here (A15).
pub(super) const CLUSTER_FIRST: &str = "where a Service or an endpoint of the cluster has the address of a host, as a node of the \
                                        control plane has that of default/kubernetes, the reverse name leads to the name in the \
                                        cluster, where the other server answers with the host";

/// What the other server does with a name of a line.
pub(super) enum Use {
    /// It has this address.
    Same,
    /// It has this address, except for what the sentence says.
    Differs(&'static str),
    /// It is never looked up: why.
    Never(String),
    /// A host for it would have names of others: why, and what to do.
    Lost(String),
}

/// Decides that for a name and an address.
pub(super) type Used<'a> = dyn Fn(&str, IpAddr, &Draft) -> Use + 'a;

/// Adds every line of a hosts file as hosts.
pub(super) fn convert(text: &Text, terms: Terms<'_>, draft: &mut Draft, used: &Used<'_>) {
    for (at, line) in text.text.lines().enumerate() {
        if draft.is_spent() {
            return;
        }
        let line = line.split('#').next().unwrap_or_default();
        let place = Place { file: text.file.clone(), line: text.line + at };
        let mut words = line.split_whitespace();
        if let Some(first) = words.next() {
            let names: Vec<String> = words.map(str::to_owned).collect();
            entry(&place, first, &names, terms, draft, used);
        }
    }
}

/// What all entries of a file or block have in common.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// TTL of the records in seconds; `None` is the default.
    pub(super) ttl: Option<u32>,
    /// Whether the other server passes over a zone behind an address, as in `fd00::1%eth0`.
    pub(super) cuts_zones: bool,
    /// Whether an address gets PTR records.
    pub(super) reverse: &'a dyn Fn(IpAddr) -> Reverse,
}

/// What the other server has at the reverse name of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reverse {
    /// The names of its hosts.
    Names,
    /// No such names, by an option that has a line of its own.
    Off,
    /// No such names, as it asks others for this reverse name.
    Elsewhere,
}

/// Adds one line. `used` says what the other server does with each name.
pub(super) fn entry(
    place: &Place,
    address: &str,
    names: &[String],
    terms: Terms<'_>,
    draft: &mut Draft,
    used: &Used<'_>,
) {
    let what = format!("{address} {}", names.join(" "));
    let without_zone = address.split('%').next().filter(|_| terms.cuts_zones);
    let Ok(address) = without_zone.unwrap_or(address).parse::<IpAddr>() else {
        let message =
            "the first word is not an IP address, so the other server passes this line over too";
        return draft.report.add(place, Outcome::NotNeeded, &what, message);
    };
    if names.is_empty() {
        let message = "an address without a name answers nothing";
        return draft.report.add(place, Outcome::NotNeeded, &what, message);
    }
    let reverse = (terms.reverse)(address);
    let mut kept = Vec::new();
    for written in names {
        if draft.is_spent() {
            return;
        }
        let host = name(written);
        let differs = match used(&host, address, draft) {
            Use::Same => None,
            Use::Differs(how) => Some(how.to_owned()),
            Use::Never(why) => {
                let message = format!("{host}: {why}");
                draft.report.add(place, Outcome::NotNeeded, &what, message);
                continue;
            }
            Use::Lost(why) => {
                let message = format!("{host}: {why}");
                draft.report.add(place, Outcome::NotPossible, &what, message);
                continue;
            }
        };
        match draft.host(&host, address, terms.ttl, reverse == Reverse::Names) {
            Ok(of_address) => {
                let all: Vec<String> = differs.into_iter().chain(of_address).collect();
                if all.is_empty() {
                    kept.push(host);
                    continue;
                }
                let message = format!("spec.hosts: {host}: {}", all.join("; "));
                draft.report.add(place, Outcome::Changed, &what, message);
            }
            Err(why) => {
                draft.report.add(place, Outcome::NotPossible, &what, format!("{host}: {why}"))
            }
        }
    }
    if !kept.is_empty() {
        let without = match reverse {
            Reverse::Names | Reverse::Off => "",
            Reverse::Elsewhere => {
                "; reverse: false, because the other server asks others for the reverse name of this address"
            }
        };
        let message = format!("spec.hosts: {}{without}", named(&kept));
        draft.report.add(place, Outcome::Kept, &what, message);
    }
}

fn named(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMED].join(", ")),
    }
}
