//! Compares an actual reply with the expected one: as sets or in order, as the rules say.

use dataplane_core::{Settings, Transport};

use super::decode::Decoded;
use super::expected::{Data, Expected, Question, Record, Reply, RrSet};
use super::names::Name;

/// What the data plane did with a question.
#[derive(Clone, Debug)]
pub enum Actual {
    Reply(Box<Decoded>),
    /// It did not reply.
    Drop,
    /// It would ask an upstream.
    Forward {
        /// Number of the upstream group.
        group: usize,
        /// The name to ask for.
        name: Name,
        /// The type to ask for.
        qtype: u16,
        /// The reply the client gets if the upstream fails: it shows the CNAMEs that led there.
        failure: Box<Decoded>,
    },
}

/// Collects what differs.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, actual: T, expected: T) {
        self.check(actual == expected, || format!("{what} is {actual:?}, not {expected:?}"));
    }
}

/// Every difference between the actual outcome and the expected one; empty if there is none.
pub fn differences(
    settings: &Settings,
    pod_name: &str,
    question: &Question,
    id: u16,
    expected: &Expected,
    actual: &Actual,
) -> Vec<String> {
    let mut found = Differences::default();
    match (expected, actual) {
        (Expected::Reply(expected), Actual::Reply(actual)) => {
            let not_ready = Box::new(Reply {
                rcode: 2,
                opt: true,
                answer: cnames(&expected.answer),
                answer_may_be_empty: true,
                ede: vec![14],
                ..Reply::default()
            });
            let expected = match expected.may_be_not_ready && actual.rcode == 2 {
                true => &not_ready,
                false => expected,
            };
            header(&mut found, settings, question, id, actual);
            opt(&mut found, settings, pod_name, question, expected, actual);
            reply(&mut found, settings, question, expected, actual);
        }
        (
            Expected::Forward { group, name, cnames, ede },
            Actual::Forward { group: actual_group, name: actual_name, qtype, failure },
        ) => {
            found.equal("the group", actual_group, group);
            found.equal("the name asked", actual_name, name);
            found.equal("the type asked", *qtype, question.qtype);
            // RR42: the failure shows the chain.
            header(&mut found, settings, question, id, failure);
            found.equal("the Rcode of a failure", failure.rcode, 2);
            found.equal("AA of a failure", failure.aa, false);
            // Two long names of a DNAME may be more than fits: what does not is cut, with TC (WR21).
            let fits = cnames.get(..failure.answer.len()).unwrap_or(cnames);
            found.equal("the aliases", &failure.answer[..], if failure.tc { fits } else { cnames });
            // Answers from a snapshot carry EDE 3 (E42).
            let mut codes: Vec<u16> = failure.opt.iter().flat_map(|opt| opt.ede.clone()).collect();
            codes.retain(|code| *code != 22);
            found.check(failure.opt.is_none() || codes == *ede || failure.tc, || {
                format!("EDE is {codes:?}, not {ede:?}")
            });
        }
        (_, Actual::Drop) => found.check(false, || "the query was dropped".to_owned()),
        (Expected::Reply(_), Actual::Forward { .. }) => {
            found.check(false, || "it was forwarded".to_owned());
        }
        (Expected::Forward { .. }, Actual::Reply(_)) => {
            found.check(false, || "it was not forwarded".to_owned());
        }
    }
    found.0
}

/// The CNAMEs and DNAMEs of a chain without what it leads to.
fn cnames(answer: &[RrSet]) -> Vec<RrSet> {
    let is_cname = |set: &&RrSet| matches!(set.records[0].data, Data::Cname(_) | Data::Dname(_));
    answer.iter().take_while(is_cname).cloned().collect()
}

