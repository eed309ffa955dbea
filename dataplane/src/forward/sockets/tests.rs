//! Sockets against a server on loopback that answers what the test says.

use std::collections::BTreeSet;
use std::path::Path;

use crds::config::{self, Config, Group, GroupOptions};

use super::*;
use crate::forward::upstreams::Upstreams;

/// Only so that a failure ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server at this address, with this many ports for all of it.
fn server(address: SocketAddr, ports: u32) -> (Upstreams, Arc<Server>) {
    let transport = config::Transport::Udp;
    let server = config::Server { ip: address.ip(), port: address.port(), transport, tls: None };
    let group = Group { servers: vec![server], options: GroupOptions::default() };
    let mut config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
    config.limits.upstream_ports = ports;
    let upstreams = Upstreams::of(&config, Path::new(""));
    let server = Arc::clone(&upstreams.known()[0]);
    (upstreams, server)
}

fn query(id: u16) -> Vec<u8> {
    [&id.to_be_bytes()[..], b"?"].concat()
}

async fn next(exchange: &mut Exchange) -> Arrival {
    tokio::time::timeout(PATIENCE, exchange.next()).await.expect("something arrives")
}

#[tokio::test]
async fn fw21_a_closed_port_is_noticed_without_waiting_for_a_reply() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for ports in [8192, 1] {
        let (_upstreams, server) = server(closed, ports);
        let mut exchange = send(&server, query).unwrap().unwrap();
        assert!(matches!(next(&mut exchange).await, Arrival::Failed), "of {ports} ports");
    }
}

#[tokio::test]
async fn fw10_at_the_bound_queries_share_ports_and_get_their_own_replies() {
    const QUERIES: usize = 64;
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 8);
    let mut exchanges: Vec<Exchange> =
        (0..QUERIES).map(|_| send(&server, query).unwrap().unwrap()).collect();
    let mut asked = Vec::new();
    for _ in 0..QUERIES {
        let mut octets = [0; 8];
        let (length, from) = far.recv_from(&mut octets).await.unwrap();
        asked.push((octets[..length].to_vec(), from));
    }
    let ports: BTreeSet<SocketAddr> = asked.iter().map(|(_, from)| *from).collect();
    assert_eq!(ports.len(), 8);
    assert_eq!(upstreams.registry.common.shared_draws(), QUERIES as u64 - 8);
    assert_eq!(upstreams.registry.common.ports().total(), 8);
    for (octets, from) in asked.iter().rev() {
        far.send_to(octets, from).await.unwrap();
    }
    for exchange in &mut exchanges {
        let expected = query(exchange.id());
        assert!(matches!(next(exchange).await, Arrival::Datagram(octets) if octets == expected));
    }
}

#[tokio::test]
async fn fw13_a_stray_datagram_on_a_shared_port_is_counted_once_and_known_to_all() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 1);
    let mut exchanges: Vec<Exchange> =
        (0..3).map(|_| send(&server, query).unwrap().unwrap()).collect();
    let (_, from) = far.recv_from(&mut [0; 8]).await.unwrap();
    let ids: BTreeSet<u16> = exchanges.iter().map(Exchange::id).collect();
    assert_eq!(ids.len(), 3, "each its own id");
    let stray = (0..=u16::MAX).find(|id| !ids.contains(id)).unwrap();
    far.send_to(&query(stray), from).await.unwrap();
    for exchange in &mut exchanges {
        assert!(matches!(next(exchange).await, Arrival::Stray));
    }
    assert_eq!(upstreams.discarded(Discard::Id), 1);
}

#[tokio::test]
async fn fw10_a_pooled_socket_is_closed_when_nobody_used_it_for_thirty_seconds() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 2);
    let exchange = send(&server, query).unwrap().unwrap();
    let start = now();
    server.pool.sweep(&server, start + MAX_AGE);
    assert_eq!(server.pool.open().len(), 1, "a query waits on it");
    drop(exchange);
    server.pool.sweep(&server, start + REST / 2);
    assert_eq!(server.pool.open().len(), 1, "it was used");
    server.pool.sweep(&server, start + 2 * REST);
    assert_eq!(server.pool.open().len(), 0);
}
