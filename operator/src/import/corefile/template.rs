//! `template`: answers that are the same for every question become records; a type that it denies for all names is withheld.
//! `empty` has those without an answer for names that have records.

mod empty;
mod withheld;

use std::collections::BTreeSet;

use crds::config::RecordType;
use crds::defaults;
use crds::v1alpha1::{Record, ServiceTarget};

use super::parse::Directive;
use super::regex::{Shape, is_anchored, matches_nothing, shape};
use super::scope::Scope;
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};
use crate::import::values::{name, zones};

/// Replaces Go's {{ .Name }}, the name in the question, while a template is read.
const ASKED: &str = "\u{1}";

const OPTIONS: [&str; 10] = [
    "additional",
    "answer",
    "authority",
    "ederror",
    "expr",
    "fallthrough",
    "match",
    "rcode",
    "upstream",
    "var",
];
const PART: &str = "part of this template";
const DENIES: &str = "names cannot be denied or made empty: leave them to the upstreams, or forward their suffix to a server that \
                      denies them (spec.stubDomains)";

/// Adds `template` to the draft: records, with a wildcard for a zone.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let [class, asked, of @ ..] = &directive.args[..] else {
        return Err(directive.refused("a class and a type must follow, such as IN A"));
    };
    let is_known = |line: &&Directive| OPTIONS.contains(&line.name.as_str());
    if let Some(line) = directive.body.iter().find(|line| !is_known(line)) {
        return Err(line.refused("CoreDNS does not know this option of template"));
    }
    let dead = expressions(directive).map(|it| matches_nothing(it));
    // No other option of it does anything then, but without `fallthrough` a name of its zones fails.
    if let Some(why) = dead.reduce(|before, it| before.and(it)).flatten() {
        scope.say_all(directive, NotNeeded, why);
        if !directive.body.iter().any(|line| line.name == "fallthrough") {
            let message =
                "names of these zones go to the upstreams; without fallthrough they failed";
            scope.say(directive, Changed, message);
        }
        return Ok(());
    }
    // Records are of class IN.
    let is_in = ["IN", "ANY"].iter().any(|it| class.eq_ignore_ascii_case(it));
    let has = |name: &str| directive.body.iter().any(|line| line.name == name);
    let is_fixed = !(has("expr") || has("var"));
    let is_for_all = is_fixed && !has("match");
    let owners = owners(directive, of, scope).filter(|_| is_in && is_fixed);
    let answers = directive.body.iter().filter(|line| line.name == "answer").count();
    if empty::convert(directive, owners.as_deref(), asked, scope) {
        return Ok(());
    }
    let withheld = match is_in && is_for_all && !has("answer") {
        true => withheld::decided(directive, asked, of, scope),
        false => None,
    };
    let (outcome, message): (Outcome, &str) = match (&withheld, &owners, answers) {
        (Some((outcome, message)), _, _) => (*outcome, message),
        (None, None, _) if !is_in => (NotPossible, "only questions of class IN have records"),
        (None, None, 0) if is_for_all => (NotPossible, DENIES),
        (None, None, _) if is_for_all => (
            NotPossible,
            "it answers all names alike, and no record is for all names: write spec.records for the names that are asked",
        ),
        (None, None, _) => (
            NotPossible,
            "it answers by a pattern, and names have no patterns: write spec.records for the names that are asked",
        ),
        (None, Some(_), 0) => (NotPossible, DENIES),
        (None, Some(_), _) => {
            (Changed, "its answers are records; other types of these names have no data")
        }
    };
    scope.say(directive, outcome, message);
    for line in &directive.body {
        scope.draft.spend(owners.as_ref().map_or(1, Vec::len));
        if scope.draft.is_spent() {
            return Ok(());
        }
        let (outcome, message) = match (line.name.as_str(), &owners) {
            ("rcode" | "fallthrough", _) if withheld.is_some() => withheld::option(line, outcome),
            ("answer", Some(owners)) => answer(line, owners, asked, scope),
            ("answer" | "match" | "rcode" | "expr" | "var", None) => (NotPossible, PART.to_owned()),
            ("match", Some(owners)) => (Changed, names(line, owners)),
            ("rcode", Some(_)) => rcode(line, answers),
            ("fallthrough", _) => {
                (NotNeeded, "other names go to stub domains and upstreams".to_owned())
            }
            ("upstream", _) => {
                (NotNeeded, "targets of CNAME records are always looked up".to_owned())
            }
            // The rest of OPTIONS.
            _ => (
                NotPossible,
                "replies have the sections and errors that their records need".to_owned(),
            ),
        };
        scope.say_of(directive, line, outcome, message);
    }
    Ok(())
}

