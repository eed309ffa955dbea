//! Connections over TLS between two ends of this process: records, full sockets, many threads at once.

use std::io::Write;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::connection::IDLE;
use super::super::tests::idle;
use super::super::{Connections, Outlet, Together};
use super::*;
use crate::forward::now;

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// The type of a record that carries data (RFC 8446 §5.1).
const DATA: u8 = 23;

/// A kept connection, and its other end. `prepare` gets both sockets before the handshake.
async fn connected(
    prepare: impl Fn(&TcpStream),
) -> (Arc<Connections>, Arc<Connection>, TlsStream<TcpStream>) {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    [&near, &far].into_iter().for_each(prepare);
    let name = ServerName::try_from("dns.example").unwrap();
    let (near, far) = tokio::join!(
        TlsConnector::from(Arc::new(client)).connect(name, near),
        TlsAcceptor::from(Arc::new(server)).accept(far)
    );
    let connections = idle();
    let connection = connections.keep_tls(near.unwrap());
    (connections, connection, far.unwrap())
}

/// The other end as it sees records: how many with data have come, and the messages in them.
struct Records {
    tcp: TcpStream,
    tls: ServerConnection,
    records: usize,
    plain: Vec<u8>,
}

impl Records {
    fn of(stream: TlsStream<TcpStream>) -> Records {
        let (tcp, tls) = stream.into_inner();
        Records { tcp, tls, records: 0, plain: Vec::new() }
    }

    /// Reads one record.
    async fn read(&mut self) {
        let mut record = vec![0; 5];
        timeout(PATIENCE, self.tcp.read_exact(&mut record)).await.expect("a record").unwrap();
        self.records += usize::from(record[0] == DATA);
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        self.tcp.read_exact(&mut record[5..]).await.unwrap();
        let mut octets = &record[..];
        while !octets.is_empty() {
            self.tls.read_tls(&mut octets).unwrap();
            let state = self.tls.process_new_packets().unwrap();
            let start = self.plain.len();
            self.plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.plain[start..]).unwrap();
        }
    }

    /// This many messages.
    async fn messages(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (mut at, mut messages) = (0, Vec::new());
        while messages.len() < count {
            match message_at(&self.plain, at) {
                Some(message) => {
                    messages.push(message.to_vec());
                    at += PREFIX + message.len();
                }
                None => self.read().await,
            }
        }
        self.plain.drain(..at);
        messages
    }

    /// Sends these messages in one record.
    async fn reply(&mut self, messages: &[Vec<u8>]) {
        for message in messages {
            self.tls.writer().write_all(&(message.len() as u16).to_be_bytes()).unwrap();
            self.tls.writer().write_all(message).unwrap();
        }
        let mut octets = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut octets).unwrap();
        }
        self.tcp.write_all(&octets).await.unwrap();
    }
}

/// A query of this length.
fn long(octets: usize) -> impl Fn(u16) -> Vec<u8> {
    move |id| {
        let mut query = vec![0; octets];
        query[..2].copy_from_slice(&id.to_be_bytes());
        query
    }
}

#[tokio::test]
async fn fw54_queries_that_leave_together_take_one_record_and_so_may_their_replies() {
    let (connections, _, far) = connected(|_| {}).await;
    let mut far = Records::of(far);
    let places: Vec<_> = {
        let _together = Together::begin();
        (0..10).map(|_| connections.place(0, long(100), now()).unwrap()).collect()
    };
    let asked = far.messages(10).await;
    assert_eq!(far.records, 1);
    far.reply(&asked).await;
    for place in places {
        let id = place.id;
        let reply = timeout(PATIENCE, place.reply()).await.expect("a reply").unwrap();
        assert_eq!(reply.octets, long(100)(id));
    }
    let _alone = [(); 2].map(|()| connections.place(0, long(100), now()).unwrap());
    far.messages(2).await;
    assert_eq!(far.records, 3, "at once");
}

