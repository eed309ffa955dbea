//! The cache in front of the forwarder: golden examples of 9.10 and rows C. Its clock stands, and is moved in place of waiting;
//! only the 1.8 s that a client waits for upstreams that stay silent (CA40) pass.

mod memory;
mod questions;
mod silence;

use std::time::Duration;

use dataplane::forward::Cached;
use dataplane_core::{Forward, Surroundings, Waiting};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tests::upstream::Script;

use super::stage::{FIRST, GOLDEN, SECOND, Stage, answers, failure, waiting};

const SILENT: &str = "server 10.0.0.2 10.0.0.3\n* *\n  silent";

impl Stage {
    async fn a(&self, name: &str) -> Message {
        self.ask_cached(&waiting(0, name, RecordType::A)).await
    }

    fn later(&self, ms: u64) {
        self.forwarder.clock().advance(Duration::from_millis(ms));
    }

    /// What the cache has for a client, at once.
    fn kept(&self, waiting: &Waiting, buffer: &mut [u8]) -> Cached {
        let (records, upstreams) = (&self.published.records, &self.published.upstreams);
        let (group, key) = (waiting.group, waiting.key.clone());
        let forward = Forward { group, key, head: waiting.head.borrow() };
        let around = Surroundings { records, now_s: 0, seed: 0, limit: 512 };
        self.forwarder.from_cache(upstreams, &forward, &around, buffer)
    }

    /// Every server of the default group answers by this script from now on.
    fn play(&self, script: &str) {
        for (ip, script) in Script::parse(script).unwrap() {
            if [FIRST, SECOND].map(Into::into).contains(&ip) {
                self.upstream(octets(ip)).play(script);
            }
        }
    }

    /// How often the servers of the default group were asked about a name.
    fn asked(&self, name: &str) -> usize {
        [FIRST, SECOND].into_iter().map(|ip| self.upstream(ip).times_asked(name)).sum()
    }
}

fn octets(ip: std::net::IpAddr) -> [u8; 4] {
    match ip {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => panic!("{ip}"),
    }
}

/// TTLs of the answer section, then of the authority section.
fn ttls(reply: &Message) -> Vec<u32> {
    reply.answers.iter().chain(&reply.authorities).map(|record| record.ttl).collect()
}

const WWW: [&str; 2] = ["192.0.2.80", "192.0.2.81"];

#[tokio::test]
async fn g121_ca2_an_answer_comes_from_the_cache_and_counts_down() {
    let stage = Stage::stopped(GOLDEN);
    let first = stage.a("www.example.org").await;
    assert_eq!((answers(&first), ttls(&first)), (WWW.map(String::from).to_vec(), vec![600, 600]));
    stage.later(10_000);
    let second = stage.a("WWW.example.org").await;
    assert_eq!((answers(&second), ttls(&second)), (WWW.map(String::from).to_vec(), vec![590, 590]));
    assert_eq!(failure(&second), (ResponseCode::NoError, None));
    assert!(!second.metadata.authoritative);
    assert_eq!(stage.asked("www.example.org."), 1);
}

#[tokio::test]
async fn g122_g123_ca3_denials_are_kept_for_the_ttl_that_their_soa_shows() {
    let stage = Stage::stopped(GOLDEN);
    let aaaa = waiting(0, "www.example.org", RecordType::AAAA);
    assert_eq!(ttls(&stage.ask_cached(&aaaa).await), [20]);
    assert_eq!(ttls(&stage.a("nx.example.org").await), [20]);
    stage.later(5_000);
    let later = stage.a("nx.example.org").await;
    assert_eq!((failure(&later), ttls(&later)), ((ResponseCode::NXDomain, None), vec![15]));
    assert_eq!(ttls(&stage.ask_cached(&aaaa).await), [15]);
    assert_eq!((stage.asked("nx.example.org."), stage.asked("www.example.org.")), (1, 1));
}

#[tokio::test]
async fn g124_f16_a_denial_without_an_soa_is_not_kept() {
    let stage = Stage::stopped(GOLDEN);
    for asked in [1, 2] {
        let reply = stage.a("bare.example.org").await;
        assert_eq!((failure(&reply), ttls(&reply)), ((ResponseCode::NXDomain, None), vec![]));
        assert_eq!(stage.asked("bare.example.org."), asked);
    }
}

#[tokio::test]
async fn g125_c3_a_ttl_of_zero_is_not_kept_and_a_long_one_is_capped() {
    let stage = Stage::stopped(GOLDEN);
    for asked in [1, 2] {
        assert_eq!(ttls(&stage.a("zero.example.org").await), [0]);
        assert_eq!(stage.asked("zero.example.org."), asked);
    }
    assert_eq!(ttls(&stage.a("long.example.org").await), [3600]);
    stage.later(3_599_000);
    assert_eq!(ttls(&stage.a("long.example.org").await), [1], "at least 1 while it is fresh");
    assert_eq!(stage.asked("long.example.org."), 1);
}

