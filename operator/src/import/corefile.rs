//! A Corefile: server blocks, each directive converted by the file of its name.

mod lexer;
mod parse;
mod variables;
mod octets;
mod refusals;
mod keys;
mod listeners;
mod routes;
mod scope;
mod front;
mod directive_order;
mod kubernetes;
mod forward;
mod cache;
mod hosts;
mod rewrite;
mod regex;
mod template;
mod acl;
mod logs;
mod settings;
mod federation;
mod others;

use std::collections::{BTreeMap, BTreeSet};

use directive_order::Turn;
pub(super) use front::{front, serves};
use keys::Key;
pub(super) use parse::Parsed;
use parse::{Directive, ServerBlock, has_variable};
use routes::{Led, Served};
use scope::Scope;

use super::draft::Draft;
use super::report::{Outcome, Place};
use super::values::{is_reverse, zones};
use super::{Look, Refused, Text};

/// Zones of all server blocks together, and of one line: each is held against each name. A range of addresses means up to 256.
const MAX_ZONES: usize = 2_000;

/// The directives whose words are checked as CoreDNS checks them, by name.
pub(super) fn checked() -> impl Iterator<Item = &'static str> {
    refusals::ROWS.iter().map(|row| row.name)
}

/// Reads a Corefile.
///
/// # Errors
/// Why CoreDNS would refuse it.
pub(super) fn parse(
    text: &Text,
    variables: &BTreeMap<String, String>,
    look: &Look<'_>,
) -> Result<Parsed, Refused> {
    let mut parsed = parse::parse(text, variables, look)?;
    if parsed.blocks.is_empty() {
        let place = Place { file: text.file.clone(), line: text.line };
        return Err(Refused::at(&place, "no server block: this is no Corefile"));
    }
    bounded(&parsed)?;
    let mut seen = BTreeSet::new();
    for block in &parsed.blocks {
        if let Some(key) = block.keys.iter().find(|key| !keys::is_key(key)) {
            let message =
                format!("{key} is no zone: this is no Corefile, or a brace is missing before it");
            return Err(Refused::at(&block.place, message));
        }
        are_of_a_corefile(block)?;
        // Blocks of one zone may have addresses or clients of their own.
        let is_apart =
            block.directives.iter().any(|it| ["bind", "view"].contains(&it.name.as_str()));
        let keys = block.keys.iter().filter(|_| !is_apart).map(|key| Key::of(key));
        for Key { scheme, zones, port } in keys {
            for zone in zones {
                if !seen.insert((scheme.clone(), zone.clone(), port.clone())) {
                    let zone = shown(&zone);
                    let message = format!(
                        "{zone}: another server block has this zone and port: join the two"
                    );
                    return Err(Refused::at(&block.place, message));
                }
            }
        }
        refusals::check(&block.directives)?;
    }
    listeners::split(&mut parsed);
    Ok(parsed)
}

/// Refuses YAML, whose words would be keys and directives that this program does not know, and a server block inside of
/// another one: what is meant would be missing from the result.
fn are_of_a_corefile(block: &ServerBlock) -> Result<(), Refused> {
    let names = block.directives.iter().map(|it| (&it.place, &it.name));
    let mut words = block.keys.iter().map(|key| (&block.place, key)).chain(names);
    if let Some((place, word)) = words.find(|(_, word)| keys::is_yaml(word)) {
        let message = format!(
            "{word} is a word of YAML, and this is read as a Corefile: name the ConfigMap that the cluster has, or what `helm \
             template` prints of these values"
        );
        return Err(Refused::at(place, message));
    }
    match block.directives.iter().find(|it| keys::is_block(it)) {
        Some(inner) => Err(inner.refused(
            "a server block cannot be inside of another one: close that one with a brace before it",
        )),
        None => Ok(()),
    }
}

/// Refuses more zones than can be held against names.
fn bounded(parsed: &Parsed) -> Result<(), Refused> {
    let keys =
        parsed.blocks.iter().flat_map(|block| block.keys.iter().map(move |key| (block, key)));
    let mut zones_of_keys =
        keys.flat_map(|(block, key)| Key::of(key).zones.into_iter().map(move |_| block));
    if let Some(block) = zones_of_keys.nth(MAX_ZONES) {
        let message = format!(
            "more than {MAX_ZONES} zones in all server blocks: import a part of them at a time"
        );
        return Err(Refused::at(&block.place, message));
    }
    let mut rest: Vec<&Directive> = parsed.blocks.iter().flat_map(|it| &it.directives).collect();
    while let Some(line) = rest.pop() {
        if line.args.iter().flat_map(|word| zones(word)).nth(MAX_ZONES).is_some() {
            let message =
                format!("more than {MAX_ZONES} zones or words on one line: write several lines");
            return Err(line.refused(message));
        }
        // Lines of a hosts file have names, not zones.
        rest.extend(line.body.iter().filter(|_| line.name != "hosts"));
    }
    Ok(())
}

