//! `cache`: how many answers of other servers are kept, and for how long.

use crds::v1alpha1::{Cache, GroupCache};
use crds::{bounds, defaults};

use super::forward::{is_replaced, servers};
use super::parse::Directive;
use super::routes::{cached_zones, forward_of};
use super::scope::{Scope, elsewhere};
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};
use crate::import::values::{is_at_or_below, is_reverse, seconds, zones};

/// Entries that CoreDNS keeps of each kind where no number is written.
const DEFAULT_CAPACITY: u32 = 9_984;

const FAILURES: &str = "failures are remembered for 1 to 5 s, longer each time";

/// Which part of the cache a line is about.
#[derive(Clone, Copy)]
enum Kind {
    Success,
    Denial,
}

/// Adds `cache` to the draft: `spec.cache` and groups' `cache`.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let number = directive.args.first().and_then(|text| text.parse::<i64>().ok());
    if number.is_some_and(|number| number <= 0) {
        return Err(directive.refused("the TTL cannot be 0 or less: leave cache out"));
    }
    let ttl = number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let zones = cached_zones(directive, &scope.zones);
    if zones.iter().all(|zone| !zone.is_empty() && scope.draft.is_ours(zone)) {
        let why = "records of the cluster are answered from memory and never cached";
        scope.say(directive, NotNeeded, why);
        for line in &directive.body {
            scope.say_of(directive, line, NotNeeded, why);
        }
        return Ok(());
    }
    let is_whole = is_whole(directive, &scope.zones);
    // A server block has at most one, so an earlier value is that of another block, as where two differ by `bind`.
    let known = scope.draft.spec.cache.clone().filter(|_| is_whole);
    let Some(known) = known else { return all(directive, ttl, &zones, is_whole, scope) };
    let mut alone = scope.draft.empty();
    let Scope { others, directives, blocks, led, look, .. } = *scope;
    let (own, draft) = (scope.zones.clone(), &mut alone);
    let mut other = Scope { zones: own, others, directives, blocks, led, look, draft };
    all(directive, ttl, &zones, is_whole, &mut other)?;
    match alone.spec.cache == Some(known) {
        true => scope.draft.report.append(alone.report),
        false => {
            let message = "there is one cache for all names, and it is as a line above says: this one is not used";
            scope.say_all(directive, NotPossible, message);
        }
    }
    Ok(())
}

/// Is it for all names, in a server block with these zones?
pub(super) fn is_whole(directive: &Directive, own: &[String]) -> bool {
    cached_zones(directive, own).iter().any(String::is_empty)
}

/// The directive and its options.
fn all(
    directive: &Directive,
    ttl: Option<u32>,
    zones: &[String],
    is_whole: bool,
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    head(directive, ttl, zones, is_whole, scope);
    for line in &directive.body {
        let (outcome, message) = option(line, zones, is_whole, scope)?;
        scope.say_of(directive, line, outcome, message);
    }
    Ok(())
}

fn head(
    directive: &Directive,
    ttl: Option<u32>,
    zones: &[String],
    is_whole: bool,
    scope: &mut Scope<'_>,
) {
    let (outcome, message) = match (ttl, is_whole) {
        (None, _) => (
            Changed,
            format!(
                "what upstreams answer is cached; TTLs are at most spec.cache.maxTTLSeconds (here and in CoreDNS {} s where \
                 nothing is written), and those of denials spec.cache.maxNegativeTTLSeconds (here {} s, in CoreDNS 1800 s)",
                defaults::MAX_TTL_SECONDS,
                defaults::MAX_NEGATIVE_TTL_SECONDS
            ),
        ),
        (Some(ttl), true) => {
            let seconds = ttl.min(bounds::RECORD_TTL_SECONDS);
            set(
                |cache| {
                    (cache.max_ttl_seconds, cache.max_negative_ttl_seconds) = (seconds, seconds)
                },
                scope,
            );
            let message = format!(
                "spec.cache: {{maxTTLSeconds: {seconds}, maxNegativeTTLSeconds: {seconds}}}"
            );
            (Changed, message)
        }
        (Some(ttl), false) => of_group(ttl, zones, scope),
    };
    match outcome == Changed {
        true => scope.say(directive, outcome, format!("{message}; {}", differences(directive))),
        false => scope.say(directive, outcome, message),
    }
}

/// What our cache does in another way than that of CoreDNS, where no option of the directive has a line that says so.
fn differences(directive: &Directive) -> String {
    let of_options = [
        (
            "prefetch",
            "answers that are asked for often are asked for again before they expire, which CoreDNS does with prefetch only \
             (spec.cache.prefetch: false ends that)",
        ),
        (
            "serve_stale",
            "expired answers are served while upstreams fail, which CoreDNS does with serve_stale only \
             (spec.cache.staleSeconds: 0 ends that)",
        ),
        ("servfail", FAILURES),
    ];
    let has = |name: &str| directive.body.iter().any(|line| line.name == name);
    let mut all = vec![
        "records of the cluster are not cached",
        "a TTL below 5 s is not raised to 5 s",
        "there is one cache for all server blocks, with a bound in octets (spec.cache.memory)",
    ];
    all.extend(of_options.into_iter().filter(|(name, _)| !has(name)).map(|(_, words)| words));
    all.join("; ")
}

