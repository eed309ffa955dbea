//! The bodies of the fuzz targets on the ordinary toolchain, over seeded mutations of the committed corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dataplane_core::Reason;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tests::client::Question;
use tests::fuzzing;
use tests::mutate::{Random, mutated};

/// The first octet of an input of `relay`: the first question, over TCP.
const OVER_TCP: u8 = 1;
/// Inputs longer than this cost as much as many others: one of this many mutations is made of them.
const LONG: usize = 4096;
const LONG_EVERY: usize = 2_048;

/// Mutations that each target gets: some seconds in a debug build. CLUSTERDNS_FUZZ_ITERATIONS overrides it.
const ITERATIONS: usize = 100_000;

fn iterations() -> usize {
    match std::env::var("CLUSTERDNS_FUZZ_ITERATIONS") {
        Ok(number) => number.parse().expect("CLUSTERDNS_FUZZ_ITERATIONS is a number"),
        Err(_) => ITERATIONS,
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/core/fuzz/corpus").join(target)
}

/// Runs a target over its corpus and mutations of it.
pub(super) fn run(target: &str, body: impl FnMut(&[u8])) {
    run_for(target, iterations(), body);
}

fn run_for(target: &str, iterations: usize, mut body: impl FnMut(&[u8])) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(corpus(target))
        .unwrap_or_else(|error| panic!("{target}: {error}; UPDATE_EXPECT=1 writes the corpus"))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    seeds.iter().for_each(|seed| body(seed));
    let mut random = Random::new(3);
    let (long, short): (Vec<_>, Vec<_>) = seeds.iter().partition(|seed| seed.len() > LONG);
    for number in 0..iterations {
        let from = if number % LONG_EVERY == 0 && !long.is_empty() { &long } else { &short };
        let seed = (*random.choose(from)).clone();
        body(&mutated(&seed, &seeds, &mut random));
    }
}

#[test]
fn target_query_agrees_with_hickory_proto_over_mutated_messages() {
    run("query", |message| {
        fuzzing::query(message);
    });
}

#[test]
fn l12_target_history_agrees_with_the_oracle_within_the_steps_of_each_reply() {
    let mut found = 0;
    // A history costs as much as many messages.
    let histories = iterations() / 200;
    run_for("history", histories, |input| found += fuzzing::history(input));
    assert!(found > histories / 2, "{found} replies with records of {histories} histories");
}

#[test]
fn target_respond_keeps_its_promises_over_mutated_messages() {
    let mut reasons = BTreeSet::new();
    run("respond", |input| reasons.extend(fuzzing::respond(input)));
    // Reasons that the fixture cannot give: all clients may ask, all data is live, port 0 is not used, there are upstreams,
    // and no type is withheld from them.
    let never = [
        Reason::SourcePortZero,
        Reason::Client,
        Reason::NotReady,
        Reason::NoGroup,
        Reason::Withheld,
    ];
    for reason in Reason::ALL.iter().filter(|reason| !never.contains(reason)) {
        assert!(reasons.contains(reason), "{reason:?} never came");
    }
}

#[test]
fn target_relay_keeps_its_promises_over_mutated_replies() {
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    run("relay", |input| {
        if let Some(verdict) = fuzzing::relay(input) {
            *verdicts.entry(verdict).or_default() += 1;
        }
    });
    for verdict in ["good", "failed", "malformed", "question"] {
        assert!(verdicts.contains_key(verdict), "{verdict} never came: {verdicts:?}");
    }
}

#[test]
fn l12_the_corpus_of_relay_has_a_reply_of_many_records_that_is_relayed() {
    let large = large_reply();
    assert!((16_000..60_000).contains(&large.len()), "{} octets", large.len());
    assert_eq!(fuzzing::relay(&large), Some("good"));
    let longest = std::fs::read_dir(corpus("relay")).unwrap();
    let longest = longest.map(|file| file.unwrap().metadata().unwrap().len()).max();
    assert!(longest >= Some(large.len() as u64), "it is not committed: {longest:?}");
}

