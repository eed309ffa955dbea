//! Connections to servers of HTTP/2 that take no bodies, say GOAWAY, or allow few streams.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::config;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::super::connection::IDLE;
use super::super::failure::Reason;
use super::super::pause::HOLD_OFF;
use super::super::tests::{asker, idle, query};
use super::super::{Client, Connections, Progress};
use super::*;
use crate::forward::server_identity::ServerIdentity;

/// How long a reply may take on a busy machine that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that answers each request before its body, which it never lets us send.
async fn answers_early(io: impl AsyncRead + AsyncWrite + Unpin) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let answer = service_fn(move |request: Request<Incoming>| {
        kept.lock().unwrap().push(request);
        let body = Full::new(Bytes::from_static(&[0, 0]));
        let response = Response::builder().header(CONTENT_TYPE, MEDIA_TYPE).body(body);
        async move { response }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    server.initial_stream_window_size(0);
    let _ = server.serve_connection(TokioIo::new(io), answer).await;
}

/// A pool, and its one connection, which is carried over this stream.
async fn carried(near: tokio::io::DuplexStream) -> (Arc<Connections>, Arc<Connection>) {
    let (sender, driver, end) = begin(near).await.unwrap();
    let connections = idle();
    let (connection, queries) = connections.add_queue(end.disarm());
    tokio::spawn(carry(Arc::clone(&connection), sender, driver, "https://a/".into(), queries));
    (connections, connection)
}

/// A pool, its one connection to such a server, and the server, which ends with the connection.
async fn connected() -> (Arc<Connections>, Arc<Connection>, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(4096);
    let server = tokio::spawn(answers_early(far));
    let (connections, connection) = carried(near).await;
    (connections, connection, server)
}

#[tokio::test]
async fn fw54_a_server_that_takes_no_request_bodies_keeps_no_connection_open() {
    let (connections, connection, server) = connected().await;
    for _ in 0..8 {
        let place = connections.place(0, query, now()).unwrap();
        place.reply().await.unwrap();
    }
    connection.close();
    server.await.unwrap();
}

#[tokio::test]
async fn fw54_requests_that_a_server_does_not_take_are_bounded() {
    let (connections, _, server) = connected().await;
    let mut replies = 0;
    while let Some(place) = connections.place(0, query, now()) {
        replies += usize::from(place.reply().await.is_ok());
        assert!(replies < MAX_TASKS, "each leaves a task");
    }
    server.await.unwrap();
}

/// What the test server waits for, and what it reports.
#[derive(Debug)]
struct Slow {
    /// A permit for each reply.
    replies: Semaphore,
    /// A permit for each request that came.
    taken: Semaphore,
    /// Notified when the test server must send GOAWAY.
    goes: Notify,
}

/// A pool, its one connection to such a server that allows this many streams, and the server.
async fn connected_to_slow(streams: u32) -> (Arc<Connections>, Arc<Connection>, Arc<Slow>) {
    let slow = Slow { replies: Semaphore::new(1), taken: Semaphore::new(0), goes: Notify::new() };
    let (slow, (near, far)) = (Arc::new(slow), tokio::io::duplex(4096));
    let served = Arc::clone(&slow);
    tokio::spawn(async move {
        let of_requests = Arc::clone(&served);
        let answer = service_fn(move |_: Request<Incoming>| {
            let slow = Arc::clone(&of_requests);
            async move {
                slow.taken.add_permits(1);
                slow.replies.acquire().await.unwrap().forget();
                let body = Full::new(Bytes::from_static(&[0, 0]));
                Response::builder().header(CONTENT_TYPE, MEDIA_TYPE).body(body)
            }
        });
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.max_concurrent_streams(streams);
        let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(far), answer));
        tokio::select! {
            _ = &mut serving => return,
            () = served.goes.notified() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    });
    let (connections, connection) = carried(near).await;
    (connections, connection, slow)
}

