//! What requests hold and when they count as work, with the scripted server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering;

use hyper::body::{Body, Buf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::super::super::Limits;
use super::super::super::certificate::Certificate;
use super::super::super::certificate::testing::{signed_there, trusting};
use super::super::super::traffic::ServedOver;
use super::super::https::body::Reply;
use super::super::https::{REQUEST_OCTETS, SESSION_OCTETS};
use super::super::tests::{local, patient, server, with_handshake_thread};
use super::super::tls::Secured;
use super::super::{HttpPath, accept};
use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// A type of frame, and what it may say (RFC 9113 §6.5).
const SETTINGS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;

fn requests() -> (Rc<TcpServer>, Rc<Requests>) {
    requests_with(Limits::default())
}

fn requests_with(limits: Limits) -> (Rc<TcpServer>, Rc<Requests>) {
    let (server, _) = server(limits);
    let requests = connect_to(&server);
    (server, requests)
}

fn connect_to(server: &Rc<TcpServer>) -> Rc<Requests> {
    connect_from(CLIENT, 0, server)
}

/// A session of this client that counts as this many octets.
fn connect_from(client: IpAddr, octets: usize, server: &Rc<TcpServer>) -> Rc<Requests> {
    let address = SocketAddr::new(client, 1);
    let asker = Asker { client: address, server: address, over: ServedOver::Https };
    let permit = server.table.admit_session(client, octets).unwrap();
    Requests::new(Rc::clone(server), asker, permit, REQUEST_OCTETS)
}

fn held(server: &TcpServer) -> u64 {
    server.counters.tcp_buffered.load(Ordering::Relaxed)
}

/// A message of this many octets; see [`server`] for its kinds.
fn message(octets: usize, kind: u8) -> Vec<u8> {
    let mut message = vec![0; octets];
    message[12] = kind;
    message
}

/// One whose reply comes after this many seconds.
fn slow(kind: u8, seconds: u8) -> Vec<u8> {
    let mut message = message(20, kind);
    message[13] = seconds;
    message
}

#[test]
fn t4_a_reply_over_https_counts_until_its_last_octet_is_written() {
    local(async {
        let (server, requests) = requests();
        let mut work = requests.begin();
        let reply = requests.reply(message(20, b'b'), &mut work).await.unwrap();
        let mut body = Reply::new(reply.message, work);
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let mut waiting = frame.unwrap().unwrap().into_data().ok().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        // HTTP/2 keeps it from here on, for as long as its client takes nothing.
        let all = 60_000 + REQUEST_OCTETS as u64;
        assert_eq!((waiting.remaining(), held(&server)), (60_000, all));
        assert!(requests.permit.quiet_since().is_none(), "work in progress");
        waiting.advance(59_999);
        assert_eq!(held(&server), all, "all of it is there until its end");
        drop(waiting);
        assert_eq!(held(&server), 0);
        assert!(requests.permit.quiet_since().is_some());
    });
}

#[test]
fn wr44_each_request_counts_its_stream_and_task_also_the_first_ones() {
    local(async {
        let (server, requests) = requests();
        let mut begun = Vec::new();
        for count in 1..=STREAMS as usize {
            let mut work = requests.begin();
            match count % 3 {
                0 => work.arrives(0),
                1 => work.hold(0),
                _ => work.written(0),
            }
            begun.push(work);
            assert_eq!(held(&server), (count * REQUEST_OCTETS) as u64, "{count} requests");
        }
        begun.truncate(10);
        assert_eq!(held(&server), 10 * REQUEST_OCTETS as u64, "the others have ended");
        drop(begun);
        assert_eq!(held(&server), 0);
    });
}

#[test]
fn wr44_64_requests_at_once_are_served_beside_a_client_that_fills_the_buffers() {
    local(async {
        let (server, requests) = requests();
        // Unread requests of another client, on as many connections as fill the buffers.
        let greedy: Vec<_> = (0..Limits::default().tcp_connections_per_client)
            .map(|_| {
                let greedy = connect_from(OTHER, SESSION_OCTETS, &server);
                let begun: Vec<Work> = (0..AT_ONCE).map(|_| greedy.begin()).collect();
                (greedy, begun)
            })
            .collect();
        let closed = greedy.iter().filter(|(greedy, _)| greedy.permit.gives_way()).count();
        assert!(closed > 0, "they hold more than there is room for");
        let most = Limits::default().tcp_buffer_bytes as u64;
        assert!(held(&server) <= most, "{} octets", held(&server));
        let begun: Vec<Work> = (0..AT_ONCE).map(|_| requests.begin()).collect();
        assert!(!requests.permit.is_paused(), "none of them is refused");
        assert!(!requests.permit.gives_way() && requests.permit.has_room(WAITING_OCTETS));
        drop((begun, greedy));
        assert_eq!(held(&server), 0);
    });
}

#[test]
fn wr44_replies_of_one_lookup_over_https_are_written_in_turns() {
    local(async {
        let (server, requests) = requests();
        let waiting = (0..64).map(|_| {
            let requests = Rc::clone(&requests);
            async move {
                let mut work = requests.begin();
                let reply = requests.reply(slow(b'S', 1), &mut work).await.unwrap();
                (reply.message.len(), requests.server.turns.ended())
            }
        });
        let replies = futures::future::join_all(waiting).await;
        assert!(replies.iter().all(|(octets, _)| *octets == 60_000));
        let mut turns: Vec<u64> = replies.into_iter().map(|(_, turn)| turn).collect();
        turns.sort_unstable();
        turns.dedup();
        assert!(turns.len() >= 32, "two at most in each turn of their client: {turns:?}");
        assert_eq!(held(&server), 0);
    });
}

#[test]
fn wr41_64_lookups_at_a_time_and_the_others_of_a_connection_in_their_order() {
    local(async {
        let (server, requests) = requests();
        let begun = Instant::now();
        let asks = |message: Vec<u8>| {
            let requests = Rc::clone(&requests);
            async move {
                let mut work = requests.begin();
                requests.reply(message, &mut work).await.unwrap();
                (begun.elapsed().as_secs(), held(&requests.server))
            }
        };
        let slow = futures::future::join_all((0..100).map(|_| asks(slow(b'l', 2))));
        let own = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            asks(message(20, b'e')).await
        };
        let (slow, own) = futures::join!(slow, own);
        let took: Vec<u64> = slow.into_iter().map(|(took, _)| took).collect();
        assert_eq!((&took[..64], &took[64..]), (&[2; 64][..], &[4; 36][..]));
        let all = 64 * WAITING_OCTETS + 36 * LATER_OCTETS + 101 * REQUEST_OCTETS;
        assert_eq!(own, (0, all as u64), "at once, and all of them count");
        assert_eq!(held(&server), 0);
    });
}

