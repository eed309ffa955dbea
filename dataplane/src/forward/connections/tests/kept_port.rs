//! The port of a QUIC listener that is configured, and connections over QUIC to upstreams (FW10).

use std::cell::Cell;
use std::net::{Ipv4Addr, UdpSocket};

use quinn::Endpoint;

use super::super::quic::own_port;
use super::resumed::{client_of, of_server};
use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[tokio::test]
async fn fw10_a_connection_over_quic_leaves_the_port_of_a_new_listener() {
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let listener = Endpoint::server(of_server(&made), (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let (common, ports) = (Arc::<Common>::default(), Arc::<Mutex<Vec<u16>>>::default());
    tokio::spawn(echo_quic(listener, Arc::clone(&ports)));
    let client = client_of(&made, address);
    let connections = Arc::new(Connections::new(address, client, Arc::clone(&common)));
    let asks = async || ask(&connections, asker(), Progress::Unsent, query).await.expect("a reply");
    asks().await;
    let kept = ports.lock().unwrap()[0];
    common.keep_port(Some(kept));
    // The connection that is open still answers it.
    asks().await;
    assert_eq!(ports.lock().unwrap()[..], [kept]);
    // That was its last one.
    asks().await;
    let seen = ports.lock().unwrap().clone();
    assert!(seen.len() == 2 && seen[1] != kept, "{seen:?}");
    let is_free = async {
        while UdpSocket::bind((Ipv4Addr::UNSPECIFIED, kept)).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_free).await.expect("its port is free");
}

#[test]
fn fw10_a_connection_over_quic_does_not_take_the_port_of_a_listener() {
    let kept = Cell::new(0);
    let is_kept = |port| {
        kept.set(port);
        true
    };
    let socket = own_port(ANY, is_kept).unwrap();
    assert_ne!(socket.local_addr().unwrap().port(), kept.get());
}
