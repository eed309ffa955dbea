//! Connections as queries use them, over pipes instead of sockets.

use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use super::connection::{IDLE, LINGER, MAX_AGE, Message, SILENCE};
use super::failure::Reason;
use super::placing::HANDSHAKE;
use super::*;
use crate::forward::attempt::NO_CLIENT;

mod ends;
mod few_replies;
mod waits;
mod crowd;
mod defects;
mod resumed;
mod kept_port;
mod checked_again;
mod in_order;

/// Sends back what comes on each stream of each connection over QUIC, and notes from which port each connection came.
async fn echo_quic(listener: quinn::Endpoint, ports: Arc<Mutex<Vec<u16>>>) {
    while let Some(incoming) = listener.accept().await {
        let Ok(connection) = incoming.await else { continue };
        ports.lock().unwrap().push(connection.remote_address().port());
        tokio::spawn(async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let octets = receive.read_to_end(512).await.unwrap();
                send.write_all(&octets).await.unwrap();
                send.finish().unwrap();
            }
        });
    }
}

/// A query of a lookup that sends no other one.
pub(super) fn asker() -> Asker<'static> {
    static NEXT: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
    static WAITS: AtomicBool = AtomicBool::new(true);
    Asker { client: NO_CLIENT, next: &NEXT, waits: &WAITS, is_repeat: false }
}

pub(super) fn idle() -> Arc<Connections> {
    let address = SocketAddr::from(([192, 0, 2, 1], 53));
    Arc::new(Connections::new(address, None, Arc::default()))
}

fn answer(connection: &Arc<Connection>, id: u16, now: Instant) -> bool {
    connection.answered(id, Ok(Message { octets: query(id), age_s: 0 }), now)
}

pub(super) fn query(id: u16) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

async fn read_query(far: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut octets = vec![0; far.read_u16().await.unwrap().into()];
    far.read_exact(&mut octets).await.unwrap();
    octets
}

async fn write_reply(far: &mut (impl AsyncWrite + Unpin), octets: &[u8]) {
    far.write_u16(octets.len() as u16).await.unwrap();
    far.write_all(octets).await.unwrap();
}

/// Opens connections whose other side is given to `serve`, and counts them.
struct Opener {
    connections: Arc<Connections>,
    opened: Arc<AtomicU64>,
    handshake: Duration,
}

impl Opener {
    fn new() -> Opener {
        Opener { connections: idle(), opened: Arc::default(), handshake: Duration::ZERO }
    }

    /// Sends one query, which opens a connection if there is none for it.
    async fn place<S: Future<Output = ()> + Send + 'static>(
        &self,
        serve: impl Fn(DuplexStream) -> S + Copy + Send + 'static,
    ) -> Result<Place, Failure> {
        loop {
            if let Some(place) = self.connections.place(0, query, now()) {
                return Ok(place);
            }
            let (connections, opened) = (Arc::clone(&self.connections), Arc::clone(&self.opened));
            let handshake = self.handshake;
            let opening = async move {
                if !handshake.is_zero() {
                    tokio::time::sleep(handshake).await;
                }
                opened.fetch_add(1, Ordering::Relaxed);
                let (near, far) = tokio::io::duplex(4096);
                tokio::spawn(serve(far));
                Ok(connections.keep(near))
            };
            match self.connections.place_on_new(0, query, opening).await {
                Err(failure) if failure.unsent == Some(Unsent::Taken) => {}
                placed => return placed,
            }
        }
    }

    /// The same; whether it got a reply.
    async fn ask<S: Future<Output = ()> + Send + 'static>(
        &self,
        serve: impl Fn(DuplexStream) -> S + Copy + Send + 'static,
    ) -> bool {
        match self.place(serve).await {
            Ok(place) => timeout(SILENCE / 10, place.reply()).await.is_ok_and(|it| it.is_ok()),
            Err(_) => false,
        }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Takes one query and ends the connection.
async fn close_after_a_query(mut far: DuplexStream) {
    read_query(&mut far).await;
}

/// Answers one query and ends the connection.
async fn answer_one(mut far: DuplexStream) {
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
}

/// Takes no query and never ends.
async fn stay_silent(far: DuplexStream) {
    let _far = far;
    std::future::pending().await
}

/// A pool for a server over TCP, and the listener of that server.
async fn listening() -> (Arc<Connections>, tokio::net::TcpListener) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections =
        Arc::new(Connections::new(listener.local_addr().unwrap(), None, Arc::default()));
    (connections, listener)
}

