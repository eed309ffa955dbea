//! DNS over TLS (T8): answers as over TCP, deadlines of a handshake, and certificates that change on disk.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dataplane::serve::{CloseReason, Deadlines, Encrypted, Limits, ServedOver};
use socket2::SockRef;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::harness::{House, OURS, PATIENCE, Reply, THEIRS, Tcp, connect_from, query};
use crate::https::{patient, trust};

pub(crate) const NAME: &str = "dns.example";

/// A folder that is gone at the end, with what kubelet would mount there.
pub(crate) struct Secret(pub(crate) PathBuf);

impl Secret {
    pub(crate) fn new(name: &str) -> Secret {
        let folder = std::env::temp_dir().join(format!("clusterdns-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Secret(folder)
    }

    /// A new certificate; returns what clients trust.
    pub(crate) fn renew(&self) -> CertificateDer<'static> {
        renew(&self.0)
    }
}

/// A new certificate in this folder; returns what clients trust.
pub(crate) fn renew(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Client(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Client {
    pub(crate) fn connect(
        server: SocketAddr,
        trusted: &CertificateDer<'static>,
    ) -> std::io::Result<Client> {
        Client::with(server, &Arc::new(trust(trusted, &[b"dot"])))
    }

    /// A client with this address of its own.
    pub(crate) fn from(
        address: &str,
        server: SocketAddr,
        trusted: &CertificateDer<'static>,
    ) -> std::io::Result<Client> {
        Client::over(connect_from(address, server), &Arc::new(trust(trusted, &[b"dot"])))
    }

    fn with(server: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Client> {
        Client::over(TcpStream::connect(server)?, config)
    }

    fn over(stream: TcpStream, config: &Arc<ClientConfig>) -> std::io::Result<Client> {
        let session = ClientConnection::new(config.clone(), NAME.try_into().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = StreamOwned::new(session, stream);
        client.conn.complete_io(&mut client.sock)?;
        Ok(Client(client))
    }

    fn send(&mut self, message: &[u8]) {
        let prefix = u16::try_from(message.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&prefix[..], message].concat()).expect("send");
    }

    fn receive(&mut self) -> Reply {
        let mut prefix = [0; 2];
        self.0.read_exact(&mut prefix).expect("a reply");
        let mut message = vec![0; u16::from_be_bytes(prefix).into()];
        self.0.read_exact(&mut message).expect("the rest of a reply");
        Reply::parse(&message)
    }

    pub(crate) fn ask(&mut self, id: u16, name: &str) -> Reply {
        self.send(&query(id, name));
        self.receive()
    }
}

pub(crate) fn serve(limits: Limits, folder: &Path) -> (House, SocketAddr) {
    let house = House::on(&["127.0.0.1:0"], limits);
    let addresses =
        house.serving.serve_encrypted(&Encrypted::Tls, 0, folder.to_owned()).expect("a port");
    (house, addresses[0])
}

#[test]
fn t8_queries_over_tls_are_answered_as_over_tcp() {
    let secret = Secret::new("tls-answers");
    let trusted = secret.renew();
    let (house, server) = serve(patient(), &secret.0);
    let mut client = Client::connect(server, &trusted).expect("a session");
    assert_eq!(client.ask(1, OURS), Reply::ours(1));
    // An own answer overtakes a lookup, many queries are in progress, and each gets one reply.
    client.send(&query(2, THEIRS));
    assert_eq!(client.ask(3, OURS), Reply::ours(3));
    house.upstream.release();
    assert_eq!(client.receive(), Reply::theirs(2));
    for id in 0..500 {
        client.send(&query(id, OURS));
    }
    for id in 0..500 {
        assert_eq!(client.receive(), Reply::ours(id));
    }
    house.serving.close_idle_tcp();
    assert_eq!(client.0.read(&mut [0; 1]).expect("an orderly end"), 0);
}

#[test]
fn two_ports_of_one_address_are_one_address_of_an_encrypted_listener() {
    let secret = Secret::new("tls-two-ports");
    let trusted = secret.renew();
    let house = House::on(&["127.0.0.1:0", "127.0.0.1:0"], patient());
    // Another program may take the port that was free.
    let serve = |over: Encrypted| {
        let mut tries = (0..10).map(|_| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            house.serving.serve_encrypted(&over, port, secret.0.clone())
        });
        tries.find_map(Result::ok).expect("one of these ports")
    };
    let (tls, quic) = (serve(Encrypted::Tls), serve(Encrypted::Quic));
    assert_eq!((tls.len(), quic.len()), (1, 1));
    let mut client = Client::connect(tls[0], &trusted).expect("a session");
    assert_eq!(client.ask(1, OURS), Reply::ours(1));
}

#[test]
fn a_query_whose_connection_breaks_is_counted_once_its_lookup_ends() {
    let secret = Secret::new("tls-broken");
    let trusted = secret.renew();
    let (house, server) = serve(patient(), &secret.0);
    let mut tcp = Tcp::connect(house.address());
    tcp.send(&query(1, THEIRS));
    let mut tls = Client::connect(server, &trusted).expect("a session");
    tls.send(&query(2, THEIRS));
    house.until("both wait", |house| house.serving.queries_seen() == 2);
    for stream in [tcp.0, tls.0.into_parts().1] {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    let counters = house.serving.counters();
    house.until("both are gone", |_| counters.tcp_open.load(Ordering::Relaxed) == 0);
    house.upstream.release();
    for over in [ServedOver::Tcp, ServedOver::Tls] {
        house.until(over.label(), |_| counters.traffic.read(over).replies.count() == 1);
    }
}

#[test]
fn t8_a_handshake_that_stalls_or_is_none_ends_and_leaves_others_alone() {
    let secret = Secret::new("tls-stalls");
    let trusted = secret.renew();
    let ends_unanswered = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // An alert may come before the end, and the end may be a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 32, "no answer without a session: {rest:?}");
    };
    let deadlines = Deadlines { message: Duration::from_millis(300), ..patient().deadlines };
    let (hasty, server) = serve(Limits { deadlines, ..patient() }, &secret.0);
    ends_unanswered(&mut TcpStream::connect(server).unwrap());
    let counters = hasty.serving.counters();
    hasty.until("it is counted", |_| counters.tcp_closed(CloseReason::SlowMessage) == 1);

    // Where handshakes have all the time that a slow machine needs.
    let (house, server) = serve(patient(), &secret.0);
    let _silent = TcpStream::connect(server).unwrap();
    let mut other = TcpStream::connect(server).unwrap();
    other.write_all(&query(1, OURS)).unwrap();
    ends_unanswered(&mut other);
    let counters = house.serving.counters();
    house.until("it is counted", |_| counters.tcp_closed(CloseReason::Failed) == 1);
    let mut client = Client::connect(server, &trusted).expect("a session");
    assert_eq!(client.ask(2, OURS), Reply::ours(2));
}

/// A client that names this many protocols of 255 octets besides its own.
fn talkative(trusted: &CertificateDer<'static>, protocols: u8) -> Arc<ClientConfig> {
    let mut config = trust(trusted, &[b"dot"]);
    config.alpn_protocols.extend((0..protocols).map(|number| vec![number; 255]));
    Arc::new(config)
}

#[test]
fn t8_a_hello_of_16_kib_is_read_and_one_of_40_kib_ends_its_connection() {
    let secret = Secret::new("tls-hello");
    let trusted = secret.renew();
    let (house, server) = serve(patient(), &secret.0);
    let mut client = Client::with(server, &talkative(&trusted, 64)).expect("a session");
    assert_eq!(client.ask(1, OURS), Reply::ours(1));
    assert!(Client::with(server, &talkative(&trusted, 160)).is_err());
    let counters = house.serving.counters();
    house.until("it is counted", |_| counters.tcp_closed(CloseReason::Failed) == 1);
    let mut other = Client::connect(server, &trusted).expect("a session");
    assert_eq!(other.ask(2, OURS), Reply::ours(2));
    assert_eq!(client.ask(3, OURS), Reply::ours(3));
}

/// A client may begin two handshakes, and no more today.
pub(crate) fn two_handshakes() -> Limits {
    Limits { handshake_burst: 2, handshake_every: Duration::from_secs(86_400), ..patient() }
}

#[test]
fn t8_a_client_that_opens_sessions_in_a_loop_is_refused_and_others_are_not() {
    let secret = Secret::new("tls-rate");
    let trusted = secret.renew();
    let (house, server) = serve(two_handshakes(), &secret.0);
    let mut open: Vec<_> = (0..2).map(|_| Client::connect(server, &trusted).unwrap()).collect();
    for _ in 0..10 {
        assert!(Client::connect(server, &trusted).is_err(), "closed before its handshake");
    }
    let counters = house.serving.counters();
    house.until("they are counted", |_| counters.tcp_closed(CloseReason::HandshakeRate) == 10);
    for (id, client) in (1..).zip(&mut open) {
        assert_eq!(client.ask(id, OURS), Reply::ours(id), "sessions that are open stay");
    }
    let tcp = std::iter::repeat_with(|| Tcp::connect(house.address()).ask(7, OURS));
    assert!(tcp.take(20).all(|reply| reply == Reply::ours(7)), "TCP has no handshakes");
    let mut other = Client::from("127.0.0.2", server, &trusted).expect("a session");
    assert_eq!(other.ask(9, OURS), Reply::ours(9), "another client has its own");
}

#[test]
fn t8_a_certificate_that_changes_on_disk_is_used_without_a_restart() {
    let secret = Secret::new("tls-renewed");
    let (_house, server) = serve(patient(), &secret.0);
    assert!(TcpStream::connect(server).is_ok(), "the port is open without a certificate");
    let first = secret.renew();
    let begin = Instant::now();
    let connect = |trusted: &CertificateDer<'static>| loop {
        if let Ok(client) = Client::connect(server, trusted) {
            return client;
        }
        assert!(begin.elapsed() < 5 * PATIENCE, "not in use");
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut old = connect(&first);
    assert_eq!(old.ask(1, OURS), Reply::ours(1));
    let second = secret.renew();
    let mut new = connect(&second);
    assert_eq!(new.ask(2, OURS), Reply::ours(2));
}

#[test]
fn t8_a_session_of_tls_is_resumed_and_offers_no_early_data() {
    let secret = Secret::new("tls-resumed");
    let mut config = trust(&secret.renew(), &[b"dot"]);
    config.enable_early_data = true;
    let config = Arc::new(config);
    let (_house, server) = serve(patient(), &secret.0);
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut client = Client::with(server, &config).expect("a session");
        assert_eq!(client.0.conn.handshake_kind(), Some(expected));
        assert!(!client.0.conn.is_early_data_accepted());
        // With the reply come the tickets of the session.
        assert_eq!(client.ask(1, OURS), Reply::ours(1));
    }
}
