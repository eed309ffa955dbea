//! What it costs to look after queries that may get no reply.

use std::sync::atomic::Ordering;

use super::*;
use crate::forward::overdue::tests::come_few_at_once;
use crate::forward::plan::USUAL;

#[tokio::test]
async fn l2_a_query_takes_few_closed_ports_out_of_the_queue_at_once() {
    const CLOSED: usize = 4096;
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 8192);
    let _reading = Reading::begin().expect("this thread can wait for many sockets");
    let drawn = || match server.pool.drawn(now()) {
        Ok(Drawn::Shared(port)) => port,
        _ => panic!("a port for one query"),
    };
    let (closed, next) = (drawn(), drawn());
    for _ in 0..CLOSED {
        server.pool.look_after(&closed, now());
    }
    closed.close();
    drop(closed);
    server.pool.look_after(&next, now());
    assert_eq!(server.pool.own_ports().len(), CLOSED - 2 + 1);
    // So they become fewer with each query.
    for _ in 0..CLOSED {
        server.pool.look_after(&next, now());
    }
    let kept = server.pool.own_ports();
    assert!(kept.iter().all(|(_, port)| port.strong_count() > 0), "{} are kept", kept.len());
}

/// Names without a reply are looked for every two milliseconds (L3).
#[tokio::test]
async fn l3_a_look_visits_few_ports_on_which_no_query_waits_too_long() {
    const PORTS: u32 = 64;
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), PORTS);
    let mut reading = Reading::begin().expect("this thread can wait for many sockets");
    let pool = &server.pool;
    let visits = || -> usize {
        let ports = pool.open();
        ports.all().map(|port| port.looks.load(Ordering::Relaxed)).sum()
    };
    let (sender, landed) = std::sync::mpsc::channel();
    let ask = || {
        let sender = sender.clone();
        let note = move |(), _, came: Arrived<'_>| {
            sender.send(matches!(came, Arrived::Overdue(_))).unwrap();
        };
        depart(pool, (), |(), id| query(id), note);
    };
    let clients = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..PORTS {
        ask();
        let mut octets = [0; 8];
        let (length, from) = far.recv_from(&mut octets).unwrap();
        far.send_to(&octets[..length], from).unwrap();
        reading.wait(&clients, PATIENCE).unwrap();
        reading.read();
        assert_eq!(landed.try_recv(), Ok(false), "it has its reply");
    }
    for _ in 0..3 {
        let begun = now();
        ask();
        let next = pool.overdue(now()).expect("one waits");
        assert!(next >= begun + USUAL.interval, "its time has not come");
        assert!(landed.try_recv().is_err());
        let before = visits();
        assert_eq!(pool.overdue(next), None);
        assert_eq!(landed.try_recv(), Ok(true), "it waits too long");
        let visited = visits() - before;
        assert!(visited <= 4, "{visited} of {PORTS} ports");
    }
}

/// One look begins the next sends of all that it finds, and clients wait meanwhile (row L3).
#[tokio::test(start_paused = true)]
async fn l3_few_queries_without_a_reply_are_looked_after_at_once() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Each has a port for itself, and all have one together.
    for ports in [8192, 1] {
        let (_upstreams, server) = server(far.local_addr().unwrap(), ports);
        let _reading = Reading::begin().expect("this thread can wait for many sockets");
        let (late, looks) = mpsc::unbounded_channel();
        for _ in 0..50 {
            let (late, left) = (late.clone(), now());
            let landed = move |(), _, arrived: Arrived<'_>| {
                assert!(matches!(arrived, Arrived::Overdue(_)), "{arrived:?}");
                late.send((left, now())).unwrap();
            };
            let departed = depart(&server.pool, (), |(), id| query(id), landed);
            assert!(matches!(departed, Departed::Shared));
            tokio::time::sleep(MILLISECOND).await;
        }
        come_few_at_once(50, looks).await;
    }
}

/// A look at a port on which no query waits yet would take it out for good.
#[tokio::test]
async fn fw23_a_port_is_looked_after_only_when_its_query_waits() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 8192);
    let _reading = Reading::begin().expect("this thread can wait for many sockets");
    let drawn = server.pool.drawn(now()).unwrap();
    assert!(matches!(drawn, Drawn::Shared(_)) && server.pool.own_ports().is_empty());
    let departed = depart(&server.pool, (), |(), id| query(id), |(), _, _| {});
    assert!(matches!(departed, Departed::Shared));
    assert_eq!(server.pool.own_ports().len(), 1);
}
