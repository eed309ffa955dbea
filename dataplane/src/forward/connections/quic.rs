//! Messages as streams of QUIC (RFC 9250), one each, by quinn. No early data: a copy of it would be answered again.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls;

use super::connection::{Connection, MAX_QUERIES, Message};
use super::exchanges::Exchanges;
use super::failure::Failure;
use super::outlet::Query;
use super::partial::{Held, Partial};
use crate::forward::common::Common;
use crate::forward::now;
use crate::quic_sockets::OneByOne;

/// Octets of the length before each message (RFC 9250 §4.2).
const PREFIX: usize = 2;
/// Octets of a connection that quinn keeps before they are read: replies to all its queries, of 1 KiB each. Longer ones
/// take round trips more.
const WINDOW: u32 = MAX_QUERIES as u32 * 1024;
/// Time without a packet, not even an acknowledgement, after which the connection is over.
const DEAD: Duration = Duration::from_secs(15);
/// For the last packets of a connection that was closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);
/// `DOQ_NO_ERROR` (RFC 9250 §4.3).
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// How connections to a server are made.
///
/// # Errors
/// TLS 1.3 cannot be used.
pub(super) fn config(tls: &Arc<rustls::ClientConfig>) -> Result<ClientConfig, String> {
    let tls = QuicClientConfig::try_from(Arc::clone(tls)).map_err(|error| error.to_string())?;
    let mut config = ClientConfig::new(Arc::new(tls));
    let mut transport = TransportConfig::default();
    // A server opens no streams (RFC 9250 §4.2).
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    transport.max_concurrent_uni_streams(VarInt::from_u32(0));
    transport.datagram_receive_buffer_size(None);
    // Octets that a server may send before we read them. A stream that begins with a hole cannot be read.
    transport.stream_receive_window(VarInt::from_u32(WINDOW));
    transport.receive_window(VarInt::from_u32(WINDOW));
    transport.max_idle_timeout(IdleTimeout::try_from(DEAD).ok());
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A connection on a port of its own.
///
/// # Errors
/// The server does not prove its name, or does not speak QUIC as we do.
pub(super) async fn connect(
    config: ClientConfig,
    address: SocketAddr,
    name: &str,
    is_kept: impl Fn(u16) -> bool,
) -> Result<(Endpoint, quinn::Connection), Failure> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Its datagrams go to one server only, over IPv4 or over IPv6.
    let socket = own_port(any, is_kept).map_err(Failure::connect)?;
    let endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(OneByOne::default()));
    let endpoint = endpoint.map_err(Failure::connect)?;
    let connecting = endpoint.connect_with(config, address, name);
    let connecting = connecting.map_err(|error| Failure::protocol(&error.to_string()))?;
    let connection = connecting.await.map_err(|error| Failure::quic(&error))?;
    Ok((endpoint, connection))
}

/// A port that is not kept for a listener of ours (FW10).
pub(super) fn own_port(any: SocketAddr, is_kept: impl Fn(u16) -> bool) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(any)?;
    // One port is kept, and this socket has it: the next one has another.
    if is_kept(socket.local_addr()?.port()) { UdpSocket::bind(any) } else { Ok(socket) }
}

/// Carries queries out and replies in, until the connection ends or is idle. Returns when its port is closed.
pub(super) async fn carry(
    connection: Arc<Connection>,
    endpoint: Endpoint,
    quic: quinn::Connection,
    mut queries: mpsc::Receiver<Query>,
    common: Arc<Common>,
) {
    let port = endpoint.local_addr().map(|address| address.port());
    let counted = Streams::default();
    let mut streams = Exchanges::new();
    loop {
        tokio::select! {
            biased;
            // For any reason of the end, waiting queries are asked again on another connection.
            () = connection.end.cancelled() => break,
            _ = quic.closed() => break,
            (id, ended) = streams.next() => {
                connection.answered(id, ended, now());
            }
            Some(query) = queries.recv() => {
                streams.begin(query, |query| exchange(&connection, quic.clone(), &counted, query));
                // A listener was configured since, and cannot be opened before this connection has ended.
                if port.as_ref().is_ok_and(|port| common.keeps(*port)) {
                    connection.retire();
                }
            }
            () = connection.unused() => break,
        }
    }
    drop(streams);
    connection.close();
    quic.close(NO_ERROR, b"");
    // The last packets are sent before the port is closed. Until then the connection counts.
    let _ = timeout(CLOSE_WITHIN, endpoint.wait_idle()).await;
    drop(queries);
}

/// One stream: the query with id 0, then its reply (RFC 9250 §4.2.1).
async fn exchange(
    connection: &Connection,
    quic: quinn::Connection,
    streams: &Streams,
    query: Query,
) -> (u16, Result<Message, Failure>) {
    let Query { id, octets, .. } = query.without_id();
    let reply = async {
        let mut opening = pin!(quic.open_bi());
        let opened = match futures::poll!(opening.as_mut()) {
            Poll::Ready(opened) => opened,
            Poll::Pending => {
                // The server allows no more streams now than there are: other queries take other connections.
                let _one = One::of(&streams.blocked);
                connection.allow(streams.open.load(Ordering::Relaxed).max(1));
                opening.await
            }
        };
        let (mut send, mut receive) = opened.map_err(|error| Failure::reset(&error.to_string()))?;
        if streams.blocked.load(Ordering::Relaxed) == 0 {
            connection.allow(MAX_QUERIES);
        }
        let _one = One::of(&streams.open);
        let framed = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat();
        send.write_all(&framed).await.map_err(|error| Failure::reset(&error.to_string()))?;
        // Only a stream that is over already cannot be finished.
        let _ = send.finish();
        read(&mut receive, &connection.shared.held).await
    };
    (id, reply.await.map(|message| message.with_id(id)))
}

