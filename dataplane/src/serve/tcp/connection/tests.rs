//! The rules of section 5.5 over an in-memory stream and a clock that only tests move.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::super::super::Limits;
use super::super::tests::{local, message, server};
use super::*;
use crate::origin::ServedOver;

struct Client {
    stream: DuplexStream,
    server: Rc<TcpServer>,
    asked: Rc<Cell<usize>>,
    ended: JoinHandle<CloseReason>,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A connection whose two directions each hold this many octets under way.
fn connect(limits: Limits, octets: usize) -> Client {
    let (server, asked) = server(limits);
    let (stream, ended) = connect_to(&server, octets);
    Client { stream, server, asked, ended }
}

fn connect_to(server: &Rc<TcpServer>, octets: usize) -> (DuplexStream, JoinHandle<CloseReason>) {
    connect_from("10.0.0.1:5353", server, octets)
}

fn connect_from(
    peer: &str,
    server: &Rc<TcpServer>,
    octets: usize,
) -> (DuplexStream, JoinHandle<CloseReason>) {
    let (stream, ours) = tokio::io::duplex(octets);
    let peer: SocketAddr = peer.parse().expect("address");
    let permit = server.table.admit(peer.ip()).expect("a permit");
    let asker = Asker { client: peer, server: peer, over: ServedOver::Tcp };
    let mut connection = Connection::new(Rc::clone(server), ours, asker, permit);
    (stream, tokio::task::spawn_local(async move { connection.run().await }))
}

/// The next reply, without its prefix.
async fn reply(stream: &mut DuplexStream) -> Vec<u8> {
    let octets = stream.read_u16().await.expect("prefix");
    let mut reply = vec![0; octets.into()];
    stream.read_exact(&mut reply).await.expect("reply");
    reply
}

async fn reply_id(stream: &mut DuplexStream) -> u16 {
    let reply = reply(stream).await;
    u16::from_be_bytes([reply[0], reply[1]])
}

impl Client {
    async fn send(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).await.expect("write");
    }

    async fn reply_id(&mut self) -> u16 {
        reply_id(&mut self.stream).await
    }

    /// Why the connection ended, and that the client sees the end.
    async fn ended(mut self) -> CloseReason {
        let reason = (&mut self.ended).await.expect("no panic");
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.expect("end");
        reason
    }
}

#[test]
fn wr41_pipelined_queries_are_all_answered_in_any_pieces() {
    local(async {
        let all: Vec<u8> = (0..50).flat_map(|id| message(id, b"e-some-name")).collect();
        for piece in [1, 2, 3, 13, 24, 25, 26, 500, all.len()] {
            let mut client = connect(Limits::default(), 1 << 16);
            for octets in all.chunks(piece) {
                client.send(octets).await;
                tokio::task::yield_now().await;
            }
            for id in 0..50 {
                assert_eq!(client.reply_id().await, id, "pieces of {piece}");
            }
        }
    });
}

#[test]
fn wr41_own_answers_overtake_slow_lookups() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        client.send(&message(1, &[b'l', 3])).await;
        client.send(&message(2, &[b'l', 1])).await;
        client.send(&message(3, b"e")).await;
        let mut order = Vec::new();
        for _ in 0..3 {
            order.push(client.reply_id().await);
        }
        assert_eq!(order, [3, 2, 1]);
    });
}

#[test]
fn wr42_an_idle_connection_is_closed_after_10_s() {
    local(async {
        let start = Instant::now();
        let mut client = connect(Limits::default(), 1 << 16);
        sleep(seconds(7)).await;
        client.send(&message(1, b"e")).await;
        client.reply_id().await;
        assert_eq!(client.ended().await, CloseReason::Idle);
        // Its query made it the most recently used.
        assert_eq!(start.elapsed().as_secs(), 17);
    });
}

#[test]
fn wr42_waiting_for_an_upstream_is_not_idling() {
    local(async {
        let start = Instant::now();
        let mut client = connect(Limits::default(), 1 << 16);
        client.send(&message(1, &[b'l', 30])).await;
        assert_eq!(client.reply_id().await, 1);
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(client.ended().await, CloseReason::Idle);
        assert_eq!(start.elapsed().as_secs(), 40);
    });
}

#[test]
fn wr42_t3_a_message_has_3_s_from_its_first_octet_however_it_trickles() {
    local(async {
        // One octet a second: in the length prefix, and in the body.
        for sent_before in [0, 5] {
            let mut client = connect(Limits::default(), 1 << 16);
            client.send(&message(9, b"e")).await;
            client.reply_id().await;
            let slow = message(1, b"e-a-long-name");
            let start = Instant::now();
            let (first, rest) = slow.split_at(sent_before);
            client.send(first).await;
            for octet in rest {
                if client.stream.write_all(&[*octet]).await.is_err() {
                    break;
                }
                sleep(seconds(1)).await;
            }
            assert_eq!(client.ended().await, CloseReason::SlowMessage);
            let seen = start.elapsed().as_secs();
            assert!((3..=4).contains(&seen), "seen at the next octet: {seen} s");
        }
    });
}