/// Questions of the fixture, one of each kind.
const QUESTIONS: &[&str] = &[
    "cart.shop.svc.cluster.local. A",
    "CaRt.shop.svc.cluster.local. AAAA +dnssec +nsid",
    "cart.shop.svc.cluster.local. TYPE1000 +noedns",
    "cart.shop.svc.cluster.local. ANY",
    "_http._tcp.cart.shop.svc.cluster.local. SRV",
    "db.shop.svc.cluster.local. SRV",
    "db-0.db.shop.svc.cluster.local. SRV +bufsize=512",
    "_pg._tcp.db.shop.svc.cluster.local. AAAA",
    "10-100-1-3.db.shop.svc.cluster.local. A",
    "big.shop.svc.cluster.local. A +noedns",
    "big.shop.svc.cluster.local. SRV +bufsize=4096",
    "empty.shop.svc.cluster.local. A",
    "shop.svc.cluster.local. A",
    "_tcp.cart.shop.svc.cluster.local. A",
    "nothere.shop.svc.cluster.local. A +nsid",
    "alias.shop.svc.cluster.local. A",
    "to-bare.shop.svc.cluster.local. SRV",
    "to-big.shop.svc.cluster.local. A +noedns",
    "gone.shop.svc.cluster.local. A",
    "loop.shop.svc.cluster.local. A",
    "chain-1.shop.svc.cluster.local. A",
    "chain-2.shop.svc.cluster.local. A +noedns",
    "outside.shop.svc.cluster.local. A",
    "outside.shop.svc.cluster.local. A +norecurse",
    "10-1-2-3.shop.pod.cluster.local. A",
    "fd00--1.shop.pod.cluster.local. AAAA",
    "1.10.96.10.in-addr.arpa. PTR",
    "0.1.100.10.in-addr.arpa. PTR",
    "9.9.96.10.in-addr.arpa. PTR",
    "5.0.20.10.in-addr.arpa. PTR",
    "cluster.local. SOA",
    "cluster.local. NS",
    "ns.dns.cluster.local. A",
    "dns-version.cluster.local. TXT",
    "host.corp.example. AAAA",
    "x.y.apps.corp.example. A",
    "out.corp.example. A",
    "db.moved.corp.example. A",
    "www.gone.corp.example. A",
    "db.old.shop.svc.cluster.local. A",
    "note.corp.example. TXT +noedns",
    "_ldap._tcp.corp.example. SRV",
    "pinned.shop.svc.cluster.local. A",
    "www.corp.example. A",
    "www.example.org. A +norecurse",
    "localhost. A",
    "x.invalid. A",
    "x.0000000000000000.clusterdns-loop. TXT",
    "version.bind. CH TXT",
    "hits.bind. CH TXT",
    "servers.bind. CH TXT",
    "nosuch.bind. CH TXT",
    "cluster.local. AXFR",
    "cart.shop.svc.cluster.local. A +edns=1",
    "cart.shop.svc.cluster.local. OPT",
    "cart.shop.svc.cluster.local. A +opcode=UPDATE",
    "cart.shop.svc.cluster.local. A +cookie +subnet +ednsopt=65001",
    "hex 1234 0100 0000 0000 0000 0000",
    "hex 1234 8183 0000 0000 0000 0000",
    "hex 1234 0100 0001 0000 0000 0000 c00c 0001 0001",
    "hex 1234 0100 0001 0000 0000 0002 04\"cart\" 00 0001 0001 c00c 0001 0001 00000005 0004 c0000201 00 0029 04d0 00000000 0000",
];

/// The corpus of each target, made from real questions and replies.
fn seeds() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let packets: Vec<Vec<u8>> =
        QUESTIONS.iter().map(|question| Question::parse(question).unwrap().packet).collect();
    let respond = packets.iter().enumerate();
    let respond = respond.map(|(n, packet)| [&[n as u8], packet.as_slice()].concat()).collect();
    BTreeMap::from([
        ("query", packets),
        ("respond", respond),
        ("relay", replies()),
        ("history", histories()),
    ])
}

