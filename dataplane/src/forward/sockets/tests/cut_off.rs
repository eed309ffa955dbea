//! Open sockets that lost their peer, as one that was never connected: the system says the same of both.

use super::*;
use crate::forward::ports::Open;

const PORTS: u32 = 64;

fn cut_off() -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A thread has this many open sockets, and all but this many are cut off; one query waits on each of those.
#[tokio::test]
async fn fw10_no_query_is_sent_from_a_socket_that_is_cut_off() {
    for whole in [0, 8] {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (upstreams, server) = server(far.local_addr().unwrap(), PORTS);
        let _reading = Reading::begin().expect("this thread can wait for many sockets");
        let reader = Reader::of_thread().unwrap();
        let pool = &server.pool;
        let (sender, failed) = std::sync::mpsc::channel();
        let open = || pool.common.ports().draw(pool.server, Open::default(), now());
        for _ in whole..PORTS {
            assert_eq!(open(), Draw::Pooled);
            let port = pool.add_to(&reader, cut_off(), now()).unwrap();
            let sender = sender.clone();
            let note = move |came: Arrived<'_>| {
                sender.send(matches!(came, Arrived::Failed)).unwrap();
            };
            port.call(now(), |_| Some(Box::new(note))).unwrap();
        }
        for _ in 0..whole {
            assert_eq!(open(), Draw::Pooled);
            pool.add_to(&reader, pool.opened().unwrap(), now()).unwrap();
        }
        for _ in 0..2 * PORTS {
            let landed = |(), _, came: Arrived<'_>| panic!("it was not sent: {came:?}");
            assert!(matches!(depart(pool, (), |(), id| query(id), landed), Departed::Shared));
        }
        let failed: Vec<bool> = failed.try_iter().collect();
        assert_eq!(failed, vec![true; (PORTS - whole) as usize], "they need not wait");
        let resting = (PORTS - whole) as usize;
        let total = upstreams.registry.common.ports().total();
        assert_eq!(total, pool.len() + resting, "{whole} of {PORTS}");
        let few = PORTS as usize / 2;
        assert_eq!((pool.len(), pool.open().all().any(|port| port.is_cut_off())), (few, false));
    }
}

#[tokio::test]
async fn fw10_a_task_sends_no_query_from_a_socket_that_is_cut_off() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 1);
    let pool = &server.pool;
    drop(send(pool, query).unwrap().unwrap());
    pool.open().take_all();
    pool.add(pool.registered(cut_off(), now()).unwrap(), now());
    let exchange = send(pool, query).unwrap().expect("another is opened");
    let mut octets = [0; 8];
    for _ in 0..2 {
        far.recv_from(&mut octets).await.unwrap();
    }
    assert_eq!((octets[..3].to_vec(), pool.len()), (query(exchange.id()), 1));
}

/// A server that is restarted refuses for a moment.
#[tokio::test]
async fn fw21_an_error_of_the_network_closes_no_open_socket() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_upstreams, server) = server(closed, 1);
    let mut exchange = send(&server.pool, query).unwrap().unwrap();
    assert!(matches!(next(&mut exchange).await, Arrival::Failed));
    let before = open_port(&server.pool).socket().local_addr().unwrap();
    assert!(send(&server.pool, query).unwrap().is_some());
    assert_eq!(open_port(&server.pool).socket().local_addr().unwrap(), before);
}
