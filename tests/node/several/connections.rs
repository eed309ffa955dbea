//! What the kernels of living nodes remember of TCP connections to a dead pod. kube-proxy removes entries of UDP only. A new
//! connection from the port of such an entry is led to the dead pod for as long as the entry lives, two minutes after the last
//! packet.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};
use tests::node::Node;

use super::phases::Dead;
use super::{clients, phases};
use crate::site::Site;

/// Longer than a connection takes that is answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Says how many there are, and what a connection from the port of one of them gets.
pub(super) fn say_remembered(site: &Site, living: &[&Node], dead: &Dead) {
    for node in living {
        let ports = ports(node, dead);
        let Some(&port) = ports.first() else {
            continue;
        };
        let network = clients::network(site, node);
        let server = SocketAddr::new(dead.cluster_ip.parse().expect("an address"), 53);
        let outcomes = [port, 0].map(|port| match connects(&network, port, server) {
            true => "is answered",
            false => "is not answered",
        });
        site.say(&format!(
            "{}: {} TCP connections to the dead pod of {} are remembered; a new one from the port of one of them {}, from \
             another port it {}",
            node.name(),
            ports.len(),
            dead.service,
            outcomes[0],
            outcomes[1]
        ));
    }
}

/// The ports of the client from which its kernel would lead a new connection to the dead pod.
fn ports(node: &Node, dead: &Dead) -> Vec<u16> {
    let entries = phases::remembered(node, dead, "tcp");
    let begun = entries.iter().filter(|entry| entry.contains("SYN_SENT"));
    let port = |entry: &String| entry.split("sport=").nth(1)?.split(' ').next()?.parse().ok();
    begun.filter_map(port).collect()
}

/// Whether the server takes a connection from this port of a network; 0 is a port that the kernel chooses.
fn connects(network: &Path, port: u16, server: SocketAddr) -> bool {
    let network = File::open(network).expect("the network of a pod that runs");
    // A thread of its own: it ends in the other network.
    let there = std::thread::spawn(move || {
        setns(network, CloneFlags::CLONE_NEWNET).expect("root may enter it");
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0; 16].into() };
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(any, port).into())?;
        socket.connect_timeout(&server.into(), ANSWERED_WITHIN)
    });
    there.join().expect("no panic").is_ok()
}
