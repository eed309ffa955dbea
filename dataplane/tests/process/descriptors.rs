//! A process with few descriptors: connections of clients leave enough of them for all else (WR44, FW10).

use std::net::{Ipv4Addr, TcpStream};

use crate::flood::connect;
use crate::harness::{Answer, Folder, Process, wait_for};
use crate::{cluster_dns, denying_upstream};

const FEW: &[&str] = &["sh", "-c", "ulimit -n 1024 && exec \"$0\" \"$@\""];
/// Together more than the process has descriptors, each fewer than one client may have.
const CLIENTS: u8 = 6;
const CONNECTIONS: usize = 200;

#[test]
fn wr44_connections_of_clients_leave_descriptors_for_upstreams_and_probes() {
    let (folder, port) = (Folder::new(), denying_upstream());
    let servers = format!("servers: [{{address: 127.0.0.1, port: {port}}}]");
    folder.write("dns.yaml", &cluster_dns(&format!("{{upstreams: {{{servers}}}}}")));
    let process = Process::start_by(FEW, &folder.0, &[]);
    dataplane_udp::raise_descriptor_limit().expect("this process needs more");
    let of_client = |client| Ipv4Addr::new(127, 0, 5, client);
    let open: Vec<TcpStream> = (1..=CLIENTS)
        .flat_map(|client| (0..CONNECTIONS).map(move |_| of_client(client)))
        .map(|client| connect(client, process.dns).expect("the kernel takes it"))
        .collect();
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
