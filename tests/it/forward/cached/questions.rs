//! Messages of clients and the cache: which of them share an entry (C4), and that a hit allocates nothing.

use std::sync::Arc;

use dataplane::forward::Cached;
use dataplane_core::{Action, Forward, Reason, Surroundings, Transport};
use tests::client::Question;
use tests::in_process::InProcess;

use super::super::stage::{GOLDEN, Stage};

/// Questions in order, and how many of them an upstream was asked for so far.
const ENTRIES: [(&str, usize); 12] = [
    ("www.example.org. A", 1),
    ("WWW.Example.ORG. A", 1),
    ("www.example.org. A +noedns", 1),
    ("www.example.org. A +bufsize=4096", 1),
    ("www.example.org. A +adflag", 1),
    ("www.example.org. A +nsid +subnet +cookie", 1),
    ("www.example.org. AAAA", 2),
    ("www.example.org. TXT", 3),
    ("www.example.org. A +dnssec", 4),
    ("www.example.org. A +cdflag", 5),
    ("www.example.org. A +dnssec +cdflag", 6),
    ("WWW.Example.ORG. AAAA +dnssec", 7),
];

/// An answer, a denial of the type, one of the name, a failure, what does not fit into a datagram.
const HITS: [&str; 6] = [
    "www.example.org. A",
    "WWW.example.org. A +dnssec +nsid",
    "www.example.org. AAAA",
    "nx.example.org. A +noedns",
    "bad.example.net. A",
    "huge.example.org. TXT",
];

/// Decides this message; it must be one that is forwarded.
fn forward<'a>(
    core: &'a InProcess,
    packet: &'a [u8],
    transport: Transport,
    buffer: &mut [u8],
) -> Forward<'a> {
    match core.decide(packet, transport, 0, buffer) {
        (Action::Forward(forward), _) => forward,
        (_, reason) => panic!("{reason:?}"),
    }
}

impl Stage {
    fn core(&self) -> InProcess {
        InProcess::new(Arc::clone(&self.published.records))
    }
}

#[tokio::test]
async fn c4_type_do_and_cd_have_entries_of_their_own_and_letter_case_has_none() {
    let stage = Stage::new(GOLDEN);
    let (core, mut buffer) = (stage.core(), [0; 4096]);
    for (text, asked) in ENTRIES {
        let packet = Question::parse(text).unwrap().packet;
        for _ in 0..2 {
            let waiting = forward(&core, &packet, Transport::Udp, &mut buffer).keep();
            stage.ask_cached(&waiting).await;
            assert_eq!(stage.asked("www.example.org."), asked, "{text}");
        }
    }
    // Another class is refused before the cache is asked: its entry would be that of class IN.
    let packet = Question::parse("www.example.org. CH A").unwrap().packet;
    let (action, reason) = core.decide(&packet, Transport::Udp, 0, &mut buffer);
    assert!(matches!(action, Action::Reply(_)) && reason == Reason::Class, "{reason:?}");
}

#[tokio::test]
async fn nothing_is_allocated_between_a_query_and_its_reply_from_the_cache() {
    let stage = Stage::new(GOLDEN);
    let (core, upstreams) = (stage.core(), &stage.published.upstreams);
    let mut buffer = vec![0; 65_535];
    for text in HITS {
        let packet = Question::parse(text).unwrap().packet;
        let miss = forward(&core, &packet, Transport::Udp, &mut buffer).keep();
        stage.ask_cached(&miss).await;
        for transport in [Transport::Udp, Transport::Tcp] {
            let mut cached = None;
            let allocations = allocation_counter::measure(|| {
                let forward = forward(&core, &packet, transport, &mut buffer);
                let (records, limit) = (&stage.published.records, forward.head.form.limit);
                let around = Surroundings { records, now_s: 0, seed: 1, limit };
                let reply = stage.forwarder.from_cache(upstreams, &forward, &around, &mut buffer);
                cached = Some(reply);
            });
            assert!(matches!(cached, Some(Cached::Reply { .. })), "{text}: {cached:?}");
            assert_eq!(allocations.count_total, 0, "{text} over {transport:?}");
        }
    }
}
