//! Whether a rewritten name is answered here as CoreDNS answers it. CoreDNS rewrites a name once, and answers the new one
//! within the same server block; a CNAME or DNAME record leads to the new name as if a client had asked for it (RR77, RR85).
//! Pure.

use crds::config::RecordType;

use crate::import::corefile::forward::{is_replaced, servers};
use crate::import::corefile::parse::Directive;
use crate::import::corefile::routes::{Leads, Names, block_of, forward_of, forwarded};
use crate::import::corefile::scope::{Scope, is_below};
use crate::import::values::{is_at_or_below, list, zones};

/// Where a record leads, and by which line.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// The owner of the record.
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// Names below the owner become names below the target.
    pub(super) is_suffix: bool,
    /// The line of the rule.
    pub(super) line: &'a Directive,
    /// CoreDNS tries the rules behind this one with the new name (`continue`).
    pub(super) goes_on: bool,
}

/// What differs though the record leads to the right place, if anything.
///
/// # Errors
/// Why it would lead elsewhere, and what to do instead.
pub(super) fn checked(target: Target<'_>, scope: &Scope<'_>) -> Result<Option<String>, String> {
    let differs = match scope.draft.is_ours(target.to) {
        true => of_cluster(target.to, scope),
        false => {
            has_same_servers(target, scope)?;
            None
        }
    };
    ends_there(target, scope)?;
    Ok(differs)
}

/// An error where the record of a rule would change the new name again.
fn ends_there(target: Target<'_>, scope: &Scope<'_>) -> Result<(), String> {
    let mut all = scope.led.of(target.to, target.is_suffix);
    if all.is_empty() {
        return Ok(());
    }
    // A host is more specific than a wildcard, where no rule hides it.
    let is_host = || scope.led.first_of(target.to, scope.directives).is_none();
    if !target.is_suffix && is_in_hosts(target.to, scope) && is_host() {
        all.retain(|(_, other)| other.names != Names::Wildcard);
    }
    if all.iter().any(|(_, other)| std::ptr::eq(other.line, target.line)) {
        return Err(format!(
            "CoreDNS rewrites a name once, and a record would lead names below {} on without an end: write a host or a CNAME \
             record for each name that is asked",
            target.from.trim_start_matches("*.")
        ));
    }
    let order = scope.led.order_of(target.line);
    let mut wrong = all.iter().filter(|(owner, other)| match Some(other.order) < order {
        true => is_made(owner, other, scope),
        false => !(target.goes_on && std::ptr::eq(other.directives, scope.directives)),
    });
    match wrong.next() {
        None => Ok(()),
        Some((_, other)) => Err(format!(
            "CoreDNS rewrites a name once, and here {} would be led on, by the rule {}: write the addresses that {} should \
             have in spec.hosts, or a CNAME record to the end of that chain in spec.records",
            target.to,
            other.line.text(),
            target.from
        )),
    }
}

/// Has an earlier rule a record? It may have been not possible.
fn is_made(owner: &str, other: &Leads<'_>, scope: &Scope<'_>) -> bool {
    match other.names {
        Names::Own => scope.draft.has_record(owner, RecordType::Cname),
        Names::Wildcard => scope.draft.has_record(&format!("*.{owner}"), RecordType::Cname),
        Names::Below => scope.draft.has_record(owner, RecordType::Dname),
    }
}

/// Names of the cluster are answered from memory. CoreDNS does that in a server block with `kubernetes`.
fn of_cluster(to: &str, scope: &Scope<'_>) -> Option<String> {
    let has_cluster = |it: &Directive| {
        let written: Vec<String> = it.args.iter().flat_map(|zone| zones(zone)).collect();
        let zones = if written.is_empty() { &scope.zones } else { &written };
        zones.iter().any(|zone| is_at_or_below(&scope.draft.spec.domain, zone))
    };
    if scope.directives.iter().any(|it| it.name == "kubernetes" && has_cluster(it)) {
        return None;
    }
    let servers = forward_of(scope.directives, to).map(servers).unwrap_or_default();
    let asked = match servers.is_empty() {
        true => "asked no server".to_owned(),
        false if servers.iter().all(|it| is_replaced(it, scope.draft)) => return None,
        false => format!("asked {}", list(&servers)),
    };
    Some(format!("CoreDNS {asked} for the new name, which is answered from memory here"))
}

/// An error where clients that ask for the new name get answers of other servers than those that CoreDNS asks for it.
fn has_same_servers(target: Target<'_>, scope: &Scope<'_>) -> Result<(), String> {
    let Target { from, to, is_suffix, .. } = target;
    let there = block_of(scope.blocks, to);
    let is_own = there.is_some_and(|it| std::ptr::eq(it.directives, scope.directives));
    let theirs = there.map(|it| it.directives).unwrap_or_default();
    let is_inner = |it: &Directive| {
        it.name == "forward" && forwarded(it).is_some_and(|zone| is_below(&zone, to))
    };
    // Of the names below a suffix some may be for others.
    let is_split = is_suffix
        && (scope.others.iter().any(|zone| is_below(zone, to))
            || !is_own && scope.directives.iter().chain(theirs).any(is_inner));
    if is_own && !is_split {
        return Ok(());
    }
    if !is_suffix && is_in_hosts(to, scope) {
        return Err(format!(
            "the line hosts of this server block has {to}, which no client asks here: write its addresses for {from} in spec.hosts"
        ));
    }
    let Some(own) = forward_of(scope.directives, to) else {
        return Err(format!(
            "no forward of this server block has {to}, so CoreDNS asks no server for it: write the addresses of {from} in \
             spec.hosts"
        ));
    };
    let is_same = forward_of(theirs, to).is_some_and(|other| servers(other) == servers(own));
    if is_same && !is_split {
        return Ok(());
    }
    let servers = list(&servers(own));
    if is_split {
        return Err(format!(
            "CoreDNS asked {servers} for all names below {to}, and here others are asked for some of them: write a host in \
             spec.hosts for each name that is asked"
        ));
    }
    let (kind, names) = if is_suffix { ("DNAME", "names below ") } else { ("CNAME", "") };
    Err(format!(
        "CoreDNS asked {servers} for {names}{to}, and here other servers would be asked: write a stub domain {to} with the \
         servers that know it in spec.stubDomains, for all clients, and then the {kind} record of {from} to {to} in spec.records"
    ))
}

/// Is a name among the lines between the braces of `hosts`?
fn is_in_hosts(name: &str, scope: &Scope<'_>) -> bool {
    let lines = scope.directives.iter().filter(|it| it.name == "hosts").flat_map(|it| &it.body);
    let is_it = |written: &String| {
        written.strip_suffix('.').unwrap_or(written.as_str()).eq_ignore_ascii_case(name)
    };
    lines.flat_map(|line| &line.args).any(is_it)
}