/// The cluster domain that it serves.
pub(super) fn domain(parsed: &Parsed) -> Option<String> {
    let kubernetes = parsed.blocks.iter().find_map(|block| {
        let directive = block.directives.iter().find(|it| it.name == "kubernetes")?;
        kubernetes_zones(block, directive).into_iter().find(|zone| is_domain(zone))
    });
    // NodeLocal DNSCache serves no cluster itself: it forwards the cluster domain to the server that does.
    kubernetes.or_else(|| {
        let forwards = |it: &&ServerBlock| it.directives.iter().any(forward::is_to_cluster_dns);
        let blocks = parsed.blocks.iter().filter(forwards);
        blocks.flat_map(block_zones).find(|zone| is_domain(zone))
    })
}

fn is_domain(zone: &str) -> bool {
    !zone.is_empty() && !is_reverse(zone) && !has_variable(zone)
}

/// Its own zones, else those of the server block.
fn kubernetes_zones(block: &ServerBlock, directive: &Directive) -> Vec<String> {
    match directive.args.is_empty() {
        true => block_zones(block),
        false => directive.args.iter().flat_map(|zone| zones(zone)).collect(),
    }
}

fn block_zones(block: &ServerBlock) -> Vec<String> {
    block.keys.iter().flat_map(|key| Key::of(key).zones).collect()
}

/// Does a server block say where all other names are asked? Blocks for the clients of a view are not counted.
pub(super) fn has_default_servers(parsed: &Parsed) -> bool {
    let blocks = parsed.blocks.iter().filter(|it| block_zones(it).iter().any(String::is_empty));
    let blocks = blocks.filter(|block| !block.directives.iter().any(|it| it.name == "view"));
    blocks.flat_map(|block| &block.directives).any(|it| forward::is_for(it, ""))
}

/// Is there a server block for every name?
pub(super) fn has_block_for_all(parsed: &Parsed) -> bool {
    parsed.blocks.iter().any(|it| block_zones(it).iter().any(String::is_empty))
}

pub(super) fn first_place(parsed: &Parsed) -> Option<&Place> {
    parsed.blocks.first().map(|block| &block.place)
}

/// Converts every server block.
///
/// # Errors
/// What CoreDNS would refuse.
pub(super) fn convert(parsed: &Parsed, look: &Look<'_>, draft: &mut Draft) -> Result<(), Refused> {
    for import in &parsed.empty_imports {
        let what = format!("import {}", import.pattern);
        let (outcome, message) = match &import.why {
            Some(why) => (Outcome::NotPossible, why.as_str()),
            None if has_variable(&import.pattern) => (Outcome::NotPossible, UNKNOWN_VARIABLE),
            None => (
                Outcome::NotNeeded,
                "no file has this name here; where the cluster has some, name their ConfigMap with one more --corefile, or \
                 use --from-cluster",
            ),
        };
        draft.report.add(&import.place, outcome, &what, message);
    }
    for line in &parsed.unused {
        let message = "no import names this snippet, so nothing of it is in use";
        draft.report.add(&line.place, Outcome::NotNeeded, &line.text, message);
    }
    let zones = front::zones(parsed, draft);
    for (block, zones) in parsed.blocks.iter().zip(&zones) {
        let serves_cluster = zones.contains(&draft.spec.domain);
        if serves_cluster && !block.directives.iter().any(|it| it.name == "kubernetes") {
            let servers = block.directives.iter().flat_map(forward::servers);
            servers.for_each(|it| draft.replaced.add(&it));
        }
    }
    let mut led = Led::default();
    each_block(parsed, &zones, &Led::default(), look, draft, |block, scope| {
        keys::convert(block, scope);
        front::say(block, scope);
        listeners::other_keys(block, &parsed.blocks, scope);
        match view(block) {
            Some(view) => only_for_some(block, view, scope),
            None => rewritten(block, scope, &mut led)?,
        }
        Ok(())
    })?;
    for turn in Turn::ALL {
        each_block(parsed, &zones, &led, look, draft, |block, scope| {
            let is_asked = view(block).is_none() && !front::is_never_asked(scope);
            for directive in block.directives.iter().filter(|_| is_asked) {
                if Turn::of(directive, &scope.zones) == turn && !scope.draft.is_spent() {
                    convert_directive(directive, block, scope)?;
                }
            }
            Ok(())
        })?;
    }
    apart(parsed, look, draft)
}

/// Calls a function for each server block that clients ask.
fn each_block<'a>(
    parsed: &'a Parsed,
    zones: &'a [Vec<String>],
    led: &Led<'a>,
    look: &Look<'_>,
    draft: &mut Draft,
    mut convert: impl FnMut(&'a ServerBlock, &mut Scope<'_>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let all = || parsed.blocks.iter().zip(zones);
    // Blocks for the clients of a view have no names of all clients.
    let served = all().filter(|(block, _)| view(block).is_none());
    let blocks: Vec<Served<'_>> =
        served.map(|(block, zones)| Served { zones, directives: &block.directives }).collect();
    for (at, (block, own)) in all().enumerate() {
        let others = zones.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<&str> = others.flat_map(|(_, it)| it.iter().map(String::as_str)).collect();
        let (zones, directives) = (own.clone(), &block.directives);
        let (others, blocks) = (&others[..], &blocks[..]);
        convert(block, &mut Scope { zones, others, directives, blocks, led, look, draft })?;
    }
    Ok(())
}

