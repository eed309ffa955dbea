//! What a client has not taken of its replies when its connection ends. The kernel would keep that until it is taken, in memory
//! that counts as the pod's and that no table knows of: a client that opens connections, asks on each and reads nothing would
//! fill it. So it is discarded where a connection is closed because of its client, or for another one; where the connection ends
//! in order, it keeps its place among the connections until all is taken.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::super::counters::CloseReason;
use super::table::Permit;

/// Between two looks whether a client has taken all: the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Octets of memory that the end of a session takes, which is sent before its connection closes.
const ALERT_OCTETS: usize = 4 << 10;

/// Whether a connection that ends for this reason does not wait for its client.
pub(super) fn is_cut(reason: CloseReason, permit: &Permit) -> bool {
    match reason {
        // A client may end its side of TLS without an alert, which counts as a failure, and wait for its replies.
        CloseReason::Client
        | CloseReason::Failed
        | CloseReason::NotAQuery
        | CloseReason::Age
        | CloseReason::Drain => false,
        // One that has just replied and is one too many ends in order.
        CloseReason::Evicted => permit.gives_way(),
        CloseReason::Idle
        | CloseReason::SlowMessage
        | CloseReason::SlowReader
        | CloseReason::EvictedByClient
        | CloseReason::LargestShare
        | CloseReason::Refused
        | CloseReason::HandshakeRate
        | CloseReason::Backlog => true,
    }
}

/// Whether there is anything that its client has not taken.
pub(super) fn is_any(socket: Option<&TcpStream>) -> bool {
    socket.is_some_and(|socket| dataplane_udp::octets_to_send(socket) > 0)
}

/// Has the end of a connection discard what its client has not taken; whether there is anything.
pub(super) fn discard(socket: Option<&TcpStream>) -> bool {
    discard_beyond(0, socket)
}

/// The same, except the end of a session.
pub(super) fn discard_replies(socket: Option<&TcpStream>) {
    discard_beyond(ALERT_OCTETS, socket);
}

fn discard_beyond(octets: usize, socket: Option<&TcpStream>) -> bool {
    let socket = socket.filter(|socket| dataplane_udp::octets_to_send(socket) > octets);
    // It fails only for a connection that is gone.
    socket.is_some_and(|socket| SockRef::from(socket).set_linger(Some(Duration::ZERO)).is_ok())
}

/// Returns when its client has taken all, see [`Leaving`].
pub(super) async fn taken(socket: Option<&TcpStream>, permit: &Permit, within: Duration) {
    let mut leaving = Leaving::new(within);
    poll_fn(|cx| leaving.poll(cx, socket, permit)).await;
}

/// A connection that ends in order and waits for its client to take all. After this time, or where it must close for another
/// one, the rest is discarded.
pub(super) struct Leaving {
    within: Duration,
    /// When the time is over, and the next look. There is none before there is something to wait for.
    looks: Option<(Instant, Pin<Box<Sleep>>)>,
    is_over: bool,
}

impl Leaving {
    pub(super) fn new(within: Duration) -> Leaving {
        Leaving { within, looks: None, is_over: false }
    }

