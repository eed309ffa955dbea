//! `hosts`: names and addresses, from a file or written inline.

use std::net::IpAddr;

use super::parse::Directive;
use super::scope::{Scope, elsewhere, has_all_below};
use crate::import::draft::Draft;
use crate::import::hosts_file::{self, Terms, Use};
use crate::import::report::Outcome::{Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{is_at_or_below, zones};
use crate::import::{Files, Refused};

/// Seconds of the TTL that CoreDNS gives where none is written.
const DEFAULT_TTL: u32 = 3_600;
/// The file that CoreDNS reads where none is written: in a container it holds the names of the pod.
const OWN_FILE: &str = "/etc/hosts";

const NOT_FOLLOWED: &str = "the lines of the file are hosts as they are now; later changes of the file are not followed, so \
                            the program that writes it must write spec.hosts";

/// What a name with a wildcard means there, and what to do.
const WILDCARD: &str = "the host answers all names below it, of any depth: CoreDNS matches one label there, and before version \
                        1.15 nothing, so remove this host if yours is older";

/// Options that are no line of a hosts file.
const OPTIONS: [&str; 5] =
    ["ttl", "no_reverse", "reload", "fallthrough", "fallthrough_unsupported"];

/// Adds `hosts` to the draft: `spec.hosts`.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let terms = terms(directive)?;
    let within: Vec<String> = directive.args.iter().skip(1).flat_map(|zone| zones(zone)).collect();
    for line in directive.body.iter().filter(|line| OPTIONS.contains(&line.name.as_str())) {
        option(directive, line, scope);
    }
    head(directive, terms, scope);
    let (own, others) = (scope.zones.clone(), scope.others);
    let used = |name: &str, ip: IpAddr, draft: &Draft| {
        if !within.is_empty() && !within.iter().any(|zone| is_at_or_below(name, zone)) {
            return Use::Never("it is outside of the zones of this directive".to_owned());
        }
        if let Some(why) = elsewhere(&own, others, name) {
            return Use::Never(why);
        }
        if draft.templates.has(name, ip) {
            return Use::Never("a template has it, and CoreDNS asks template first".to_owned());
        }
        match name.strip_prefix("*.").map(|above| has_all_below(others, draft, above)) {
            None => Use::Same,
            Some(Ok(())) => Use::Differs(WILDCARD),
            Some(Err(why)) => Use::Lost(why),
        }
    };
    for line in directive.body.iter().filter(|line| !OPTIONS.contains(&line.name.as_str())) {
        hosts_file::entry(&line.place, &line.name, &line.args, terms, scope.draft, &used);
    }
    let Some(file) = directive.args.first().filter(|_| has_file(directive)) else { return Ok(()) };
    let Files { found, unread } = (scope.look)(file);
    for why in unread {
        scope.say(directive, NotPossible, why);
    }
    for text in found {
        hosts_file::convert(&text, terms, scope.draft, &used);
    }
    Ok(())
}

/// Does it name a file with names of others?
fn has_file(directive: &Directive) -> bool {
    directive.args.first().is_some_and(|file| file != OWN_FILE)
}

fn terms(directive: &Directive) -> Result<Terms, Refused> {
    let mut terms = Terms { ttl: None, reverse: true };
    for line in &directive.body {
        match (line.name.as_str(), line.args.first().map(|text| text.parse::<u32>())) {
            ("ttl", Some(Ok(ttl))) if (1..65_536).contains(&ttl) => terms.ttl = Some(ttl),
            ("ttl", _) => return Err(line.refused("seconds, 1-65535, must follow")),
            ("no_reverse", _) => terms.reverse = false,
            _ => {}
        }
    }
    Ok(terms)
}

fn head(directive: &Directive, terms: Terms, scope: &mut Scope<'_>) {
    match directive.args.first().map(String::as_str) {
        None | Some(OWN_FILE) => {
            let what = "the file /etc/hosts of a pod has only the pod itself";
            let inline = "the lines below are hosts";
            let has_lines = directive.body.iter().any(|it| !OPTIONS.contains(&it.name.as_str()));
            let message = if has_lines { inline } else { what };
            scope.say(directive, if has_lines { Kept } else { NotNeeded }, message);
        }
        Some(file) => match (scope.look)(file).is_none() {
            true => {
                let message = format!(
                    "the file {file} is not here: put it beside the Corefile and import again, or write its lines as spec.hosts"
                );
                scope.say(directive, NotPossible, message);
            }
            false if (scope.look)(file).found.is_empty() => {}
            false => scope.say(directive, Changed, NOT_FOLLOWED),
        },
    }
    if terms.ttl.is_none() {
        let ours = crds::defaults::RECORD_TTL_SECONDS;
        let message = format!(
            "the TTL of hosts is {ours} s, not {DEFAULT_TTL} s: ttlSeconds of each changes it"
        );
        scope.say(directive, Changed, message);
    }
    if !directive.body.iter().any(|line| line.name == "fallthrough") {
        let message = "names that are not among the hosts go to the upstreams; without fallthrough they failed";
        scope.say(directive, Changed, message);
    }
}

fn option(directive: &Directive, line: &Directive, scope: &mut Scope<'_>) {
    let (outcome, message) = match line.name.as_str() {
        "ttl" => (Kept, "ttlSeconds of each host"),
        "no_reverse" => (Kept, "reverse: false of each host"),
        "fallthrough_unsupported" => {
            (NotPossible, "other types of these names have no data: write them in spec.records")
        }
        "reload" if has_file(directive) => (Changed, NOT_FOLLOWED),
        "reload" => (
            NotNeeded,
            "hosts are in the ClusterDNS: pods get a change after its trial (spec.rollout)",
        ),
        _ if line.args.is_empty() => (Kept, "other names go to stub domains and upstreams"),
        _ => (
            Changed,
            "other names go to stub domains and upstreams, also those outside of the zones that are written here",
        ),
    };
    scope.say_of(directive, line, outcome, message);
}
