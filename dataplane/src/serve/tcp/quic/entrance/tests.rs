//! Handshakes of QUIC, and what clients may cost before and after them.

use std::net::{Ipv4Addr, UdpSocket};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use quinn::EndpointConfig;
use quinn::crypto::rustls::QuicClientConfig;
use tokio_rustls::rustls::ServerConfig as Tls;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::task::AbortOnDropHandle;

use super::super::super::super::certificate::testing::{signed_there, trusting};
use super::super::super::TcpServer;
use super::super::super::tests::{patient, with_handshake_thread};
use super::super::{open, serve};
use super::*;

#[test]
fn t8_signatures_of_quic_are_computed_off_the_thread_of_tcp() {
    let (config, certificate, threads) = signed_there(b"doq");
    with_handshake_thread(patient(), async move |server| {
        let counters = Arc::clone(&server.counters);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let (_limits, limits) = watch::channel(patient());
        let (_phase, phase) = watch::channel(Phase::Serving);
        let config = Arc::new(Certificate::of(config));
        let opened = open(&server, socket, &config, &patient().deadlines).unwrap();
        tokio::task::spawn_local(serve(server, opened, config, (limits, phase)));
        let crypto = QuicClientConfig::try_from(trusting(&certificate, b"doq")).unwrap();
        let mut client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        client.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        let connection = client.connect(address, "dns.example").unwrap().await;
        assert!(connection.is_ok(), "{connection:?}");
        // On a busy machine a client may send its first packet again, and gets another Retry.
        assert!(counters.encrypted.retries.load(Ordering::Relaxed) >= 1);
    });
    assert_eq!(*threads.lock().unwrap(), ["handshakes"]);
}

/// No token comes back during a test.
fn slow() -> Limits {
    Limits { handshake_every: Duration::from_secs(3600), ..patient() }
}

type Established = mpsc::Receiver<(Connection, Asker)>;

fn entrance(server: &TcpServer, tls: Tls, costly_frames: u64) -> (Entrance, Established) {
    let _there = server.handshake_thread.enter();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sockets = OneByOne::default();
    let runtime = Arc::new(sockets.clone());
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime).unwrap();
    let (established, connections) = mpsc::channel(1);
    let entrance = Entrance {
        local: endpoint.local_addr().unwrap(),
        endpoint,
        sockets,
        config: None,
        certificate: Arc::new(Certificate::of(tls)),
        limits: watch::channel(slow()).1,
        phase: watch::channel(Phase::Serving).1,
        handshakes: Handshakes::default(),
        rates: Arc::clone(&server.rates),
        counters: Arc::clone(&server.counters),
        costly_frames,
        lingering: Mutex::default(),
        open: Mutex::default(),
        established,
    };
    (entrance, connections)
}

pub(crate) fn client_of(chain: &CertificateDer<'static>) -> Endpoint {
    let crypto = QuicClientConfig::try_from(trusting(chain, b"doq")).unwrap();
    let mut client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    client
}

#[test]
fn t8_a_costly_client_that_closes_its_connection_itself_counts_as_many_handshakes() {
    let (tls, chain, _) = signed_there(b"doq");
    with_handshake_thread(patient(), async move |server| {
        let (entrance, _connections) = entrance(&server, tls, 0);
        let config = config(&entrance.certificate, &patient().deadlines, None);
        entrance.endpoint.set_server_config(config);
        let ip = entrance.local.ip();
        let client = client_of(&chain);
        let closing = async {
            let connecting = client.connect(entrance.local, "dns.example").unwrap();
            let connection = connecting.await.unwrap();
            connection.close(VarInt::from_u32(0), b"");
            connection
        };
        let accepting = async {
            let incoming = entrance.endpoint.accept().await.unwrap();
            let place = entrance.handshakes.begin(ip);
            let mut handshake = pin!(entrance.handshake(incoming, &place));
            assert!(futures::poll!(handshake.as_mut()).is_pending());
            let connection = entrance.open()[0].clone();
            connection.closed().await;
            handshake.await.map(|_| ())
        };
        let (ended, _connection) = futures::join!(accepting, closing);
        assert_eq!(ended, Err(CloseReason::Client));
        entrance.look();
        assert!(entrance.open().is_empty());
        assert_eq!(server.counters.encrypted.quic_responses()[3], ("4", 0));
        let may_begin = |_: &u32| server.rates.may_begin(ip, &slow(), Instant::now());
        assert_eq!((0..1000).filter(may_begin).count(), 256 - 64);
    });
}

