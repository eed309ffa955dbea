//! How many frames of streams a client may send. quinn keeps the pieces of a stream that come after a hole, and goes through
//! them while more come, also where these bring the same octets again. So what comes is compared with what was read.

use std::cell::Cell;

use quinn::Connection;

/// Frames that bring nothing which can be read, at once: some tens of lost packets that come again.
const SPARE_FRAMES: u64 = 256;
/// Frames for each stream, besides one for each octet of it that was read. A query comes in one or two.
const STREAM_FRAMES: u64 = 8;

/// The frames of streams of one connection.
#[derive(Debug)]
pub(super) struct Frames {
    connection: Connection,
    allowed: Allowance,
}

impl Frames {
    pub(super) fn of(connection: Connection) -> Frames {
        Frames { connection, allowed: Allowance::default() }
    }

    pub(super) fn stream_begins(&self) {
        self.allowed.add(STREAM_FRAMES);
    }

    /// This many octets of a stream were read.
    pub(super) fn are_read(&self, octets: usize) {
        self.look();
        self.allowed.add(octets as u64);
    }

    /// Whether more came than a client needs, where nothing can be read.
    pub(super) fn are_too_many(&self) -> bool {
        self.look();
        self.allowed.is_used_up()
    }

    fn look(&self) {
        self.allowed.came(self.connection.stats().frame_rx.stream);
    }
}

/// How many frames may come. Not more is saved than may come at once, so that a client which asked for long gains nothing.
#[derive(Debug)]
struct Allowance {
    /// Those that came, at the last look.
    came: Cell<u64>,
    /// Those that may come until more is read. Below zero where what came is not read yet.
    left: Cell<i64>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { came: Cell::new(0), left: Cell::new(SPARE_FRAMES as i64) }
    }
}

impl Allowance {
    /// This many frames came since the connection began.
    fn came(&self, frames: u64) {
        let more = frames.saturating_sub(self.came.replace(frames));
        self.left.set(self.left.get().saturating_sub_unsigned(more));
    }

    fn add(&self, frames: u64) {
        let left = self.left.get().saturating_add_unsigned(frames);
        self.left.set(left.min(SPARE_FRAMES as i64));
    }

