//! What it costs to look after queries that may get no reply.

use super::*;

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