#[test]
fn wr44_a_request_of_a_connection_that_is_closed_gets_no_reply_of_an_upstream() {
    local(async {
        let (_server, requests) = requests();
        let mut work = requests.begin();
        let closes = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            requests.permit.hold(64 << 20);
        };
        let (reply, ()) = futures::join!(requests.reply(slow(b'S', 1), &mut work), closes);
        assert!(requests.permit.gives_way(), "it holds too much");
        assert_eq!(reply, Err(Unanswered::GivesWay), "no defect");
    });
}

#[test]
fn n20_wr44_a_request_without_room_for_its_lookup_is_answered_at_once() {
    local(async {
        let room = REQUEST_OCTETS + WAITING_OCTETS;
        for (tcp_buffer_bytes, octets) in [(room, 20), (room - 1, 12)] {
            let (_server, requests) =
                requests_with(Limits { tcp_buffer_bytes, ..Limits::default() });
            let mut work = requests.begin();
            let reply = requests.reply(slow(b'l', 1), &mut work).await;
            assert_eq!(reply.map(|reply| reply.message.len()), Ok(octets), "{tcp_buffer_bytes}");
        }
    });
}

#[test]
fn wr44_requests_without_a_reply_take_of_the_share_of_their_client_too() {
    use futures::FutureExt;
    local(async {
        let (server, greedy) = requests();
        let other = connect_from(OTHER, 0, &server);
        let read = (0..10_000).take_while(|_| greedy.turn().now_or_never().is_some()).count();
        assert_eq!(read, 128, "in one turn, of 512 octets each");
        assert!(other.turn().now_or_never().is_some(), "others have their own share");
        greedy.turn().await;
        assert!(greedy.turn().now_or_never().is_some(), "the next turn");
    });
}

#[test]
fn l15_a_request_whose_rest_has_not_come_is_no_work() {
    local(async {
        let (server, requests) = requests();
        let mut half = requests.begin();
        half.arrives(100);
        let come = held(&server) - REQUEST_OCTETS as u64;
        assert_eq!(come, 100, "what has come, not what was announced");
        let begun = requests.permit.waits_since().expect("it waits for its client");
        assert!(requests.permit.quiet_since().is_none(), "a message has begun");
        tokio::time::sleep(Duration::from_secs(1)).await;
        half.arrives(200);
        assert_eq!(requests.permit.waits_since(), Some(begun), "octets make it no younger");
        let mut work = requests.begin();
        work.hold(1);
        assert!(requests.permit.waits_since().is_none());
        drop((half, work));
        assert!(requests.permit.waits_since().is_some());
    });
}

