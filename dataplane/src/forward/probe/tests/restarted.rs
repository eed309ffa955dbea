//! Probes of a server that has restarted since its connections were used.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::forward::connections::tests::{lost, restarted};

#[tokio::test]
async fn fw27_a_probe_over_connections_of_before_a_restart_finds_the_server_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstreams = suspected(listener.local_addr().unwrap());
    let server = &upstreams.known()[0];
    restarted(&server.connections, 8).await;
    tokio::spawn(async move {
        let (mut far, _) = listener.accept().await.unwrap();
        let mut octets = vec![0; far.read_u16().await.unwrap().into()];
        far.read_exact(&mut octets).await.unwrap();
        (octets[2], octets[3]) = (0x81, 0x80);
        far.write_u16(octets.len() as u16).await.unwrap();
        far.write_all(&octets).await.unwrap();
    });
    let key = LookupKey::new(Name::ROOT, 2, false, false);
    let probed = ask(&key, server, server.transport(), true).await;
    assert!(matches!(probed, Probed::Reply { .. }), "{probed:?}");
    assert_eq!(lost(&server.connections), 1, "and none on the other seven");
}
