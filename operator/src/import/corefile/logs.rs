//! `log`, `errors` and `dnstap`: what is written of queries.

use std::net::SocketAddr;

use crds::ClusterDNSSpec;
use crds::config::QueryLog;
use crds::v1alpha1::Dnstap;

use super::parse::Directive;
use super::scope::Scope;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};

/// Adds `log` and `errors` to the draft: `spec.logging`.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) {
    let (outcome, message) = match directive.name.as_str() {
        "log" => log(directive, scope),
        "dnstap" => dnstap(directive, scope),
        _ => (
            Changed,
            "failures are counted by reason in the metrics, and changes of upstreams are logged; spec.logging.queries: Errors \
             writes a line for each query that fails"
                .to_owned(),
        ),
    };
    scope.say(directive, outcome, message);
    for line in &directive.body {
        let (outcome, message): (Outcome, &str) =
            match (directive.name.as_str(), line.name.as_str()) {
                ("log", "class") => (outcome, "in the line above"),
                ("errors", _) => (NotNeeded, "a failure that lasts is one log line"),
                _ => (NotPossible, "the form of what is written cannot be changed"),
            };
        scope.say_of(directive, line, outcome, message);
    }
}

fn log(directive: &Directive, scope: &mut Scope<'_>) -> (Outcome, String) {
    let classes: Vec<&str> = directive
        .body
        .iter()
        .filter(|line| line.name == "class")
        .flat_map(|line| line.args.iter().map(String::as_str))
        .collect();
    let has = |class: &str| classes.contains(&class);
    let is_all = classes.is_empty() || has("all");
    let (queries, is_exact) = match (is_all, has("success"), has("denial"), has("error")) {
        (true, _, _, _) => (QueryLog::All, true),
        (false, true, denial, error) => (QueryLog::All, denial && error),
        (false, false, true, error) => (QueryLog::Denials, error),
        (false, false, false, _) => (QueryLog::Errors, true),
    };
    let known = scope.draft.spec.logging.as_ref().map_or(QueryLog::None, |it| it.queries);
    if rank(known) > rank(queries) {
        let message = format!("spec.logging.queries is {known:?} already, for all names");
        return (Changed, message);
    }
    let change = |spec: &mut ClusterDNSSpec| {
        let logging = spec.logging.get_or_insert_default();
        logging.queries = queries;
    };
    let more = match is_exact {
        true => "",
        false => ", which writes the other failures too",
    };
    let above = match known {
        known if known == QueryLog::None || known == queries => String::new(),
        known => format!(" in place of {known:?} above"),
    };
    let is_all_names = scope.is_root() && directive.args.iter().all(|it| it == ".");
    match scope.draft.change(change) {
        Ok(()) if is_all_names => {
            let message =
                format!("spec.logging.queries: {queries:?}{above}, in another form{more}");
            (Changed, message)
        }
        Ok(()) => (
            Changed,
            format!(
                "spec.logging.queries: {queries:?}{above}, for all names and in another form{more}"
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}

/// Of two server blocks the one that writes more counts.
fn rank(queries: QueryLog) -> u8 {
    match queries {
        QueryLog::None => 0,
        QueryLog::Errors => 1,
        QueryLog::Denials => 2,
        QueryLog::All => 3,
    }
}

fn dnstap(directive: &Directive, scope: &mut Scope<'_>) -> (Outcome, String) {
    let reader = directive.args.first().and_then(|text| text.strip_prefix("tcp://"));
    let reader = reader.and_then(|text| text.parse::<SocketAddr>().ok());
    let Some(reader) = reader else {
        let message = "the reader is reached by TCP at an address: write spec.logging.dnstap: {address: ADDRESS, port: PORT}";
        return (NotPossible, message.to_owned());
    };
    let ip = reader.ip();
    let dnstap = Dnstap { address: ip.to_string(), port: reader.port() };
    let known = scope.draft.spec.logging.as_ref().and_then(|logging| logging.dnstap.as_ref());
    if known.is_some_and(|known| *known != dnstap) {
        let message =
            "there is one reader for all names, and spec.logging.dnstap names another one already";
        return (NotPossible, message.to_owned());
    }
    let change = |spec: &mut ClusterDNSSpec| {
        spec.logging.get_or_insert_default().dnstap = Some(dnstap.clone());
    };
    let is_full = directive.args.iter().any(|word| word == "full");
    let without = if is_full { "" } else { ", which CoreDNS sends with full only" };
    match scope.draft.change(change) {
        Ok(()) => (
            if is_full { Kept } else { Changed },
            format!(
                "spec.logging.dnstap: {{address: {ip}, port: {}}}, with whole messages{without}",
                dnstap.port
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}