/// The bound of the stub domains of a server block. That of the whole cache is above it.
fn of_group(ttl: u32, zones: &[String], scope: &mut Scope<'_>) -> (Outcome, String) {
    let seconds = ttl.min(bounds::RECORD_TTL_SECONDS);
    let whole = scope.draft.spec.cache.as_ref().map(|cache| cache.max_ttl_seconds);
    let whole = whole.unwrap_or(defaults::MAX_TTL_SECONDS);
    let own = (seconds <= whole).then_some(GroupCache { max_ttl_seconds: Some(seconds) });
    let lost = lost(zones, scope);
    let stubs = scope.draft.spec.stub_domains.iter_mut().flatten();
    let mut count = 0;
    let is_of_block = |domain: &str| {
        let is_within = zones.iter().any(|zone| is_at_or_below(domain, zone));
        is_within && elsewhere(&scope.zones, scope.others, domain).is_none()
    };
    for stub in stubs.filter(|stub| is_of_block(&stub.domain)) {
        stub.cache.clone_from(&own);
        count += 1;
    }
    let done = format!("cache: {{maxTTLSeconds: {seconds}}} of the stub domain");
    match (count, own) {
        (0, _) if lost.is_empty() => {
            (NotNeeded, "no stub domain comes of this server block".to_owned())
        }
        (_, Some(_)) if !lost.is_empty() && seconds < whole => {
            let done = if count > 0 { format!("{done}; ") } else { String::new() };
            let lost = lost.join(", ");
            (
                NotPossible,
                format!(
                    "{done}no stub domain is for {lost} alone, so answers for these names are kept for up to {whole} s \
                     (spec.cache.maxTTLSeconds): write a stub domain for it, with the servers that are asked for it and cache: \
                     {{maxTTLSeconds: {seconds}}}"
                ),
            )
        }
        (0, Some(_)) => (
            NotNeeded,
            format!("TTLs of all names are at most {whole} s (spec.cache.maxTTLSeconds)"),
        ),
        (_, Some(_)) => (Changed, done),
        (_, None) => (
            Changed,
            format!(
                "TTLs are at most {whole} s (spec.cache.maxTTLSeconds, which no stub domain exceeds), not {seconds} s: to keep \
                 that, write {seconds} there, and maxTTLSeconds: {whole} in the cache of spec.upstreams and of the other stub \
                 domains"
            ),
        ),
    }
}

/// Those of the zones that a `forward` of this server block has, and for which no stub domain is: they share the bound of more
/// names. Reverse zones of a `cache` are those of the cluster, as a rule, which are answered from memory.
fn lost(zones: &[String], scope: &Scope<'_>) -> Vec<String> {
    let stubs = || scope.draft.spec.stub_domains.iter().flatten();
    let is_asked = |zone: &String| {
        let servers = forward_of(scope.directives, zone).map(servers).unwrap_or_default();
        servers.iter().any(|server| !is_replaced(server, scope.draft))
    };
    let is_lost = |zone: &&String| {
        !(scope.draft.is_ours(zone)
            || is_reverse(zone)
            || stubs().any(|stub| stub.domain == **zone))
            && scope.elsewhere(zone).is_none()
            && is_asked(zone)
    };
    zones.iter().filter(is_lost).cloned().collect()
}

fn option(
    line: &Directive,
    zones: &[String],
    is_whole: bool,
    scope: &mut Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    Ok(match line.name.as_str() {
        "success" => capacity(line, Kind::Success, zones, is_whole, scope)?,
        "denial" => capacity(line, Kind::Denial, zones, is_whole, scope)?,
        "prefetch" if line.args.first().is_none_or(|text| text.parse::<u32>().is_err()) => {
            return Err(line.refused("a number must follow"));
        }
        "prefetch" => (
            Changed,
            "an answer that was served twice is asked for again with a tenth of its TTL left, if that was 10 s or more; \
             these numbers have no setting"
                .to_owned(),
        ),
        "serve_stale" => serve_stale(line, is_whole, scope)?,
        "servfail" => (Changed, FAILURES.to_owned()),
        "disable" => disable(line, is_whole, scope)?,
        "serve_stale_policy" => {
            (Changed, "the last answer is served while upstreams fail, also a denial".to_owned())
        }
        "keepttl" => {
            (NotPossible, "TTLs of cached answers count down, as RFC 1035 has it".to_owned())
        }
        _ => return Err(line.refused("CoreDNS does not know this option of cache")),
    })
}

