//! The questions for servers of stub domains and of the default upstreams: one for each that changed. Pure.

use crds::Config;
use crds::config::Upstreams;
use hickory_proto::rr::{Name, RecordType};

use super::question::{Expects, Question, are_answered_below};

/// Names that always exist and that no client needs (RFC 2606 section 3). One of them is asked.
const EXTERNAL: [&str; 3] = ["example.com", "example.net", "example.org"];
/// Stub domains that are asked for of those that changed: a configuration may have 100.
const MAX_GROUPS: usize = 16;

/// One question for every stub domain that changed, and one for the default upstreams. A name with the
/// `fresh` label is in no cache, so the servers must be asked for it.
pub(super) fn of(config: &Config, before: &Config, fresh: &str) -> Vec<Question> {
    let changed = config.stub_domains.iter().filter(|stub| !before.stub_domains.contains(stub));
    let mut questions: Vec<Question> = changed
        .take(MAX_GROUPS)
        .filter_map(|stub| {
            let is_new = !before.stub_domains.iter().any(|other| other.domain == stub.domain);
            let group = format!("stub domain {}", stub.domain);
            let apex = Name::from_ascii(format!("{}.", stub.domain)).ok()?;
            Some(question((group, is_new, true), vec![(apex, RecordType::SOA)]))
        })
        .collect();
    if config.upstreams != Upstreams::None {
        let is_new = before.upstreams == Upstreams::None;
        let is_changed = config.upstreams != before.upstreams;
        let group = ("the default upstreams".to_owned(), is_new, is_changed);
        questions.push(question(group, outside(config, fresh)));
    }
    questions
}

fn question(
    (group, is_new, is_changed): (String, bool, bool),
    asked: Vec<(Name, RecordType)>,
) -> Question {
    // What is asked differs from round to round, and what is worse must be known again in the next one.
    let what = match asked.as_slice() {
        [(name, kind)] => format!("{name} {kind}"),
        _ => group.clone(),
    };
    Question { what, asked, expects: Expects::Server { group, is_new, is_changed }, of: None }
}

/// Names of the world that no other route takes. The root is asked for where example.com may be dropped on purpose.
fn outside(config: &Config, fresh: &str) -> Vec<(Name, RecordType)> {
    let is_stub = |name: &str| {
        config.stub_domains.iter().any(|stub| crds::names::is_at_or_below(name, &stub.domain))
    };
    let free =
        EXTERNAL.into_iter().find(|name| !is_stub(name) && !are_answered_below(config, name));
    let name = free.and_then(|name| Name::from_ascii(format!("{fresh}.{name}.")).ok());
    let fresh = name.map(|name| (name, RecordType::A));
    fresh.into_iter().chain([(Name::root(), RecordType::NS)]).collect()
}