#[tokio::test]
async fn g126_ca4_what_was_too_long_for_a_datagram_is_whole_over_tcp_from_the_cache() {
    let stage = Stage::stopped(GOLDEN);
    let mut txt = waiting(0, "huge.example.org", RecordType::TXT);
    assert!(stage.ask_cached(&txt).await.metadata.truncation);
    let mut head = txt.head.borrow();
    head.form.limit = 65_535;
    txt.head = head.keep();
    assert_eq!(stage.ask_cached(&txt).await.answers.len(), 1);
    assert_eq!(stage.asked("huge.example.org."), 2, "a datagram and a stream");
}

#[tokio::test]
async fn g128_c10_ca20_a_failure_is_remembered_for_a_second_and_longer_each_time() {
    let stage = Stage::stopped(GOLDEN);
    let mut asked = 0;
    for kept_ms in [1_000, 2_000, 5_000, 5_000] {
        let first = stage.a("bad.example.net").await;
        assert_eq!(failure(&first), (ResponseCode::ServFail, Some(23)));
        assert!(stage.asked("bad.example.net.") > asked);
        asked = stage.asked("bad.example.net.");
        stage.later(kept_ms - 1);
        let second = stage.a("bad.example.net").await;
        assert_eq!(failure(&second), (ResponseCode::ServFail, Some(13)));
        assert_eq!(stage.asked("bad.example.net."), asked, "no upstream packet");
        stage.later(1);
    }
}

#[tokio::test]
async fn g134_g135_c6_ca40_silence_after_the_ttl_gives_a_stale_reply() {
    let stage = Stage::stopped(GOLDEN);
    stage.a("www.example.org").await;
    stage.a("nx.example.org").await;
    stage.play(SILENT);
    stage.later(700_000);
    let asked_at = std::time::Instant::now();
    let www = waiting(0, "www.example.org", RecordType::A);
    let nx = waiting(0, "nx.example.org", RecordType::A);
    let (stale, denied) = tokio::join!(stage.ask_cached(&www), stage.ask_cached(&nx));
    assert_eq!(failure(&stale), (ResponseCode::NoError, Some(3)));
    assert_eq!((answers(&stale), ttls(&stale)), (WWW.map(String::from).to_vec(), vec![30, 30]));
    assert_eq!(failure(&denied), (ResponseCode::NXDomain, Some(19)));
    assert_eq!(ttls(&denied), [30]);
    // Clients wait 1.8 s and lookups 4 s, unless this machine was too busy to look in between.
    let is_late = asked_at.elapsed() >= std::time::Duration::from_secs(4);
    assert!(is_late || stage.forwarder.lookups() == 2, "the lookups continue (CA41)");
    // Within the next 5 s no client waits for an upstream again.
    stage.later(1_800);
    let mut buffer = [0; 512];
    let again = stage.kept(&www, &mut buffer);
    let Cached::Reply { written, refresh: false, .. } = again else { panic!("{again:?}") };
    let again = Message::from_vec(&buffer[..written.octets]).unwrap();
    assert_eq!(failure(&again), (ResponseCode::NoError, Some(3)));
    // Past the window nothing is served.
    stage.later(86_400_000);
    assert_eq!(stage.forwarder.cache().entries(), 2);
    let kept = stage.kept(&www, &mut buffer);
    assert!(matches!(kept, Cached::Ask(None)), "{kept:?}");
}

#[tokio::test]
async fn g142_ca40_an_answer_in_time_replaces_the_stale_one() {
    let stage = Stage::stopped(GOLDEN);
    stage.a("www.example.org").await;
    stage.later(700_000);
    let fresh = stage.a("www.example.org").await;
    assert_eq!((failure(&fresh), ttls(&fresh)), ((ResponseCode::NoError, None), vec![600, 600]));
    // NXDOMAIN replaces what was positive (CA41).
    stage.play(
        "server 10.0.0.2 10.0.0.3\n* *\n  rcode NXDOMAIN\n  authority . 60 SOA a. b. 1 2 3 4 5",
    );
    stage.later(700_000);
    assert_eq!(failure(&stage.a("www.example.org").await), (ResponseCode::NXDomain, None));
    stage.later(6_000);
    stage.play("server 10.0.0.2 10.0.0.3\n* *\n  rcode SERVFAIL");
    let denied = stage.a("www.example.org").await;
    assert_eq!(failure(&denied), (ResponseCode::NXDomain, Some(19)), "on failure at once, CA40");
    let again = stage.a("www.example.org").await;
    assert_eq!(failure(&again), (ResponseCode::NXDomain, Some(19)), "on a cached failure, N19");
}

