//! The system gives no more sockets: queries leave from those that are open.

use super::super::opening::REFUSAL;
use super::*;

/// The port from which the only query came.
fn port_of_query(far: &std::net::UdpSocket) -> u16 {
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far.recv_from(&mut [0; 8]).expect("the query leaves").1.port()
}

fn number(port: &Port) -> u16 {
    port.socket().local_addr().unwrap().port()
}

/// A query that may have a port of its own needs none.
#[tokio::test]
async fn fw10_a_query_without_a_socket_of_its_own_leaves_from_an_open_one() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 8192);
    for code in [libc::EMFILE, libc::ENFILE, libc::ENOSPC, libc::ENOBUFS] {
        REFUSAL.set(Some(code));
        let refused = send(&server.pool, query).expect_err("none is open");
        assert_eq!(refused.raw_os_error(), Some(code));
    }
    REFUSAL.set(None);
    let open = server.pool.pooled(None, now()).unwrap();
    let before = upstreams.registry.common.ports().total();
    REFUSAL.set(Some(libc::ENFILE));
    let exchange = send(&server.pool, query).unwrap();
    assert!(matches!(exchange, Some(Exchange::Shared(_))), "{exchange:?}");
    assert_eq!(port_of_query(&far), number(&open));
    let common = &upstreams.registry.common;
    assert_eq!((common.ports().total(), common.shared_draws()), (before, 1), "no port is taken");
    assert!(!common.says_no_socket(now()), "the log has it already");
}

/// The same for a thread that reads its own sockets.
#[tokio::test]
async fn fw10_a_thread_without_a_new_socket_asks_from_an_open_one() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 8192);
    let _reading = Reading::begin().expect("this thread can wait for many sockets");
    let departs =
        || depart(&server.pool, (), |(), id| query(id), |(), _, came: Arrived<'_>| drop(came));
    REFUSAL.set(Some(libc::ENFILE));
    assert!(matches!(departs(), Departed::NoPort(())), "none is open");
    assert!(!upstreams.registry.common.says_no_socket(now()), "the log has it already");
    REFUSAL.set(None);
    let open = server.pool.pooled(Reader::of_thread().as_ref(), now()).unwrap();
    REFUSAL.set(Some(libc::ENFILE));
    assert!(matches!(departs(), Departed::Shared));
    assert_eq!(port_of_query(&far), number(&open));
}