/// This many connections that have given replies, and whose server has restarted since: each ends with its next query.
pub(in crate::forward) async fn restarted(connections: &Connections, count: usize) {
    for _ in 0..count {
        let (near, mut far) = tokio::io::duplex(4096);
        let connection = connections.keep(near);
        for _ in 0..2 {
            let place = connection.place(query, now()).unwrap();
            let asked = read_query(&mut far).await;
            write_reply(&mut far, &asked).await;
            place.reply().await.unwrap();
        }
        tokio::spawn(async move { far.read_u8().await });
    }
}

/// Queries that were lost with their connections.
pub(in crate::forward) fn lost(connections: &Connections) -> u64 {
    let counted = connections.counted(now());
    counted.failures().find(|(reason, _)| *reason == "broken").map_or(0, |(_, count)| count)
}

/// As many connections with streams as there may be, each with as many queries as it takes, for as long as this is kept.
pub(in crate::forward) fn fill(connections: &Connections) -> impl Sized + use<> {
    let connections = (0..MAX_CONNECTIONS).map(|_| {
        let (connection, mut queries) = connections.add_queue(CancellationToken::new());
        let places: Vec<_> = std::iter::from_fn(|| connection.place(query, now())).collect();
        // A task would take what is sent.
        while queries.try_recv().is_ok() {}
        (places, queries)
    });
    connections.collect::<Vec<_>>()
}

