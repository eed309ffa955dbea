//! Checks that random histories test something: every kind of outcome occurs, and often.

use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tests::oracle::compare::Actual;
use tests::oracle::expected::{Expected, Question, Record, rtype};

use crate::history::{Play, history};

/// Every outcome that the property must meet, and how often it must occur in these histories.
const WANTED: [(&str, usize); 26] = [
    ("truncated", 5),
    ("address", 300),
    ("SRV with additional", 60),
    ("PTR", 150),
    ("several PTRs", 10),
    ("TXT", 150),
    ("DNAME", 15),
    ("HINFO", 100),
    ("SOA or NS", 300),
    ("alias followed", 60),
    ("alias alone", 150),
    ("alias to NXDOMAIN", 90),
    ("alias loop", 15),
    ("alias outside", 70),
    ("alias of a federation", 200),
    ("no data", 2000),
    ("no such name", 5000),
    ("not ready", 900),
    ("from a snapshot", 1000),
    ("forwarded by default", 1000),
    ("forwarded to a stub domain", 250),
    ("type withheld", 50),
    ("refused", 1500),
    ("no server behind an alias", 8),
    ("class CH", 300),
    ("FORMERR or BADVERS", 500),
];

/// Is it the CNAME of a name below `<federation>.svc.Z`?
fn is_of_a_federation(record: &Record) -> bool {
    let owner = &record.owner.0;
    let [_, _, label, svc, ..] = &owner[..] else { return false };
    record.data.rtype() == rtype::CNAME
        && svc == b"svc"
        && ["west", "east", "far", "shop"].contains(&&*String::from_utf8_lossy(label))
}

fn outcomes(question: &Question, expected: &Expected) -> Vec<&'static str> {
    let reply = match expected {
        Expected::Forward { cnames, .. } if cnames.iter().any(is_of_a_federation) => {
            return vec!["alias of a federation"];
        }
        Expected::Forward { cnames, .. } if !cnames.is_empty() => return vec!["alias outside"],
        Expected::Forward { group: 0, .. } => return vec!["forwarded by default"],
        Expected::Forward { .. } => return vec!["forwarded to a stub domain"],
        Expected::Reply(reply) => reply,
    };
    if reply.ede == [17] {
        return vec!["type withheld"];
    }
    let mut found = Vec::new();
    if reply.ede.contains(&3) {
        found.push("from a snapshot");
    }
    if reply.answer.iter().any(|set| is_of_a_federation(&set.records[0])) {
        found.push("alias of a federation");
    }
    let aliases = reply.answer.iter().filter(|set| set.records[0].data.rtype() == rtype::CNAME);
    let aliased = aliases.count() > 0;
    let last = reply.answer.last().map(|set| (set.records[0].data.rtype(), set.records.len()));
    found.push(match (reply.rcode, last) {
        (1 | 16, _) => "FORMERR or BADVERS",
        (2, _) if reply.ede == [14] => "not ready",
        (2, _) if reply.ede == [0] => "alias loop",
        (2, _) => "no server behind an alias",
        (3, _) if aliased => "alias to NXDOMAIN",
        (3, _) => "no such name",
        (5, _) => "refused",
        _ if question.class == rtype::CLASS_CH => "class CH",
        (_, None) => "no data",
        (_, Some((rtype::CNAME, _))) => "alias alone",
        (_, Some(_)) if aliased => "alias followed",
        (_, Some((rtype::A | rtype::AAAA, _))) => "address",
        (_, Some((rtype::SRV, _))) if !reply.additional.is_empty() => "SRV with additional",
        (_, Some((rtype::PTR, 1))) => "PTR",
        (_, Some((rtype::PTR, _))) => "several PTRs",
        (_, Some((rtype::TXT, _))) => "TXT",
        (_, Some((rtype::DNAME, _))) => "DNAME",
        (_, Some((rtype::HINFO, _))) => "HINFO",
        (_, Some((rtype::SOA | rtype::NS, _))) => "SOA or NS",
        (_, Some(_)) => "anything else",
    });
    found
}

#[test]
fn k21_questions_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let strategy = history(10, 100);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..200 {
        let history = strategy.new_tree(&mut runner).expect("a history").current();
        let mut play = Play::new(history.settings.clone());
        for (at, step) in history.steps.iter().enumerate() {
            play.step(step).expect("quiet steps are quiet");
            for question in history.questions.iter().filter(|_| history.is_asked_after(at)) {
                for outcome in outcomes(question, &play.oracle.answer(question)) {
                    *counts.entry(outcome).or_default() += 1;
                }
                if let Ok(Actual::Reply(reply)) = play.subject.ask(question, history.seed)
                    && reply.tc
                {
                    *counts.entry("truncated").or_default() += 1;
                }
            }
        }
    }
    for (outcome, least) in WANTED {
        let count = counts.get(outcome).copied().unwrap_or_default();
        assert!(count >= least, "{outcome}: {count} of {least}; all: {counts:#?}");
    }
}
