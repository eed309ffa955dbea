//! Which server a lookup asks first, and lookups at a server that has as many queries as it is given at once.

mod alone;
mod one_stream;
mod without_tcp;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crds::config::{self, Config, GroupLimits, GroupOptions, Policy};
use dataplane_core::{Name, TtlCaps};
use futures::poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use super::*;
use crate::forward::Upstreams;
use crate::forward::attempt::NO_CLIENT;

/// The places that a server has whose group may have one query in progress.
const PLACES: usize = 16;

fn upstreams(address: SocketAddr) -> Upstreams {
    let limits = GroupLimits { in_flight: 1 };
    upstreams_with(&[address], GroupOptions { limits, ..GroupOptions::default() })
}

/// A server over UDP at whose port nothing listens for TCP yet; no other test takes that meanwhile.
async fn without_listener() -> (UdpSocket, tokio::net::TcpSocket) {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let stream = tokio::net::TcpSocket::new_v4().unwrap();
    stream.bind(far.local_addr().unwrap()).unwrap();
    (far, stream)
}

fn upstreams_with(addresses: &[SocketAddr], options: GroupOptions) -> Upstreams {
    upstreams_over(config::Transport::Udp, addresses, options)
}

fn upstreams_over(
    transport: config::Transport,
    addresses: &[SocketAddr],
    options: GroupOptions,
) -> Upstreams {
    let server = |address: &SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        config::Server { ip, port, transport, tls: None }
    };
    let group = config::Group { servers: addresses.iter().map(server).collect(), options };
    let upstreams = config::Upstreams::Servers(group);
    Upstreams::of(&Config { upstreams, ..Config::default() }, Path::new(""))
}

/// Answers one query with an address.
async fn answer(far: &UdpSocket) {
    let mut buffer = [0; 512];
    let (octets, peer) = far.recv_from(&mut buffer).await.unwrap();
    // Without the OPT, which has 11 octets.
    let mut reply = buffer[..octets - 11].to_vec();
    (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 88, 0, 4, 192, 0, 2, 1]);
    far.send_to(&reply, peer).await.unwrap();
}

/// Lookups of which each says which server it asks first.
const LOOKUPS: usize = 1_000;

/// A group of three servers.
fn three(policy: Policy) -> Upstreams {
    let addresses = [1, 2, 3].map(|last| SocketAddr::from(([192, 0, 2, last], 53)));
    upstreams_with(&addresses, GroupOptions { policy, ..GroupOptions::default() })
}

/// How often each of the three is asked first.
fn firsts(group: &Arc<Group>) -> [usize; 3] {
    let mut first = [0; 3];
    for _ in 0..LOOKUPS {
        let mut lookup = Lookup::new(group, &[0, 1, 2], NO_CLIENT, &group.probe, now()).unwrap();
        let (send, sent, _) = lookup.take_first(now()).unwrap();
        sent.cancel();
        first[lookup.plan.member(send.place)] += 1;
    }
    first
}

