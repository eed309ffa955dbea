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
        let (outcome, message) = match (directive.name.as_str(), line.name.as_str()) {
            ("log", "class") => (Kept, "in the line above"),
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
    let queries = match &classes[..] {
        ["error"] => QueryLog::Errors,
        [] => QueryLog::All,
        classes if classes.iter().all(|class| ["denial", "error"].contains(class)) => {
            QueryLog::Denials
        }
        _ => QueryLog::All,
    };
    let change = |spec: &mut ClusterDNSSpec| {
        let logging = spec.logging.get_or_insert_default();
        if rank(queries) > rank(logging.queries) {
            logging.queries = queries;
        }
    };
    let is_all_names = scope.is_root() && directive.args.iter().all(|it| it == ".");
    match scope.draft.change(change) {
        Ok(()) if is_all_names => {
            (Kept, format!("spec.logging.queries: {queries:?}, in another form"))
        }
        Ok(()) => (
            Changed,
            format!("spec.logging.queries: {queries:?}, for all names and in another form"),
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
    match scope.draft.change(change) {
        Ok(()) => (
            Kept,
            format!(
                "spec.logging.dnstap: {{address: {ip}, port: {}}}, with whole messages",
                dnstap.port
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}
