//! Asking in a loop until an answer is there, with little between two questions.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::client::Question;

/// Between two questions: the precision of what is measured, and a few percent of a core.
const PAUSE: Duration = Duration::from_micros(100);
/// A server that is busy may lose a question.
const AGAIN: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// The query message for `NAME TYPE`.
///
/// # Panics
/// It is no question.
pub fn packet(question: &str) -> Vec<u8> {
    Question::parse(question).expect("a question").packet
}

/// The A records of a name below `svc.cluster.local`.
pub fn a(name: &str) -> Vec<u8> {
    packet(&format!("{name}.svc.cluster.local. A"))
}

/// A socket for questions to this server on this machine.
///
/// # Panics
/// There is no free port.
pub fn socket(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.connect(server).expect("a connected socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Whether a reply says NOERROR and has this address in it.
pub fn has(reply: &[u8], address: Ipv4Addr) -> bool {
    let is_found = reply.get(3).is_some_and(|octet| octet & 15 == 0);
    is_found && reply.windows(4).any(|octets| octets == address.octets())
}

/// Asks until the answer has this address; returns when it did.
///
/// # Panics
/// It is never answered.
pub fn until(server: SocketAddr, packet: &[u8], address: Ipv4Addr) -> Instant {
    let (socket, begun) = (socket(server), Instant::now());
    socket.set_read_timeout(Some(AGAIN)).expect("a timeout");
    let mut buffer = [0; 4096];
    loop {
        socket.send(packet).expect("a question is sent");
        // Nothing where it was lost: it is asked again.
        let octets = socket.recv(&mut buffer).unwrap_or(0);
        let now = Instant::now();
        if has(&buffer[..octets], address) {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "{address} was never answered");
        std::thread::sleep(PAUSE);
    }
}