#[tokio::test(start_paused = true)]
async fn fw22_random_asks_each_server_first_as_often() {
    let upstreams = three(Policy::Random);
    let first = firsts(upstreams.group(0).unwrap());
    // 333 each, and below 200 in less than one run of 10^18.
    assert!(first.iter().all(|times| *times >= LOOKUPS / 5), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn fw22_fastest_asks_first_the_server_whose_replies_came_first() {
    let upstreams = three(Policy::Fastest);
    let group = upstreams.group(0).unwrap();
    // How long each of their replies takes at first, then later.
    for (times_ms, fastest) in [([30, 10, 20], 1), ([1, 40, 20], 0)] {
        // A new measurement counts one part in eight: after these the old ones do not matter.
        for _ in 0..40 {
            for (server, ms) in group.servers.iter().zip(times_ms) {
                let sent = server.send(true).unwrap();
                tokio::time::advance(Duration::from_millis(ms)).await;
                sent.replied(Heard::Good, 0);
            }
        }
        let first = firsts(group);
        // One lookup in twenty explores: 967 of 1,000. None does, or a quarter, in less than one run of 10^14.
        assert!((LOOKUPS * 3 / 4..LOOKUPS).contains(&first[fastest]), "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fw27_a_silent_server_has_one_query_in_its_turn_with_each_policy() {
    for policy in [Policy::Random, Policy::RoundRobin, Policy::Fastest] {
        let upstreams = three(policy);
        let group = upstreams.group(0).unwrap();
        let silent = |name: &str, sent| {
            group.was_silent(0, &Name::from_text(name).unwrap(), sent, now());
        };
        (0..20).for_each(|n| silent(&format!("n{n}.example"), now()));
        assert_eq!(firsts(group)[0], 0, "{policy:?}");
        for wait_s in [5, 10] {
            tokio::time::advance(Duration::from_secs(wait_s)).await;
            let sent = now();
            assert_eq!(firsts(group)[0], 1, "{policy:?}");
            tokio::time::advance(crate::forward::plan::USUAL.interval).await;
            assert_eq!(firsts(group)[0], 0, "{policy:?}: its query may still be answered");
            silent("overdue.example", sent);
            assert_eq!(firsts(group)[0], 0, "{policy:?}: until the next turn");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fw22_fw27_with_sequential_neither_silence_nor_a_turn_moves_a_server() {
    for silent in [0, 1] {
        let upstreams = three(Policy::Sequential);
        let group = upstreams.group(0).unwrap();
        for n in 0..20 {
            let name = Name::from_text(&format!("n{n}.example")).unwrap();
            group.was_silent(silent, &name, now(), now());
        }
        for wait_s in [0, 5, 10, 60] {
            tokio::time::advance(Duration::from_secs(wait_s)).await;
            assert_eq!(firsts(group), [LOOKUPS, 0, 0], "server {silent}");
        }
    }
}

#[tokio::test]
async fn fw52_a_lookup_waits_for_a_place_at_its_server() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    let server = &group.servers[0];
    let mut others: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
    assert_eq!(others.len(), PLACES);
    let keys = ["a.example", "b.example"]
        .map(|name| LookupKey::new(Name::from_text(name).unwrap(), 1, false, false));
    let [mut first, mut second] =
        keys.each_ref().map(|key| Box::pin(lookup(group, &[0], key, now())));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert_eq!(far.try_recv(&mut [0; 512]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // One place is enough for both, one after the other.
    others.pop().unwrap().settle(Heard::Nothing);
    let (replied, ()) = tokio::join!(first, answer(&far));
    assert!(replied.is_ok(), "{replied:?}");
    let (replied, ()) = tokio::join!(second, answer(&far));
    assert!(replied.is_ok(), "{replied:?}");
}

#[tokio::test(start_paused = true)]
async fn fw52_a_lookup_that_waits_keeps_its_turn_when_another_server_is_silent() {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0").await, UdpSocket::bind("127.0.0.1:0").await);
    let (one, other) = (one.unwrap(), other.unwrap());
    let addresses = [&one, &other].map(|far| far.local_addr().unwrap());
    let limits = GroupLimits { in_flight: 1 };
    let options = GroupOptions { limits, policy: Policy::Sequential, ..GroupOptions::default() };
    let upstreams = upstreams_with(&addresses, options);
    let group = upstreams.group(0).unwrap();
    let server = &group.servers[0];
    let mut others: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
    let key = LookupKey::new(Name::ROOT, 1, false, false);
    // It has asked the second server, too.
    let mut old = Box::pin(lookup(group, &[0, 1], &key, now()));
    assert!(poll!(&mut old).is_pending());
    let other_key = LookupKey::new(Name::ROOT, 28, false, false);
    let mut young = Box::pin(lookup(group, &[0], &other_key, now()));
    assert!(poll!(&mut young).is_pending());
    // The old one looks at what it has sent.
    tokio::time::advance(crate::forward::plan::USUAL.interval).await;
    assert!(poll!(&mut old).is_pending());
    others.pop().unwrap().cancel();
    assert!(poll!(&mut young).is_pending() && poll!(&mut old).is_pending());
    let (asked, _) = query(&one).await;
    assert!(asked[12..].starts_with(&[0, 0, 1]), "the young one came later: {asked:?}");
}

#[tokio::test]
async fn fw24_a_lookup_that_never_gets_a_place_ends_with_its_budget() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    let _others: Vec<Sent> = std::iter::from_fn(|| group.servers[0].send(true)).collect();
    let key = LookupKey::new(Name::ROOT, 1, false, false);
    tokio::time::pause();
    let started = now();
    let ended = lookup(group, &[0], &key, started).await;
    assert_eq!(ended.unwrap_err(), Unresolved::Limited(Limit::Server));
    // A timer may be a millisecond late.
    assert_eq!((now() - started).as_secs(), crate::forward::plan::USUAL.budget.as_secs());
}

#[tokio::test]
async fn fw52_a_place_that_the_first_who_waits_cannot_use_is_for_the_next() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    let mut others: Vec<Sent> = std::iter::from_fn(|| group.servers[0].send(true)).collect();
    tokio::time::pause();
    let (began, budget) = (now(), crate::forward::plan::USUAL.budget);
    tokio::time::advance(budget / 2).await;
    let key = LookupKey::new(Name::ROOT, 1, false, false);
    let mut old = Box::pin(lookup(group, &[0], &key, began));
    let mut young = Box::pin(lookup(group, &[0], &key, now()));
    assert!(poll!(&mut old).is_pending() && poll!(&mut young).is_pending());
    // The place is free for the old one, whose budget ends before it can take it.
    others.pop().unwrap().settle(Heard::Nothing);
    tokio::time::advance(budget / 2).await;
    assert!(poll!(&mut old).is_ready() && poll!(&mut young).is_pending());
    assert_eq!(group.servers[0].seen(now()).in_flight, PLACES, "the young one asks");
}

#[tokio::test]
async fn fw24_a_query_that_had_no_time_when_its_lookup_ended_is_no_silence() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    let server = &group.servers[0];
    let mut others: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
    tokio::time::pause();
    let key = LookupKey::new(Name::ROOT, 1, false, false);
    let began = now();
    let mut late = Box::pin(lookup(group, &[0], &key, began));
    assert!(poll!(&mut late).is_pending());
    let left = std::time::Duration::from_millis(100);
    tokio::time::advance(crate::forward::plan::USUAL.budget - left).await;
    // It gets a place 0.1 s before its budget ends.
    others.pop().unwrap().cancel();
    assert!(poll!(&mut late).is_pending());
    assert_eq!(server.seen(now()).in_flight, PLACES, "it asks");
    let before = server.seen(now());
    assert_eq!(late.await.unwrap_err(), Unresolved::Silence);
    let seen = server.seen(now());
    assert_eq!((seen.heard, seen.places), (before.heard, before.places));
}

#[tokio::test]
async fn fw52_a_lookup_without_a_connection_place_tries_again_and_condemns_no_server() {
    let (ip, port, transport) = ([127, 0, 0, 1].into(), 9, config::Transport::Tcp);
    let server = config::Server { ip, port, transport, tls: None };
    let group = config::Group { servers: vec![server], options: GroupOptions::default() };
    let config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
    let upstreams = Upstreams::of(&config, Path::new(""));
    let group = upstreams.group(0).unwrap();
    let server = &group.servers[0];
    let all = server.seen(now()).places;
    tokio::time::pause();
    let _kept = crate::forward::connections::tests::fill(&server.connections);
    let key = LookupKey::new(Name::ROOT, 1, false, false);
    let mut asks = Box::pin(lookup(group, &[0], &key, now()));
    assert!(poll!(&mut asks).is_pending());
    let seen = server.seen(now());
    let (sent, heard, in_flight, places) = (seen.sent, seen.heard, seen.in_flight, seen.places);
    assert_eq!((sent, heard, in_flight, places), (0, [0; 3], 0, all), "it was not asked");
    // A timer may be a millisecond late.
    let next = crate::forward::plan::USUAL.interval + std::time::Duration::from_millis(1);
    tokio::time::advance(next).await;
    assert!(poll!(&mut asks).is_pending());
    assert_eq!(server.seen(now()).in_flight, 1, "others are overdue");
}

/// Waits for the next query, while no time passes.
async fn query(far: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let (mut buffer, began) = ([0; 512], std::time::Instant::now());
    loop {
        tokio::task::yield_now().await;
        if let Ok((octets, peer)) = far.try_recv_from(&mut buffer) {
            return (buffer[..octets].to_vec(), peer);
        }
        assert!(began.elapsed() < Duration::from_secs(30), "a query");
    }
}

#[tokio::test]
async fn fw21_after_an_error_an_earlier_query_is_waited_for_until_the_next_send_only() {
    let half = crate::forward::plan::USUAL.interval;
    for is_lost in [true, false] {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let upstreams = upstreams(far.local_addr().unwrap());
        let group = upstreams.group(0).unwrap();
        tokio::time::pause();
        let key = LookupKey::new(Name::ROOT, 1, false, false);
        let began = now();
        let mut asks = Box::pin(lookup(group, &[0], &key, began));
        assert!(poll!(&mut asks).is_pending());
        let (mut first, peer) = query(&far).await;
        // A timer may be a millisecond late.
        tokio::time::advance(half + Duration::from_millis(1)).await;
        assert!(poll!(&mut asks).is_pending());
        let (mut second, from) = query(&far).await;
        // Without the OPT, which has 11 octets: SERVFAIL to the second.
        second.truncate(second.len() - 11);
        (second[2], second[3], second[11]) = (0x81, 0x82, 0);
        far.send_to(&second, from).await.unwrap();
        while group.servers[0].seen(now()).heard[Heard::Error as usize] == 0 {
            assert!(poll!(&mut asks).is_pending(), "the first may still come");
            tokio::task::yield_now().await;
        }
        if !is_lost {
            first.truncate(first.len() - 11);
            (first[2], first[3], first[11]) = (0x81, 0x83, 0);
            far.send_to(&first, peer).await.unwrap();
        }
        let ended = asks.await;
        assert!(now() - began <= 2 * half + Duration::from_millis(100), "{:?}", now() - began);
        match is_lost {
            true => assert!(matches!(ended, Err(Unresolved::Errors(_))), "{ended:?}"),
            false => assert!(ended.is_ok(), "{ended:?}"),
        }
        tokio::time::resume();
    }
}

#[tokio::test]
async fn fw26_a_truncated_reply_is_asked_for_after_the_pause_of_connections() {
    let (far, stream) = without_listener().await;
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
            (buffer[2], buffer[3]) = (0x83, 0x80);
            far.send_to(&buffer[..octets], peer).await.unwrap();
        }
    });
    let [first, second] = ["a.example", "b.example"]
        .map(|name| LookupKey::new(Name::from_text(name).unwrap(), 1, false, false));
    // Nothing listens there, so a pause begins.
    assert!(lookup(group, &[0], &first, now()).await.is_err());
    let listener = stream.listen(1).unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut query = [0; 512];
        let octets = stream.read(&mut query).await.unwrap();
        // Its length is in front. Without the OPT, which has 11 octets.
        let mut reply = query[2..octets - 11].to_vec();
        (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 88, 0, 4, 192, 0, 2, 1]);
        stream.write_all(&[&[0, reply.len() as u8], &reply[..]].concat()).await.unwrap();
        stream
    };
    let asked = async {
        let ended = lookup(group, &[0], &second, now()).await;
        assert!(ended.is_ok(), "{ended:?}");
    };
    let both = async { tokio::join!(asked, answer) };
    tokio::time::timeout(Duration::from_secs(10), both).await.expect("it is asked over TCP");
}