/// The expressions of it: a name that one of them matches is answered.
fn expressions(directive: &Directive) -> impl Iterator<Item = &String> {
    directive.body.iter().filter(|line| line.name == "match").flat_map(|line| &line.args)
}

/// What a line `match` says, with those of its expressions that match no name.
fn names(line: &Directive, owners: &[String]) -> String {
    let dead = line.args.iter().filter_map(|it| Some(format!("{it}: {}", matches_nothing(it)?)));
    let names = format!("names: {}", owners.join(", "));
    [names].into_iter().chain(dead).collect::<Vec<_>>().join("; ")
}

fn rcode(line: &Directive, answers: usize) -> (Outcome, String) {
    match (rcode_of(line).as_str(), answers) {
        ("NOERROR", 1..) => (NotNeeded, "names with records are answered so".to_owned()),
        _ => (NotPossible, "names cannot be denied by configuration".to_owned()),
    }
}

/// What a line `rcode` says, in upper case: CoreDNS reads both.
fn rcode_of(line: &Directive) -> String {
    line.args.first().map(|it| it.to_ascii_uppercase()).unwrap_or_default()
}

/// The names that it answers, as a ClusterDNS writes them, if it does not depend on more.
fn owners(directive: &Directive, of: &[String], scope: &Scope<'_>) -> Option<Vec<String>> {
    let mut expressions = expressions(directive).peekable();
    if expressions.peek().is_none() {
        let written: Vec<String> = of.iter().flat_map(|zone| zones(zone)).collect();
        let all = if written.is_empty() { scope.zones.clone() } else { written };
        let is_named = !all.iter().any(String::is_empty);
        return is_named
            .then(|| all.iter().flat_map(|zone| [zone.clone(), format!("*.{zone}")]).collect());
    }
    let owners = |expression: &String| match shape(expression)? {
        Shape::Exact(name) if is_anchored(expression) => Some(vec![name]),
        // An expression without a beginning matches names below as well.
        Shape::Exact(name) => Some(vec![name.clone(), format!("*.{name}")]),
        Shape::Below(name) => Some(vec![format!("*.{name}")]),
    };
    let living = expressions.filter(|it| matches_nothing(it).is_none());
    let all: Option<Vec<Vec<String>>> = living.map(owners).collect();
    Some(all?.concat())
}

/// Each word is a record of its own; one that is not quoted is written as several words.
fn answer(
    line: &Directive,
    owners: &[String],
    asked: &str,
    scope: &mut Scope<'_>,
) -> (Outcome, String) {
    let is_quoted = line.args.iter().all(|word| word.contains(char::is_whitespace));
    let records = if is_quoted { line.args.clone() } else { vec![line.args.join(" ")] };
    let mut decided: Vec<(Outcome, String)> = Vec::new();
    for record in &records {
        scope.draft.spend(owners.len());
        if scope.draft.is_spent() {
            break;
        }
        decided.push(one_answer(record, owners, asked, scope));
    }
    // The line has the worst outcome of its parts, and names all of them.
    let has = |outcome| decided.iter().any(|(is, _)| *is == outcome);
    let worst = [NotPossible, Changed].into_iter().find(|it| has(*it)).unwrap_or(NotNeeded);
    let all: Vec<String> = decided.into_iter().map(|(_, message)| message).collect();
    (worst, all.join("; "))
}