#[tokio::test]
async fn fw54_what_a_server_took_before_goaway_is_answered_and_the_rest_asked_elsewhere() {
    let (connections, connection, slow) = connected_to_slow(100).await;
    connections.place(0, query, now()).unwrap().reply().await.unwrap();
    let taken = [(); 3].map(|()| connections.place(0, query, now()).unwrap());
    let _ = slow.taken.acquire_many(4).await.unwrap();
    slow.goes.notify_one();
    // It is noticed by the next query: that one is lost, and may be asked again.
    let mut late = Vec::new();
    while connection.is_open() {
        late.extend(connections.place(0, query, now()));
        tokio::task::yield_now().await;
    }
    // The one that noticed it does not wait for anything: while the server still has others, the connection is not idle.
    let lost = tokio::time::timeout(PATIENCE, late.pop().expect("a query noticed it").reply());
    assert!(lost.await.expect("at once").is_err_and(|failure| failure.is_loss()));
    slow.replies.add_permits(100);
    for place in taken {
        place.reply().await.expect("the server took it");
    }
    for place in late {
        let ended = place.reply().await;
        assert!(ended.as_ref().is_ok() || ended.is_err_and(|failure| failure.is_loss()));
    }
    while !connection.is_gone() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn fw54_a_server_that_allows_few_streams_gets_no_more_queries_at_once() {
    let (connections, _, _slow) = connected_to_slow(3).await;
    // Its settings come with its first reply at the latest.
    connections.place(0, query, now()).unwrap().reply().await.unwrap();
    while connections.place(0, query, now()).is_some() {
        tokio::task::yield_now().await;
    }
    let most = connections.open().iter().map(|it| it.in_progress()).max();
    assert_eq!(most, Some(3));
}

#[tokio::test]
async fn fw54_a_connection_that_allows_no_stream_ends_and_none_is_made_at_once() {
    let (connections, connection, _slow) = connected_to_slow(0).await;
    let (start, mut places) = (std::time::Instant::now(), Vec::new());
    while connection.is_open() {
        places.extend(connections.place(0, query, now()));
        tokio::task::yield_now().await;
    }
    assert!(start.elapsed() < IDLE, "at once, and not for being idle");
    for place in places {
        assert!(place.reply().await.is_err());
    }
    let another = async { panic!("not at once") };
    assert!(connections.place_on_new(0, query, another).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_of_http_is_closed_after_ten_seconds_idle_or_without_a_reply() {
    let (_connections, connection, _slow) = connected_to_slow(100).await;
    tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
    assert!(connection.is_open());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!connection.is_open());

    let (connections, _, _slow) = connected_to_slow(100).await;
    connections.place(0, query, now()).unwrap().reply().await.unwrap();
    let (start, waits) = (now(), connections.place(0, query, now()).unwrap());
    let ended = tokio::time::timeout(2 * IDLE, waits.reply()).await.expect("it is dead");
    assert!(ended.is_err_and(|failure| failure.is_loss()) && now() - start >= IDLE);
}

/// The chunk that a frame came in; it says when it is given back.
struct Chunk(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body of this many frames of one octet each, and how many chunks are held.
async fn of_small_frames(frames: usize) -> (Result<Vec<u8>, Failure>, usize) {
    let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&held), Arc::clone(&most));
    let frames = (0..frames).map(move |_| {
        peak.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let octet = Bytes::from_owner(Chunk(vec![7; 1024], Arc::clone(&counted))).split_to(1);
        Ok::<_, std::convert::Infallible>(Frame::data(octet))
    });
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    let read = collect(body, &Held::default()).await;
    (read, most.load(Ordering::Relaxed))
}

#[tokio::test]
async fn fw54_a_reply_in_the_smallest_frames_holds_its_octets_and_no_more() {
    let (read, chunks) = of_small_frames(MAX_BODY).await;
    assert_eq!((read.unwrap().len(), chunks), (MAX_BODY, 1));
    assert!(of_small_frames(MAX_BODY + 1).await.0.is_err(), "too large");
}

#[test]
fn fw2_only_the_media_type_of_dns_is_a_reply() {
    let of = |value: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]);
    assert!(is_message(&of("application/dns-message")));
    assert!(is_message(&of("Application/DNS-Message; charset=utf-8")));
    for other in ["text/html", "application/dns-json", "", "application/dns-messages"] {
        assert!(!is_message(&of(other)), "{other}");
    }
    assert!(!is_message(&HeaderMap::new()));
}

#[test]
fn ca2_the_age_of_http_is_whole_seconds_and_nonsense_is_none() {
    let of = |value: &'static str| HeaderMap::from_iter([(AGE, value.parse().unwrap())]);
    let cases = [("0", 0), (" 50 ", 50), ("99999999999", u32::MAX), ("-1", 0), ("x", 0), ("", 0)];
    for (text, age) in cases {
        assert_eq!(age_s(&of(text)), age, "{text}");
    }
}

