//! The budget of a client whose lookup is older or younger than its query (FW24). The clock is stopped: time moves on as soon
//! as nothing else can happen.

use tokio::time::{Instant, sleep};

use super::golden::outcome;
use super::*;

const A: u8 = 1;
const NAME: &str = "www.example.org";

/// A responder with room for a few, whose upstreams are these.
fn asking(servers: Vec<Server>) -> Responder {
    let group = Group { servers, options: GroupOptions::default() };
    let upstreams = config::Upstreams::Servers(group);
    responder(&Config { upstreams, ..Config::default() })
}

/// A timer may be a millisecond late.
fn is_at(expected_ms: u128, came_ms: u128) -> bool {
    (expected_ms..expected_ms + 10).contains(&came_ms)
}

#[tokio::test]
async fn fw24_one_who_joins_an_old_lookup_gets_its_end_and_waits_no_longer() {
    let upstream = Upstream::start().await;
    upstream.is_silent.store(true, Ordering::Relaxed);
    let responder = asking(vec![upstream.server.clone()]);
    tokio::time::pause();
    let start = Instant::now();
    let asked = async |after_ms: u64| {
        sleep(Duration::from_millis(after_ms)).await;
        let got = outcome(&responder, NAME, A, true).await;
        (got, start.elapsed().as_millis())
    };
    let (first, second) = tokio::join!(asked(0), asked(3_000));
    for (got, at_ms) in [first, second] {
        assert_eq!(got, (2, 0, Some(22)));
        assert!(is_at(4_000, at_ms), "{at_ms} ms");
    }
    assert_eq!(responder.forwarder.joined(), 1);
}

#[tokio::test]
async fn fw24_a_lookup_that_ends_with_its_budget_still_says_why() {
    let (silent, erring) = (Upstream::start().await, UdpSocket::bind("127.0.0.1:0").await.unwrap());
    silent.is_silent.store(true, Ordering::Relaxed);
    let address = erring.local_addr().unwrap();
    let (ip, port) = (address.ip(), address.port());
    let refusing = Server { ip, port, transport: config::Transport::Udp, tls: None };
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((octets, peer)) = erring.recv_from(&mut buffer).await {
            // REFUSED, without the OPT, which has 11 octets.
            (buffer[2], buffer[3], buffer[11]) = (0x81, 0x85, 0);
            let _ = erring.send_to(&buffer[..octets - 11], peer).await;
        }
    });
    let responder = asking(vec![silent.server.clone(), refusing]);
    tokio::time::pause();
    let start = Instant::now();
    // 23: there were replies, and none was an answer (N18).
    assert_eq!(outcome(&responder, NAME, A, true).await, (2, 0, Some(23)));
    let at_ms = start.elapsed().as_millis();
    assert!(is_at(4_000, at_ms), "{at_ms} ms");
}

/// A server that answers this many queries with an alias, and is silent after that. `target` writes the target of the alias,
/// with its length before it, behind the question.
async fn server_of_aliases(
    answers: usize,
    target: impl Fn(&mut Vec<u8>) + Send + 'static,
) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        for _ in 0..answers {
            let (octets, peer) = socket.recv_from(&mut buffer).await.unwrap();
            // Without the OPT, which has 11 octets.
            let mut reply = buffer[..octets - 11].to_vec();
            (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
            reply.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 2, 88]);
            target(&mut reply);
            let _ = socket.send_to(&reply, peer).await;
        }
        std::future::pending::<()>().await;
    });
    let (ip, port) = (address.ip(), address.port());
    Server { ip, port, transport: config::Transport::Udp, tls: None }
}

/// [`NAME`] as the target of an alias.
fn to_name(reply: &mut Vec<u8>) {
    reply.extend([0, 17]);
    reply.extend(*b"\x03www\x07example\x03org\0");
}

/// Of corp.example: `a0` is an alias of `a1`, and so on up to `a5`, which is one of [`NAME`].
fn to_next(reply: &mut Vec<u8>) {
    match reply[14] {
        b'5' => to_name(reply),
        // The rest of the name is behind its first label.
        number => reply.extend([0, 5, 2, b'a', number + 1, 0xc0, 15]),
    }
}

#[tokio::test]
async fn ca40_the_hops_of_a_chain_share_the_time_that_a_client_waits_for_expired_answers() {
    const ALIAS: &str = "www.corp.example";
    let upstream = Upstream::start().await;
    let group = |servers| Group { servers, options: GroupOptions::default() };
    let stub = group(vec![server_of_aliases(1, to_name).await]);
    let config = Config {
        upstreams: config::Upstreams::Servers(group(vec![upstream.server.clone()])),
        stub_domains: vec![config::StubDomain { domain: "corp.example".into(), group: stub }],
        ..Config::default()
    };
    let responder = responder(&config);
    assert_eq!(outcome(&responder, ALIAS, A, true).await, (0, 2, None));
    upstream.is_silent.store(true, Ordering::Relaxed);
    responder.later(700_000);
    tokio::time::pause();
    let start = Instant::now();
    assert_eq!(outcome(&responder, ALIAS, A, true).await, (0, 2, Some(3)), "a stale reply");
    let at_ms = start.elapsed().as_millis();
    assert!(is_at(1_800, at_ms), "{at_ms} ms");
    // Both are asked for again, also the one whose time was over when it began (CA41).
    assert_eq!(responder.forwarder.lookups(), 2);
}

#[tokio::test]
async fn fw52_a_chain_that_is_asked_for_again_has_a_place_for_each_lookup() {
    const ALIAS: &str = "a0.corp.example";
    const PLACES: u32 = 3;
    let upstream = Upstream::start().await;
    let group = |servers| Group { servers, options: GroupOptions::default() };
    let stub = group(vec![server_of_aliases(6, to_next).await]);
    let mut config = Config {
        upstreams: config::Upstreams::Servers(group(vec![upstream.server.clone()])),
        stub_domains: vec![config::StubDomain { domain: "corp.example".into(), group: stub }],
        ..Config::default()
    };
    config.limits.in_flight_per_client = PLACES;
    let responder = responder(&config);
    assert_eq!(outcome(&responder, ALIAS, A, true).await, (0, 7, None));
    upstream.is_silent.store(true, Ordering::Relaxed);
    responder.later(700_000);
    tokio::time::pause();
    assert_eq!(outcome(&responder, ALIAS, A, true).await, (0, 7, Some(3)), "a stale reply");
    let (lookups, places) = (responder.forwarder.lookups(), responder.forwarder.in_flight());
    assert_eq!((lookups, places), (PLACES as usize, PLACES as usize), "lookups and places");
}