/// `NAME [TTL] [CLASS] TYPE DATA`, for questions of the type `asked`.
fn one_answer(
    text: &str,
    owners: &[String],
    asked: &str,
    scope: &mut Scope<'_>,
) -> (Outcome, String) {
    let text = text.to_owned();
    let text = ["{{ .Name }}", "{{.Name}}", "{{ .Question.Name }}", "{{.Question.Name}}"]
        .iter()
        .fold(text, |text, name| text.replace(name, ASKED));
    // In a template for one type both are known.
    let is_one = !asked.eq_ignore_ascii_case("ANY");
    let known = [
        ("{{ .Type }}", asked),
        ("{{.Type}}", asked),
        ("{{ .Class }}", "IN"),
        ("{{.Class}}", "IN"),
    ];
    let known = known.iter().filter(|_| is_one);
    let text = known.fold(text, |text, (name, is)| text.replace(name, is));
    if text.contains("{{") {
        let message = "it is made of the question: write spec.records for the names that are asked";
        return (NotPossible, message.to_owned());
    }
    let Some((owner, rest)) = text.split_once(char::is_whitespace) else {
        return (NotPossible, "it is no record".to_owned());
    };
    let owners: Vec<String> = match owner {
        ASKED => owners.to_vec(),
        literal => vec![name(literal)],
    };
    let (ttl, rest) = number(rest.trim_start());
    let rest = match rest.split_once(char::is_whitespace) {
        Some((class, behind)) if class.eq_ignore_ascii_case("IN") => behind.trim_start(),
        Some(_) | None => rest,
    };
    let (later, rest) = number(rest);
    let ttl = ttl.or(later).unwrap_or(defaults::RECORD_TTL_SECONDS);
    let Some((kind, data)) = rest.split_once(char::is_whitespace) else {
        return (NotPossible, "it is no record".to_owned());
    };
    let kind = kind.to_ascii_uppercase();
    let (mut kept, mut elsewhere, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut differs = Vec::new();
    let mut seen = BTreeSet::new();
    for owner in &owners {
        let all = match scope.owners(owner) {
            Ok(all) => all,
            Err(why) => {
                elsewhere.push(format!("{owner}: {why}"));
                continue;
            }
        };
        for owner in all.into_iter().filter(|it| seen.insert(it.clone())) {
            if let Some(first) = scope.led.first_of(&owner, scope.directives) {
                let rule = first.line.text();
                elsewhere.push(format!("{owner}: the rule {rule} has it first"));
                continue;
            }
            scope.draft.templates.add(&owner, asked);
            let is_free = owner.strip_prefix("*.").map_or(Ok(()), |it| scope.has_all_below(it));
            match is_free.and_then(|()| one(&owner, &kind, data.trim(), ttl, scope)) {
                Ok(None) => kept.push(owner),
                Ok(Some(why)) => {
                    differs.push(format!("{owner}: {why}"));
                    kept.push(owner);
                }
                Err(why) => lost.push(format!("{owner}: {why}")),
            }
        }
    }
    let outcome = match (kept.is_empty(), lost.is_empty()) {
        (_, false) => NotPossible,
        (false, true) => Changed,
        (true, true) => NotNeeded,
    };
    if !kept.is_empty() {
        lost.push(format!("{kind} record of {}", kept.join(", ")));
    }
    lost.extend(differs.into_iter().chain(elsewhere));
    (outcome, lost.join("; "))
}

/// The strings of a TXT record: in quotes, or one word each. A backslash takes the next character as it is.
fn texts(data: &str) -> Vec<String> {
    let (mut found, mut word, mut in_quotes, mut is_open) =
        (Vec::new(), String::new(), false, false);
    let mut characters = data.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                word.extend(characters.next());
                is_open = true;
            }
            '"' => {
                in_quotes = !in_quotes;
                is_open = true;
            }
            _ if character.is_whitespace() && !in_quotes => {
                if std::mem::take(&mut is_open) {
                    found.push(std::mem::take(&mut word));
                }
            }
            _ => {
                word.push(character);
                is_open = true;
            }
        }
    }
    if is_open {
        found.push(word);
    }
    found
}

fn number(text: &str) -> (Option<u32>, &str) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) if word.parse::<u32>().is_ok() => (word.parse().ok(), rest.trim_start()),
        Some(_) | None => (None, text),
    }
}

/// What of it is not as it was written.
fn one(
    owner: &str,
    kind: &str,
    data: &str,
    ttl: u32,
    scope: &mut Scope<'_>,
) -> Result<Option<String>, String> {
    let record = |record_type| Record {
        name: owner.to_owned(),
        record_type,
        addresses: None,
        target: None,
        strings: None,
        services: None,
        ttl_seconds: ttl,
        reverse: true,
        override_cluster_zone: false,
    };
    match kind {
        "A" | "AAAA" => {
            let ip = data.parse().map_err(|_| format!("{data} is no address"))?;
            scope.draft.host(owner, ip, Some(ttl), false)
        }
        "CNAME" => {
            let target = Some(name(data));
            scope.draft.record(Record { target, ..record(RecordType::Cname) })
        }
        "TXT" => {
            let strings = Some(texts(data));
            scope.draft.record(Record { strings, ..record(RecordType::Txt) })
        }
        "SRV" => {
            let services = Some(vec![service(data).ok_or("it is no SRV record")?]);
            scope.draft.record(Record { services, ..record(RecordType::Srv) })
        }
        _ => Err(format!(
            "records of type {kind} are not served: keep a server for them and name it as a stub domain"
        )),
    }
}

fn service(data: &str) -> Option<ServiceTarget> {
    let words: Vec<&str> = data.split_whitespace().collect();
    let [priority, weight, port, target] = words[..] else { return None };
    Some(ServiceTarget {
        priority: priority.parse().ok()?,
        weight: weight.parse().ok()?,
        port: port.parse().ok()?,
        target: name(target),
    })
}
