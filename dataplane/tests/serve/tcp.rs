//! Streams. The deadlines are tested where the clock can be moved; here is what needs the kernel.

use std::io::Write;
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dataplane::forward::{Limit, Upstreams};
use dataplane::serve::{CloseReason, Limits};
use dataplane::state::Published;

use crate::harness::{House, OURS, Reply, STUB, THEIRS, Tcp, config, query};

const FORMERR: u8 = 1;
const SERVFAIL: u8 = 2;

#[test]
fn wr41_t6_own_answers_overtake_lookups_on_one_connection() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut client = Tcp::connect(house.address());
    client.send(&query(1, THEIRS));
    client.send(&query(2, OURS));
    assert_eq!(client.receive(), Reply::ours(2));
    house.upstream.release();
    assert_eq!(client.receive(), Reply::theirs(1));
}

#[test]
fn wr41_t6_a_thousand_pipelined_queries_are_each_answered_once() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    house.upstream.release();
    let mut client = Tcp::connect(house.address());
    let mut writer = Tcp(client.0.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 0..1000 {
                writer.send(&query(id, if id % 5 == 0 { THEIRS } else { OURS }));
            }
        });
        let mut seen: Vec<u16> = Vec::new();
        for _ in 0..1000 {
            let reply = client.receive();
            let expected = match reply.id % 5 {
                0 => Reply::theirs(reply.id),
                _ => Reply::ours(reply.id),
            };
            assert_eq!(reply, expected);
            seen.push(reply.id);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<u16>>());
    });
}

#[test]
fn fw53_what_needs_no_lookup_is_answered_at_once_behind_a_hundred_that_do() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut client = Tcp::connect(house.address());
    assert_eq!(client.ask(1, STUB), Reply::theirs(1));
    let slow = 100..200;
    slow.clone().for_each(|id| client.send(&query(id, &format!("name-{id}.example.org"))));
    assert_eq!(client.ask(2, OURS), Reply::ours(2));
    assert_eq!(client.ask(3, STUB), Reply::theirs(3), "from the cache");
    assert_eq!(house.forwarder.in_flight(), 64, "the others have no place before their turn");
    house.upstream.release();
    let mut replies: Vec<Reply> = slow.clone().map(|_| client.receive()).collect();
    replies.sort_by_key(|reply| reply.id);
    assert_eq!(replies, slow.map(Reply::theirs).collect::<Vec<_>>());
}

#[test]
fn wr43_formerr_keeps_the_connection() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut client = Tcp::connect(house.address());
    let mut no_question = query(1, OURS);
    no_question[5] = 0;
    client.send(&no_question);
    assert_eq!(client.receive(), Reply { id: 1, rcode: FORMERR, address: None });
    assert_eq!(client.ask(2, OURS), Reply::ours(2));
}

#[test]
fn wr43_n1_no_message_and_no_query_close_the_connection() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut response = query(1, OURS);
    response[2] |= 0x80;
    for (number, message) in [&b""[..], &response[..11], &response].into_iter().enumerate() {
        let mut client = Tcp::connect(house.address());
        assert_eq!(client.ask(9, OURS), Reply::ours(9));
        client.send(message);
        assert!(client.is_closed(), "after {message:?}");
        house.until("it is counted", |house| {
            house.serving.counters().tcp_closed(CloseReason::NotAQuery) == number as u64 + 1
        });
    }
}

#[test]
fn t5_half_a_message_and_the_end_leaks_nothing() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    for _ in 0..20 {
        let mut client = Tcp::connect(house.address());
        client.0.write_all(&[0, 40, 1, 2, 3]).unwrap();
        client.0.shutdown(Shutdown::Write).unwrap();
        assert!(client.is_closed());
    }
    house.until("nothing is open", |house| {
        let counters = house.serving.counters();
        counters.tcp_open.load(Ordering::Relaxed) == 0
            && counters.tcp_buffered.load(Ordering::Relaxed) == 0
            && counters.tcp_closed(CloseReason::Client) == 20
    });
}

#[test]
fn wr44_t1_a_client_past_its_limit_loses_its_oldest_idle_connection() {
    let limits = Limits { tcp_connections_per_client: 3, ..Limits::default() };
    let house = House::on(&["127.0.0.1:0"], limits);
    let mut clients: Vec<Tcp> = Vec::new();
    for id in 0..4 {
        let mut client = Tcp::connect(house.address());
        assert_eq!(client.ask(id, OURS), Reply::ours(id));
        clients.push(client);
    }
    assert!(clients[0].is_closed());
    for (id, client) in clients.iter_mut().enumerate().skip(1) {
        assert_eq!(client.ask(id as u16, OURS), Reply::ours(id as u16));
    }
    house.until("it is counted", |house| {
        house.serving.counters().tcp_closed(CloseReason::EvictedByClient) == 1
    });
}

#[test]
fn limits_may_change_while_serving() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut first = Tcp::connect(house.address());
    assert_eq!(first.ask(1, OURS), Reply::ours(1));
    house.serving.set_limits(Limits { tcp_connections: 1, ..Limits::default() });
    let mut second = Tcp::connect(house.address());
    assert_eq!(second.ask(2, OURS), Reply::ours(2));
    assert!(first.is_closed());
    house.until("it is counted", |house| {
        house.serving.counters().tcp_closed(CloseReason::Evicted) == 1
    });
    house.serving.set_limits(Limits { tcp_connections: 0, ..Limits::default() });
    assert!(second.is_closed(), "although no other connection needs its place");
}

#[test]
fn wr44_one_clients_queries_at_a_silent_upstream_cost_no_other_its_own() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let greedy: Vec<Tcp> = (0..6)
        .map(|_| {
            let mut client = Tcp::connect(house.address());
            // More than are taken at a time, so that those that are given up are followed by others.
            (0..640).for_each(|id| client.send(&query(id, THEIRS)));
            client
        })
        .collect();
    house.until("all six wait", |house| house.forwarder.in_flight() >= 6 * 64 - 1);
    let mut other = Tcp::connect(house.address());
    assert_eq!(other.ask(1, STUB), Reply::theirs(1));
    assert_eq!(house.forwarder.limited(Limit::TcpBuffers), 0);
    drop(greedy);
}

#[test]
fn n20_a_lookup_without_room_is_servfail_at_once_and_counted() {
    let limits = Limits { tcp_buffer_bytes: 1000, ..Limits::default() };
    let house = House::on(&["127.0.0.1:0"], limits);
    let mut client = Tcp::connect(house.address());
    assert_eq!(client.ask(1, THEIRS), Reply { id: 1, rcode: SERVFAIL, address: None });
    assert_eq!(house.forwarder.limited(Limit::TcpBuffers), 1);
    assert_eq!(client.ask(2, OURS), Reply::ours(2), "what is ours needs no room");
    assert!(!house.upstream.was_asked());
}

#[test]
fn a34_who_serves_is_never_asked_itself() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let records = house.state.published.load().records.clone();
    let itself = config(house.address(), house.upstream.address);
    let upstreams = Arc::new(Upstreams::of(&itself, Path::new("")));
    house.state.published.store(Arc::new(Published { records, upstreams }));
    let mut client = Tcp::connect(house.address());
    assert_eq!(client.ask(1, THEIRS), Reply { id: 1, rcode: SERVFAIL, address: None });
    let unresolved: Vec<_> = house.forwarder.unresolved().filter(|(_, count)| *count > 0).collect();
    assert_eq!(unresolved, [("no_server", 1)], "asked once, and no other server");
}
