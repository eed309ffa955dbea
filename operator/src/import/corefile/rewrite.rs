//! `rewrite`: a name in place of another one, as an alias. `targets` says whether the alias leads where CoreDNS went.

mod targets;

use crds::config::RecordType;
use crds::defaults;
use crds::v1alpha1::Record;

use super::parse::Directive;
use super::regex::{Shape, is_anchored, matches_nothing, shape};
use super::routes::Led;
use super::scope::Scope;
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};
use crate::import::values::name;
use targets::Target;

/// What a rule does to names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// One name becomes another one, also as a part of a longer name.
    Exact { from: String, to: String, is_part: bool },
    /// Names below the first become names below the second; perhaps the first itself becomes the second.
    Suffix { from: String, to: String, itself: bool, is_part: bool },
    /// It changes no name: why.
    Nothing(&'static str),
    /// Anything else: what to do instead.
    Other(&'static str),
}

/// What begins a rule, or says how its names are compared.
const KEYWORDS: [&str; 15] = [
    "stop",
    "continue",
    "name",
    "type",
    "class",
    "edns0",
    "ttl",
    "rcode",
    "cname",
    "exact",
    "prefix",
    "suffix",
    "substring",
    "regex",
    "answer",
];

/// One rule of a directive.
struct Written<'a> {
    line: &'a Directive,
    /// What it does.
    words: Vec<String>,
    /// The rules behind it are tried with the new name; CoreDNS stops where nothing is written.
    goes_on: bool,
}

/// The rules of one directive: its own words, or the lines between its braces.
fn written(directive: &Directive) -> Vec<Written<'_>> {
    let mut own = keywords(&directive.args);
    let is_mode = own.first().is_some_and(|word| ["stop", "continue"].contains(&word.as_str()));
    let mode = is_mode.then(|| own.remove(0));
    let goes_on = mode.is_some_and(|word| word == "continue");
    let own = Some(own).filter(|words| !words.is_empty());
    let own = own.map(|words| Written { line: directive, words, goes_on });
    let lines = directive.body.iter().filter(|line| !is_answer(line)).map(|line| Written {
        line,
        words: keywords(std::iter::once(&line.name).chain(&line.args)),
        goes_on,
    });
    own.into_iter().chain(lines).collect()
}

/// The words of a rule: CoreDNS reads its keywords in any case.
fn keywords<'a>(words: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let keyword = |word: &String| {
        let lower = word.to_ascii_lowercase();
        if KEYWORDS.contains(&lower.as_str()) { lower } else { word.clone() }
    };
    words.into_iter().map(keyword).collect()
}

/// A line that rewrites names in the answer.
fn is_answer(line: &Directive) -> bool {
    line.name.eq_ignore_ascii_case("answer")
}

/// Adds the owners of the records of a directive, before any is made: a record must not lead to one of them.
///
/// # Errors
/// CoreDNS would refuse it.
pub(super) fn owners<'a>(
    directive: &'a Directive,
    directives: &'a [Directive],
    scope: &mut Scope<'_>,
    led: &mut Led<'a>,
) -> Result<(), Refused> {
    for Written { line, words, .. } in written(directive) {
        let (owners, to) = match rule(line, &words)? {
            // It changes nothing, and makes no record.
            Rule::Exact { from, to, .. } | Rule::Suffix { from, to, .. } if from == to => continue,
            Rule::Exact { from, to, .. } => (scope.owners(&from).unwrap_or_default(), Some(to)),
            Rule::Suffix { from, .. } if scope.elsewhere(&from).is_none() => (vec![from], None),
            Rule::Suffix { from, .. } => (scope.zones_below(&from), None),
            Rule::Nothing(_) | Rule::Other(_) => continue,
        };
        scope.draft.spend(owners.len());
        if scope.draft.is_spent() {
            return Ok(());
        }
        owners.iter().for_each(|owner| led.add(owner, to.as_deref(), line, directives));
    }
    Ok(())
}

/// Adds `rewrite name` to the draft: a CNAME record.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let all = written(directive);
    let has_own = all.iter().any(|it| std::ptr::eq(it.line, directive));
    if !has_own && directive.body.is_empty() {
        return Err(directive.refused("what is rewritten must follow, such as name"));
    } else if !has_own {
        scope.say(directive, Changed, "as the lines below say");
    }
    for Written { line, words, goes_on } in all {
        let (outcome, message) = of_rule(&rule(line, &words)?, line, goes_on, scope);
        match std::ptr::eq(line, directive) {
            true => scope.say(directive, outcome, message),
            false => scope.say_of(directive, line, outcome, message),
        }
    }
    for line in directive.body.iter().filter(|line| is_answer(line)) {
        let message = "an answer shows the alias and its target, so nothing is rewritten in it";
        scope.say_of(directive, line, NotNeeded, message);
    }
    Ok(())
}