#[test]
fn wr42_each_message_has_its_own_time() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        let text = message(1, b"e");
        // Always in the middle of a message, each of which takes 2 s.
        client.send(&text[..7]).await;
        for _ in 0..10 {
            sleep(seconds(2)).await;
            client.send(&text[7..]).await;
            client.send(&text[..7]).await;
            assert_eq!(client.reply_id().await, 1);
        }
        assert_eq!(client.ended().await, CloseReason::SlowMessage);
    });
}

#[test]
fn wr42_t4_a_client_that_never_reads_is_closed_and_costs_two_replies_at_most() {
    local(async {
        let start = Instant::now();
        let mut client = connect(Limits::default(), 1 << 14);
        for id in 0..1000 {
            client.send(&message(id, b"b")).await;
        }
        let reason = (&mut client.ended).await.expect("no panic");
        assert_eq!(reason, CloseReason::SlowReader);
        assert_eq!(start.elapsed().as_secs(), 5);
        assert!(client.asked.get() <= 3, "{} answered", client.asked.get());
    });
}

#[test]
fn wr42_a_slow_reader_that_makes_progress_gets_everything() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 14);
        for id in 0..10 {
            client.send(&message(id, b"b")).await;
        }
        let mut got = 0;
        while got < 10 * 60_002 {
            sleep(seconds(2)).await;
            got += client.stream.read(&mut [0; 30_000]).await.expect("read");
        }
        assert_eq!(client.ended().await, CloseReason::Idle);
    });
}

#[test]
fn wr43_t5_lengths_below_a_header_close_once_earlier_queries_are_answered() {
    local(async {
        for length in [0, 1, 11] {
            let mut client = connect(Limits::default(), 1 << 16);
            client.send(&message(1, &[b'l', 1])).await;
            client.send(&message(2, b"e")).await;
            client.send(&[0, length]).await;
            client.send(&message(3, b"e")).await;
            assert_eq!(client.reply_id().await, 2);
            assert_eq!(client.reply_id().await, 1);
            let asked = Rc::clone(&client.asked);
            assert_eq!(client.ended().await, CloseReason::NotAQuery);
            assert_eq!(asked.get(), 2, "nothing after it is read");
        }
    });
}

#[test]
fn n1_what_is_no_query_closes() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        client.send(&message(1, b"?")).await;
        assert_eq!(client.ended().await, CloseReason::NotAQuery);
    });
}

#[test]
fn t5_a_client_that_ends_its_side_still_gets_its_answers() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        client.send(&message(1, &[b'l', 2])).await;
        client.send(&message(2, b"e")[..5]).await;
        client.stream.shutdown().await.expect("shutdown");
        assert_eq!(client.reply_id().await, 1);
        assert_eq!(client.ended().await, CloseReason::Client);
    });
}

#[test]
fn wr45_an_old_connection_is_closed_once_nothing_is_in_progress() {
    local(async {
        let start = Instant::now();
        let mut client = connect(Limits::default(), 1 << 16);
        let mut last = Duration::ZERO;
        // A client that asks every 2 s and waits 1 s for each answer.
        while client.stream.write_all(&message(1, &[b'l', 1])).await.is_ok() {
            let answer = timeout(seconds(5), client.stream.read(&mut [0; 64])).await;
            if answer.expect("an answer or the end").expect("read") == 0 {
                break;
            }
            last = start.elapsed();
            sleep(seconds(1)).await;
        }
        assert_eq!(client.ended().await, CloseReason::Age);
        assert!((238..=362).contains(&last.as_secs()), "{last:?}");
    });
}

#[test]
fn wr45_connections_that_are_opened_together_end_apart() {
    local(async {
        let (server, _) = server(Limits::default());
        let peer: SocketAddr = "10.0.0.1:5353".parse().expect("address");
        let open = |_| {
            let asker = Asker { client: peer, server: peer, over: ServedOver::Tcp };
            let permit = server.table.admit(peer.ip()).expect("a permit");
            let (_, stream) = tokio::io::duplex(1);
            Connection::new(Rc::clone(&server), stream, asker, permit).old
        };
        let old: Vec<Instant> = (0..20).map(open).collect();
        let apart = *old.iter().max().expect("some") - *old.iter().min().expect("some");
        assert!(apart > seconds(30), "{apart:?}");
    });
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        client.send(&message(1, b"b")).await;
        client.send(&message(2, b"e")).await;
        client.reply_id().await;
        client.reply_id().await;
        sleep(seconds(1)).await;
        assert_eq!(client.server.counters.tcp_buffered.load(Relaxed), 0);
    });
}

mod lookups;
mod buffers;
mod draining;
mod client_turns;
