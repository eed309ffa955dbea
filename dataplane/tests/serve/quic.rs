//! DNS over QUIC (RFC 9250): answers as over TCP, its errors, and the limits of TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dataplane::serve::{CloseReason, Deadlines, Encrypted, Limits};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, TransportConfig, TransportErrorCode,
};
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::harness::{House, OURS, PATIENCE, Reply, THEIRS, query};
use crate::https::{patient, trust, with_padding};
use crate::tls::{NAME, Secret, two_handshakes};

pub(crate) fn serve(
    limits: Limits,
    name: &str,
) -> (House, SocketAddr, CertificateDer<'static>, Secret) {
    let secret = Secret::new(name);
    let trusted = secret.renew();
    let house = House::on(&["127.0.0.1:0"], limits);
    let served = house.serving.serve_encrypted(&Encrypted::Quic, 0, secret.0.clone());
    (house, served.expect("a port")[0], trusted, secret)
}

pub(crate) async fn try_to_connect(
    server: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> Result<Connection, ConnectionError> {
    connect_from(Ipv4Addr::LOCALHOST, server, trusted).await
}

/// The connection of a client with this address.
pub(crate) async fn connect_from(
    address: Ipv4Addr,
    server: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> Result<Connection, ConnectionError> {
    let endpoint = client(address, trusted, 1 << 16);
    endpoint.connect(server, NAME).unwrap().await
}

/// A client with this address, which takes this many octets of a stream that it does not read.
pub(crate) fn client(
    address: Ipv4Addr,
    trusted: &CertificateDer<'static>,
    window: u32,
) -> Endpoint {
    let crypto = QuicClientConfig::try_from(trust(trusted, &[b"doq"])).unwrap();
    let mut endpoint = Endpoint::client((address, 0).into()).unwrap();
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(window.into())
        .max_idle_timeout(Some(PATIENCE.try_into().unwrap()));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint
}

pub(crate) async fn connect(server: SocketAddr, trusted: &CertificateDer<'static>) -> Connection {
    try_to_connect(server, trusted).await.expect("a connection")
}

/// With its length in front.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let prefix = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&prefix[..], message].concat()
}

/// What comes back on a stream for these octets.
async fn raw(connection: &Connection, octets: &[u8]) -> Option<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(octets).await.ok()?;
    send.finish().ok()?;
    receive.read_to_end(1 << 17).await.ok()
}

pub(crate) async fn ask(connection: &Connection, message: &[u8]) -> Option<Vec<u8>> {
    let reply = raw(connection, &framed(message)).await?;
    let (prefix, reply) = reply.split_first_chunk::<2>()?;
    assert_eq!(usize::from(u16::from_be_bytes(*prefix)), reply.len());
    Some(reply.to_vec())
}

#[test]
fn t8_queries_over_quic_are_answered_each_on_its_stream() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-answers");
    house.runtime.block_on(async {
        let connection = connect(server, &trusted).await;
        let waits = connection.clone();
        let waiting = tokio::spawn(async move { ask(&waits, &query(0, THEIRS)).await });
        for _ in 0..20 {
            let reply = ask(&connection, &query(0, OURS)).await.expect("a reply");
            assert_eq!(Reply::parse(&reply), Reply::ours(0));
        }
        assert!(!waiting.is_finished());
        house.upstream.release();
        let reply = waiting.await.unwrap().expect("a reply");
        assert_eq!(Reply::parse(&reply), Reply::theirs(0));
        let padded = ask(&connection, &with_padding(query(0, OURS))).await.unwrap();
        assert_eq!(padded.len() % 468, 0, "WR14: {}", padded.len());
    });
}

#[test]
fn fw53_own_names_over_quic_are_answered_at_once_behind_a_hundred_slow_ones() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-slow");
    house.runtime.block_on(async {
        let connection = connect(server, &trusted).await;
        let slow: Vec<_> = (0..100)
            .map(|number| {
                let connection = connection.clone();
                let slow = query(0, &format!("name-{number}.example.org"));
                tokio::spawn(async move { ask(&connection, &slow).await.expect("a reply") })
            })
            .collect();
        while house.forwarder.in_flight() < 64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let reply = ask(&connection, &query(0, OURS)).await.expect("a reply");
        assert_eq!(Reply::parse(&reply), Reply::ours(0));
        assert!(!slow.iter().any(|it| it.is_finished()), "none of the others has a reply");
        house.upstream.release();
        for reply in slow {
            assert_eq!(Reply::parse(&reply.await.unwrap()), Reply::theirs(0));
        }
    });
}