#[tokio::test]
async fn fw54_replies_out_of_order_reach_their_queries_and_32_fit() {
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    connections.keep(near);
    let places: Vec<Place> = (0..32).map(|_| connections.place(0, query, now()).unwrap()).collect();
    assert!(connections.place(0, query, now()).is_none(), "no more than 32");
    let mut asked = Vec::new();
    for _ in 0..32 {
        asked.push(read_query(&mut far).await);
    }
    for octets in asked.iter().rev() {
        write_reply(&mut far, octets).await;
    }
    for place in places {
        let id = place.id;
        assert_eq!(place.reply().await.unwrap().octets, id.to_be_bytes());
    }
    assert!(connections.place(0, query, now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn fw54_a_reply_that_was_not_asked_for_closes_the_connection() {
    let start = tokio::time::Instant::now();
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    connections.keep(near);
    let place = connections.place(0, query, now()).unwrap();
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &(!place.id).to_be_bytes()).await;
    assert!(place.reply().await.is_err(), "{asked:?} is asked elsewhere");
    assert!(start.elapsed() < IDLE, "at once, and not for being idle");
    connections.close_finished();
    assert_eq!(connections.open().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_that_is_not_used_for_ten_seconds_is_closed() {
    let (near, _far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
    assert!(connection.is_open());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_that_is_closed_leaves_its_socket_at_once() {
    let start = tokio::time::Instant::now();
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    connections.keep(near).close();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    assert!(start.elapsed() < IDLE, "it does not wait to be idle");
}

#[tokio::test]
async fn fw54_a_connection_that_drains_keeps_its_place_among_32() {
    let (near, _far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    let _waits = connections.place(0, query, now()).unwrap();
    connection.retire();
    assert!(connections.place(0, query, now()).is_none());
    connections.close_finished();
    assert_eq!(connections.open().len(), 1);
    connection.close();
    while !connection.is_gone() {
        connections.close_finished();
        assert_eq!(connections.open().len(), 1, "its socket is open still");
        tokio::task::yield_now().await;
    }
    connections.close_finished();
    assert_eq!(connections.open().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn fw54_queries_that_come_together_share_new_connections() {
    let connections = idle();
    let far = Arc::new(Mutex::new(Vec::new()));
    let connect = || {
        let (connections, far) = (Arc::clone(&connections), Arc::clone(&far));
        async move {
            tokio::task::yield_now().await;
            let (near, other) = tokio::io::duplex(4096);
            far.lock().unwrap().push(other);
            Ok(connections.keep(near))
        }
    };
    let together = (0..500).map(|_| connections.place_on_new(0, query, connect()));
    let places = futures::future::join_all(together).await;
    assert!(places.iter().all(Result::is_ok));
    assert_eq!(far.lock().unwrap().len(), 500_usize.div_ceil(MAX_QUERIES));
}

#[tokio::test]
async fn fw54_a_connection_that_is_silent_gets_no_more_queries_until_a_reply() {
    let (near, _far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    let start = now();
    let at = |ms| start + Duration::from_millis(ms);
    let ask = |ms| connections.place(0, query, at(ms)).map(|place| place.id);
    let first = ask(0).unwrap();
    let second = ask(499).expect("not yet silent");
    assert_eq!(ask(500), None);
    assert!(answer(&connection, first, at(1500)));
    assert_eq!(ask(1501), None, "the other one is overdue");
    assert!(answer(&connection, second, at(2600)));
    let third = ask(2601).expect("none waits");
    assert!(answer(&connection, third, at(2700)));
    assert!(ask(60_000).is_some(), "nothing waited");
}

#[tokio::test(start_paused = true)]
async fn fw54_where_every_connection_is_silent_the_latest_is_used() {
    let connections = idle();
    let mut far = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let (near, other) = tokio::io::duplex(4096);
        far.push((connections.keep(near).place(query, now()).unwrap(), other));
    }
    tokio::time::advance(SILENCE).await;
    assert!(connections.place(0, query, now()).is_none());
    let none = async { panic!("one too many") };
    let place = connections.place_on_new(0, query, none).await.unwrap();
    assert_eq!(place.connection.number, MAX_CONNECTIONS as u64);
}

#[tokio::test]
async fn e55_a_query_for_which_every_connection_is_full_is_counted() {
    let connections = idle();
    let _kept = fill(&connections);
    let full = || connections.counted(now()).failures().find(|(reason, _)| *reason == "full");
    assert_eq!(full(), Some(("full", 0)));
    for refused in 1..3 {
        let none = async { panic!("one too many") };
        let failure = connections.place_on_new(0, query, none).await.unwrap_err();
        assert_eq!((failure.reason, full()), (Reason::Full, Some(("full", refused))));
    }
}

#[tokio::test(start_paused = true)]
async fn fw54_a_handshake_continues_without_the_query_that_began_it() {
    let connections = idle();
    let (near, _far) = tokio::io::duplex(4096);
    let opening = {
        let connections = Arc::clone(&connections);
        async move {
            tokio::time::sleep(HANDSHAKE / 2).await;
            Ok(connections.keep(near))
        }
    };
    let asked = connections.place_on_new(0, query, opening);
    assert!(timeout(HANDSHAKE / 4, asked).await.is_err(), "another server was faster");
    let unused = async { panic!("there is one already") };
    let place = connections.place_on_new(0, query, unused).await.unwrap();
    assert_eq!(place.connection.number, 1);
}

#[tokio::test(start_paused = true)]
async fn fw54_after_a_failed_handshake_none_is_tried_for_a_while() {
    let connections = idle();
    let tried = Arc::new(AtomicU64::new(0));
    let opening = |failure: Failure| {
        let tried = Arc::clone(&tried);
        async move {
            tried.fetch_add(1, Ordering::Relaxed);
            Err(failure)
        }
    };
    let together = (0..100).map(|_| connections.place_on_new(0, query, opening(Failure::broken())));
    let places = futures::future::join_all(together).await;
    assert!(places.iter().all(|place| place.is_err()));
    assert_eq!(tried.load(Ordering::Relaxed), 1, "those who waited share its end");
    tokio::time::advance(HOLD_OFF).await;
    assert!(connections.place_on_new(0, query, opening(Failure::broken())).await.is_err());
    assert_eq!(tried.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_handshake_that_does_not_end_is_given_up() {
    let connections = idle();
    let place = connections.place_on_new(0, query, std::future::pending()).await;
    assert_eq!(place.err().map(|failure| failure.reason), Some(Reason::Timeout));
    let counted = connections.counted(now());
    let failures: u64 = counted.failures().map(|(_, count)| count).sum();
    assert_eq!(failures, 1);
}

#[test]
fn fw54_a_query_that_waits_for_a_connection_does_not_hold_what_makes_it() {
    let connections = idle();
    let makes = size_of_val(&Arc::clone(&connections).connect());
    let waits = size_of_val(&ask(&connections, asker(), Progress::Unsent, query));
    assert!(waits < makes, "{waits} octets in each query, {makes} octets to make a connection");
}
