//! A process that does not run for a while and continues (L9).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::harness::{PATIENCE, address, wait_for};
use crate::load::{is_answer, query};
use crate::{CART, serving};

/// Fewer than the kernel queues for a socket of the default size.
const QUEUED: u16 = 50;
/// WR46: what waited longer is dropped, as its client has given up.
const STALE: Duration = Duration::from_secs(4);
/// WR42: a connection on which nothing comes for this time is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Connections of a cache that asks over TCP.
const KEPT: u16 = 16;

#[test]
fn l9_after_a_stop_what_waited_too_long_is_dropped_and_the_rest_answered() {
    let (_folder, process) = serving();
    process.wait_for_answer(CART, address("10.96.0.1"));
    let clients: Vec<UdpSocket> = (0..2)
        .map(|_| {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.set_read_timeout(Some(STALE)).unwrap();
            client
        })
        .collect();
    process.stop();
    for id in 0..QUEUED {
        clients[0].send_to(&query(id), process.dns).unwrap();
    }
    // The kernel measures how long each waited, so this time must really pass; nothing can be polled meanwhile.
    std::thread::sleep(STALE + Duration::from_millis(200));
    let mut reply = [0; 1500];
    let mut id = 1000;
    wait_for("a reply to a query that did not wait", || {
        id += 1;
        clients[1].send_to(&query(id), process.dns).unwrap();
        // Only now, so that the first of them is behind the stale ones in the queue.
        process.signal("CONT");
        // On a busy machine it may have waited too long as well: then the next one is asked.
        let (octets, _) = clients[1].recv_from(&mut reply).ok()?;
        is_answer(&reply[..octets], id).then_some(())
    });
    let stale = || process.metric("clusterdns_udp_stale_total");
    wait_for("the stale ones to be counted", || (stale() >= f64::from(QUEUED)).then_some(()));
    clients[0].set_nonblocking(true).unwrap();
    assert!(clients[0].recv_from(&mut reply).is_err(), "a stale query has no reply");
}

#[test]
fn l9_wr42_after_a_stop_kept_connections_with_unread_queries_are_answered() {
    let (_folder, process) = serving();
    process.wait_for_answer(CART, address("10.96.0.1"));
    let framed = |id| [&(query(id).len() as u16).to_be_bytes()[..], &query(id)].concat();
    let answered = |client: &mut TcpStream, id| {
        let mut length = [0; 2];
        client.read_exact(&mut length).unwrap_or_else(|error| panic!("query {id}: {error}"));
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut reply).unwrap();
        assert!(is_answer(&reply, id), "query {id}");
    };
    let mut clients: Vec<TcpStream> = (0..KEPT)
        .map(|id| {
            let mut client = TcpStream::connect(process.dns).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(&framed(id)).unwrap();
            answered(&mut client, id);
            client
        })
        .collect();
    process.stop();
    for (id, client) in (KEPT..).zip(&mut clients) {
        client.write_all(&framed(id)).unwrap();
    }
    // Past this time each connection would be idle without its query. Nothing can be polled meanwhile.
    std::thread::sleep(IDLE + Duration::from_millis(200));
    process.signal("CONT");
    for (id, client) in (KEPT..).zip(&mut clients) {
        answered(client, id);
    }
}
