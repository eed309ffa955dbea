//! What the servers of groups are asked, and what shows that clients would lose them.

use super::*;
use crate::ask_pods::canary_analysis::judge::check;

fn silent() -> Reply {
    reply(ResponseCode::ServFail, &[22], "no upstream server answered")
}

fn answered() -> Reply {
    reply(ResponseCode::NoError, &[], "")
}

#[test]
fn o17_what_a_stable_pod_remembers_of_unchanged_upstreams_fails_no_edit() {
    let outcome = |spec: &str, stable: Vec<Reply>| {
        let before = "{upstreams: {servers: [{address: 10.0.0.1}]}}";
        let list = first(spec, before, &Observed::default());
        let question = list.into_iter().find(|it| it.what == "the default upstreams").unwrap();
        check(&Asked { question, canary: vec![silent(), silent()], stable }).outcome
    };
    let same = "{upstreams: {servers: [{address: 10.0.0.1}]}, ttlSeconds: 7}";
    let option = "{upstreams: {servers: [{address: 10.0.0.1}], withheldTypes: [AAAA]}}";
    let other = "{upstreams: {servers: [{address: 10.0.0.2}]}}";
    let from_its_cache = || vec![silent(), answered()];
    for spec in [same, option] {
        assert_eq!(outcome(spec, from_its_cache()), CheckResult::Open, "they are down for both");
        assert!(matches!(outcome(spec, vec![answered(), answered()]), CheckResult::Worse(_)));
    }
    assert!(
        matches!(outcome(other, from_its_cache()), CheckResult::Worse(_)),
        "they were replaced"
    );
}

/// A spec with a stub domain of this server, and more.
fn stub(server: &str, more: &str) -> String {
    format!("{{stubDomains: [{{domain: corp.example, servers: [{{address: {server}}}]{more}}}")
}

/// The question for the servers of that stub domain.
fn of_stub(spec: &str, before: &str) -> Option<Question> {
    let list = first(spec, before, &Observed::default());
    list.into_iter().find(|question| question.what == "stub domain corp.example")
}

#[test]
fn o17_a_stub_domain_is_asked_for_names_that_no_host_or_record_answers() {
    let asked = |spec: &str, before: &str| -> Vec<String> {
        let asked = of_stub(spec, before).into_iter().flat_map(|question| question.asked);
        asked.map(|(name, kind)| format!("{name} {kind}")).collect()
    };
    let host = |name: &str| {
        stub("10.0.0.1", &format!("}}], hosts: [{{name: '{name}', addresses: [10.0.0.9]}}]"))
    };
    let (fresh, apex) = ("fresh.corp.example. SOA", "corp.example. SOA");
    let plain = stub("10.0.0.1", "}]");
    assert_eq!(asked(&plain, "{}"), [fresh, apex]);
    assert_eq!(asked(&host("corp.example"), "{}"), [fresh]);
    assert_eq!(asked(&host("other.corp.example"), "{}"), [fresh, apex]);
    assert_eq!(asked(&host("*.corp.example"), "{}"), [apex]);
    // A DNAME answers both names.
    let dname = "}], records: [{name: corp.example, type: DNAME, target: a.example}]";
    assert!(asked(&stub("10.0.0.1", dname), "{}").is_empty());
    // The stable pod must not answer it itself either.
    let alone = "{hosts: [{name: corp.example, addresses: [10.0.0.9]}]}";
    assert_eq!(asked(&plain, alone), [fresh]);
    let alone = "{records: [{name: corp.example, type: DNAME, target: a.example}]}";
    assert_eq!(asked(&plain, alone), [fresh, apex], "there is no better name");
}

#[test]
fn o17_dead_servers_of_a_stub_domain_are_seen_beside_a_host_of_its_name() {
    let spec =
        |server: &str| stub(server, "}], hosts: [{name: corp.example, addresses: [10.0.0.9]}]");
    let question = of_stub(&spec("10.0.0.2"), &spec("10.0.0.1")).unwrap();
    let denied = reply(ResponseCode::NXDomain, &[], "");
    let asked = Asked { question, canary: vec![silent()], stable: vec![denied] };
    let outcome = check(&asked).outcome;
    assert!(matches!(outcome, CheckResult::Worse(_)), "{outcome:?}");
}

#[test]
fn o17_what_a_stable_pod_remembers_of_the_same_servers_fails_no_stub_domain() {
    let outcome = |spec: &str| {
        let question = of_stub(spec, &stub("10.0.0.1", "}]")).unwrap();
        let stable = vec![silent(), answered()];
        check(&Asked { question, canary: vec![silent(), silent()], stable }).outcome
    };
    let option = stub("10.0.0.1", ", policy: Sequential}]");
    assert_eq!(outcome(&option), CheckResult::Open, "they are down for both");
    let other = outcome(&stub("10.0.0.2", "}]"));
    assert!(matches!(other, CheckResult::Worse(_)), "{other:?}");
}
