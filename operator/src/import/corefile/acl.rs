//! `acl`: who may ask. A list of those who may, followed by a refusal of the rest, is the list of a ClusterDNS.

use super::parse::Directive;
use super::scope::Scope;
use crate::import::report::Outcome::{Kept, NotPossible};
use crate::import::words::list;

/// Converts it.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) {
    let is_everything = scope.is_root() && directive.args.iter().all(|zone| zone == ".");
    let clients = clients(&directive.body).filter(|_| is_everything);
    let made = clients.map(|clients| {
        let change = |spec: &mut crds::ClusterDNSSpec| {
            spec.access.get_or_insert_default().clients = Some(clients.clone());
        };
        scope.draft.change(change).map(|()| list(&clients))
    });
    let (outcome, message) = match made {
        Some(Ok(clients)) => (Kept, format!("spec.access.clients: [{clients}]; others are refused")),
        Some(Err(why)) => (NotPossible, why),
        None => (
            NotPossible,
            "one list says who may ask, for all names and types: spec.access.clients; for single clients use NetworkPolicies"
                .to_owned(),
        ),
    };
    scope.say(directive, outcome, message.as_str());
    for line in &directive.body {
        scope.say_of(directive, line, outcome, message.as_str());
    }
}

/// The ranges of `allow` lines before one that refuses everything else.
fn clients(lines: &[Directive]) -> Option<Vec<String>> {
    let (last, allowed) = lines.split_last()?;
    let refuses = ["block", "filter", "drop"].contains(&last.name.as_str());
    let is_rest = last
        .args
        .iter()
        .all(|word| ["type", "net", "*", "0.0.0.0/0", "::/0"].contains(&word.as_str()));
    if !refuses || !is_rest || allowed.is_empty() {
        return None;
    }
    let mut clients = Vec::new();
    for line in allowed.iter() {
        let at = line.args.iter().position(|word| word == "net")?;
        let types = &line.args[..at];
        if line.name != "allow" || !(types.is_empty() || types == ["type", "*"]) {
            return None;
        }
        clients.extend(line.args[at + 1..].iter().map(|range| range_of(range)));
    }
    clients.dedup();
    Some(clients)
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
