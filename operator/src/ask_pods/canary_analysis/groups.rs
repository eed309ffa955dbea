//! The questions for servers of stub domains and of the default upstreams: one for each that changed. Pure.

use crds::Config;
use crds::config::{StubDomain, Upstreams};
use crds::rrtype::RrType;
use hickory_proto::rr::{Name, RecordType};

use super::question::{Expects, Question, are_answered_below, is_answered_here};

/// Names that always exist and that no client needs (RFC 2606 section 3). One of them is asked.
const EXTERNAL: [&str; 3] = ["example.com", "example.net", "example.org"];

/// One question for every stub domain that changed. A name with the `fresh` label is in no cache. Names that a host or record
/// answers are left out: the pod answers them itself, which says nothing of the servers.
pub(super) fn of_stub_domains(config: &Config, before: &Config, fresh: &str) -> Vec<Question> {
    let changed = config.stub_domains.iter().filter(|stub| !before.stub_domains.contains(stub));
    let question = |stub: &StubDomain| {
        let stable = before.stub_domains.iter().find(|other| other.domain == stub.domain);
        let has_other_servers =
            stable.is_none_or(|stable| stable.group.servers != stub.group.servers);
        let group = (format!("stub domain {}", stub.domain), stable.is_none(), has_other_servers);
        let names = [format!("{fresh}.{}", stub.domain), stub.domain.clone()];
        let free = |by: &[&Config]| -> Vec<(Name, RecordType)> {
            let is_free = |name: &&String| !by.iter().any(|config| is_answered_here(config, name));
            let named = |name: &String| Name::from_ascii(format!("{name}.")).ok();
            let names = names.iter().filter(is_free).filter_map(named);
            names.map(|name| (name, RecordType::SOA)).collect()
        };
        // Where stable pods answer both themselves, the servers of the canary can still show that they are there.
        let asked = Some(free(&[config, before])).filter(|asked| !asked.is_empty());
        let asked = asked.unwrap_or_else(|| free(&[config]));
        (!asked.is_empty()).then(|| question(group, asked))
    };
    changed.filter_map(question).collect()
}

/// One question for the default upstreams. A name with the `fresh` label is in no cache, so the servers must be asked for it.
pub(super) fn of_upstreams(config: &Config, before: &Config, fresh: &str) -> Option<Question> {
    if config.upstreams == Upstreams::None {
        return None;
    }
    let is_new = before.upstreams == Upstreams::None;
    let has_other_servers = match (&config.upstreams, &before.upstreams) {
        (Upstreams::FromResolvConf(_), Upstreams::FromResolvConf(_)) => false,
        (Upstreams::Servers(new), Upstreams::Servers(old)) => new.servers != old.servers,
        (Upstreams::FromResolvConf(_) | Upstreams::Servers(_) | Upstreams::None, _) => true,
    };
    let group = ("the default upstreams".to_owned(), is_new, has_other_servers);
    let is_withheld = withholds_addresses(config) || withholds_addresses(before);
    let kind = if is_withheld { RecordType::SOA } else { RecordType::A };
    Some(question(group, outside(config, fresh, kind)))
}

/// A pod answers such a question itself (FW45), which says nothing of the servers. SOA is a type that cannot be withheld.
fn withholds_addresses(config: &Config) -> bool {
    let types = config.upstreams.options().map(|options| &options.withheld_types);
    types.is_some_and(|types| types.contains(&RrType(RecordType::A.into())))
}

fn question(
    (group, is_new, has_other_servers): (String, bool, bool),
    asked: Vec<(Name, RecordType)>,
) -> Question {
    // The names differ from round to round, but the key must be the same in the next round.
    let what = group.clone();
    let expects = Expects::Server { group, is_new, has_other_servers };
    Question { what, asked, expects, of: None }
}

/// Public names that no other route takes. The root is asked as well, because a firewall may drop example.com on
/// purpose.
fn outside(config: &Config, fresh: &str, kind: RecordType) -> Vec<(Name, RecordType)> {
    let is_stub = |name: &str| {
        config.stub_domains.iter().any(|stub| crds::names::is_at_or_below(name, &stub.domain))
    };
    let free =
        EXTERNAL.into_iter().find(|name| !is_stub(name) && !are_answered_below(config, name));
    let name = free.and_then(|name| Name::from_ascii(format!("{fresh}.{name}.")).ok());
    let fresh = name.map(|name| (name, kind));
    fresh.into_iter().chain([(Name::root(), RecordType::NS)]).collect()
}