/// Upstream replies to the forwarded questions of the fixture: the record asked for, a CNAME before it, a denial, a
/// referral, an error, and what does not belong.
fn replies() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for (n, asked) in fuzzing::relayed_questions().iter().enumerate() {
        let waiting = asked.waiting(dataplane_core::Transport::Udp);
        let query =
            Message::from_vec(&waiting.key.upstream_query(fuzzing::UPSTREAM_ID).wire).unwrap();
        let name = query.queries[0].name().clone();
        let other = Name::from_ascii("other.example.net.").unwrap();
        let at = |owner: &Name, data: RData| Record::from_rdata(owner.clone(), 300, data);
        let record = |rtype, text: &str| RData::try_from_str(rtype, text).unwrap();
        let soa = record(RecordType::SOA, "ns.example.org. h.example.org. 1 7200 1800 86400 20");
        let data: Vec<RData> = match query.queries[0].query_type() {
            RecordType::AAAA => vec![record(RecordType::AAAA, "2001:db8::1")],
            RecordType::MX => vec![
                record(RecordType::MX, "10 mail.example.org."),
                record(RecordType::MX, "20 mail.example.net."),
            ],
            RecordType::SRV => vec![record(RecordType::SRV, "0 1 5060 sip.corp.example.")],
            RecordType::SOA => vec![soa.clone()],
            RecordType::ANY => {
                vec![record(RecordType::NS, "ns.example.org."), record(RecordType::TXT, "text")]
            }
            _ => (1..=3).map(|n| record(RecordType::A, &format!("192.0.2.{n}"))).collect(),
        };
        let mut reply = |answers: Vec<Record>, authorities: Vec<Record>, rcode: u8| {
            let mut message =
                Message::new(fuzzing::UPSTREAM_ID, MessageType::Response, query.metadata.op_code);
            message.add_query(query.queries[0].clone());
            message.metadata.response_code = hickory_proto::op::ResponseCode::from_low(rcode);
            message.metadata.authentic_data = n % 2 == 0;
            message.add_answers(answers);
            message.add_authorities(authorities);
            inputs.push(((n << 1) as u8, message.to_vec().unwrap()));
        };
        let all =
            |owner: &Name| data.iter().map(|data| at(owner, data.clone())).collect::<Vec<_>>();
        let cname = at(&name, RData::CNAME(hickory_proto::rr::rdata::CNAME(other.clone())));
        let top = Name::from_ascii("org.").unwrap();
        reply(all(&name), vec![], 0);
        reply([vec![cname], all(&other), all(&top)].concat(), vec![], 0);
        reply(vec![], vec![at(&top, soa)], 3);
        reply(vec![], vec![at(&top, record(RecordType::NS, "ns.example.org."))], 0);
        reply(vec![], vec![], 2);
        let alias = RData::CNAME(hickory_proto::rr::rdata::CNAME(other.clone()));
        reply(vec![at(&name, alias)], vec![], 0);
    }
    // Each is followed, where it leads on, by the one before it; ages differ.
    let mut next: Vec<u8> = Vec::new();
    let with_next = |(place, (choice, reply)): (usize, (u8, Vec<u8>))| {
        let length = (reply.len() as u16).to_be_bytes();
        let input = [&[choice, place as u8 * 5], &length[..], &reply, &next].concat();
        next = [&reply[2..12], &reply[records_at(&reply)..]].concat();
        input
    };
    let small = inputs.into_iter().enumerate().map(with_next);
    small.chain([large_reply()]).collect()
}

/// A reply over TCP of hundreds of records, behind a CNAME. libFuzzer makes no inputs that are longer than those of the
/// corpus, so without one it tries no message of many records.
fn large_reply() -> Vec<u8> {
    let asked = &fuzzing::relayed_questions()[0];
    let waiting = asked.waiting(dataplane_core::Transport::Tcp);
    let query = Message::from_vec(&waiting.key.upstream_query(fuzzing::UPSTREAM_ID).wire).unwrap();
    let mut reply =
        Message::new(fuzzing::UPSTREAM_ID, MessageType::Response, query.metadata.op_code);
    reply.add_query(query.queries[0].clone());
    let pool = Name::from_ascii("pool.example.net.").unwrap();
    let alias = RData::CNAME(hickory_proto::rr::rdata::CNAME(pool.clone()));
    reply.add_answer(Record::from_rdata(query.queries[0].name().clone(), 300, alias));
    for number in 0..700_u16 {
        let [high, low] = number.to_be_bytes();
        let address = RData::A(std::net::Ipv4Addr::new(198, 18, high, low).into());
        reply.add_answer(Record::from_rdata(pool.clone(), 300, address));
    }
    let reply = reply.to_vec().unwrap();
    let length = (reply.len() as u16).to_be_bytes();
    [&[OVER_TCP, 10], &length[..], &reply].concat()
}

/// The offset behind the question of a message.
fn records_at(message: &[u8]) -> usize {
    let name = message[12..].iter().position(|&octet| octet == 0).unwrap();
    12 + name + 5
}

/// Histories of no meaning, short and long, small and large.
fn histories() -> Vec<Vec<u8>> {
    let mut random = Random::new(11);
    let mut history = |octets: usize| (0..octets).map(|_| random.number() as u8).collect();
    [40, 80, 160, 200, 240, 280, 320, 400].map(&mut history).into()
}

/// The committed files are those that the questions make; files that a fuzzer adds are allowed.
#[test]
fn the_corpus_holds_the_questions() {
    for (target, seeds) in seeds() {
        for (n, seed) in seeds.iter().enumerate() {
            let file = corpus(target).join(format!("{n:02}"));
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                std::fs::create_dir_all(corpus(target)).unwrap();
                std::fs::write(&file, seed).unwrap();
            }
            let committed = std::fs::read(&file).unwrap_or_default();
            assert!(committed == *seed, "{}: UPDATE_EXPECT=1 writes it", file.display());
        }
    }
}
