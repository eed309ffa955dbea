//! A server whose answers are scripted, for the tests of connections and of the table.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::LocalSet;

use super::super::Deadlines;
use super::late::{LateReply, Unwritten};
use super::*;

/// What the answer to an expensive query takes: more than one turn of a client.
const WORK: Duration = Duration::from_millis(1);

/// A server that answers by the octet after the header: `e` echoes the message, `s` does so after [`WORK`], `b` replies with
/// 60,000 octets, `l` and `L` reply as `e` and `b` after as many seconds as the next octet says, `S` as `L` with octets that all
/// replies share, anything else is no query.
pub(super) fn server(limits: Limits) -> (Rc<TcpServer>, Rc<Cell<usize>>) {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    let shared: Arc<[u8]> = vec![0; 60_000].into();
    let answer: Answer = Box::new(move |message, _, room, buffer| {
        count.set(count.get() + 1);
        match message.get(12) {
            Some(kind @ (b'e' | b's')) => {
                if *kind == b's' {
                    // The thread is busy meanwhile.
                    std::thread::sleep(WORK);
                }
                buffer[..message.len()].copy_from_slice(message);
                TcpAction::Reply(Written::whole(message.len()))
            }
            Some(b'b') => {
                buffer[..60_000].fill(0);
                buffer[..2].copy_from_slice(&message[..2]);
                TcpAction::Reply(Written::whole(60_000))
            }
            Some(kind @ (b'l' | b'L')) if room != Room::None => {
                let octets = if *kind == b'l' { message.len() } else { 60_000 };
                let mut message = message.to_vec();
                in_turn(room, async move {
                    tokio::time::sleep(Duration::from_secs(message[13].into())).await;
                    message.resize(octets, 0);
                    Box::new(Scripted(message)) as LateReply
                })
            }
            Some(b'S') if room != Room::None => {
                let (reply, id) = (Arc::clone(&shared), [message[0], message[1]]);
                let after = Duration::from_secs(message[13].into());
                in_turn(room, async move {
                    tokio::time::sleep(after).await;
                    Box::new(SharedReply(id, reply)) as LateReply
                })
            }
            Some(b'l' | b'L' | b'S') => {
                buffer[..12].fill(0xff);
                TcpAction::Reply(Written::whole(12))
            }
            _ => TcpAction::Close,
        }
    });
    let here = Handle::current;
    let server = TcpServer::new(answer, limits, Arc::default(), here(), here());
    (Rc::new(server), asked)
}

/// A lookup that begins now, or in its turn.
fn in_turn(room: Room, late: impl Future<Output = LateReply> + Send + 'static) -> TcpAction {
    match room {
        Room::Later => TcpAction::Later(Box::new(|| Box::pin(late))),
        Room::Now | Room::None => TcpAction::Late(Box::pin(late)),
    }
}

/// A reply that shares its octets with no other.
struct Scripted(Vec<u8>);

impl Unwritten for Scripted {
    fn octets(&self) -> usize {
        self.0.len()
    }

    fn write(&self, buffer: &mut [u8]) -> Written {
        buffer[..self.0.len()].copy_from_slice(&self.0);
        Written::whole(self.0.len())
    }
}

/// The reply with this id, which shares its other octets.
struct SharedReply([u8; 2], Arc<[u8]>);

impl Unwritten for SharedReply {
    fn octets(&self) -> usize {
        self.1.len() / Arc::strong_count(&self.1)
    }

    fn write(&self, buffer: &mut [u8]) -> Written {
        buffer[..self.1.len()].copy_from_slice(&self.1);
        buffer[..2].copy_from_slice(&self.0);
        Written::whole(self.1.len())
    }
}

/// Nothing takes too long, however slow the machine is.
pub(super) fn patient() -> Limits {
    let long = Duration::from_secs(600);
    let deadlines = Deadlines { idle: long, message: long, write: long, ..Deadlines::default() };
    Limits { deadlines, ..Limits::default() }
}

/// Runs a test with real time and sockets, on one thread besides that of handshakes.
pub(super) fn with_handshake_thread(limits: Limits, test: impl AsyncFnOnce(Rc<TcpServer>)) {
    let handshaking = handshakes::thread().expect("a thread");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("runtime"), async {
        let (mut server, _) = server(limits);
        Rc::get_mut(&mut server).expect("the only one").handshake_thread =
            handshaking.handle().clone();
        test(server).await;
    });
}

/// A framed message of this id, with what follows the header.
pub(super) fn message(id: u16, rest: &[u8]) -> Vec<u8> {
    let mut message = frame::prefix(12 + rest.len()).to_vec();
    message.extend(id.to_be_bytes());
    message.extend([0; 10]);
    message.extend(rest);
    message
}

/// Runs a test on one thread, where time passes only when every task waits.
pub(super) fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("runtime");
    LocalSet::new().block_on(&runtime, test);
}
