//! UDP: which datagrams get a reply, and what is dropped.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dataplane::serve::{Deadlines, Limits};
use dataplane_core::Reason;

use crate::harness::{House, OURS, Reply, THEIRS, Tcp, query, receive, udp};

#[test]
fn wr40_udp_and_tcp_answer_alike_on_every_address() {
    let house = House::on(&["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"], Limits::default());
    for &address in house.serving.local_addrs() {
        assert_eq!(Tcp::connect(address).ask(1, OURS), Reply::ours(1), "TCP {address}");
        if address.is_ipv4() {
            let client = udp();
            client.send_to(&query(2, OURS), address).unwrap();
            assert_eq!(receive(&client), (Reply::ours(2), address));
        }
    }
}

#[test]
fn wr8_replies_leave_from_the_address_asked_now_and_later() {
    let house = House::on(&["0.0.0.0:0"], Limits::default());
    house.upstream.release();
    let client = udp();
    for (id, ip) in [(1, [127, 0, 0, 2]), (2, [127, 9, 9, 9])] {
        let asked = SocketAddr::from((ip, house.address().port()));
        client.send_to(&query(id, OURS), asked).unwrap();
        assert_eq!(receive(&client), (Reply::ours(id), asked));
        client.send_to(&query(id, THEIRS), asked).unwrap();
        assert_eq!(receive(&client), (Reply::theirs(id), asked));
    }
}

#[test]
fn fw53_own_answers_do_not_wait_for_upstreams() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    client.send_to(&query(1, THEIRS), house.address()).unwrap();
    house.until("the upstream is asked", |house| house.upstream.was_asked());
    client.send_to(&query(2, OURS), house.address()).unwrap();
    assert_eq!(receive(&client).0, Reply::ours(2));
    house.upstream.release();
    assert_eq!(receive(&client).0, Reply::theirs(1));
}

#[test]
fn wr46_a_query_that_waited_too_long_is_dropped_and_counted() {
    // Every datagram has waited too long.
    let deadlines = Deadlines { stale: Duration::ZERO, ..Deadlines::default() };
    let house = House::on(&["127.0.0.1:0"], Limits { deadlines, ..Limits::default() });
    let client = udp();
    client.send_to(&query(1, OURS), house.address()).unwrap();
    house.until("it is counted", |house| {
        house.serving.counters().udp_stale.load(Ordering::Relaxed) == 1
    });
    assert_eq!(house.serving.queries_seen(), 0);
    client.set_nonblocking(true).unwrap();
    assert!(client.recv(&mut [0; 512]).is_err(), "dropped, yet answered");
}

#[test]
fn w1_w2_what_is_no_query_gets_silence_and_keeps_no_drain_waiting() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    let mut response = query(1, OURS);
    response[2] |= 0x80;
    for silent in [&response[..], &response[..11], b""] {
        client.send_to(silent, house.address()).unwrap();
    }
    client.send_to(&query(2, OURS), house.address()).unwrap();
    // In order: the reply to the last shows that the others had none.
    assert_eq!(receive(&client).0, Reply::ours(2));
    let worker = &house.state.counters[0];
    assert_eq!((worker.count(Reason::IsResponse), worker.count(Reason::Short)), (1, 2));
    assert_eq!(house.serving.queries_seen(), 1);
}

#[test]
fn e45_queries_of_both_transports_are_seen() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    for id in 0..5 {
        client.send_to(&query(id, OURS), house.address()).unwrap();
        receive(&client);
    }
    let mut tcp = Tcp::connect(house.address());
    for id in 0..3 {
        tcp.ask(id, OURS);
    }
    assert_eq!(house.serving.queries_seen(), 8);
}