/// Header and question are echoed as the contract says (WR1-WR6).
fn header(
    found: &mut Differences,
    settings: &Settings,
    question: &Question,
    id: u16,
    actual: &Decoded,
) {
    let any_group = settings.default_upstreams || !settings.stub_domains.is_empty();
    found.equal("the id", actual.id, id);
    found.equal("QR and opcode", actual.is_query_response, true);
    found.equal("RD", actual.rd, question.rd);
    found.equal("CD", actual.cd, question.cd);
    found.equal("RA", actual.ra, any_group);
    found.equal("AD", actual.ad, false);
    found.equal("the question", &actual.question, &question.section());
    // The first owner is the name as asked (WR3).
    let asked = spelling(&question.name);
    if let Some(owner) = &actual.first_owner {
        found.equal("the first owner", owner, &asked);
    }
    for label in actual.spellings.iter().flatten() {
        let lower = !label.iter().any(u8::is_ascii_uppercase);
        found.check(lower || asked.contains(label), || {
            format!("the label {} is not lower case", label.escape_ascii())
        });
    }
}

fn spelling(mut wire: &[u8]) -> Vec<Vec<u8>> {
    let mut labels = Vec::new();
    while wire[0] != 0 {
        let (label, rest) = wire[1..].split_at(usize::from(wire[0]));
        labels.push(label.to_vec());
        wire = rest;
    }
    labels
}

/// The OPT record and its options (§5.2).
fn opt(
    found: &mut Differences,
    settings: &Settings,
    pod_name: &str,
    question: &Question,
    expected: &Reply,
    actual: &Decoded,
) {
    let edns = question.edns.filter(|_| expected.opt);
    found.equal("whether there is an OPT", actual.opt.is_some(), edns.is_some());
    let (Some(edns), Some(opt)) = (edns, &actual.opt) else { return };
    found.equal("the advertised size", opt.payload, settings.udp_payload_size);
    found.equal("the EDNS version", opt.version, 0);
    found.equal("DO", opt.dnssec_ok, edns.dnssec_ok);
    found.equal("other options", &opt.other_options, &Vec::new());
    // N6: the options of another version are not read.
    let nsid = (edns.nsid && edns.version == 0 && settings.nsid).then_some(pod_name.as_bytes());
    found.equal("the NSID", opt.nsid.as_deref(), nsid);
    // WR15: it gives way to answer records, but WR20 puts it before additional ones.
    let no_room = actual.additional.is_empty() && actual.len + 6 > limit(settings, question);
    for code in &expected.ede {
        found.check(no_room || opt.ede.contains(code), || format!("EDE {code} is missing"));
    }
    for code in &opt.ede {
        let allowed = expected.ede.contains(code) || expected.ede_allowed.contains(code);
        found.check(allowed, || format!("EDE {code} should not be there"));
    }
}

fn reply(
    found: &mut Differences,
    settings: &Settings,
    question: &Question,
    expected: &Reply,
    actual: &Decoded,
) {
    found.equal("the Rcode", actual.rcode, expected.rcode);
    found.equal("AA", actual.aa, expected.aa);
    let limit = limit(settings, question);
    found.check(actual.len <= limit, || format!("{} octets, more than {limit}", actual.len));
    if actual.tc {
        truncated(found, question, limit, expected, actual);
        return;
    }
    if !(expected.answer_may_be_empty && actual.answer.is_empty()) {
        sections(found, "answer", &expected.answer, &actual.answer, false);
    }
    let soa: Vec<RrSet> = (expected.soa.iter())
        .map(|soa| RrSet { records: vec![soa.clone()], ordered: true })
        .collect();
    sections(found, "authority", &soa, &actual.authority, false);
    additional(found, limit, expected, actual);
}

/// The largest UDP reply for this query (WR11).
fn limit(settings: &Settings, question: &Question) -> usize {
    match (question.transport, question.edns) {
        (Transport::Tcp, _) => 65_535,
        (Transport::Udp, None) => 512,
        (Transport::Udp, Some(edns)) => {
            usize::from(edns.payload.max(512).min(settings.udp_payload_size))
        }
    }
}

