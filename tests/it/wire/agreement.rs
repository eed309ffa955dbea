//! hickory-proto decodes all that we write, and agrees with us on what is a query (row W11): for every question of the
//! scenarios, and for mutations of them.

use tests::client::{Question, Transport};
use tests::fuzzing::{ACCEPTED_BY_US, Limit, REJECTED_BY_US, keeps_its_promises, query};
use tests::mutate::{Random, mutated};
use tests::scenario::{Cluster, Core};

use super::BOTH;

/// Mutations of each question of the scenarios.
const MUTATIONS: usize = 200;

/// Every message of the scenarios, by cluster.
fn clusters() -> Vec<(Core, Vec<Vec<u8>>)> {
    let questions = |cluster: &Cluster| {
        let blocks = cluster.scenarios.iter().flat_map(|scenario| scenario.answers.blocks());
        blocks.flat_map(|block| block.questions.iter().map(|(_, q)| q.packet.clone())).collect()
    };
    let clusters = Cluster::all().unwrap();
    clusters
        .iter()
        .map(|cluster| (Core::new(&cluster.objects).unwrap(), questions(cluster)))
        .collect()
}

fn check(core: &Core, packet: &[u8], transport: Transport, seed: u64, buffer: &mut [u8]) {
    let over = match transport {
        Transport::Udp => dataplane_core::Transport::Udp,
        Transport::Tcp => dataplane_core::Transport::Tcp,
    };
    if let (dataplane_core::Action::Reply(length), _) = core.decide(packet, transport, seed, buffer)
    {
        keeps_its_promises(packet, Limit::of(packet, over), &buffer[..length]);
    }
}

#[test]
fn hickory_proto_decodes_every_reply_of_every_scenario() {
    let mut buffer = vec![0; 65_535];
    for (core, questions) in clusters() {
        for (packet, transport) in questions.iter().flat_map(|q| BOTH.map(|over| (q, over))) {
            for seed in [0, 1 << 62, u64::MAX] {
                check(&core, packet, transport, seed, &mut buffer);
            }
            let outcome = core.ask(packet, transport, 1).unwrap();
            if let Some(reply) = outcome.reply {
                hickory_proto::op::Message::from_vec(&reply).unwrap();
            }
        }
    }
}

#[test]
fn hickory_proto_decodes_every_reply_to_a_mutated_question() {
    let mut random = Random::new(2);
    let mut buffer = vec![0; 65_535];
    for (core, questions) in clusters() {
        for packet in &questions {
            for _ in 0..MUTATIONS / 10 {
                let packet = mutated(packet, &questions, &mut random);
                for transport in BOTH {
                    check(&core, &packet, transport, random.number(), &mut buffer);
                }
            }
        }
    }
}

/// A message for each listed difference. The question is `a. A`, the counts and what follows are as written.
const EXAMPLES: [(&str, &str); 10] = [
    ("a reply", "hex 1234 8100 0001 0000 0000 0000 01\"a\" 00 0001 0001"),
    ("another opcode", "hex 1234 2900 0001 0000 0000 0000 01\"a\" 00 0001 0001"),
    ("section counts", "hex 1234 0100 0000 0000 0000 0000"),
    ("a type that is no question", "hex 1234 0100 0001 0000 0000 0000 01\"a\" 00 00fa 0001"),
    (
        "an EDNS version",
        "hex 1234 0100 0001 0000 0000 0001 01\"a\" 00 0001 0001 00 0029 04d0 00010000 0000",
    ),
    // To the upper half of ANCOUNT, which is 0 and so a root label.
    ("a pointer in the question", "hex 1234 0100 0001 0000 0000 0000 c006 0001 0001"),
    (
        "the owner of an OPT",
        "hex 1234 0100 0001 0000 0000 0001 01\"a\" 00 0001 0001 c00e 0029 04d0 00000000 0000",
    ),
    (
        "an option past the end of the OPT",
        "hex 1234 0100 0001 0000 0000 0001 01\"a\" 00 0001 0001 00 0029 04d0 00000000 0005 fde9 0005 01",
    ),
    // An A record of three octets.
    (
        "a record in the additional section that is not an OPT",
        "hex 1234 0100 0001 0000 0000 0001 01\"a\" 00 0001 0001 00 0001 0001 00000000 0003 c00002",
    ),
    // A client subnet of family 9.
    (
        "what is in an option",
        "hex 1234 0100 0001 0000 0000 0001 01\"a\" 00 0001 0001 00 0029 04d0 00000000 0008 0008 0004 0009 00 00",
    ),
];

#[test]
fn every_listed_difference_exists() {
    let listed = || REJECTED_BY_US.iter().chain(&ACCEPTED_BY_US);
    for difference in listed() {
        let (_, example) = EXAMPLES.iter().find(|(what, _)| *what == difference.what).unwrap();
        assert_eq!(query(&Question::parse(example).unwrap().packet), Some(difference));
    }
    assert_eq!(listed().count(), EXAMPLES.len());
}

/// `query` panics on a difference that is not listed.
#[test]
fn we_and_hickory_proto_take_the_same_messages_except_listed_differences() {
    let mut random = Random::new(1);
    for (_, questions) in clusters() {
        for packet in &questions {
            query(packet);
            for _ in 0..MUTATIONS {
                query(&mutated(packet, &questions, &mut random));
            }
        }
    }
}