/// How many streams of one connection are open, and how many wait until the server allows them.
#[derive(Debug, Default)]
struct Streams {
    open: AtomicUsize,
    blocked: AtomicUsize,
}

/// One open stream; it counts until this is dropped.
struct One<'a>(&'a AtomicUsize);

impl One<'_> {
    fn of(count: &AtomicUsize) -> One<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        One(count)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The one message of a stream, behind its length.
///
/// # Errors
/// The stream breaks, holds less or more than one message, or finds no room.
async fn read(stream: &mut (impl AsyncRead + Unpin), held: &Held) -> Result<Message, Failure> {
    let mut length = [0; PREFIX];
    stream.read_exact(&mut length).await.map_err(failure)?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut partial = Partial::new(held, length);
    while let Some(octets) = partial.room()? {
        let rest = (length - octets.len()) as u64;
        if (&mut *stream).take(rest).read_buf(octets).await.map_err(failure)? == 0 {
            return Err(Failure::malformed());
        }
    }
    match stream.read(&mut [0]).await.map_err(failure)? {
        0 => Ok(Message { octets: partial.whole(), age_s: 0 }),
        _ => Err(Failure::malformed()),
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::malformed(),
        _ => Failure::reset(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Context;

    use quinn::crypto::rustls::QuicServerConfig;
    use tokio::io::ReadBuf;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio_rustls::rustls::version::TLS13;
    use tokio_util::sync::CancellationToken;

    use super::super::connection::IDLE;
    use super::super::failure::Reason;
    use super::super::tests::{idle, query};
    use super::*;

    #[tokio::test]
    async fn fw2_a_stream_of_quic_holds_one_whole_message() {
        let held = Held::default();
        let whole = read(&mut &[0, 2, 7, 8][..], &held).await.unwrap();
        assert_eq!(whole.octets, [7, 8]);
        for mut wrong in [&[][..], &[0], &[0, 2, 7], &[0, 2, 7, 8, 9]] {
            assert_eq!(read(&mut wrong, &held).await.unwrap_err().reason, Reason::Malformed);
        }
        assert_eq!(held.octets(), 0);
    }

    /// A stream that sends a length and ten octets, and the most that was ever taken to read into.
    struct Promises {
        sent: &'static [u8],
        most: usize,
    }

    impl AsyncRead for Promises {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.most = self.most.max(to.remaining());
            let (now, later) = self.sent.split_at(self.sent.len().min(to.remaining()));
            to.put_slice(now);
            self.sent = later;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn fw54_a_long_reply_that_is_promised_and_not_sent_takes_little_memory() {
        let mut stream = Promises { sent: b"\xff\xff0123456789", most: 0 };
        assert!(read(&mut stream, &Held::default()).await.is_err(), "its end came too early");
        assert!(stream.most <= 1024, "{} octets to read ten", stream.most);
    }

    /// A connection, the server's end of it, and the ports of both.
    async fn connected() -> ((Endpoint, quinn::Connection), (Endpoint, quinn::Connection)) {
        let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
        let (chain, provider) = (made.cert.der().clone(), Arc::new(ring::default_provider()));
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_protocol_versions(&[&TLS13]).unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![chain.clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(chain).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(&[&TLS13]).unwrap();
        let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
        let crypto = Arc::new(QuicServerConfig::try_from(server).unwrap());
        let server = quinn::ServerConfig::with_crypto(crypto);
        let listener = Endpoint::server(server, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let connecting = connect(config(&client).unwrap(), address, "dns.example", |_| false);
        let accepting = async { listener.accept().await.unwrap().await };
        let (connected, accepted) = futures::join!(connecting, accepting);
        (connected.unwrap(), (listener, accepted.unwrap()))
    }

    #[tokio::test]
    async fn fw54_a_server_may_send_little_over_quic_before_it_is_read() {
        let ((_port, connection), (_listener, accepted)) = connected().await;
        let (mut streams, mut sent) = (Vec::new(), 0);
        for _ in 0..MAX_QUERIES {
            let (mut ask, unread) = connection.open_bi().await.unwrap();
            ask.write_all(&[0]).await.unwrap();
            let (mut reply, question) = accepted.accept_bi().await.unwrap();
            if let Poll::Ready(octets) = futures::poll!(pin!(reply.write(&[0; 64 << 10]))) {
                sent += octets.unwrap();
            }
            streams.push((ask, unread, reply, question));
        }
        assert!((1..=32 << 10).contains(&sent), "{sent} octets");
    }

    #[tokio::test]
    async fn fw54_a_connection_of_quic_is_closed_after_ten_seconds_idle_or_without_a_reply() {
        for is_asked in [false, true] {
            let ((port, quic), (_listener, _far)) = connected().await;
            // Not before: a clock that stands still runs ahead while packets are under way.
            tokio::time::pause();
            let connections = idle();
            let (connection, queries) = connections.add_queue(CancellationToken::new());
            let carried = Arc::clone(&connection);
            tokio::spawn(carry(carried, port, quic, queries, Arc::default()));
            let waits = is_asked.then(|| connections.place(0, query, now()).unwrap());
            tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
            assert!(connection.is_open());
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!connection.is_open());
            if let Some(waits) = waits {
                assert!(waits.reply().await.is_err_and(|failure| failure.is_loss()));
            }
            tokio::time::resume();
        }
    }
}