fn view(block: &ServerBlock) -> Option<&Directive> {
    block.directives.iter().find(|it| it.name == "view")
}

/// A server block with a view serves some clients only.
fn only_for_some(block: &ServerBlock, view: &Directive, scope: &mut Scope<'_>) {
    let why = "it is for the clients of a view only, and all clients see the same here";
    for directive in block.directives.iter().filter(|it| it.name != "view") {
        scope.say_all(directive, Outcome::NotPossible, why);
    }
    others::convert(view, scope);
}

/// Adds the names that the rules of a server block change.
fn rewritten<'a>(
    block: &'a ServerBlock,
    scope: &mut Scope<'_>,
    led: &mut Led<'a>,
) -> Result<(), Refused> {
    let rules = block.directives.iter().filter(|it| it.name == "rewrite" && !is_unknown(it));
    for directive in rules {
        rewrite::owners(directive, &block.directives, scope, led)?;
    }
    Ok(())
}

/// Reports the server blocks that clients of the Service do not ask.
fn apart(parsed: &Parsed, look: &Look<'_>, draft: &mut Draft) -> Result<(), Refused> {
    // CoreDNS refuses a mistake in any of its blocks.
    let mut unused = draft.empty();
    let (others, blocks, led) = (&[], &[], &Led::default());
    for block in &parsed.apart {
        let block = &ServerBlock { keys: block.other_keys.clone(), ..block.clone() };
        let (zones, directives, draft) = (block_zones(block), &block.directives, &mut unused);
        let mut scope = Scope { zones, others, directives, blocks, led, look, draft };
        for directive in directives {
            convert_directive(directive, block, &mut scope)?;
        }
    }
    for block in &parsed.apart {
        let (zones, directives) = (Vec::new(), &block.directives);
        let mut scope = Scope { zones, others, directives, blocks, led, look, draft };
        listeners::other_keys(block, &parsed.blocks, &mut scope);
        listeners::directives(block, &parsed.blocks, &mut scope)?;
    }
    Ok(())
}

const UNKNOWN_VARIABLE: &str = "the value of an environment variable in it is not known: give it with --env NAME=VALUE, or \
                                use --from-cluster";

fn convert_directive(
    directive: &Directive,
    block: &ServerBlock,
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    if is_unknown(directive) && !is_address_only(directive) {
        scope.say(directive, Outcome::NotPossible, UNKNOWN_VARIABLE);
        for line in &directive.body {
            scope.say_of(directive, line, Outcome::NotPossible, UNKNOWN_VARIABLE);
        }
        return Ok(());
    }
    if !refusals::is_read(directive, &block.directives) {
        scope.say_all(directive, Outcome::NotNeeded, "CoreDNS reads the first of these lines only");
        return Ok(());
    }
    match directive.name.as_str() {
        "kubernetes" => kubernetes::convert(directive, &kubernetes_zones(block, directive), scope),
        "forward" | "proxy" => forward::convert(directive, scope),
        "cache" => cache::convert(directive, scope),
        "hosts" => hosts::convert(directive, scope),
        "rewrite" => rewrite::convert(directive, scope),
        "template" => template::convert(directive, scope),
        "federation" => {
            federation::convert(directive, scope);
            Ok(())
        }
        "acl" => {
            acl::convert(directive, scope);
            Ok(())
        }
        "log" | "errors" | "dnstap" => {
            logs::convert(directive, scope);
            Ok(())
        }
        "health" | "bufsize" | "prometheus" | "chaos" | "nsid" | "bind" => {
            settings::convert(directive, scope)
        }
        _ => {
            others::convert(directive, scope);
            Ok(())
        }
    }
}

/// Directives whose words are addresses of the process of CoreDNS: what they are changes nothing here.
const ADDRESSES: [&str; 5] = ["bind", "health", "pprof", "prometheus", "ready"];

/// Is nothing unknown in it but such an address?
fn is_address_only(directive: &Directive) -> bool {
    ADDRESSES.contains(&directive.name.as_str()) && !directive.body.iter().any(is_unknown)
}

/// Is the value of a variable in it not known?
fn is_unknown(directive: &Directive) -> bool {
    let has_one = |line: &Directive| {
        let mut words = std::iter::once(&line.name).chain(&line.args);
        words.any(|word| has_variable(word))
    };
    has_one(directive) || directive.body.iter().any(has_one)
}

fn shown(zone: &str) -> &str {
    if zone.is_empty() { "." } else { zone }
}
