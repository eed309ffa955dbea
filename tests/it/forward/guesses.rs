//! A million guessed ids (F4), from the address and port of the server itself, as an attacker would send them who knows the
//! port of each query. How fast they come changes nothing: a lookup reads three.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crds::Config;
use crds::config::{self, Group, GroupOptions};
use dataplane_core::Discard;
use hickory_proto::rr::RecordType;

use super::stage::{Stage, answers, server};

const LOOKUPS: u64 = 250;
/// For each query over UDP.
const GUESSES: u16 = 4_000;
/// Of these, a query over UDP reads three (FW13).
const READ: u64 = 3;
const RIGHT: [u8; 4] = [192, 0, 2, 1];
const FORGED: [u8; 4] = [192, 0, 2, 66];

/// What the server was asked, and what the attacker sent.
#[derive(Default)]
struct Counts {
    over_udp: AtomicU64,
    over_tcp: AtomicU64,
    guesses: AtomicU64,
}

/// The reply to a query, with this address.
fn reply(query: &[u8], address: [u8; 4]) -> Vec<u8> {
    // Without the OPT, which has 11 octets.
    let mut reply = query[..query.len() - 11 * usize::from(query[11])].to_vec();
    (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    reply.extend(address);
    reply
}

/// A query over UDP has guesses for a reply, none with its id.
fn guess(socket: &UdpSocket, counts: &Counts) {
    let mut buffer = [0; 512];
    while let Ok((octets, from)) = socket.recv_from(&mut buffer) {
        counts.over_udp.fetch_add(1, Ordering::Relaxed);
        let mut forged = reply(&buffer[..octets], FORGED);
        let id = u16::from_be_bytes([forged[0], forged[1]]);
        for other in 1..=GUESSES {
            forged[..2].copy_from_slice(&id.wrapping_add(other).to_be_bytes());
            // The port may be closed by now.
            let _ = socket.send_to(&forged, from);
        }
        counts.guesses.fetch_add(GUESSES.into(), Ordering::Relaxed);
    }
}

/// Over TCP the server has the word.
fn answer(mut stream: TcpStream, counts: &Counts) -> std::io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query)?;
        counts.over_tcp.fetch_add(1, Ordering::Relaxed);
        let reply = reply(&query, RIGHT);
        stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat())?;
    }
}

/// A server on loopback, and the attacker in its name.
fn attacked() -> (SocketAddr, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    // Other tests hold many random UDP ports: one that is free over TCP may be theirs.
    let free = || {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let address = tcp.local_addr().ok()?;
        Some((UdpSocket::bind(address).ok()?, tcp, address))
    };
    let (udp, tcp, address) = (0..100).find_map(|_| free()).expect("a port free over both");
    let (of_udp, of_tcp) = (Arc::clone(&counts), Arc::clone(&counts));
    thread::spawn(move || guess(&udp, &of_udp));
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let counts = Arc::clone(&of_tcp);
            thread::spawn(move || answer(stream?, &counts));
        }
    });
    (address, counts)
}

#[tokio::test]
async fn f4_of_a_million_guesses_a_lookup_reads_three_and_believes_none() {
    let (address, counts) = attacked();
    let servers = vec![server(address)];
    let group = Group { servers, options: GroupOptions::default() };
    let config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
    let stage = Stage::of(BTreeMap::new(), &config);
    for lookup in 0..LOOKUPS {
        let reply = stage.ask(0, &format!("n{lookup}.example"), RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.1"]);
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    while count(&counts.guesses) < LOOKUPS * u64::from(GUESSES) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // On a busy machine a query may be sent again; each lookup ends over TCP.
    let (read, over_udp) =
        (stage.published.upstreams.discarded(Discard::Id), count(&counts.over_udp));
    assert!(read <= READ * over_udp, "{read} guesses were read for {over_udp} queries");
    assert!(count(&counts.over_tcp) >= LOOKUPS);
    // Ten minutes of 100,000 guesses a second are 60 times as many, with these chances: three in 65,536 for each
    // lookup of one who knows its port, and none of 64,512 ports is easier to guess than another (F5).
}
