//! Nothing is left in a socket that a task reads: on some kernels a datagram behind one that was left wakes no one.

use super::*;

#[tokio::test]
async fn fw10_a_second_datagram_is_read_also_where_no_query_waits() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 1);
    let exchange = send(&server.pool, query).unwrap().unwrap();
    let (reply, from) = (query(exchange.id()), far.recv_from(&mut [0; 8]).unwrap().1);
    drop(exchange);
    let port = open_port(&server.pool);
    // No task runs between the two: both lie there when the first one is read.
    for _ in 0..2 {
        far.send_to(&reply, from).unwrap();
    }
    let is_empty = async {
        let has_more = || port.socket().peek(&mut [0; 8]).is_ok();
        while has_more() {
            tokio::time::sleep(MILLISECOND).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_empty).await.expect("both are read");
}