/// Sets in order; inside a set any order unless it counts. A cut may end it anywhere.
fn sections(
    found: &mut Differences,
    section: &str,
    expected: &[RrSet],
    actual: &[Record],
    may_be_cut: bool,
) {
    let mut rest = actual;
    for set in expected {
        let (here, later) = rest.split_at(set.records.len().min(rest.len()));
        rest = later;
        if set.ordered {
            let all = if may_be_cut { here.len() } else { set.records.len() };
            found.check(same_list(here, &set.records[..all.min(set.records.len())]), || {
                format!("{section} has {here:?} where {:?} should be", set.records)
            });
            continue;
        }
        for record in here {
            found.check(set.records.iter().any(|wanted| same(record, wanted)), || {
                format!("{section} has {record:?}, which should not be there")
            });
        }
        for wanted in set.records.iter().filter(|_| !may_be_cut) {
            found.check(here.iter().any(|record| same(record, wanted)), || {
                format!("{section} is missing {wanted:?}")
            });
        }
        let doubled = here.iter().enumerate().any(|(at, record)| here[..at].contains(record));
        found.check(!doubled, || format!("{section} has a record twice: {here:?}"));
    }
    for record in rest {
        found.check(false, || format!("{section} has {record:?}, which should not be there"));
    }
}

fn same_list(actual: &[Record], expected: &[Record]) -> bool {
    actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, b)| same(a, b))
}

/// Equal where the rules fix it: serials and counters are left open.
fn same(actual: &Record, expected: &Record) -> bool {
    let data = match (&actual.data, &expected.data) {
        (Data::Soa(mname, rname, _, timers), Data::Soa(mname2, rname2, None, timers2)) => {
            (mname, rname, timers) == (mname2, rname2, timers2)
        }
        (Data::Txt(strings), Data::Number) => {
            strings.len() == 1
                && !strings[0].is_empty()
                && strings[0].iter().all(u8::is_ascii_digit)
        }
        (actual, expected) => actual == expected,
    };
    data && (&actual.owner, actual.class, actual.ttl)
        == (&expected.owner, expected.class, expected.ttl)
}

/// WR21: as many whole records as fit, in order, and nothing after them.
fn truncated(
    found: &mut Differences,
    question: &Question,
    limit: usize,
    expected: &Reply,
    actual: &Decoded,
) {
    found.check(question.transport == Transport::Udp, || "TC over TCP".to_owned());
    sections(found, "answer", &expected.answer, &actual.answer, true);
    found.equal("authority beside TC", actual.authority.len(), 0);
    found.equal("additional beside TC", actual.additional.len(), 0);
    let missing = expected
        .answer
        .iter()
        .flat_map(|set| &set.records)
        .filter(|record| !actual.answer.iter().any(|kept| same(kept, record)));
    // The owner is compressed, or could be: two octets beside the ten of type, class, TTL and length.
    match missing.map(|record| 12 + record.data.octets()).max() {
        None => found.check(false, || "TC although nothing is missing".to_owned()),
        Some(largest) => found.check(actual.len + largest > limit, || {
            format!("TC at {} of {limit} octets although {largest} more fit", actual.len)
        }),
    }
}

/// RR38, WR22: whole RRsets in the order of the targets, all of them where there is room.
fn additional(found: &mut Differences, limit: usize, expected: &Reply, actual: &Decoded) {
    let sets = in_order_of_targets(&expected.additional, &actual.answer);
    let present = |set: &RrSet| {
        set.records.iter().any(|wanted| actual.additional.iter().any(|record| same(record, wanted)))
    };
    let mut kept: Vec<RrSet> = Vec::new();
    for set in sets {
        if present(&set) {
            kept.push(set);
            continue;
        }
        let size: usize = set
            .records
            .iter()
            .map(|record| 10 + record.owner.wire_len() + record.data.octets())
            .sum();
        found.check(actual.len + size > limit, || {
            format!("additional is missing {:?} although it fits", set.records)
        });
    }
    sections(found, "additional", &kept, &actual.additional, false);
}

/// The sets, sorted by where their owner is first named as a target.
fn in_order_of_targets(sets: &[RrSet], answer: &[Record]) -> Vec<RrSet> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| {
        answer.iter().position(|record| match &record.data {
            Data::Srv(_, _, _, target) | Data::Ns(target) => *target == set.records[0].owner,
            _ => false,
        })
    });
    sets
}
