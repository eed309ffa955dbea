//! NodeLocal DNSCache in front of CoreDNS: pods ask the cache, so its Corefile says who answers them. Of the server behind it
//! only those names count that the cache leaves to it. Pure.

use super::forward;
use super::parse::{Parsed, ServerBlock};
use super::routes::{excepted, forward_of, forwarded};
use super::scope::Scope;
use super::{block_zones, view};
use crate::import::draft::Draft;
use crate::import::front::{Front, Next};
use crate::import::report::Outcome::{Changed, NotPossible};
use crate::import::values::{is_at_or_below, list};

const ASKED: &str = "pods ask NodeLocal DNSCache, which sends";

/// Does it serve the cluster domain itself?
pub(in crate::import) fn serves(parsed: &Parsed, domain: &str) -> bool {
    parsed.blocks.iter().any(|block| {
        let mut kubernetes = block.directives.iter().filter(|it| it.name == "kubernetes");
        kubernetes.any(|it| {
            let zones = super::kubernetes_zones(block, it);
            zones.iter().any(|zone| zone.is_empty() || zone == domain)
        })
    })
}

/// What this Corefile is as a cache in front of the server of the cluster, if it is one: it forwards the cluster domain, and
/// says where all other names go.
pub(in crate::import) fn front(parsed: &Parsed, domain: &str) -> Option<Front> {
    let blocks = || parsed.blocks.iter().filter(|block| view(block).is_none());
    let serving = blocks().find(|block| block_zones(block).iter().any(|it| it == domain))?;
    if serves(parsed, domain) {
        return None;
    }
    let behind = forward_of(&serving.directives, domain).map(forward::servers)?;
    let next = |block: &ServerBlock, zone: &str| {
        let line = forward_of(&block.directives, zone)?;
        let servers = forward::servers(line);
        let is_behind = servers.iter().all(|it| behind.contains(it));
        Some(if is_behind { Next::Behind } else { Next::Others(list(&servers)) })
    };
    let mut zones: Vec<(String, Next)> = Vec::new();
    for block in blocks() {
        // A line for a zone below, or one that leaves it out, decides about that zone.
        let lines =
            block.directives.iter().flat_map(|it| forwarded(it).into_iter().chain(excepted(it)));
        let own = block_zones(block);
        let below = |zone: &String| own.iter().any(|it| it != zone && is_at_or_below(zone, it));
        let below: Vec<String> = lines.filter(below).collect();
        for zone in own.into_iter().chain(below) {
            let next = next(block, &zone).unwrap_or(Next::Others("no server".to_owned()));
            // Of several server blocks with this zone, the first one counts.
            if !zones.iter().any(|(known, _)| *known == zone) {
                zones.push((zone, next));
            }
        }
    }
    // Without a block for all names it is not known who answers them.
    zones.iter().any(|(zone, _)| zone.is_empty()).then_some(Front { zones })
}

/// The zones of each server block, as far as pods ask it.
pub(super) fn zones(parsed: &Parsed, draft: &Draft) -> Vec<Vec<String>> {
    let written: Vec<Vec<String>> = parsed.blocks.iter().map(block_zones).collect();
    let Some(front) = &draft.front else { return written };
    let all: Vec<&String> = written.iter().flatten().collect();
    let longest = |name: &str| {
        let having = all.iter().filter(|zone| is_at_or_below(name, zone));
        having.max_by_key(|zone| zone.len()).copied()
    };
    let of_zone = |zone: &String| -> Vec<String> {
        match front.of(zone) == Some(&Next::Behind) {
            true => vec![zone.clone()],
            false => front.left().filter(|it| longest(it) == Some(zone)).cloned().collect(),
        }
    };
    let asked = |zones: &Vec<String>| {
        let mut asked: Vec<String> = Vec::new();
        for zone in zones.iter().flat_map(of_zone) {
            if !asked.contains(&zone) {
                asked.push(zone);
            }
        }
        asked
    };
    written.iter().map(asked).collect()
}

/// Does no name of this server block come through the cache in front?
pub(super) fn is_never_asked(scope: &Scope<'_>) -> bool {
    scope.zones.is_empty() && scope.draft.front.is_some()
}

/// Says what does not come through the cache in front.
pub(super) fn say(block: &ServerBlock, scope: &mut Scope<'_>) {
    let Some(front) = &scope.draft.front else { return };
    let lost: Vec<String> =
        block_zones(block).into_iter().filter(|zone| !scope.zones.contains(zone)).collect();
    let Some(first) = lost.first() else { return };
    let others = match front.of(first) {
        Some(Next::Others(servers)) => servers.clone(),
        Some(Next::Behind) | None => "other servers".to_owned(),
    };
    let what = block.keys.join(" ");
    if !scope.zones.is_empty() {
        let message = format!(
            "{ASKED} only names of {} here, and others to {others}: what this server block says of others changes nothing",
            list(&scope.zones)
        );
        return scope.note(&block.place, Changed, &what, message);
    }
    let message = format!(
        "{ASKED} these names to {others}: if clients ask this server itself, write them in spec.stubDomains or spec.hosts"
    );
    scope.note(&block.place, NotPossible, &what, message.as_str());
    if view(block).is_none() {
        for directive in &block.directives {
            scope.say_all(directive, NotPossible, &message);
        }
    }
}