/// The query of RFC 9250 with one more option.
fn with_option(code: u16) -> Vec<u8> {
    let mut query = with_padding(query(0, OURS));
    let end = query.len() - 4;
    query[end..end + 2].copy_from_slice(&code.to_be_bytes());
    query
}

#[test]
fn t8_what_rfc_9250_forbids_ends_its_connection_with_a_protocol_error() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-id");
    let counters = house.serving.counters();
    let ours = framed(&query(0, OURS));
    let rows = [
        ("an id", framed(&query(7, OURS))),
        ("edns-tcp-keepalive", framed(&with_option(11))),
        ("two messages", ours.repeat(2)),
        ("half a message", ours[..20].to_vec()),
    ];
    house.runtime.block_on(async {
        for (what, octets) in &rows {
            let connection = connect(server, &trusted).await;
            assert_eq!(raw(&connection, octets).await, None, "{what}");
            let quinn::ConnectionError::ApplicationClosed(closed) = connection.closed().await
            else {
                panic!("{what}: closed by us");
            };
            assert_eq!(closed.error_code, quinn::VarInt::from_u32(2), "{what}");
        }
        let connection = connect(server, &trusted).await;
        let other = ask(&connection, &with_option(65_001)).await;
        assert!(other.is_some(), "others are served, and other options are ignored (WR12)");
    });
    house.until("they are counted", |_| {
        counters.tcp_closed(CloseReason::NotAQuery) == 4
            && counters.encrypted.quic_responses() == [("0", 1), ("1", 0), ("2", 4), ("4", 0)]
    });
}

#[test]
fn t8_a_client_that_opens_connections_of_quic_in_a_loop_is_refused() {
    let (house, server, trusted, _secret) = serve(two_handshakes(), "quic-rate");
    house.runtime.block_on(async {
        let open = [connect(server, &trusted).await, connect(server, &trusted).await];
        for _ in 0..10 {
            let Err(ConnectionError::ConnectionClosed(closed)) =
                try_to_connect(server, &trusted).await
            else {
                panic!("refused");
            };
            assert_eq!(closed.error_code, TransportErrorCode::CONNECTION_REFUSED);
        }
        for connection in &open {
            assert!(ask(connection, &query(0, OURS)).await.is_some(), "those that are open stay");
        }
        let other = connect_from(Ipv4Addr::new(127, 0, 0, 2), server, &trusted).await;
        let reply = ask(&other.expect("another client has its own"), &query(0, OURS)).await;
        assert_eq!(Reply::parse(&reply.unwrap()), Reply::ours(0));
    });
    let counters = house.serving.counters();
    // A packet with a token that its client sent twice, as one that waits long does, is refused twice.
    assert!(counters.tcp_closed(CloseReason::HandshakeRate) >= 10);
    // Each showed its address first: the bucket of another client cannot be emptied by its address. A client that waited
    // long sends its first packet twice, and is sent two.
    assert!(counters.encrypted.retries.load(Ordering::Relaxed) >= 13);
}

#[test]
fn t8_early_data_is_refused() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-early");
    house.runtime.block_on(async {
        let mut tls = trust(&trusted, &[b"doq"]);
        tls.enable_early_data = true;
        let crypto = QuicClientConfig::try_from(tls).unwrap();
        let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        endpoint.set_default_client_config(ClientConfig::new(Arc::new(crypto)));
        for _ in 0..2 {
            let connecting = endpoint.connect(server, NAME).unwrap();
            let Err(connecting) = connecting.into_0rtt() else { panic!("early data is offered") };
            // With the reply come the tickets of the session.
            let connection = connecting.await.expect("a connection");
            assert!(ask(&connection, &query(0, OURS)).await.is_some());
        }
    });
}

#[test]
fn t8_a_certificate_of_quic_that_changes_on_disk_is_used_without_a_restart() {
    let secret = Secret::new("quic-renewed");
    let house = House::on(&["127.0.0.1:0"], patient());
    let served = house.serving.serve_encrypted(&Encrypted::Quic, 0, secret.0.clone());
    let server = served.expect("a port")[0];
    let trusted = secret.renew();
    house.runtime.block_on(async {
        let until = Instant::now() + 5 * PATIENCE;
        while try_to_connect(server, &trusted).await.is_err() {
            assert!(Instant::now() < until, "not in use");
        }
    });
}

#[test]
fn wr44_a_client_at_its_limit_of_quic_loses_its_longest_idle() {
    let limits = Limits { tcp_connections_per_client: 1, ..patient() };
    let (house, server, trusted, _secret) = serve(limits, "quic-limits");
    let counters = house.serving.counters();
    house.runtime.block_on(async {
        let first = connect(server, &trusted).await;
        assert!(ask(&first, &query(0, OURS)).await.is_some());
        let second = connect(server, &trusted).await;
        assert!(ask(&second, &query(0, OURS)).await.is_some());
        first.closed().await;
    });
    house.until("it is counted", |_| counters.tcp_closed(CloseReason::EvictedByClient) == 1);
}