/// A pool for a server over HTTPS, its listener, and its side of TLS, which chooses one of these protocols.
async fn served(protocols: &[&[u8]]) -> (Arc<Connections>, TcpListener, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ca_bundle = Some(config::CaBundle::Pem(made.cert.pem()));
    let tls = Some(config::ServerTls { server_name: "dns.example".into(), ca_bundle });
    let identity = ServerIdentity { address, transport: config::Transport::Https, tls };
    let connections =
        Arc::new(Connections::new(address, Client::new(&identity).unwrap(), Arc::default()));
    (connections, listener, TlsAcceptor::from(Arc::new(server)))
}

#[tokio::test]
async fn fw2_a_server_that_does_not_choose_http2_is_asked_nothing() {
    // It knows no ALPN.
    let (connections, listener, tls) = served(&[]).await;
    let came = tokio::spawn(async move {
        let (far, _) = listener.accept().await.unwrap();
        let mut far = tls.accept(far).await.unwrap();
        let mut octets = Vec::new();
        // The other side may end without saying so.
        let _ = far.read_to_end(&mut octets).await;
        octets
    });
    let failure =
        super::super::ask(&connections, asker(), Progress::Unsent, query).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Handshake);
    assert_eq!(came.await.unwrap(), [0; 0]);
}

/// Waits for the first request, and says GOAWAY without an error: the last that it took is this one (RFC 9113 §6.8).
async fn go_away(io: &mut (impl AsyncRead + AsyncWrite + Unpin), last: u8) {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    io.read_exact(&mut [0; PREFACE]).await.unwrap();
    while io.read_exact(&mut head).await.is_ok() && head[3] != HEADERS {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        io.read_exact(&mut vec![0; length]).await.unwrap();
    }
    let goaway = [&[0, 0, 8, 7, 0, 0, 0, 0, 0][..], &[0, 0, 0, last], &[0; 4]].concat();
    let _ = io.write_all(&goaway).await;
}

/// Takes none.
async fn goes_at_once(mut io: tokio::io::DuplexStream) {
    go_away(&mut io, 0).await;
    let _ = io.read_to_end(&mut Vec::new()).await;
}

/// Takes one, and answers it somewhat later.
async fn goes_after_one(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    go_away(&mut io, 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    // 200, and the content-type as text behind its number (RFC 7541 §6.1, §6.2.2); then the body.
    let fields = [&[0x88, 0x0f, 0x10, 23][..], MEDIA_TYPE.as_bytes()].concat();
    let head = [0, 0, fields.len() as u8, 1, 4, 0, 0, 0, 1];
    let body = [0, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0];
    let _ = io.write_all(&[&head[..], &fields, &body].concat()).await;
    let _ = io.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn fw54_a_server_that_says_goaway_after_each_first_request_answers_all() {
    const QUERIES: usize = 20;
    let (connections, listener, tls) = served(&[b"h2"]).await;
    tokio::spawn(async move {
        loop {
            let (far, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move { goes_after_one(tls.accept(far).await.unwrap()).await });
        }
    });
    let asks =
        (0..QUERIES).map(|_| super::super::ask(&connections, asker(), Progress::Unsent, query));
    let all = futures::future::join_all(asks).await;
    assert_eq!(all.iter().filter(|reply| reply.is_ok()).count(), QUERIES, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn fw54_a_server_that_says_goaway_without_a_reply_has_its_pause_too() {
    let (connections, opened) = (idle(), Arc::new(AtomicUsize::new(0)));
    let (start, mut asked) = (tokio::time::Instant::now(), 0);
    while start.elapsed() < 10 * HOLD_OFF {
        let (of_pool, counted) = (Arc::clone(&connections), Arc::clone(&opened));
        let opening = async move {
            counted.fetch_add(1, Ordering::Relaxed);
            let (near, far) = tokio::io::duplex(4096);
            tokio::spawn(goes_at_once(far));
            let (sender, driver, end) = begin(near).await?;
            let (connection, queries) = of_pool.add_queue(end.disarm());
            let uri = "https://a/".into();
            tokio::spawn(carry(Arc::clone(&connection), sender, driver, uri, queries));
            Ok(connection)
        };
        let place = match connections.place(0, query, now()) {
            Some(place) => Ok(place),
            None => connections.place_on_new(0, query, opening).await,
        };
        if let Ok(place) = place {
            assert!(place.reply().await.is_err());
        }
        asked += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let opened = opened.load(Ordering::Relaxed);
    assert!(asked > 1000 && opened <= 11, "{asked}, {opened}");
}
