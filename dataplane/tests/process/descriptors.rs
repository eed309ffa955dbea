//! A process with few descriptors: connections of clients leave enough of them for all else (WR44, FW10).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::flood::connect;
use crate::harness::{Answer, Folder, PATIENCE, Process, wait_for};
use crate::{cluster_dns, denying_upstream};

const FEW: &[&str] = &["sh", "-c", "ulimit -n 1024 && exec \"$0\" \"$@\""];
/// Together more than the process has descriptors, each fewer than one client may have.
const CLIENTS: u8 = 6;
const CONNECTIONS: usize = 200;
/// `. NS`, with its length.
const QUERY: &[u8] = &[0, 17, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

#[test]
fn wr44_connections_of_clients_leave_descriptors_for_upstreams_and_probes() {
    let (folder, port) = (Folder::new(), denying_upstream());
    let servers = format!("servers: [{{address: 127.0.0.1, port: {port}}}]");
    folder.write("dns.yaml", &cluster_dns(&format!("{{upstreams: {{{servers}}}}}")));
    let process = Process::start_by(FEW, &folder.0, &[]);
    let open = connect_all(&process, CLIENTS, CONNECTIONS);
    assert_eq!(process.ask("www.example.org"), Answer::NxDomain, "an upstream is asked");
    assert_eq!(process.get("/livez").0, 200);
    let evicted = || process.metric("clusterdns_tcp_closed_total{reason=\"evicted\"}");
    wait_for("connections to close for others", || (evicted() > 0.0).then_some(()));
    assert_eq!(process.metric("clusterdns_tcp_accept_failed_total"), 0.0);
    // A connection that closes for another one is counted until it is closed.
    let open_now = || process.metric("clusterdns_tcp_connections");
    wait_for("half of the descriptors", || (open_now() <= 512.0).then_some(()));
    drop(open);
}

/// This many connections of each client. Each client has an answer over its last one.
pub(crate) fn connect_all(process: &Process, clients: u8, of_each: usize) -> Vec<TcpStream> {
    dataplane_udp::raise_descriptor_limit().expect("this process needs more");
    let of_client = |client| Ipv4Addr::new(127, 0, 5, client);
    let mut open: Vec<TcpStream> = Vec::new();
    for client in (1..=clients).map(of_client) {
        let connected = (0..of_each).map(|_| connect(client, process.dns));
        open.extend(connected.map(|stream| stream.expect("the kernel takes it")));
        // Connections are accepted in order: this one stands behind all others, so the queue of the kernel is empty then.
        let last = open.last_mut().expect("one");
        last.set_read_timeout(Some(PATIENCE)).unwrap();
        last.write_all(QUERY).unwrap();
        assert!(last.read(&mut [0; 512]).expect("a reply") > 0);
    }
    open
}
