//! The end: nothing that was taken is lost (E45, D1).

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use dataplane::serve::{CloseReason, Limits};

use crate::harness::{House, OURS, PATIENCE, Reply, THEIRS, Tcp, query, receive, udp};

#[test]
fn e45_queries_in_progress_finish_and_the_ports_are_free() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let (address, datagrams, mut stream) = (house.address(), udp(), Tcp::connect(house.address()));
    datagrams.send_to(&query(1, THEIRS), address).unwrap();
    stream.send(&query(2, THEIRS));
    house.until("both are taken", |house| house.serving.queries_seen() == 2);
    let House { serving, upstream, runtime, .. } = house;
    let stopping = runtime.spawn(serving.stop(PATIENCE));
    upstream.release();
    assert_eq!(receive(&datagrams).0, Reply::theirs(1));
    assert_eq!(stream.receive(), Reply::theirs(2));
    assert!(stream.is_closed());
    runtime.block_on(stopping).unwrap();
    UdpSocket::bind(address).expect("UDP is free");
    assert!(TcpListener::bind(address).is_ok(), "TCP is free");
}

#[test]
fn d3_datagrams_that_came_before_the_stop_are_answered() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    for id in 0..200 {
        client.send_to(&query(id, OURS), house.address()).unwrap();
    }
    house.runtime.block_on(house.serving.stop(PATIENCE));
    for id in 0..200 {
        assert_eq!(receive(&client).0, Reply::ours(id));
    }
}

#[test]
fn e45_idle_connections_close_at_the_drain_and_busy_ones_after_their_answers() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let (mut idle, mut busy) = (Tcp::connect(house.address()), Tcp::connect(house.address()));
    assert_eq!(idle.ask(1, OURS), Reply::ours(1));
    busy.send(&query(2, THEIRS));
    house.until("it is taken", |house| house.serving.queries_seen() == 2);
    house.serving.close_idle_tcp();
    assert!(idle.is_closed());
    assert_eq!(Tcp::connect(house.address()).ask(3, OURS), Reply::ours(3), "new ones are answered");
    house.upstream.release();
    assert_eq!(busy.receive(), Reply::theirs(2));
    assert!(busy.is_closed());
    house.until("they are counted", |house| {
        house.serving.counters().tcp_closed(CloseReason::Drain) == 3
    });
}

#[test]
fn the_grace_of_a_stop_ends_what_does_not() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let mut stream = Tcp::connect(house.address());
    stream.send(&query(1, THEIRS));
    house.until("it is taken", |house| house.serving.queries_seen() == 1);
    let start = Instant::now();
    house.runtime.block_on(house.serving.stop(Duration::from_millis(50)));
    assert!(start.elapsed() < PATIENCE);
    assert!(stream.is_closed(), "given up");
}

#[test]
fn dropping_it_ends_it_too() {
    let House { serving, runtime, .. } = House::on(&["127.0.0.1:0"], Limits::default());
    let mut stream = Tcp::connect(serving.local_addrs()[0]);
    assert_eq!(stream.ask(1, OURS), Reply::ours(1));
    drop(serving);
    assert!(stream.is_closed());
    drop(runtime);
}
