//! Clients of encrypted listeners that are slow, old or in the way (WR42, WR44, WR45, E45), over each transport. Limits
//! that a test needs to be short are set when its sessions are there, so that a slow machine has time for handshakes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::serve::{CloseReason, Deadlines, Encrypted, Limits};
use http_body_util::BodyExt;

use crate::harness::{House, OURS, PATIENCE, Reply, THEIRS, Tcp, query};
use crate::https::{self, patient};
use crate::quic;
use crate::tls::{self, NAME, Secret};

/// More octets than a handshake may have.
const HANDSHAKES: usize = 256;

const SHORT: Duration = Duration::from_millis(50);

fn with(change: impl FnOnce(&mut Deadlines)) -> Limits {
    let mut limits = patient();
    change(&mut limits.deadlines);
    limits
}

fn closed(house: &House, reason: CloseReason, count: u64) {
    let counters = house.serving.counters();
    let what = format!("{count} closed: {}", reason.label());
    house.until(&what, |_| counters.tcp_closed(reason) == count);
}

fn https_count(house: &House, status: &str) -> u64 {
    let counted = house.serving.counters().encrypted.https_responses();
    counted.into_iter().find(|(known, _)| *known == status).expect("a status").1
}

#[test]
fn t8_the_client_with_most_handshakes_over_tls_gives_way() {
    let secret = Secret::new("way-tls");
    let trusted = secret.renew();
    let limits = Limits { handshake_burst: 1000, tcp_connections_per_client: 1000, ..patient() };
    let (house, server) = tls::serve(limits, &secret.0);
    let mut silent: Vec<_> = (0..HANDSHAKES).map(|_| TcpStream::connect(server).unwrap()).collect();
    let mut other = tls::Client::from("127.0.0.2", server, &trusted).expect("a session");
    assert_eq!(other.ask(1, OURS), Reply::ours(1));
    closed(&house, CloseReason::Evicted, 1);
    let oldest = &mut silent[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    // The end may be a reset.
    assert!(matches!(oldest.read(&mut [0; 1]), Ok(0) | Err(_)), "the oldest is closed");
    silent[1].set_nonblocking(true).unwrap();
    let still = silent[1].read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(still, Err(std::io::ErrorKind::WouldBlock), "the next one is not");
}

/// Between a client and a server of QUIC: what the server says after it has asked for the address is lost.
struct Deaf {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Deaf {
    fn start(server: SocketAddr) -> Deaf {
        let [inside, outside] = [(); 2].map(|()| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
        outside.connect(server).unwrap();
        for socket in [&inside, &outside] {
            socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        }
        let deaf = Deaf { address: inside.local_addr().unwrap(), over: Arc::default() };
        let client = Arc::new(OnceLock::new());
        let (from, to, seen) = (Arc::clone(&inside), Arc::clone(&outside), Arc::clone(&client));
        deaf.spawn(move |buffer| {
            let Ok((octets, sender)) = from.recv_from(buffer) else { return };
            seen.get_or_init(|| sender);
            let _ = to.send(&buffer[..octets]);
        });
        deaf.spawn(move |buffer| {
            let Ok(octets) = outside.recv(buffer) else { return };
            // A long header of the type Retry (RFC 9000 §17.2.5).
            if let Some(client) = client.get().filter(|_| buffer[0] & 0xf0 == 0xf0) {
                let _ = inside.send_to(&buffer[..octets], client);
            }
        });
        deaf
    }

    fn spawn(&self, mut step: impl FnMut(&mut [u8; 2048]) + Send + 'static) {
        let over = Arc::clone(&self.over);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !over.load(Ordering::Acquire) {
                step(&mut buffer);
            }
        });
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

#[test]
fn t8_the_client_with_most_handshakes_over_quic_gives_way() {
    let limits = Limits { handshake_burst: 1000, ..patient() };
    let (house, server, trusted, _secret) = quic::serve(limits, "way-quic");
    let deaf = Deaf::start(server);
    let counters = house.serving.counters();
    house.runtime.block_on(async {
        let client = quic::client(Ipv4Addr::LOCALHOST, &trusted, 1 << 16);
        let begin = || client.connect(deaf.address, NAME).unwrap();
        let mut stalled = Vec::new();
        let (until, mut before) = (Instant::now() + 6 * PATIENCE, (0, Instant::now()));
        loop {
            let accepted = counters.tcp_accepted.load(Ordering::Relaxed);
            if accepted >= HANDSHAKES as u64 {
                break;
            }
            assert!(Instant::now() < until, "{accepted} handshakes are in progress");
            if accepted != before.0 {
                before = (accepted, Instant::now());
            }
            // Datagrams are lost on a busy machine, and clients give up by themselves: then one more begins.
            if stalled.len() < HANDSHAKES || before.1.elapsed() > Duration::from_secs(1) {
                stalled.push(begin());
                before.1 = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(counters.tcp_closed(CloseReason::Evicted), 0);
        let other = quic::connect_from(Ipv4Addr::new(127, 0, 0, 2), server, &trusted).await;
        let other = other.expect("a connection");
        assert!(quic::ask(&other, &query(0, OURS)).await.is_some());
    });
    // One that gave way may come back, and another gives way to it.
    house.until("one gave way", |_| counters.tcp_closed(CloseReason::Evicted) >= 1);
}

#[test]
fn wr42_a_body_of_https_that_is_sent_slowly_is_408() {
    let (house, server, trusted, _secret) = https::serve(patient(), "slow-body");
    let mut client = https::Client::connect(server, &trusted);
    assert_eq!(client.post(&query(1, OURS)).status, 200);
    house.serving.set_limits(with(|deadlines| deadlines.message = SHORT));
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/dns-message\r\n\
         Content-Length: 50\r\n\r\nhalf"
    );
    client.0.write_all(head.as_bytes()).expect("send");
    assert_eq!(client.response().status, 408);
    assert_eq!(https_count(&house, "408"), 1);
}

#[test]
fn wr42_a_stream_of_quic_that_is_sent_slowly_ends_its_connection() {
    let (house, server, trusted, _secret) = quic::serve(patient(), "slow-stream");
    house.runtime.block_on(async {
        let connection = quic::connect(server, &trusted).await;
        assert!(quic::ask(&connection, &query(0, OURS)).await.is_some());
        house.serving.set_limits(with(|deadlines| deadlines.message = SHORT));
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&quic::framed(&query(0, OURS))[..20]).await.unwrap();
        let quinn::ConnectionError::ApplicationClosed(closed) = connection.closed().await else {
            panic!("closed by us");
        };
        assert_eq!(closed.error_code, quinn::VarInt::from_u32(4), "DOQ_EXCESSIVE_LOAD");
    });
    closed(&house, CloseReason::SlowMessage, 1);
}

#[test]
fn wr42_a_client_of_https_that_does_not_read_its_reply_is_closed() {
    let limits = with(|deadlines| deadlines.write = SHORT);
    let (house, server, trusted, _secret) = https::serve(limits, "slow-https");
    house.runtime.block_on(async {
        // The client has room for one octet of a reply.
        let mut sender = https::connect_h2(server, &trusted, 1).await;
        let response = https::begin_h2(&mut sender, &query(1, OURS)).await.expect("its head");
        let counters = house.serving.counters();
        house.until("it is closed", |_| counters.tcp_closed(CloseReason::SlowReader) == 1);
        assert!(response.into_body().collect().await.is_err(), "the rest never comes");
    });
}

#[test]
fn wr42_a_stream_of_quic_whose_reply_is_not_read_is_given_up() {
    let limits = with(|deadlines| deadlines.write = SHORT);
    let (house, server, trusted, _secret) = quic::serve(limits, "slow-quic");
    house.runtime.block_on(async {
        let client = quic::client(Ipv4Addr::LOCALHOST, &trusted, 1);
        let connection = client.connect(server, NAME).unwrap().await.expect("a connection");
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&quic::framed(&query(0, OURS))).await.unwrap();
        send.finish().unwrap();
        // It is read only when it is given up.
        let counters = house.serving.counters();
        house.until("it is given up", |_| counters.encrypted.quic_responses()[1] == ("1", 1));
        let rest = receive.read_to_end(100).await;
        let reset = quinn::ReadError::Reset(quinn::VarInt::from_u32(1));
        assert_eq!(rest, Err(quinn::ReadToEndError::Read(reset)), "DOQ_INTERNAL_ERROR");
    });
}

#[test]
fn wr45_connections_of_every_transport_end_at_their_age() {
    let limits = with(|deadlines| deadlines.age = SHORT);
    let secret = Secret::new("old-tls");
    let trusted = secret.renew();
    let (house, server) = tls::serve(limits.clone(), &secret.0);
    let mut over_tls = tls::Client::connect(server, &trusted).expect("a session");
    assert_eq!(over_tls.0.read(&mut [0; 1]).expect("an orderly end"), 0);
    closed(&house, CloseReason::Age, 1);
    assert!(Tcp::connect(house.address()).is_closed());
    closed(&house, CloseReason::Age, 2);

    let (house, server, trusted, _secret) = https::serve(limits.clone(), "old-https");
    let https::Client(mut one) = https::Client::connect(server, &trusted);
    one.conn.complete_io(&mut one.sock).expect("a session");
    // It may end without the alert that says so.
    let _ = one.read(&mut [0; 1]);
    closed(&house, CloseReason::Age, 1);

    let (house, server, trusted, _secret) = quic::serve(limits, "old-quic");
    house.runtime.block_on(async {
        let connection = quic::connect(server, &trusted).await;
        let quinn::ConnectionError::ApplicationClosed(closed) = connection.closed().await else {
            panic!("closed by us");
        };
        assert_eq!(closed.error_code, quinn::VarInt::from_u32(0), "DOQ_NO_ERROR");
    });
    closed(&house, CloseReason::Age, 1);
}

#[test]
fn e45_a_drain_answers_what_is_in_progress_over_https_and_closes() {
    let (house, server, trusted, _secret) = https::serve(patient(), "https-drain");
    house.runtime.block_on(async {
        let mut sender = https::connect_h2(server, &trusted, 1 << 16).await;
        let mut other = sender.clone();
        let waiting =
            tokio::spawn(async move { https::ask_h2(&mut other, &query(1, THEIRS)).await });
        house.until("a lookup is in progress", |house| house.upstream.was_asked());
        house.serving.close_idle_tcp();
        house.upstream.release();
        assert_eq!(waiting.await.unwrap().expect("a response"), (200, Reply::theirs(1)));
        // However much it asks, the connection ends.
        let until = Instant::now() + PATIENCE;
        while https::ask_h2(&mut sender, &query(2, OURS)).await.is_ok() {
            assert!(Instant::now() < until, "it never ends");
        }
    });
    closed(&house, CloseReason::Drain, 1);
}

#[test]
fn n7_c7_over_each_transport_clients_may_ask_by_their_own_addresses() {
    let (allowed, own) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::LOCALHOST);
    let house = House::with(&["127.0.0.1:0"], patient(), |config| {
        config.access.clients = vec![format!("{allowed}/32").parse().unwrap()];
    });
    let secret = Secret::new("denied");
    let trusted = secret.renew();
    let serve = |over| house.serving.serve_encrypted(&over, 0, secret.0.clone()).unwrap()[0];
    let refused = |id| Reply { id, rcode: 5, address: None };
    let expected = [(allowed, Reply::ours as fn(u16) -> Reply), (own, refused)];

    let server = serve(Encrypted::Tls);
    for (client, reply) in expected {
        let mut session = tls::Client::from(&client.to_string(), server, &trusted).unwrap();
        assert_eq!(session.ask(1, OURS), reply(1), "{client} over TLS");
    }
    let server = serve(Encrypted::Https { path: "/dns-query".to_owned() });
    for (client, reply) in expected {
        let mut session = https::Client::from(&client.to_string(), server, &trusted);
        let response = session.post(&query(1, OURS));
        let seen = (response.status, Reply::parse(&response.body));
        assert_eq!(seen, (200, reply(1)), "{client} over HTTPS");
    }
    let server = serve(Encrypted::Quic);
    house.runtime.block_on(async {
        for (client, reply) in expected {
            let connection = quic::connect_from(client, server, &trusted).await.unwrap();
            let seen = quic::ask(&connection, &query(0, OURS)).await.expect("a reply");
            assert_eq!(Reply::parse(&seen), reply(0), "{client} over QUIC");
        }
        let connection = quic::connect(server, &trusted).await;
        let seen = quic::ask(&connection, &query(0, THEIRS)).await.expect("a reply");
        assert_eq!(Reply::parse(&seen), refused(0));
    });
    assert!(!house.upstream.was_asked());
}