    /// Whether nothing is left to be taken, or what is left was discarded.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ready when that is so.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        socket: Option<&TcpStream>,
        permit: &Permit,
    ) -> Poll<()> {
        while is_any(socket) {
            let is_over = match permit.poll_close(cx) {
                Poll::Ready(CloseReason::Drain) => break,
                Poll::Ready(_) => true,
                Poll::Pending => {
                    let now = Instant::now();
                    let begin = || (now + self.within, Box::pin(sleep(LOOK_EVERY)));
                    let (until, look) = self.looks.get_or_insert_with(begin);
                    ready!(look.as_mut().poll(cx));
                    look.as_mut().reset(now + LOOK_EVERY);
                    now >= *until
                }
            };
            if is_over {
                discard(socket);
                break;
            }
        }
        self.is_over = true;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream as Client};
    use std::rc::Rc;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::super::super::bind::{Listen, streams};
    use super::super::super::{Deadlines, Limits};
    use super::super::reads::InTurns;
    use super::super::tests::{message, patient, with_handshake_thread};
    use super::super::{TcpServer, accept};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    /// Of a reply that the kernel takes as a whole.
    const SHORT: usize = 12_000;
    /// Less than it.
    const LITTLE: usize = 2 << 10;

    /// A server at a port of its own.
    fn with_server(limits: Limits, test: impl AsyncFnOnce(Rc<TcpServer>, SocketAddr)) {
        with_handshake_thread(limits, async |server| {
            let listen = Listen::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
            let listener = TcpListener::from_std(streams(&listen).unwrap().remove(0)).unwrap();
            let address = listener.local_addr().unwrap();
            let accepting = tokio::task::spawn_local(accept(Rc::clone(&server), listener, None));
            test(server, address).await;
            accepting.abort();
        });
    }

    /// A client with room for about this many octets, which sends this.
    fn client(address: SocketAddr, room: usize, sent: &[u8]) -> Client {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(room).unwrap();
        socket.connect(&address.into()).unwrap();
        let mut client = Client::from(socket);
        client.write_all(sent).unwrap();
        client
    }

    /// An echo of this many octets.
    fn echo(octets: usize) -> Vec<u8> {
        let mut rest = vec![0; octets - 12];
        rest[0] = b'e';
        message(1, &rest)
    }

    /// Octets that the kernel has for all clients of this port, those of closed connections too (proc(5), tx_queue).
    fn kept(server: SocketAddr) -> usize {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = format!(":{:04X}", server.port());
        let queue = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let is_its = fields.next()?.ends_with(&port);
            let (octets, _) = fields.nth(2)?.split_once(':')?;
            is_its.then(|| usize::from_str_radix(octets, 16).unwrap())
        };
        table.lines().skip(1).filter_map(queue).sum()
    }

    /// A connection whose reply its client, which is on the same address, does not take.
    async fn with_a_reply(server: &TcpServer) -> (InTurns<TcpStream>, SocketAddr, Client) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = client(address, LITTLE, b"");
        let (mut stream, peer) = listener.accept().await.unwrap();
        let permit = Rc::new(server.table.admit(peer.ip()).unwrap());
        stream.write_all(&[0; SHORT]).await.unwrap();
        let reads = server.turns.reads(permit.share());
        (InTurns::new(stream, reads, permit), address, client)
    }

    async fn until(what: &str, mut happened: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !happened() {
            assert!(Instant::now() < until, "still not: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn wr44_t4_replies_that_a_client_has_no_room_for_stay_with_us_and_count() {
        with_server(patient(), async |server, address| {
            let big: Vec<u8> = (0..4).flat_map(|id| message(id, b"b")).collect();
            let mut client = client(address, 32 << 10, &big);
            let held = || server.counters.tcp_buffered.load(Relaxed) as usize;
            until("some of it counts", || held() > 60_000).await;
            assert!(kept(address) <= 80 << 10, "{} octets are in the kernel", kept(address));
            let read = tokio::task::spawn_blocking(move || {
                let mut replies = vec![0; 4 * 60_002];
                client.read_exact(&mut replies).map(|()| replies.len())
            });
            assert_eq!(read.await.unwrap().unwrap(), 4 * 60_002, "and it gets all of them");
        });
    }

    #[test]
    fn wr44_connections_that_give_way_leave_nothing_in_the_kernel() {
        let limits = Limits { tcp_connections_per_client: 2, ..patient() };
        with_server(limits, async |server, address| {
            let mut clients = Vec::new();
            for count in 1..=20_u64 {
                clients.push(client(address, LITTLE, &echo(SHORT)));
                let evicted = || server.counters.tcp_closed(CloseReason::EvictedByClient);
                until("it has a place", || kept(address) >= SHORT / 2 && evicted() + 2 >= count)
                    .await;
            }
            assert!(kept(address) <= 2 * (SHORT + 2), "{} octets of 20", kept(address));
        });
    }

    #[test]
    fn wr44_a_session_that_gives_way_leaves_nothing_in_the_kernel() {
        let limits = Limits { tcp_connections_per_client: 1, ..patient() };
        with_handshake_thread(limits, async |server| {
            let (session, address, _client) = with_a_reply(&server).await;
            let _other = server.table.admit(address.ip()).unwrap();
            assert!(kept(address) > SHORT / 2);
            drop(session);
            assert_eq!(kept(address), 0);
        });
    }

    #[test]
    fn wr42_a_session_with_http_in_it_waits_for_its_client_too() {
        with_handshake_thread(patient(), async |server| {
            let (session, address, _client) = with_a_reply(&server).await;
            let within = 5 * LOOK_EVERY;
            let mut session = session.until_taken(within);
            let begun = Instant::now();
            assert!(
                futures::poll!(Box::pin(session.shutdown())).is_pending(),
                "it keeps its place"
            );
            session.shutdown().await.unwrap();
            assert!(begun.elapsed() >= within);
            drop(session);
            assert_eq!(kept(address), 0);
        });
    }

    #[test]
    fn wr44_a_client_that_ends_its_side_keeps_its_place_until_it_has_its_reply() {
        let limits = Limits { tcp_connections_per_client: 1, ..patient() };
        with_server(limits, async |server, address| {
            let open = || server.counters.tcp_open.load(Relaxed);
            let first = client(address, LITTLE, &echo(SHORT));
            first.shutdown(Shutdown::Write).unwrap();
            until("it has its reply", || kept(address) > SHORT / 2).await;
            tokio::time::sleep(4 * LOOK_EVERY).await;
            assert_eq!(open(), 1, "it waits for its client");
            let mut second = client(address, LITTLE, &echo(SHORT));
            second.shutdown(Shutdown::Write).unwrap();
            let read = tokio::task::spawn_blocking(move || {
                let mut reply = Vec::new();
                second.read_to_end(&mut reply).map(|_| reply.len())
            });
            assert_eq!(read.await.unwrap().unwrap(), SHORT + 2, "its reply, and the end");
            until("both are gone", || open() == 0).await;
            assert_eq!(kept(address), 0, "the first one gave way");
        });
    }

    #[test]
    fn wr42_a_client_that_does_not_take_the_end_of_its_replies_gets_none() {
        let deadlines = Deadlines { write: Duration::from_millis(100), ..patient().deadlines };
        with_server(Limits { deadlines, ..patient() }, async |server, address| {
            let client = client(address, LITTLE, &echo(SHORT));
            client.shutdown(Shutdown::Write).unwrap();
            until("it is closed", || server.counters.tcp_closed(CloseReason::Client) == 1).await;
            assert_eq!(kept(address), 0);
        });
    }
}