#[tokio::test]
async fn ca40_ca41_no_data_replaces_what_was_positive_and_is_stale_later() {
    let stage = Stage::stopped(GOLDEN);
    stage.a("www.example.org").await;
    stage.play(
        "server 10.0.0.2 10.0.0.3\n* *\n  rcode NOERROR\n  authority . 60 SOA a. b. 1 2 3 4 5",
    );
    stage.later(700_000);
    let none = stage.a("www.example.org").await;
    assert_eq!((failure(&none), ttls(&none)), ((ResponseCode::NoError, None), vec![5]));
    stage.later(6_000);
    stage.play("server 10.0.0.2 10.0.0.3\n* *\n  rcode SERVFAIL");
    let stale = stage.a("www.example.org").await;
    assert_eq!((failure(&stale), ttls(&stale)), ((ResponseCode::NoError, Some(3)), vec![30]));
    assert!(answers(&stale).is_empty(), "{stale}");
}

#[tokio::test]
async fn c8_ca40_all_who_ask_while_an_answer_is_refreshed_get_the_fresh_one() {
    let stage = Stage::stopped(GOLDEN);
    stage.a("www.example.org").await;
    stage.later(700_000);
    let www = waiting(0, "www.example.org", RecordType::A);
    let replies = futures::future::join_all((0..9).map(|_| stage.ask_cached(&www))).await;
    for reply in replies {
        assert_eq!(
            (failure(&reply), ttls(&reply)),
            ((ResponseCode::NoError, None), vec![600, 600])
        );
    }
    assert_eq!(stage.asked("www.example.org."), 2, "one lookup for all");
}

#[tokio::test]
async fn ca30_ca40_who_asks_at_expiry_joins_the_prefetch_in_progress() {
    let stage = Stage::stopped(GOLDEN);
    for _ in 0..3 {
        stage.a("www.example.org").await;
    }
    stage.later(599_999);
    let www = waiting(0, "www.example.org", RecordType::A);
    let slot = stage.slot(0).unwrap().into();
    stage.forwarder.prefetch(&stage.published.upstreams, 0, &www.key, &slot);
    stage.later(1);
    let fresh = stage.ask_cached(&www).await;
    assert_eq!((failure(&fresh), ttls(&fresh)), ((ResponseCode::NoError, None), vec![600, 600]));
    assert_eq!(stage.asked("www.example.org."), 2);
}

#[tokio::test]
async fn ca30_each_part_of_a_chain_is_asked_for_again_before_it_expires() {
    let stage = Stage::stopped(GOLDEN);
    let half = waiting(1, "half.corp.example", RecordType::A);
    let stub = stage.upstream([10, 20, 0, 53]);
    for _ in 0..3 {
        stage.ask_cached(&half).await;
    }
    // Of the 60 s of its first part 5 are left, of the 600 s of the second 545.
    stage.later(55_000);
    stage.ask_cached(&half).await;
    stage.until_no_lookup().await;
    assert_eq!(stub.times_asked("half.corp.example."), 2);
    for _ in 0..3 {
        stage.later(59_000);
        stage.ask_cached(&half).await;
        stage.until_no_lookup().await;
    }
    assert_eq!(stage.asked("www.example.org."), 1);
    stage.later(330_000);
    stage.ask_cached(&half).await;
    stage.until_no_lookup().await;
    assert_eq!(stage.asked("www.example.org."), 2, "its last 10 %");
}

#[tokio::test]
async fn ca30_a_chain_that_is_kept_is_answered_before_its_first_part_is_asked_for_again() {
    let stage = Stage::stopped(GOLDEN);
    let half = waiting(1, "half.corp.example", RecordType::A);
    for _ in 0..3 {
        stage.ask_cached(&half).await;
    }
    // Its first part is in its last 10 %.
    stage.later(55_000);
    let mut buffer = [0; 512];
    let kept = stage.kept(&half, &mut buffer);
    let Cached::Reply { written, refresh: true, .. } = kept else { panic!("{kept:?}") };
    assert_eq!(ttls(&Message::from_vec(&buffer[..written.octets]).unwrap()), [5, 545, 545]);
}

#[tokio::test]
async fn g141_c8_ca30_a_popular_answer_is_asked_for_again_before_it_expires() {
    let stage = Stage::stopped(GOLDEN);
    for _ in 0..3 {
        stage.a("www.example.org").await;
    }
    stage.later(545_000);
    for asked in [2, 2] {
        let reply = stage.a("www.example.org").await;
        assert!(ttls(&reply) == [55, 55] || ttls(&reply) == [600, 600], "{:?}", ttls(&reply));
        assert_eq!(stage.asked("www.example.org."), asked);
    }
    stage.later(56_000);
    let fresh = stage.a("www.example.org").await;
    assert_eq!((failure(&fresh), ttls(&fresh)), ((ResponseCode::NoError, None), vec![544, 544]));
    assert_eq!(stage.asked("www.example.org."), 2);
}

