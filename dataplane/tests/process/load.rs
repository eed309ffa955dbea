//! The program under a load that is bounded in rate, in what is under way, and in time: nothing is lost when it is asked
//! to stop (D1), and probes are answered while more comes than it can answer (D6).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::harness::{Folder, PATIENCE, Process, wait_for};
use crate::{CART, service, serving};

/// Queries each client sends per second; five of them are the 5,000 of D1.
const RATE: u32 = 1_000;
const CLIENTS: usize = 5;
/// Queries a client may have under way: what a socket's buffer holds on a machine that pauses for a while.
const WINDOW: usize = 64;
/// Datagrams of the overload; sent as fast as the kernel takes them.
const FLOOD: usize = 200_000;

/// A query for the address of [`CART`] with this id.
pub(crate) fn query(id: u16) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in CART.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// Is it NOERROR with one answer for this id?
pub(crate) fn is_answer(reply: &[u8], id: u16) -> bool {
    reply.len() > 12 && reply[..2] == id.to_be_bytes() && reply[3] & 0x0f == 0 && reply[7] == 1
}

/// Asks at [`RATE`] until it is stopped, then waits for what is under way. Returns how many were asked; every one of
/// them was answered rightly, or it panics.
fn ask_until(server: SocketAddr, stop: &AtomicBool) -> usize {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut asked, mut answered) = (0usize, 0usize);
    let mut waiting = std::collections::VecDeque::new();
    let mut reply = [0; 1500];
    let start = Instant::now();
    loop {
        let is_over = stop.load(Ordering::Relaxed);
        if is_over && waiting.is_empty() {
            return asked;
        }
        let due = start.elapsed().as_millis() as usize * RATE as usize / 1000;
        if !is_over && asked < due && waiting.len() < WINDOW {
            let id = u16::try_from(asked % 65_536).unwrap();
            socket.send(&query(id)).unwrap();
            waiting.push_back(id);
            asked += 1;
            continue;
        }
        let Some(&id) = waiting.front() else {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        };
        let length = socket.recv(&mut reply).unwrap_or_else(|error| {
            panic!("query {answered} of {asked} was not answered: {error}")
        });
        assert!(is_answer(&reply[..length], id), "query {answered} was answered otherwise");
        waiting.pop_front();
        answered += 1;
    }
}

/// The same over one TCP connection, one after another.
fn ask_stream_until(server: SocketAddr, stop: &AtomicBool) -> usize {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = u16::try_from(asked % 65_536).unwrap();
        let packet = query(id);
        let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &packet].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a connection in use is not closed");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).unwrap();
        assert!(is_answer(&reply, id), "{asked}");
        asked += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    asked
}

fn clients(server: SocketAddr, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<usize>> {
    let client = |ask: fn(SocketAddr, &AtomicBool) -> usize| {
        let stop = stop.clone();
        std::thread::spawn(move || ask(server, &stop))
    };
    let mut all: Vec<_> = (0..CLIENTS).map(|_| client(ask_until)).collect();
    all.push(client(ask_stream_until));
    all
}

#[test]
fn d1_no_query_is_lost_while_clients_move_away_after_sigterm() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let mut process = Process::start(&folder.0, &["--drain-seconds", "7"]);
    let stop = Arc::new(AtomicBool::new(false));
    let clients = clients(process.dns, &stop);
    assert_eq!(process.get("/readyz").0, 200);
    process.signal("TERM");

    // What a load balancer does: it takes the pod away some time after /readyz says so, and clients leave after that.
    wait_for("/readyz to say that it leaves", || (process.get("/readyz").0 == 503).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!process.has_ended(), "clients are still asking");
    stop.store(true, Ordering::Relaxed);
    let asked: Vec<usize> =
        clients.into_iter().map(|client| client.join().expect("no query is lost")).collect();

    assert!(asked.iter().all(|asked| *asked > 100), "{asked:?}");
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn d6_probes_are_answered_while_more_comes_than_it_can_answer() {
    let (_folder, process) = serving();
    let server = process.dns;
    let flood = std::thread::spawn(move || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let packet = query(7);
        // Replies are left in the socket's buffer, which then overflows: no client reads.
        for _ in 0..FLOOD {
            let _ = socket.send_to(&packet, server);
        }
    });
    let mut probes = 0;
    while !flood.is_finished() {
        assert_eq!(process.get("/livez").0, 200);
        assert_eq!(process.get("/readyz").0, 200);
        probes += 1;
    }
    flood.join().unwrap();
    assert!(probes > 0, "the flood was over before the first probe");
    assert_eq!(process.get("/livez").0, 200);
}