#[test]
fn t4_a_stream_of_quic_that_waits_for_octets_counts_what_quinn_keeps() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-begun");
    let held = || house.serving.counters().tcp_buffered.load(Ordering::Relaxed);
    house.runtime.block_on(async {
        let connection = connect(server, &trusted).await;
        house.until("the session counts", |_| held() > 0);
        let session = held();
        let message = framed(&query(0, OURS));
        let mut begun = Vec::new();
        for _ in 0..10 {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&message[..20]).await.unwrap();
            begun.push((send, receive));
        }
        house.until("ten that have begun", |_| held() >= session + 10 * (32 << 10));
        for (mut send, mut receive) in begun {
            send.write_all(&message[20..]).await.unwrap();
            send.finish().unwrap();
            let reply = receive.read_to_end(1 << 17).await.unwrap();
            assert_eq!(Reply::parse(&reply[2..]), Reply::ours(0));
        }
        house.until("they count for their replies alone", |_| held() < session + (32 << 10));
    });
}

#[test]
fn wr42_an_idle_connection_of_quic_is_closed() {
    let deadlines = Deadlines { idle: Duration::from_millis(300), ..patient().deadlines };
    let limits = Limits { deadlines, ..patient() };
    let (house, server, trusted, _secret) = serve(limits, "quic-idle");
    house.runtime.block_on(async {
        connect(server, &trusted).await.closed().await;
    });
    let counters = house.serving.counters();
    house.until("it is counted", |_| counters.tcp_closed(CloseReason::Idle) == 1);
}

/// Drains while a lookup is in progress, which then ends: its reply.
async fn ask_and_drain(house: &House, connection: &Connection) -> Option<Vec<u8>> {
    let waits = connection.clone();
    let waiting = tokio::spawn(async move { ask(&waits, &query(0, THEIRS)).await });
    house.until("a lookup is in progress", |house| house.upstream.was_asked());
    house.serving.close_idle_tcp();
    house.upstream.release();
    waiting.await.unwrap()
}

#[test]
fn e45_a_drain_answers_what_is_in_progress_over_quic_and_closes() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-drain");
    house.runtime.block_on(async {
        let connection = connect(server, &trusted).await;
        let reply = ask_and_drain(&house, &connection).await.expect("a reply");
        assert_eq!(Reply::parse(&reply), Reply::theirs(0));
        let quinn::ConnectionError::ApplicationClosed(closed) = connection.closed().await else {
            panic!("closed by us");
        };
        assert_eq!(closed.error_code, quinn::VarInt::from_u32(0), "DOQ_NO_ERROR");
    });
}

#[test]
fn e45_a_drain_ends_a_connection_of_quic_that_always_asks() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-busy");
    house.runtime.block_on(async {
        let connection = connect(server, &trusted).await;
        let reply = ask_and_drain(&house, &connection).await;
        assert!(reply.is_some(), "what was in progress is answered");
        let until = Instant::now() + PATIENCE;
        while ask(&connection, &query(0, OURS)).await.is_some() {
            assert!(Instant::now() < until, "it never ends");
        }
    });
    let counters = house.serving.counters();
    house.until("it is counted", |_| counters.tcp_closed(CloseReason::Drain) == 1);
}

#[test]
fn e45_at_the_stop_new_connections_of_quic_are_refused_at_once() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-refused");
    let connection = house.runtime.block_on(connect(server, &trusted));
    let waits = connection.clone();
    let waiting = house.runtime.spawn(async move { ask(&waits, &query(0, THEIRS)).await });
    house.until("a lookup is in progress", |house| house.upstream.was_asked());
    let House { serving, upstream, runtime, .. } = house;
    let stopping = runtime.spawn(serving.stop(10 * PATIENCE));
    runtime.block_on(async {
        let until = Instant::now() + PATIENCE;
        loop {
            match try_to_connect(server, &trusted).await {
                Err(ConnectionError::ConnectionClosed(closed)) => {
                    assert_eq!(closed.error_code, TransportErrorCode::CONNECTION_REFUSED);
                    break;
                }
                other => assert!(Instant::now() < until, "not refused: {other:?}"),
            }
        }
        upstream.release();
        assert!(waiting.await.unwrap().is_some(), "what was in progress is answered");
        stopping.await.unwrap();
    });
}
