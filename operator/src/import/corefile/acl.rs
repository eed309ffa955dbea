//! `acl`: who may ask. A list of those who may, followed by a refusal of the rest, is the list of a ClusterDNS.

use std::collections::BTreeSet;

use super::parse::Directive;
use super::routes::Served;
use super::scope::Scope;
use super::shown;
use crate::import::report::Outcome::{Changed, Kept, NotPossible};
use crate::import::values::list;

/// Adds `acl` to the draft: `spec.access.clients`.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) {
    let is_everything = scope.is_root() && directive.args.iter().all(|zone| zone == ".");
    let clients = clients(&directive.body).filter(|_| is_everything);
    let is_first = scope.draft.spec.access.as_ref().is_none_or(|it| it.clients.is_none());
    let made = match clients {
        Some(clients) if is_first => {
            let change = |spec: &mut crds::ClusterDNSSpec| {
                spec.access.get_or_insert_default().clients = Some(clients.clone());
            };
            scope.draft.change(change).map(|()| list(&clients))
        }
        Some(_) => Err(
            "an acl above says who may ask, and CoreDNS lets the first one decide: write one list, spec.access.clients"
                .to_owned(),
        ),
        None => Err(
            "one list says who may ask, for all names and types: spec.access.clients; for single clients use NetworkPolicies"
                .to_owned(),
        ),
    };
    let is_refusal = directive.body.last().is_none_or(|line| action(line) == "block");
    let open = open(scope);
    let (outcome, message) = match made {
        Ok(clients) if open.is_empty() => {
            let outcome = if is_refusal { Kept } else { Changed };
            (outcome, format!("spec.access.clients: [{clients}]; others are refused"))
        }
        Ok(clients) => (
            Changed,
            format!(
                "spec.access.clients: [{clients}]; others are refused for all names, also for those of the other server blocks \
                 ({}), where CoreDNS answered everyone: add the clients that ask for these",
                list(&open)
            ),
        ),
        Err(why) => (NotPossible, why),
    };
    scope.say(directive, outcome, message.as_str());
    for line in &directive.body {
        let is_allowed = outcome == Changed && open.is_empty() && action(line) == "allow";
        scope.say_of(directive, line, if is_allowed { Kept } else { outcome }, message.as_str());
    }
}

/// The zones of the other server blocks that have no list of clients.
fn open(scope: &Scope<'_>) -> Vec<String> {
    let is_open = |block: &&Served<'_>| {
        !std::ptr::eq(block.directives, scope.directives)
            && !block.directives.iter().any(|it| it.name == "acl")
    };
    let zones = scope.blocks.iter().filter(is_open).flat_map(|block| block.zones);
    // Several blocks may have one zone, as where they differ by `bind`.
    let zones: BTreeSet<&str> = zones.map(|zone| shown(zone)).collect();
    zones.into_iter().map(str::to_owned).collect()
}

/// The ranges of `allow` lines before one that refuses everything else.
fn clients(lines: &[Directive]) -> Option<Vec<String>> {
    let (last, allowed) = lines.split_last()?;
    let refuses = ["block", "filter", "drop"].contains(&action(last).as_str());
    if !refuses || !is_rest(&words(last)) || allowed.is_empty() {
        return None;
    }
    let mut clients = Vec::new();
    for line in allowed.iter() {
        let words = words(line);
        let (types, ranges) = words.split_at(words.iter().position(|word| word == "net")?);
        if action(line) != "allow" || !(types.is_empty() || types == ["type", "*"]) {
            return None;
        }
        clients.extend(ranges[1..].iter().map(|range| range_of(range)));
    }
    clients.dedup();
    Some(clients)
}

/// What a line does with clients. CoreDNS reads it in any case, and the words behind it.
fn action(line: &Directive) -> String {
    line.name.to_ascii_lowercase()
}

fn words(line: &Directive) -> Vec<String> {
    line.args.iter().map(|word| word.to_ascii_lowercase()).collect()
}

/// `[type *] [net RANGE...]`: all types, and no range, `*`, or all addresses of both families.
fn is_rest(args: &[String]) -> bool {
    let at = args.iter().position(|word| word == "net").unwrap_or(args.len());
    let (types, ranges) = args.split_at(at);
    let has = |range: &str| ranges.iter().any(|it| it == range);
    let is_all = ranges.is_empty() || has("*") || has("0.0.0.0/0") && has("::/0");
    (types.is_empty() || types == ["type", "*"]) && is_all
}

/// A single address is a range of one.
fn range_of(text: &str) -> String {
    match text.parse::<std::net::IpAddr>() {
        Ok(ip) => ipnet::IpNet::from(ip).to_string(),
        Err(_) => text
            .parse::<ipnet::IpNet>()
            .map_or_else(|_| text.to_owned(), |it| it.trunc().to_string()),
    }
}
