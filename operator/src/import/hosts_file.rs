//! Lines of a hosts file: an address and its names.

use std::net::IpAddr;

use super::Text;
use super::draft::Draft;
use super::report::{Outcome, Place};
use super::values::name;

/// Names of one line that a message lists.
const MAX_NAMED: usize = 3;

/// Adds every line of a hosts file as hosts.
pub(super) fn convert(
    text: &Text,
    terms: Terms,
    draft: &mut Draft,
    is_asked: &dyn Fn(&str) -> Option<String>,
) {
    for (at, line) in text.text.lines().enumerate() {
        if draft.is_spent() {
            return;
        }
        let line = line.split('#').next().unwrap_or_default();
        let place = Place { file: text.file.clone(), line: text.line + at };
        let mut words = line.split_whitespace();
        if let Some(first) = words.next() {
            let names: Vec<String> = words.map(str::to_owned).collect();
            entry(&place, first, &names, terms, draft, is_asked);
        }
    }
}

/// What all entries of a file or block have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// TTL of the records in seconds; `None` is the default.
    pub(super) ttl: Option<u32>,
    /// The addresses get PTR records.
    pub(super) reverse: bool,
}

/// Adds one line. `is_asked` says why a name is never looked up here, where it is not.
pub(super) fn entry(
    place: &Place,
    address: &str,
    names: &[String],
    terms: Terms,
    draft: &mut Draft,
    is_asked: &dyn Fn(&str) -> Option<String>,
) {
    let what = format!("{address} {}", names.join(" "));
    let Ok(address) = address.parse::<IpAddr>() else {
        let message =
            "the first word is not an IP address, so the other server passes this line over too";
        return draft.report.add(place, Outcome::NotNeeded, &what, message);
    };
    if names.is_empty() {
        let message = "an address without a name answers nothing";
        return draft.report.add(place, Outcome::NotNeeded, &what, message);
    }
    let mut kept = Vec::new();
    for written in names {
        if draft.is_spent() {
            return;
        }
        let host = name(written);
        if let Some(why) = is_asked(&host) {
            draft.report.add(place, Outcome::NotNeeded, &what, format!("{host}: {why}"));
            continue;
        }
        match draft.host(&host, address, terms.ttl, terms.reverse) {
            Ok(None) => kept.push(host),
            Ok(Some(differs)) => {
                let message = format!("spec.hosts: {host}: {differs}");
                draft.report.add(place, Outcome::Changed, &what, message);
            }
            Err(why) => {
                draft.report.add(place, Outcome::NotPossible, &what, format!("{host}: {why}"))
            }
        }
    }
    if !kept.is_empty() {
        let message = format!("spec.hosts: {}", named(&kept));
        draft.report.add(place, Outcome::Kept, &what, message);
    }
}

fn named(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMED].join(", ")),
    }
}