fn rule(line: &Directive, args: &[String]) -> Result<Rule, Refused> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    Ok(match &words[..] {
        ["name", "exact" | "suffix" | "prefix" | "substring", from, _, ..]
            if from.contains('*') =>
        {
            Rule::Nothing(STAR)
        }
        ["name", from, _] | ["name", from, _, "answer", ..] if from.contains('*') => {
            Rule::Nothing(STAR)
        }
        ["name", "exact", from, to, ..] => exact(from, to),
        ["name", "suffix", from, to, ..] => of_suffix(from, to),
        ["name", "regex", from, to, ..] => of_expression(from, to),
        ["name", "prefix" | "substring", _, _, ..] => Rule::Other(
            "only whole names and suffixes have records: write a CNAME record in spec.records for each name that is asked",
        ),
        ["name", from, to] | ["name", from, to, "answer", ..] => exact(from, to),
        ["name", ..] => return Err(line.refused("a name and the name in its place must follow")),
        ["cname", ..] => Rule::Other(
            "targets of CNAME records are answered as they are: write a record for the target in spec.records",
        ),
        ["ttl", ..] => Rule::Other(
            "TTLs are those of spec.ttlSeconds, of each record, or at most spec.cache.maxTTLSeconds",
        ),
        ["type" | "class", ..] => {
            Rule::Other("a question is answered as it is asked: change the client")
        }
        ["edns0", ..] => Rule::Other(
            "options of EDNS are not added to questions: let the upstream know clients in another way",
        ),
        ["rcode", ..] => Rule::Other("replies keep their response code"),
        _ => {
            return Err(
                line.refused("CoreDNS rewrites name, type, class, edns0, ttl, rcode and cname")
            );
        }
    })
}

fn exact(from: &str, to: &str) -> Rule {
    Rule::Exact { from: name(from), to: name(to), is_part: false }
}

/// CoreDNS replaces the end of the text. That means "names below a name" only if both texts begin with a dot.
fn of_suffix(from: &str, to: &str) -> Rule {
    let of =
        |from, to, itself| Rule::Suffix { from: name(from), to: name(to), itself, is_part: false };
    match (from.strip_prefix('.'), to.strip_prefix('.')) {
        (Some(from), Some(to)) => of(from, to, false),
        (None, None) => of(from, to, true),
        (Some(_), None) | (None, Some(_)) => Rule::Other(
            "one of the two ends begins with a dot and the other does not, so labels would be joined or empty: write a CNAME \
             record in spec.records for each name that is asked",
        ),
    }
}

fn of_expression(from: &str, to: &str) -> Rule {
    let other = Rule::Other(
        "names have no patterns: write a CNAME record in spec.records for each name that is asked, with * for all below a name",
    );
    if let Some(why) = matches_nothing(from) {
        return Rule::Nothing(why);
    }
    let ends = from.ends_with('$');
    let is_part = !ends || !is_anchored(from);
    match shape(from) {
        Some(Shape::Exact(from)) if !to.contains('{') => {
            Rule::Exact { from, to: name(to), is_part }
        }
        Some(Shape::Below(from)) => match to.strip_prefix("{1}.") {
            Some(to) if !to.contains('{') => {
                Rule::Suffix { from, to: name(to), itself: false, is_part: !ends }
            }
            // All names below one lead to one name: a wildcard.
            None if !to.contains('{') => {
                Rule::Exact { from: format!("*.{from}"), to: name(to), is_part: !ends }
            }
            Some(_) | None => other,
        },
        Some(Shape::Exact(_)) | None => other,
    }
}

/// What CoreDNS matches if an expression has no `^` or no `$`.
const IS_PART: &str = "; without ^ and $ CoreDNS rewrote longer names that hold this text too: write a CNAME record in \
                       spec.records for each of those that is asked";

/// What a star means in a name that is compared.
const STAR: &str = "CoreDNS compares the star as it is written, so no name below is rewritten: if these are meant, write a CNAME \
                    record with this owner in spec.records";

/// Why a rule is never used for an owner, where CoreDNS takes one before it.
fn hidden(owner: &str, target: Target<'_>, scope: &Scope<'_>) -> Option<String> {
    let first = scope.led.first_of(owner, scope.directives)?.line;
    (!std::ptr::eq(first, target.line)).then(|| {
        format!(
            "CoreDNS takes the first rule that has a name, which is {} for {owner}",
            first.text()
        )
    })
}

