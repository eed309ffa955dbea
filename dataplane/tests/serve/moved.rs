//! Connections of QUIC whose datagrams another process gets, as after a restart, or when kube-proxy moves a flow.

use std::net::SocketAddr;

use dataplane::serve::Encrypted;
use quinn::{Connection, ConnectionError};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::harness::{House, OURS, Reply, THEIRS, Tcp, query};
use crate::https::patient;
use crate::quic::{ask, connect, serve};
use crate::tls::Secret;

/// The address of a Service whose datagrams go to this server, and what moves them to another.
async fn service(first: SocketAddr) -> (SocketAddr, watch::Sender<SocketAddr>) {
    let [front, back] =
        [UdpSocket::bind("127.0.0.1:0").await, UdpSocket::bind("127.0.0.1:0").await];
    let (front, back) = (front.unwrap(), back.unwrap());
    let address = front.local_addr().unwrap();
    let (moves, server) = watch::channel(first);
    tokio::spawn(async move {
        let (mut client, mut there, mut back_here) = (None, [0; 2048], [0; 2048]);
        loop {
            tokio::select! {
                Ok((octets, from)) = front.recv_from(&mut there) => {
                    client = Some(from);
                    let server = *server.borrow();
                    back.send_to(&there[..octets], server).await.unwrap();
                }
                Ok((octets, from)) = back.recv_from(&mut back_here) => {
                    // What the server before sends has no way to the client any more.
                    let is_now = from == *server.borrow();
                    if let Some(client) = client.filter(|_| is_now) {
                        front.send_to(&back_here[..octets], client).await.unwrap();
                    }
                }
            }
        }
    });
    (address, moves)
}

#[test]
fn t8_a_connection_of_quic_that_another_process_gets_ends_at_once() {
    let secret = Secret::new("quic-moved");
    let trusted = secret.renew();
    let houses = [(); 2].map(|()| House::on(&["127.0.0.1:0"], patient()));
    let [first, second] = houses.each_ref().map(|house| {
        let served = house.serving.serve_encrypted(&Encrypted::Quic, 0, secret.0.clone());
        served.expect("a port")[0]
    });
    houses[0].runtime.block_on(async {
        let (address, moves) = service(first).await;
        let connection = connect(address, &trusted).await;
        assert!(ask(&connection, &query(0, OURS)).await.is_some());
        moves.send_replace(second);
        assert_eq!(ask(&connection, &query(0, OURS)).await, None);
        let ended = connection.closed().await;
        assert!(matches!(ended, ConnectionError::Reset), "{ended:?}");
        let again = connect(address, &trusted).await;
        let reply = ask(&again, &query(0, OURS)).await.expect("a reply");
        assert_eq!(Reply::parse(&reply), Reply::ours(0));
    });
}

/// It ends with `DOQ_NO_ERROR`.
async fn ends_in_order(connection: &Connection) {
    let ended = connection.closed().await;
    let ConnectionError::ApplicationClosed(closed) = &ended else { panic!("{ended:?}") };
    assert_eq!(closed.error_code, quinn::VarInt::from_u32(0));
}

#[test]
fn e45_connections_of_quic_end_while_their_clients_still_hear_it() {
    let (house, server, trusted, _secret) = serve(patient(), "quic-leaving");
    let mut tcp = Tcp::connect(house.address());
    assert_eq!(tcp.ask(1, OURS), Reply::ours(1));
    house.runtime.block_on(async {
        let (idle, busy) = (connect(server, &trusted).await, connect(server, &trusted).await);
        assert!(ask(&idle, &query(0, OURS)).await.is_some());
        let waits = busy.clone();
        let waiting = tokio::spawn(async move { ask(&waits, &query(0, THEIRS)).await });
        house.until("a lookup is in progress", |house| house.upstream.was_asked());
        house.serving.close_idle_quic();
        ends_in_order(&idle).await;
        // Who comes now is served: this may be the last pod.
        let late = connect(server, &trusted).await;
        for _ in 0..3 {
            assert!(ask(&late, &query(0, OURS)).await.is_some());
        }
        house.upstream.release();
        let reply = waiting.await.unwrap().expect("what was in progress is answered");
        assert_eq!(Reply::parse(&reply), Reply::theirs(0));
        ends_in_order(&busy).await;
        assert!(ask(&late, &query(0, OURS)).await.is_some());
    });
    assert_eq!(tcp.ask(2, OURS), Reply::ours(2), "TCP stays");
}