#[test]
fn wr44_a_request_that_waits_for_its_turn_does_not_wait_for_its_client() {
    local(async {
        let (_server, requests) = requests();
        let waits = || requests.permit.waits_since().is_some();
        assert!(waits(), "idle");
        let mut request = requests.begin();
        assert!(!waits(), "it may be complete: its turn has not come");
        request.arrives(12);
        assert!(waits(), "some of it is missing");
        request.hold(12);
        assert!(!waits(), "complete, and it waits for its turn");
    });
}

/// Where the process stood still, its timers run before it has read what came meanwhile.
#[test]
fn wr42_l9_what_is_read_just_after_a_deadline_still_keeps_the_connection() {
    for is_asked in [false, true] {
        local(async {
            let (server, requests) = requests();
            let deadlines = server.table.deadlines();
            let work = is_asked.then(|| requests.begin());
            let (due, reason) = match is_asked {
                false => (deadlines.idle, CloseReason::Idle),
                true => (2 * deadlines.write, CloseReason::SlowReader),
            };
            let begun = Instant::now();
            let client = async {
                tokio::time::sleep(due + LOOK_AGAIN / 2).await;
                match &work {
                    Some(work) => work.moves(),
                    None => drop(requests.begin()),
                }
            };
            let (ending, ()) = futures::join!(requests.closing(false), client);
            assert!(matches!(ending, Ending::Now(ended) if ended == reason));
            assert!(begun.elapsed() >= 2 * due, "{reason:?} after {:?}", begun.elapsed());
        });
    }
}

/// How HTTP/2 has a client wait with one more; a listener for QUIC has its own test.
#[test]
fn wr41_t6_a_client_of_http_2_learns_how_many_requests_may_be_in_progress() {
    let (tls, chain, _) = signed_there(b"h2");
    with_handshake_thread(patient(), async move |server| {
        let listener = TcpListener::bind((CLIENT, 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let http_path = Some(HttpPath::default());
        let secured = Secured { certificate: Arc::new(Certificate::of(tls)), http_path };
        let accepting = tokio::task::spawn_local(accept(server, listener, Some(secured)));
        let connector = TlsConnector::from(Arc::new(trusting(&chain, b"h2")));
        let session = connector.connect("dns.example".try_into().unwrap(), stream).await;
        let mut session = session.unwrap();
        session.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        session.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
        session.flush().await.unwrap();
        let mut head = [0; 9];
        session.read_exact(&mut head).await.unwrap();
        assert_eq!((head[0], head[1], head[3]), (0, 0, SETTINGS), "they come first");
        let mut settings = vec![0; head[2].into()];
        session.read_exact(&mut settings).await.unwrap();
        let value = |setting: u16| {
            let mut all = settings.chunks_exact(6);
            let found = all.find(|it| it[..2] == setting.to_be_bytes())?;
            Some(u32::from_be_bytes([found[2], found[3], found[4], found[5]]))
        };
        assert_eq!(value(MAX_CONCURRENT_STREAMS), Some(STREAMS));
        accepting.abort();
    });
}

#[test]
fn wr45_connections_of_https_and_quic_that_are_opened_together_end_apart() {
    local(async {
        let (server, _) = server(Limits::default());
        let old: Vec<Instant> = (0..20).map(|_| connect_to(&server).old).collect();
        let apart = *old.iter().max().unwrap() - *old.iter().min().unwrap();
        assert!(apart > Duration::from_secs(30), "{apart:?}");
    });
}

#[test]
fn wr45_age_a_drain_and_a_lower_limit_are_each_counted_as_what_they_are() {
    local(async {
        let (server, requests) = requests();
        let now = Instant::now();
        assert_eq!(requests.leaves(now), None);
        assert_eq!(requests.leaves(requests.old), Some(CloseReason::Age));
        drop(requests.begin());
        server.table.set_limits(Limits { tcp_connections: 0, ..Limits::default() });
        assert_eq!(requests.leaves(now), Some(CloseReason::Evicted));
        server.draining.set(true);
        assert_eq!(requests.leaves(now), Some(CloseReason::Drain));
    });
}

#[test]
fn e45_a_drain_lets_a_connection_that_was_just_opened_ask_once() {
    local(async {
        let (server, requests) = requests();
        let begun = Instant::now();
        server.drain();
        let ending = requests.closing(false).await;
        assert!(matches!(ending, Ending::WhenDone(CloseReason::Drain)));
        let took = begun.elapsed();
        assert!((FIRST_QUERY_WITHIN..2 * FIRST_QUERY_WITHIN).contains(&took), "{took:?}");
    });
    local(async {
        let (server, requests) = requests();
        let begun = Instant::now();
        server.drain();
        let asks = async { drop(requests.begin()) };
        let (ending, ()) = futures::join!(requests.closing(false), asks);
        assert!(matches!(ending, Ending::WhenDone(CloseReason::Drain)));
        assert!(begun.elapsed() < FIRST_QUERY_WITHIN, "it has asked");
    });
}