    fn is_used_up(&self) -> bool {
        self.left.get() < 0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSliceMut};
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};
    use std::time::{Duration, Instant};

    use quinn::crypto::rustls::QuicClientConfig;
    use quinn::udp::{RecvMeta, Transmit};
    use quinn::{
        AsyncTimer, AsyncUdpSocket, ConnectionError, Endpoint, EndpointConfig, RecvStream, Runtime,
        SendStream, TokioRuntime, TransportConfig, UdpPoller, VarInt,
    };
    use tokio::sync::watch;
    use tokio::time::{sleep, timeout};

    use super::super::super::super::certificate::Certificate;
    use super::super::super::super::certificate::testing::{signed_there, trusting};
    use super::super::super::super::counters::CloseReason;
    use super::super::super::super::{Limits, Phase};
    use super::super::super::TcpServer;
    use super::super::super::tests::{message, patient, with_handshake_thread};
    use super::super::{open, serve};
    use super::*;

    #[test]
    fn a_client_may_send_frames_for_what_is_read_and_some_that_bring_nothing() {
        let allowed = Allowance::default();
        allowed.came(256);
        assert!(!allowed.is_used_up());
        allowed.came(257);
        assert!(allowed.is_used_up());
        allowed.add(STREAM_FRAMES);
        allowed.came(257 + 7);
        assert!(!allowed.is_used_up(), "a stream began");
        allowed.came(257 + 8);
        assert!(allowed.is_used_up());
        allowed.came(2_000);
        allowed.add(2_000 - 264);
        assert!(!allowed.is_used_up(), "each brought an octet that was read");
    }

    #[test]
    fn frames_that_were_not_needed_are_not_saved() {
        let allowed = Allowance::default();
        for query in 1..=10_000 {
            allowed.add(STREAM_FRAMES);
            allowed.came(query);
            allowed.add(100);
        }
        allowed.came(10_000 + 256);
        assert!(!allowed.is_used_up());
        allowed.came(10_000 + 257);
        assert!(allowed.is_used_up());
    }

    const PATIENCE: Duration = Duration::from_secs(60);
    /// A datagram that is lost has this many octets at least.
    const LARGE: usize = 100;

    /// Octets of a reply that a client has room for.
    const WINDOW_OCTETS: u32 = 64;

    /// A runtime whose sockets lose all large datagrams, once this is set.
    #[derive(Clone, Debug, Default)]
    struct Losing(Arc<AtomicBool>);

    impl Runtime for Losing {
        fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
            TokioRuntime.new_timer(at)
        }

        fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
            TokioRuntime.spawn(future);
        }

        fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
            let socket = TokioRuntime.wrap_udp_socket(socket)?;
            Ok(Arc::new(LosingSocket { socket, loses: Arc::clone(&self.0) }))
        }
    }

    #[derive(Debug)]
    struct LosingSocket {
        socket: Arc<dyn AsyncUdpSocket>,
        loses: Arc<AtomicBool>,
    }

    impl AsyncUdpSocket for LosingSocket {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            Arc::clone(&self.socket).create_io_poller()
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            if self.loses.load(Ordering::Relaxed) && transmit.contents.len() >= LARGE {
                return Ok(());
            }
            self.socket.try_send(transmit)
        }

        fn poll_recv(
            &self,
            cx: &mut Context<'_>,
            buffers: &mut [IoSliceMut<'_>],
            metas: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            self.socket.poll_recv(cx, buffers, metas)
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.socket.local_addr()
        }

        fn max_transmit_segments(&self) -> usize {
            1
        }
    }

    /// A server, and a connection to it of a client that loses large datagrams once that is set.
    fn with_connection(then: impl AsyncFnOnce(Rc<TcpServer>, Connection, Arc<AtomicBool>)) {
        let (config, certificate, _) = signed_there(b"doq");
        // No token comes back during a test.
        let limits = Limits { handshake_every: Duration::from_secs(3600), ..patient() };
        with_handshake_thread(limits.clone(), async move |server| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            let address = socket.local_addr().unwrap();
            let (_limits, limits) = watch::channel(limits);
            let (_phase, phase) = watch::channel(Phase::Serving);
            let config = Arc::new(Certificate::of(config));
            let opened = open(&server, socket, &config, &patient().deadlines).unwrap();
            let serving = serve(Rc::clone(&server), opened, config, (limits, phase));
            tokio::task::spawn_local(serving);
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let losing = Losing::default();
            let config = EndpointConfig::default();
            let client = Endpoint::new(config, None, socket, Arc::new(losing.clone())).unwrap();
            let crypto = QuicClientConfig::try_from(trusting(&certificate, b"doq")).unwrap();
            let mut config = quinn::ClientConfig::new(Arc::new(crypto));
            let mut transport = TransportConfig::default();
            transport.stream_receive_window(VarInt::from_u32(WINDOW_OCTETS));
            config.transport_config(Arc::new(transport));
            let connecting = client.connect_with(config, address, "dns.example").unwrap();
            then(server, connecting.await.unwrap(), losing.0).await;
        });
    }

    /// Begins streams whose first octets never arrive.
    async fn begin(connection: &Connection, loses: &AtomicBool) -> Vec<(SendStream, RecvStream)> {
        loses.store(true, Ordering::Relaxed);
        let mut streams = Vec::new();
        for _ in 0..4 {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&[0; LARGE]).await.unwrap();
            streams.push((send, receive));
        }
        // They are sent, and lost.
        sleep(Duration::from_millis(10)).await;
        streams
    }

    #[test]
    fn wr44_a_client_of_quic_that_sends_pieces_behind_holes_without_end_is_closed() {
        with_connection(async |server, connection, loses| {
            let mut streams = begin(&connection, &loses).await;
            // One piece at a time, because they may be joined. They fit into the windows.
            'all: for _ in 0..400 {
                for (send, _) in &mut streams {
                    if send.write_all(&[0]).await.is_err() {
                        break 'all;
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
            let closed = timeout(PATIENCE, connection.closed()).await.expect("it is closed");
            let ConnectionError::ApplicationClosed(closed) = closed else {
                panic!("{closed}");
            };
            assert_eq!(closed.error_code, VarInt::from_u32(4), "DOQ_EXCESSIVE_LOAD");
            let counted = async {
                while server.counters.tcp_closed(CloseReason::NotAQuery) == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PATIENCE, counted).await.expect("it is counted");
            let (ip, now) = (Ipv4Addr::LOCALHOST.into(), tokio::time::Instant::now());
            let may_begin = |_: &u32| server.rates.may_begin(ip, &server.table.limits(), now);
            let left = (0..1000).filter(may_begin).count();
            assert!(left <= 256 - 64, "{left} more handshakes");
        });
    }

    #[test]
    fn wr44_a_query_over_quic_that_comes_octet_by_octet_takes_of_its_clients_share() {
        with_connection(async |server, connection, _| {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            let query = message(0, &[b'e'; 400]);
            for octet in &query {
                send.write_all(&[*octet]).await.unwrap();
                // It is sent, and not joined with the next one.
                sleep(Duration::from_millis(1)).await;
            }
            send.finish().unwrap();
            let reply = timeout(PATIENCE, receive.read_to_end(500)).await.expect("a reply");
            assert_eq!(reply.unwrap(), query);
            assert!(server.turns.ended() > 0, "some 400 times 512 octets are more than a turn");
        });
    }

    #[test]
    fn wr44_a_reply_over_quic_in_small_pieces_takes_of_its_clients_share() {
        with_connection(async |server, connection, _| {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(&message(0, b"b")).await.unwrap();
            send.finish().unwrap();
            let reply = timeout(PATIENCE, receive.read_to_end(70_000)).await.expect("a reply");
            assert_eq!(reply.unwrap().len(), 60_002);
            assert!(server.turns.ended() > 1, "more than the reply takes at once");
        });
    }

    #[test]
    fn wr44_a_client_of_quic_may_send_its_queries_octet_by_octet() {
        with_connection(async |server, connection, _| {
            for _ in 0..50 {
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                for octet in message(0, b"e") {
                    send.write_all(&[octet]).await.unwrap();
                    tokio::task::yield_now().await;
                }
                send.finish().unwrap();
                assert_eq!(receive.read_to_end(100).await.unwrap(), message(0, b"e"));
            }
            assert_eq!(server.counters.tcp_closed(CloseReason::NotAQuery), 0);
        });
    }
}
