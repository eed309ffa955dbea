//! L19: clients at addresses that no machine has. Linux keeps what is sent to such an address, until it gives up.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use dataplane_udp::{Batch, Local, Options, Sent, Socket};
use socket2::{Domain, Type};
use tests::client::Question;
use tests::data_plane::DataPlane;
use tests::netns::{inside, ip};
use tests::scratch::Scratch;

/// A network whose other end is up, and answers for no address; of one other machine we know where it is. And one in which
/// no machine is looked for, with a router.
const NETWORKS: [&str; 14] = [
    "link add pod type veth peer name node",
    "address add 10.9.0.1/24 dev pod",
    "address add fd09::1/64 dev pod nodad",
    "link set pod up",
    "link set node up",
    "neighbour add 10.9.0.99 lladdr 02:00:00:00:00:01 dev pod",
    "neighbour add fd09::99 lladdr 02:00:00:00:00:01 dev pod",
    "link add flat type veth peer name other arp off",
    "address add 10.8.0.1/24 dev flat",
    "address add fd08::1/64 dev flat nodad",
    "link set flat arp off up",
    "link set other up",
    "route add 10.7.0.0/16 via 10.8.0.9",
    "route add fd07::/64 via fd08::9",
];
/// Clients of either family that get each reply: the machine that we know, one that is not looked for, and one behind a router.
const REACHED: [[&str; 3]; 2] = [
    ["10.9.0.99:4000", "10.8.0.77:4000", "10.7.0.77:4000"],
    ["[fd09::99]:4000", "[fd08::77]:4000", "[fd07::77]:4000"],
];
/// Addresses of that network which no machine has.
const UNUSED: usize = 16;
/// Queries from each, in rounds: the replies to all take more room than any socket has.
const ROUNDS: usize = 10;
const ROUND: usize = 30;
/// Far beyond what loopback needs.
const PATIENCE: Duration = Duration::from_secs(20);

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ports: [{port: 80}]}
";

fn set_up() {
    for arguments in NETWORKS {
        ip(&arguments.split(' ').collect::<Vec<_>>()).expect("a network");
    }
}

/// The same address of the network with another end.
fn unused(ours: IpAddr, number: usize) -> SocketAddr {
    let end = 100 + number;
    let address = match ours {
        IpAddr::V4(_) => format!("10.9.0.{end}:4000"),
        IpAddr::V6(_) => format!("[fd09::{end}]:4000"),
    };
    address.parse().expect("an address")
}

/// A socket that sends from an address which this machine does not have.
fn forging(address: SocketAddr) -> UdpSocket {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true).unwrap(),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true).unwrap(),
    }
    socket.bind(&address.into()).unwrap();
    socket.into()
}

fn asking(ours: IpAddr) -> UdpSocket {
    let client = UdpSocket::bind((ours, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

#[test]
fn l19_a_client_loses_no_reply_beside_forged_queries_from_unused_addresses() {
    inside(async || {
        set_up();
        let folder = Scratch::new("unreached").unwrap();
        folder.write("api.yaml", SERVICE).unwrap();
        let question = Question::parse("api.shop.svc.cluster.local. A").unwrap().packet;
        for ours in ["10.9.0.1", "fd09::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
            let server = SocketAddr::new(ours, 5300);
            let flags = ["--listen", &server.to_string()];
            let plane = DataPlane::of_manifests_with(folder.path(), &flags);
            let client = asking(ours);
            for number in 0..UNUSED {
                let forging = forging(unused(ours, number));
                for _ in 0..ROUNDS {
                    for _ in 0..ROUND {
                        forging.send_to(&question, server).unwrap();
                    }
                    client.send_to(&question, server).unwrap();
                    let reply = client.recv(&mut [0; 512]);
                    assert!(reply.is_ok(), "beside unused address {number}: {reply:?}");
                }
            }
            let count = |metric: &str| plane.metric(&format!("clusterdns_udp_{metric}_total"));
            assert_eq!(count("send_failed"), Some(0.0));
            let withheld = count("withheld").expect("the metric");
            assert!(withheld > 0.0 && withheld < (UNUSED * ROUNDS * ROUND) as f64, "{withheld}");
        }
    });
}

#[test]
fn l19_late_replies_to_addresses_without_a_machine_leave_room_for_others() {
    inside(async || {
        set_up();
        for (ours, reached) in ["10.9.0.1", "fd09::1"].into_iter().zip(REACHED) {
            let ours: IpAddr = ours.parse().unwrap();
            let socket = Socket::bind((ours, 0).into(), &Options::default()).unwrap();
            let send = |to| socket.send_to(&[7; 1232], Local::from(ours), to);
            let sent = Sent { sent: 1, ..Sent::default() };
            let late =
                (0..UNUSED * ROUNDS * ROUND).map(|number| send(unused(ours, number % UNUSED)));
            let withheld = late.map(|sent| sent.withheld).sum::<usize>();
            let client = asking(ours);
            assert_eq!(send(client.local_addr().unwrap()), sent);
            assert!(withheld > 0);
            for peer in reached.into_iter().chain(reached) {
                assert_eq!(send(peer.parse().unwrap()), sent, "{peer}");
            }
            // Replies in batches have the same room.
            client.send_to(b"q", socket.local_addr()).unwrap();
            let mut batch = Batch::new();
            assert_eq!(socket.recv(&mut batch).unwrap(), 1);
            batch.answer(|_, _| 1);
            assert_eq!(socket.send(&mut batch), sent);
        }
    });
}
