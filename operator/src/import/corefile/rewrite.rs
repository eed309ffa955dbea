//! `rewrite`: a name in place of another one, as an alias.

use crds::config::RecordType;
use crds::defaults;
use crds::v1alpha1::Record;

use super::parse::Directive;
use super::regex::{Shape, shape};
use super::scope::Scope;
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};
use crate::import::values::name;

/// What a rule does to names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// One name becomes another one.
    Exact(String, String),
    /// Names below the first become names below the second; perhaps the first itself becomes the second.
    Suffix { from: String, to: String, itself: bool },
    /// Anything else: what to do instead.
    Other(&'static str),
}

/// Adds `rewrite name` to the draft: a CNAME record.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let is_mode = |word: &str| ["stop", "continue"].contains(&word);
    let skipped = usize::from(directive.args.first().is_some_and(|word| is_mode(word)));
    let args = directive.args.get(skipped..).unwrap_or_default();
    if !args.is_empty() {
        let (outcome, message) = of_rule(&rule(directive, args)?, scope);
        scope.say(directive, outcome, message);
    } else if directive.body.is_empty() {
        return Err(directive.refused("what is rewritten must follow, such as name"));
    } else {
        scope.say(directive, Changed, "as the lines below say");
    }
    for line in &directive.body {
        if line.name == "answer" {
            let message =
                "an answer shows the alias and what it stands for, so nothing is rewritten in it";
            scope.say_of(directive, line, NotNeeded, message);
            continue;
        }
        let words: Vec<String> = std::iter::once(&line.name).chain(&line.args).cloned().collect();
        let (outcome, message) = of_rule(&rule(line, &words)?, scope);
        scope.say_of(directive, line, outcome, message);
    }
    Ok(())
}

fn rule(line: &Directive, args: &[String]) -> Result<Rule, Refused> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    Ok(match &words[..] {
        ["name", "exact", from, to, ..] => Rule::Exact(name(from), name(to)),
        ["name", "suffix", from, to, ..] => of_suffix(from, to),
        ["name", "regex", from, to, ..] => of_expression(from, to),
        ["name", "prefix" | "substring", _, _, ..] => Rule::Other(
            "only whole names and suffixes have records: write a CNAME record in spec.records for each name that is asked",
        ),
        ["name", from, to] => Rule::Exact(name(from), name(to)),
        ["name", from, to, "answer", ..] => Rule::Exact(name(from), name(to)),
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

/// CoreDNS replaces the end of the text: only with a dot in front of both is that the same as names below a name.
fn of_suffix(from: &str, to: &str) -> Rule {
    match (from.strip_prefix('.'), to.strip_prefix('.')) {
        (Some(from), Some(to)) => Rule::Suffix { from: name(from), to: name(to), itself: false },
        (None, None) => Rule::Suffix { from: name(from), to: name(to), itself: true },
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
    match shape(from) {
        Some(Shape::Exact(from)) if !to.contains('{') => Rule::Exact(from, name(to)),
        Some(Shape::Below(from)) => match to.strip_prefix("{1}.") {
            Some(to) if !to.contains('{') => Rule::Suffix { from, to: name(to), itself: false },
            // All names below one lead to one name: a wildcard.
            None if !to.contains('{') => Rule::Exact(format!("*.{from}"), name(to)),
            Some(_) | None => other,
        },
        Some(Shape::Exact(_)) | None => other,
    }
}

fn of_rule(rule: &Rule, scope: &mut Scope<'_>) -> (Outcome, String) {
    let (from, to) = match rule {
        Rule::Other(instead) => return (NotPossible, (*instead).to_owned()),
        Rule::Exact(from, to) | Rule::Suffix { from, to, .. } => (from, to),
    };
    if let Some(why) = scope.elsewhere(from) {
        return (NotNeeded, why);
    }
    if from == to {
        return (NotNeeded, "the name stays as it is".to_owned());
    }
    match rule {
        Rule::Exact(..) => alias(from, to, scope),
        Rule::Suffix { itself, .. } => suffix(from, to, *itself, scope),
        Rule::Other(instead) => (NotPossible, (*instead).to_owned()),
    }
}

fn alias(from: &str, to: &str, scope: &mut Scope<'_>) -> (Outcome, String) {
    match scope.draft.record(record(RecordType::Cname, from, to)) {
        Ok(()) => (
            Changed,
            format!("spec.records: {from} is a CNAME record of {to}; the answer shows both names"),
        ),
        Err(why) => (NotPossible, why),
    }
}

/// Names below one name, as a DNAME record (RR85).
fn suffix(from: &str, to: &str, itself: bool, scope: &mut Scope<'_>) -> (Outcome, String) {
    match scope.draft.record(record(RecordType::Dname, from, to)) {
        Ok(()) => {
            let owner = match itself {
                true => format!(
                    "CoreDNS rewrote {from} itself too, and names that end so without a dot: these are not led, so write \
                     the addresses of {from} in spec.hosts if it is asked"
                ),
                false => format!("{from} itself is answered here and has no addresses"),
            };
            let message = format!(
                "spec.records: {from} is a DNAME record of {to}; the answer shows it, the alias that it makes and what \
                 that stands for; {owner}"
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
