//! G107: which address comes first (WR24).

use std::collections::{BTreeMap, BTreeSet};

use hickory_proto::op::Message;
use tests::client::{Question, Transport};
use tests::scenario::{Core, Plane, objects_of};

/// Consecutive outputs of SplitMix64: uniform and the same in every run.
fn seeds() -> impl Iterator<Item = u64> {
    let mut state = 0_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// How often each record is the first of the answer over UDP.
fn firsts(question: &str, times: usize) -> BTreeMap<String, usize> {
    firsts_over(Transport::Udp, question, times)
}

fn firsts_over(over: Transport, question: &str, times: usize) -> BTreeMap<String, usize> {
    let core = Core::new(&objects_of("headless-services").unwrap()).unwrap();
    let packet = Question::parse(question).unwrap().packet;
    let mut counts = BTreeMap::new();
    for seed in seeds().take(times) {
        let reply = core.ask(&packet, over, seed).unwrap().reply.unwrap();
        let first = Message::from_vec(&reply).unwrap().answers[0].data.to_string();
        *counts.entry(first).or_default() += 1;
    }
    counts
}

#[test]
fn g107_each_of_two_addresses_is_first_half_of_the_time() {
    for question in ["db.data.svc.cluster.local. A", "db.data.svc.cluster.local. AAAA"] {
        let counts = firsts(question, 10_000);
        assert_eq!(counts.len(), 2);
        for (address, count) in counts {
            assert!((4_800..=5_200).contains(&count), "{address} is first {count} times");
        }
    }
}

#[test]
fn wr24_srv_records_rotate_and_ptrs_never_do() {
    assert_eq!(firsts("_pg._tcp.db.data.svc.cluster.local. SRV", 200).len(), 2);
    let ptrs = firsts("21.1.244.10.in-addr.arpa. PTR", 200);
    assert_eq!(ptrs.into_keys().collect::<Vec<_>>(), ["db-0.db.data.svc.cluster.local."]);
}

/// HAProxy uses a cut reply, does not ask over TCP, and takes servers that are missing for gone.
#[test]
fn wr24_srv_records_that_do_not_fit_a_datagram_begin_with_the_first() {
    const QUESTION: &str = "big.data.svc.cluster.local. SRV";
    assert_eq!(firsts(QUESTION, 200).len(), 1);
    assert!(firsts_over(Transport::Tcp, QUESTION, 50).len() > 40, "all fit there");
}

/// In the tests above the seed is an argument; the threads that serve must draw one for each reply.
#[test]
fn g107_addresses_take_turns_over_udp_and_tcp_and_where_the_cache_answers() {
    for (scenario, question) in [
        ("headless-services", "db.data.svc.cluster.local. A"),
        ("stub-domains", "www.example.org. A"),
    ] {
        let plane = Plane::start(&objects_of(scenario).unwrap()).unwrap();
        let packet = Question::parse(question).unwrap().packet;
        for over in [Transport::Udp, Transport::Tcp] {
            let first = || {
                let reply = plane.ask(&packet, over, false).unwrap().reply.unwrap();
                Message::from_vec(&reply).unwrap().answers[0].data.to_string()
            };
            // A name of an upstream is in the cache from here on.
            first();
            let firsts: BTreeSet<String> = (0..64).map(|_| first()).collect();
            assert_eq!(firsts.len(), 2, "{question} {over:?}: {firsts:?}");
        }
    }
}