#[test]
fn fw25_a_reply_without_signatures_is_kept_until_a_server_gets_opt_again() {
    let addresses = [1, 2].map(|host| SocketAddr::from(([192, 0, 2, host], 53)));
    let upstreams = upstreams_with(&addresses, GroupOptions::default());
    let (group, at) = (upstreams.group(0).unwrap(), now());
    let after = |seconds| at + Duration::from_secs(seconds);
    let lookup = Lookup::new(group, &[0, 1], NO_CLIENT, &group.probe, at).unwrap();
    let send = Send { place: 0, transport: Transport::Udp, edns: false };
    let reply = |dnssec_ok| {
        let key = LookupKey::new(Name::ROOT, 1, dnssec_ok, false);
        let octets = b"\0\0\x81\x80\0\x01\0\0\0\0\0\0\0\0\x01\0\x01";
        match key.judge(0, octets, &TtlCaps::default()) {
            dataplane_core::Verdict::Good(relayed) => relayed,
            other => panic!("{other:?}"),
        }
    };
    let [first, second] = &group.servers[..] else { panic!("two servers") };
    first.refused_edns(after(0));
    assert_eq!(lookup.most_s(send, &reply(true), after(1)), 30, "the other one may give them");
    second.refused_edns(after(100));
    for (seconds, most_s) in [(100, 800), (600, 300), (890, 30), (901, 30)] {
        assert_eq!(lookup.most_s(send, &reply(true), after(seconds)), most_s);
    }
    assert_eq!(lookup.most_s(send, &reply(false), after(100)), u32::MAX);
    assert_eq!(lookup.most_s(Send { edns: true, ..send }, &reply(true), after(100)), u32::MAX);
}