#[tokio::test]
async fn ca30_an_answer_that_few_asked_for_is_left_to_expire() {
    let stage = Stage::stopped(GOLDEN);
    stage.a("www.example.org").await;
    stage.a("www.example.org").await;
    stage.later(545_000);
    stage.a("www.example.org").await;
    assert_eq!(stage.asked("www.example.org."), 1);
}

#[tokio::test]
async fn ca30_without_prefetch_a_popular_answer_expires() {
    let stage = Stage::with(GOLDEN, |config| config.cache.prefetch = false);
    for _ in 0..4 {
        stage.a("www.example.org").await;
    }
    stage.later(545_000);
    stage.a("www.example.org").await;
    assert_eq!(stage.asked("www.example.org."), 1);
}

#[tokio::test]
async fn ca40_without_a_window_no_expired_answer_is_served() {
    let stage = Stage::with(GOLDEN, |config| config.cache.stale_seconds = 0);
    stage.a("www.example.org").await;
    stage.play("server 10.0.0.2 10.0.0.3\n* *\n  rcode SERVFAIL");
    stage.later(600_000);
    let failed = stage.a("www.example.org").await;
    assert_eq!(failure(&failed), (ResponseCode::ServFail, Some(23)));
}

#[tokio::test]
async fn ca1_ca5_without_memory_or_entries_nothing_is_kept() {
    for (bytes, entries) in [(0, 10), (1 << 20, 0)] {
        let stage = Stage::with(GOLDEN, |config| {
            (config.cache.memory_bytes, config.cache.entries) = (bytes, entries);
        });
        for asked in [1, 2] {
            stage.a("www.example.org").await;
            assert_eq!(stage.asked("www.example.org."), asked);
        }
    }
}

#[tokio::test]
async fn ca20_a_failure_is_not_explained_with_the_age_of_a_reply_before_it() {
    let stage = Stage::with(GOLDEN, |config| config.cache.stale_seconds = 0);
    let www = waiting(0, "www.example.org", RecordType::A);
    let entry = || {
        let (records, upstreams) = (&stage.published.records, &stage.published.upstreams);
        let head = www.head.borrow();
        let forward = Forward { group: 0, key: www.key.clone(), head };
        let around = Surroundings { records, now_s: 0, seed: 0, limit: 512 };
        let kept = stage.forwarder.explain(upstreams, &forward, &around, &mut [0; 512]);
        kept.parts[0].entry.map(|entry| (entry.age_s, entry.lifetime_s))
    };
    stage.ask_cached(&www).await;
    assert_eq!(entry(), Some((0, 600)));
    stage.play("server 10.0.0.2 10.0.0.3\n* *\n  rcode SERVFAIL");
    stage.later(86_400_000);
    assert_eq!(failure(&stage.ask_cached(&www).await), (ResponseCode::ServFail, Some(23)));
    assert_eq!(failure(&stage.ask_cached(&www).await), (ResponseCode::ServFail, Some(13)));
    assert_eq!(entry(), None);
}

#[tokio::test]
async fn g97_fw42_each_hop_of_a_chain_is_kept_by_itself() {
    let stage = Stage::stopped(GOLDEN);
    let half = waiting(1, "half.corp.example", RecordType::A);
    assert_eq!(ttls(&stage.ask_cached(&half).await), [60, 600, 600]);
    stage.later(10_000);
    assert_eq!(ttls(&stage.ask_cached(&half).await), [50, 590, 590]);
    assert_eq!(ttls(&stage.a("www.example.org").await), [590, 590]);
    // The CNAME expires and is asked for; what it leads to is still there.
    stage.later(50_000);
    assert_eq!(ttls(&stage.ask_cached(&half).await), [60, 540, 540]);
    assert_eq!(stage.upstream([10, 20, 0, 53]).times_asked("half.corp.example."), 2);
    assert_eq!(stage.asked("www.example.org."), 1);
}

#[tokio::test]
async fn ca20_ca41_an_expired_part_of_a_chain_is_not_asked_for_again_at_once() {
    let stage = Stage::stopped(GOLDEN);
    let half = waiting(1, "half.corp.example", RecordType::A);
    stage.ask_cached(&half).await;
    stage.later(61_000);
    let stub = stage.upstream([10, 20, 0, 53]);
    stub.play(Script::one("* *\n  rcode SERVFAIL").unwrap());
    for _ in 0..3 {
        let stale = stage.ask_cached(&half).await;
        assert_eq!(ttls(&stale), [30, 539, 539]);
        assert_eq!(stub.times_asked("half.corp.example."), 2, "once more, then its failure counts");
    }
}