/// `success|denial CAPACITY [TTL] [MINTTL]`.
fn capacity(
    line: &Directive,
    kind: Kind,
    zones: &[String],
    is_whole: bool,
    scope: &mut Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    let numbers = line.args.iter().map(|text| text.parse::<u32>()).collect::<Result<Vec<u32>, _>>();
    let numbers = numbers.map_err(|_| line.refused("numbers must follow"))?;
    let Some(entries) = numbers.first().copied() else {
        return Err(line.refused("a number of entries must follow"));
    };
    let ttl = numbers.get(1).copied();
    if ttl == Some(0) {
        return Err(line.refused("the TTL cannot be 0: use disable"));
    }
    let (mut outcome, mut message) = match (is_whole, kind, ttl) {
        (true, _, _) => whole(kind, entries, ttl, scope),
        (false, Kind::Success, Some(ttl)) => of_group(ttl, zones, scope),
        (false, _, _) => {
            (Changed, "there is one cache for all servers, bounded by spec.cache".to_owned())
        }
    };
    if numbers.len() > 2 {
        outcome = if outcome == NotPossible { NotPossible } else { Changed };
        message.push_str("; a TTL is never raised, so there is no least TTL");
    }
    Ok((outcome, message))
}

fn whole(kind: Kind, entries: u32, ttl: Option<u32>, scope: &mut Scope<'_>) -> (Outcome, String) {
    let before = scope.draft.spec.cache.clone();
    // The other kind has the default of CoreDNS, unless it was written before.
    let known = before.map_or(Cache::default().entries, |cache| cache.entries);
    let is_first = known == Cache::default().entries;
    let others = if is_first { DEFAULT_CAPACITY } else { known.saturating_sub(DEFAULT_CAPACITY) };
    let entries = entries.saturating_add(others).min(bounds::CACHE_ENTRIES);
    let ttl = ttl.map(|ttl| ttl.min(bounds::RECORD_TTL_SECONDS));
    set(
        |cache| {
            cache.entries = entries;
            match (kind, ttl) {
                (Kind::Success, Some(ttl)) => cache.max_ttl_seconds = ttl,
                (Kind::Denial, Some(ttl)) => cache.max_negative_ttl_seconds = ttl,
                (_, None) => {}
            }
        },
        scope,
    );
    let field = match kind {
        Kind::Success => "maxTTLSeconds",
        Kind::Denial => "maxNegativeTTLSeconds",
    };
    let ttl = ttl.map_or(String::new(), |ttl| format!(", {field}: {ttl}"));
    let memory = "spec.cache.memory bounds it in octets as well";
    (
        Changed,
        format!(
            "spec.cache: {{entries: {entries}{ttl}}}, for answers and denials together; {memory}"
        ),
    )
}

fn serve_stale(
    line: &Directive,
    is_whole: bool,
    scope: &mut Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    let duration = match line.args.first() {
        None => 3_600,
        Some(text) => {
            seconds(text).ok_or_else(|| line.refused("a duration such as 1h must follow"))?
        }
    };
    let duration = duration.min(bounds::WEEK_SECONDS);
    if !is_whole {
        return Ok((Changed, "spec.cache.staleSeconds is one for all servers".to_owned()));
    }
    set(|cache| cache.stale_seconds = duration, scope);
    // `immediate` is the default of CoreDNS.
    let is_verify = line.args.get(1).is_some_and(|mode| mode.eq_ignore_ascii_case("verify"));
    let when = if is_verify { "" } else { ", not at once" };
    Ok((
        Changed,
        format!(
            "spec.cache.staleSeconds: {duration}; an expired answer is served when upstreams fail or after 1.8 s without a \
             reply{when}; its TTL is 30 s, in CoreDNS 0 s"
        ),
    ))
}

/// `disable success|denial [ZONES]`.
fn disable(
    line: &Directive,
    is_whole: bool,
    scope: &mut Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    let Some((kind, of)) = line.args.split_first() else {
        return Err(line.refused("success or denial must follow"));
    };
    let of: Vec<String> = of.iter().flat_map(|zone| zones(zone)).collect();
    if !of.is_empty() && of.iter().all(|zone| scope.draft.is_ours(zone)) {
        return Ok((NotNeeded, "records of the cluster are never cached".to_owned()));
    }
    if !of.is_empty() || !is_whole {
        let message =
            "write a stub domain for each zone, with its servers and cache: {maxTTLSeconds: 0}";
        return Ok((NotPossible, message.to_owned()));
    }
    let field = match kind.as_str() {
        "success" => {
            set(|cache| cache.max_ttl_seconds = 0, scope);
            "maxTTLSeconds"
        }
        "denial" => {
            set(|cache| cache.max_negative_ttl_seconds = 0, scope);
            "maxNegativeTTLSeconds"
        }
        _ => return Err(line.refused("success or denial must follow")),
    };
    let message = format!(
        "spec.cache.{field}: 0; clients that ask the same at the same time share one question to the upstream"
    );
    Ok((Changed, message))
}

fn set(change: impl Fn(&mut Cache), scope: &mut Scope<'_>) {
    change(scope.draft.spec.cache.get_or_insert_with(Cache::default));
}