#[test]
fn t8_a_client_with_too_many_frames_of_a_handshake_over_quic_is_closed() {
    let (tls, chain, _) = signed_there(b"doq");
    with_handshake_thread(patient(), async move |server| {
        // A usual handshake is already more.
        let (entrance, _connections) = entrance(&server, tls, 0);
        let (address, limits) = (entrance.local, slow());
        let _open = AbortOnDropHandle::new(server.handshake_thread.spawn(entrance.serve()));
        let client = client_of(&chain);
        // It may be closed before the end of its handshake.
        if let Ok(connection) = client.connect(address, "dns.example").unwrap().await {
            let closed = tokio::time::timeout(Duration::from_secs(60), connection.closed());
            assert!(closed.await.is_ok(), "it is closed");
        }
        let excessive = server.counters.encrypted.quic_responses()[3];
        assert_eq!(excessive, ("4", 1));
        let may_begin = |_: &u32| server.rates.may_begin(address.ip(), &limits, Instant::now());
        let left = (0..1000).filter(may_begin).count();
        assert_eq!(left, 256 - 1 - 64, "it counts as many handshakes");
    });
}

#[test]
fn t8_a_listener_for_quic_keeps_no_more_connections_than_its_bound() {
    let (tls, chain, _) = signed_there(b"doq");
    with_handshake_thread(patient(), async move |server| {
        let (mut entrance, _connections) = entrance(&server, tls, 1000);
        // Without buffers there is room for handshakes only.
        entrance.limits = watch::channel(Limits { tcp_buffer_bytes: 0, ..patient() }).1;
        let (address, most) = (entrance.local, entrance.places().all());
        let endpoint = entrance.endpoint.clone();
        let _open = AbortOnDropHandle::new(server.handshake_thread.spawn(entrance.serve()));
        let crypto = QuicClientConfig::try_from(trusting(&chain, b"doq")).unwrap();
        let mut patient_client = quinn::ClientConfig::new(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        // All of them stay open, also on a busy machine.
        transport.max_idle_timeout(IdleTimeout::try_from(Duration::from_secs(3600)).ok());
        patient_client.transport_config(Arc::new(transport));
        let mut client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        client.set_default_client_config(patient_client);
        let mut kept = Vec::new();
        let refused = loop {
            match client.connect(address, "dns.example").unwrap().await {
                Ok(connection) => kept.push(connection),
                Err(error) => break error,
            }
            assert!(kept.len() <= most);
        };
        assert!(matches!(refused, quinn::ConnectionError::ConnectionClosed(_)), "{refused}");
        assert!(endpoint.open_connections() <= most);
        let refused = server.counters.tcp_closed(CloseReason::Refused);
        assert_eq!(refused, 1, "for this reason, and not for its rate");
    });
}

#[tokio::test]
async fn wr44_a_client_of_quic_may_send_little_before_it_is_read() {
    let (tls, chain, _) = signed_there(b"doq");
    let server = config(&Certificate::of(tls), &patient().deadlines, None).unwrap();
    let endpoint = Endpoint::server(server, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let crypto = QuicClientConfig::try_from(trusting(&chain, b"doq")).unwrap();
    let mut client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    let connecting = client.connect(endpoint.local_addr().unwrap(), "dns.example").unwrap();
    let accepting = async { endpoint.accept().await.unwrap().accept().unwrap().await };
    let (accepted, connection) = futures::join!(accepting, connecting);
    let (_unread, connection) = (accepted.unwrap(), connection.unwrap());
    let (mut streams, mut sent) = (Vec::new(), 0);
    for _ in 0..STREAMS {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        if let Poll::Ready(octets) = futures::poll!(pin!(send.write(&[0; 64 << 10]))) {
            let octets = octets.unwrap();
            assert!(octets <= 2 << 10, "{octets} octets of one stream");
            sent += octets;
        }
        streams.push((send, receive));
    }
    assert!((1..=8 << 10).contains(&sent), "{sent} octets");
    // WR41: one more waits until one of these has ended.
    let mut one_more = pin!(connection.open_bi());
    assert!(futures::poll!(one_more.as_mut()).is_pending());
}