#[tokio::test]
async fn fw54_queries_that_the_system_does_not_take_leave_when_it_has_room() {
    // All together more than rustls holds by itself, 64 KiB.
    const OCTETS: usize = 4_000;
    let small = |tcp: &TcpStream| {
        SockRef::from(tcp).set_send_buffer_size(1).unwrap();
        SockRef::from(tcp).set_recv_buffer_size(1).unwrap();
    };
    let (connections, connection, far) = connected(small).await;
    let places: Vec<_> =
        (0..32).map(|_| connections.place(0, long(OCTETS), now()).unwrap()).collect();
    let Outlet::Tls(tls) = connection.outlet() else { panic!("it is over TLS") };
    assert!(tls.is_blocked(), "not all of it was taken");
    let mut far = Records::of(far);
    for asked in far.messages(32).await {
        assert_eq!(asked.len(), OCTETS);
        far.reply(&[asked]).await;
    }
    for place in places {
        timeout(PATIENCE, place.reply()).await.expect("a reply").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fw54_queries_of_many_threads_on_one_connection_all_leave() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    let (connections, connection, far) = connected(|_| {}).await;
    let mut far = Records::of(far);
    tokio::spawn(async move {
        loop {
            let asked = far.messages(1).await;
            far.reply(&asked).await;
        }
    });
    let runtime = Handle::current();
    let ask = move || {
        for _ in 0..ROUNDS {
            let places: Vec<_> = {
                let _together = Together::begin();
                (0..8).filter_map(|_| connections.place(0, long(100), now())).collect()
            };
            for place in places {
                let reply = runtime.block_on(async { timeout(PATIENCE, place.reply()).await });
                reply.expect("a query did not leave").unwrap();
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(ask.clone())).collect();
    let joined = tokio::task::spawn_blocking(|| threads.into_iter().all(|it| it.join().is_ok()));
    assert!(joined.await.unwrap());
    assert!(connection.is_open() && connection.in_progress() == 0);
}

#[tokio::test]
async fn fw54_a_query_that_comes_while_the_session_is_in_use_leaves_after_that() {
    let (connections, connection, far) = connected(|_| {}).await;
    let Outlet::Tls(tls) = connection.outlet() else { panic!("it is over TLS") };
    tls.while_used(|| _ = connections.place(0, long(100), now()).unwrap());
    assert_eq!(Records::of(far).messages(1).await.len(), 1, "without another query or a reply");
}

#[tokio::test]
async fn fw54_a_session_in_which_tls_panics_is_one_that_ended() {
    let (connections, connection, _far) = connected(|_| {}).await;
    let Outlet::Tls(tls) = connection.outlet() else { panic!("it is over TLS") };
    let place = connections.place(0, long(100), now()).unwrap();
    let panics = || tls.while_used(|| panic!("a defect"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    tls.send();
    // The next question to it ends it, also where there is nothing to send.
    assert!(tls.is_gone());
    let ended = timeout(PATIENCE, place.reply()).await.expect("it does not wait");
    assert!(ended.is_err_and(|failure| failure.is_loss()));
    assert!(connection.is_closed());
    connections.close_finished();
    assert!(connections.open().is_empty(), "others are made");
}

#[tokio::test]
async fn fw54_who_waits_for_a_session_in_use_keeps_no_query_waiting() {
    let (connections, connection, _far) = connected(|_| {}).await;
    let Outlet::Tls(tls) = connection.outlet() else { panic!("it is over TLS") };
    let (looks, asks) = (Arc::clone(&connections), Arc::clone(&connections));
    let mut threads = Vec::new();
    tls.while_used(|| {
        threads.push(std::thread::spawn(move || looks.close_finished()));
        // It waits for the session.
        std::thread::sleep(Duration::from_millis(100));
        let (has_asked, answers) = std::sync::mpsc::channel();
        threads.push(std::thread::spawn(move || {
            let _open = asks.open();
            has_asked.send(()).unwrap();
        }));
        answers.recv_timeout(PATIENCE).expect("the list of connections is free");
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(connection.is_open());
}

#[tokio::test]
async fn fw54_the_end_of_a_server_closes_the_socket_and_fails_what_waits() {
    let (connections, connection, mut far) = connected(|_| {}).await;
    let place = connections.place(0, long(100), now()).unwrap();
    far.shutdown().await.unwrap();
    let ended = timeout(PATIENCE, place.reply()).await.expect("it does not wait");
    assert!(ended.is_err_and(|failure| failure.is_loss()));
    while !connection.is_gone() {
        tokio::task::yield_now().await;
    }
    // It is closed, and not only shut down by the other end.
    let closed = async { while far.read(&mut [0; 64]).await.is_ok_and(|octets| octets > 0) {} };
    timeout(PATIENCE, closed).await.expect("the end of the stream");
}

/// The runtime has not heard of them yet.
#[tokio::test]
async fn fw54_replies_that_came_over_tls_before_a_write_fails_are_read() {
    let (connections, _, far) = connected(|_| {}).await;
    let mut far = Records::of(far);
    let answered = connections.place(0, long(100), now()).unwrap();
    let asked = far.messages(1).await;
    far.reply(&asked).await;
    SockRef::from(&far.tcp).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let late = connections.place(0, long(100), now()).unwrap();
    let reply = timeout(PATIENCE, answered.reply()).await.expect("its end");
    assert!(reply.is_ok(), "{reply:?}");
    let late = timeout(PATIENCE, late.reply()).await.expect("its end");
    assert!(late.is_err_and(|failure| failure.is_loss()));
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_of_tls_is_closed_after_ten_seconds_idle_or_without_a_reply() {
    let (_connections, connection, _far) = connected(|_| {}).await;
    tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
    assert!(connection.is_open());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!connection.is_open());

    let (connections, _, _far) = connected(|_| {}).await;
    let (start, waits) = (now(), connections.place(0, long(100), now()).unwrap());
    let ended = timeout(2 * IDLE, waits.reply()).await.expect("it is dead");
    assert!(ended.is_err_and(|failure| failure.is_loss()) && now() - start >= IDLE);
}
