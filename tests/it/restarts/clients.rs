//! Clients that ask all the time, and count what is lost.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tests::client::{self, Question};
use tests::data_plane::wait_for;

/// Clients of a kind.
const EACH: usize = 8;
/// Between two queries of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// A query without a reply within this time is lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
const QUESTION: &str = "cart.shop.svc.cluster.local. A";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new socket for each query, as a C library has it.
    NewSockets,
    /// The same socket all the time.
    OneSocket,
    /// A new connection for each query.
    Connections,
}

/// What one client got.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) answered: usize,
    pub(super) lost: usize,
}

#[derive(Debug)]
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    /// By clients that keep their socket.
    lost_by_kept: Arc<AtomicUsize>,
    /// Held by each client for as long as a query of it is in progress.
    asking: Arc<RwLock<()>>,
    threads: Vec<JoinHandle<Asked>>,
}

impl Clients {
    /// Some of each of these kinds, which ask this server.
    pub(super) fn of(kinds: &[Kind], server: SocketAddr) -> Clients {
        let mut clients = Clients {
            stop: Arc::default(),
            answered: Arc::default(),
            lost_by_kept: Arc::default(),
            asking: Arc::default(),
            threads: Vec::new(),
        };
        for kind in kinds.iter().flat_map(|kind| [*kind; EACH]) {
            let stop = Arc::clone(&clients.stop);
            let answered = Arc::clone(&clients.answered);
            let lost_by_kept = Arc::clone(&clients.lost_by_kept);
            let asking = Arc::clone(&clients.asking);
            clients.threads.push(std::thread::spawn(move || {
                let mut asked = Asked { kind, answered: 0, lost: 0 };
                let mut socket = open(server);
                while !stop.load(Ordering::Relaxed) {
                    let id = u16::try_from((asked.answered + asked.lost) % 65_536).unwrap();
                    let in_progress = asking.read().unwrap_or_else(PoisonError::into_inner);
                    let is_answered = match kind {
                        Kind::NewSockets => {
                            socket = open(server);
                            ask(&socket, id)
                        }
                        Kind::OneSocket => ask(&socket, id),
                        Kind::Connections => client::ask_tcp(server, &query(id))
                            .is_ok_and(|reply| reply.is_some_and(|reply| is_answer(&reply, id))),
                    };
                    drop(in_progress);
                    if is_answered {
                        asked.answered += 1;
                        answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        asked.lost += 1;
                        let kept = usize::from(kind == Kind::OneSocket);
                        lost_by_kept.fetch_add(kept, Ordering::Relaxed);
                    }
                    std::thread::sleep(PAUSE);
                }
                asked
            }));
        }
        clients
    }

    /// Until each client could ask a few more.
    pub(super) fn wait_for_more(&self) {
        let enough = self.answered.load(Ordering::Relaxed) + 20 * self.threads.len();
        wait_for("answers", || (self.answered.load(Ordering::Relaxed) >= enough).then_some(()));
    }

    /// Until a client lost a query that keeps its socket.
    pub(super) fn wait_for_a_loss(&self) {
        let lost = || self.lost_by_kept.load(Ordering::Relaxed);
        wait_for("a query that is lost", || (lost() > 0).then_some(()));
    }

    /// Does this while no query is in progress.
    pub(super) fn between_queries(&self, act: impl FnOnce()) {
        let _none = self.asking.write().unwrap_or_else(PoisonError::into_inner);
        act();
    }

    pub(super) fn stop(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
    }
}

fn open(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(LOST_AFTER)).unwrap();
    socket
}

fn query(id: u16) -> Vec<u8> {
    let mut packet = Question::parse(QUESTION).unwrap().packet;
    packet[..2].copy_from_slice(&id.to_be_bytes());
    packet
}

/// NOERROR with one record, for this id.
fn is_answer(reply: &[u8], id: u16) -> bool {
    reply.len() > 12 && reply[..2] == id.to_be_bytes() && reply[3] & 0x0f == 0 && reply[7] == 1
}

/// Whether one query over UDP is answered. A refused port is a query that is lost, too.
fn ask(socket: &UdpSocket, id: u16) -> bool {
    if socket.send(&query(id)).is_err() {
        return false;
    }
    let mut reply = [0; 1500];
    loop {
        match socket.recv(&mut reply) {
            Ok(length) if reply[..length].starts_with(&id.to_be_bytes()) => {
                return is_answer(&reply[..length], id);
            }
            // A late reply to an earlier query.
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
