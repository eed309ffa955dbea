//! `hosts`: names and addresses, from a file or written inline.

use std::net::IpAddr;

use super::parse::Directive;
use super::scope::{Scope, elsewhere, has_all_below};
use crate::import::draft::Draft;
use crate::import::hosts_file::{self, CLUSTER_FIRST, Reverse, Terms, Use};
use crate::import::report::Outcome::{Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{REVERSE_TREES, is_at_or_below, is_reverse, reverse_name, zones};
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
    let (ttl, has_reverse) = options(directive)?;
    let within: Vec<String> = directive.args.iter().skip(1).flat_map(|zone| zones(zone)).collect();
    for line in directive.body.iter().filter(|line| OPTIONS.contains(&line.name.as_str())) {
        option(directive, line, scope);
    }
    let (own, others) = (scope.zones.clone(), scope.others);
    // CoreDNS gives a reverse name to a server block as it does any other name.
    let reverse = |ip: IpAddr| match elsewhere(&own, others, &reverse_name(ip)) {
        _ if !has_reverse => Reverse::Off,
        Some(_) => Reverse::Elsewhere,
        None => Reverse::Names,
    };
    let terms = Terms { ttl, cuts_zones: true, reverse: &reverse };
    head(directive, ttl, has_reverse, scope);
    let (led, directives) = (scope.led, scope.directives);
    // A host has its reverse name only together with its name.
    let unread = |why: String, ip: IpAddr| match reverse(ip) {
        Reverse::Off | Reverse::Elsewhere => Use::Never(why),
        Reverse::Names => Use::Lost(format!(
            "{why}, except for its reverse name, which a host has only together with its name"
        )),
    };
    let used = |name: &str, ip: IpAddr, draft: &Draft| {
        if !within.is_empty() && !within.iter().any(|zone| is_at_or_below(name, zone)) {
            return Use::Never("it is outside of the zones of this directive".to_owned());
        }
        if let Some(why) = elsewhere(&own, others, name) {
            return unread(why, ip);
        }
        if let Some(first) = led.first_of(name, directives) {
            let rule = first.line.text();
            let why = format!(
                "the rule {rule} has it first, as CoreDNS rewrites names before it reads hosts"
            );
            return unread(why, ip);
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

/// The TTL that is written, and whether reverse names are answered.
fn options(directive: &Directive) -> Result<(Option<u32>, bool), Refused> {
    let (mut written, mut has_reverse) = (None, true);
    for line in &directive.body {
        match (line.name.as_str(), line.args.first().map(|text| text.parse::<u32>())) {
            ("ttl", Some(Ok(ttl))) if (1..65_536).contains(&ttl) => written = Some(ttl),
            ("ttl", _) => return Err(line.refused("seconds, 1-65535, must follow")),
            ("no_reverse", _) => has_reverse = false,
            _ => {}
        }
    }
    Ok((written, has_reverse))
}

fn head(directive: &Directive, ttl: Option<u32>, has_reverse: bool, scope: &mut Scope<'_>) {
    let has_lines = directive.body.iter().any(|it| !OPTIONS.contains(&it.name.as_str()));
    let is_found = |file: &String| file != OWN_FILE && !(scope.look)(file).found.is_empty();
    if has_reverse
        && has_reverse_names(scope)
        && (has_lines || directive.args.first().is_some_and(is_found))
    {
        scope.say(directive, Changed, CLUSTER_FIRST);
    }
    match directive.args.first().map(String::as_str) {
        None | Some(OWN_FILE) => {
            let what = "the file /etc/hosts of a pod has only the pod itself";
            let inline = "the lines below are hosts";
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
    if ttl.is_none() {
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

/// Do reverse names of some addresses come to this server block?
fn has_reverse_names(scope: &Scope<'_>) -> bool {
    let has =
        |zone: &String| is_reverse(zone) || REVERSE_TREES.iter().any(|it| is_at_or_below(it, zone));
    scope.zones.iter().any(has)
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