fn of_rule(
    rule: &Rule,
    line: &Directive,
    goes_on: bool,
    scope: &mut Scope<'_>,
) -> (Outcome, String) {
    let (mut made, is_part) = match rule {
        Rule::Nothing(why) => return (NotNeeded, (*why).to_owned()),
        Rule::Other(instead) => return (NotPossible, (*instead).to_owned()),
        Rule::Exact { from, to, is_part } => {
            let target = Target { from, to, is_suffix: false, line, goes_on };
            (aliases(target, scope), *is_part)
        }
        Rule::Suffix { from, to, itself, is_part } => {
            let target = Target { from, to, is_suffix: true, line, goes_on };
            (suffixes(target, *itself, scope), *is_part)
        }
    };
    made.dedup();
    // The line has the worst outcome of its parts.
    let has = |outcome| made.iter().any(|(is, _)| *is == outcome);
    let worst = [NotPossible, Changed].into_iter().find(|it| has(*it)).unwrap_or(NotNeeded);
    let messages: Vec<String> = made.into_iter().map(|(_, message)| message).collect();
    let note = if is_part && worst == Changed { IS_PART } else { "" };
    (worst, format!("{}{note}", messages.join("; ")))
}

/// One name as an alias, or all names below one as a wildcard.
fn aliases(target: Target<'_>, scope: &mut Scope<'_>) -> Vec<(Outcome, String)> {
    match scope.owners(target.from) {
        Ok(owners) => owners.iter().map(|from| alias(Target { from, ..target }, scope)).collect(),
        Err(why) => vec![(NotNeeded, why)],
    }
}

fn alias(target: Target<'_>, scope: &mut Scope<'_>) -> (Outcome, String) {
    let Target { from, to, .. } = target;
    if from == to {
        return (NotNeeded, STAYS.to_owned());
    }
    if let Some(why) = hidden(from, target, scope) {
        return (NotNeeded, why);
    }
    match made(RecordType::Cname, from.strip_prefix("*."), target, scope) {
        Ok(differs) => {
            let shown = "the answer shows both names";
            (Changed, format!("spec.records: {from} is a CNAME record of {to}; {shown}{differs}"))
        }
        Err(why) => (NotPossible, why),
    }
}

/// Makes the record. `above` is the name of which it has all names below. What differs is in the text, behind a semicolon.
fn made(
    kind: RecordType,
    above: Option<&str>,
    target: Target<'_>,
    scope: &mut Scope<'_>,
) -> Result<String, String> {
    above.map_or(Ok(()), |above| scope.has_all_below(above))?;
    let differs = targets::checked(target, scope)?;
    scope.draft.record(record(kind, target.from, target.to))?;
    Ok(differs.map_or(String::new(), |differs| format!("; {differs}")))
}

/// Names below one name. If that name is above the zones of the server block, only names in these zones are asked.
fn suffixes(target: Target<'_>, itself: bool, scope: &mut Scope<'_>) -> Vec<(Outcome, String)> {
    let Target { from, to, .. } = target;
    let Some(why) = scope.elsewhere(from) else {
        let with_itself = format!(
            "CoreDNS rewrote {from} itself too, and names that end so without a dot: no record does that, so write the \
             addresses of {from} in spec.hosts if it is asked"
        );
        let without = format!("{from} itself is answered here and has no addresses");
        return vec![suffix(target, if itself { &with_itself } else { &without }, scope)];
    };
    let zones = scope.zones_below(from);
    if zones.is_empty() {
        return vec![(NotNeeded, why)];
    }
    let of_zone = |zone: &String| {
        let left = zone.strip_suffix(from).unwrap_or(zone);
        let to = format!("{left}{to}");
        let owner = format!(
            "CoreDNS rewrote {zone} itself too: no record does that, so write its addresses in spec.hosts if it is asked"
        );
        let target = Target { from: zone, to: to.trim_end_matches('.'), ..target };
        suffix(target, &owner, scope)
    };
    zones.iter().map(of_zone).collect()
}

const STAYS: &str = "the name stays as it is";

/// Names below one name, as a DNAME record (RR85). `owner` says what becomes of that name itself.
fn suffix(target: Target<'_>, owner: &str, scope: &mut Scope<'_>) -> (Outcome, String) {
    let Target { from, to, .. } = target;
    if from == to {
        return (NotNeeded, STAYS.to_owned());
    }
    if let Some(why) = hidden(&format!("*.{from}"), target, scope) {
        return (NotNeeded, why);
    }
    match made(RecordType::Dname, Some(from), target, scope) {
        Ok(differs) => {
            let message = format!(
                "spec.records: {from} is a DNAME record of {to}; the answer shows it, the alias that it makes and the \
                 target of that; {owner}{differs}"
            );
            (Changed, message)
        }
        Err(why) => (NotPossible, why),
    }
}

fn record(record_type: RecordType, from: &str, to: &str) -> Record {
    Record {
        name: from.to_owned(),
        record_type,
        addresses: None,
        target: Some(to.to_owned()),
        strings: None,
        services: None,
        ttl_seconds: defaults::RECORD_TTL_SECONDS,
        reverse: true,
        override_cluster_zone: false,
    }
}
