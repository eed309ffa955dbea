//! Messages as streams of QUIC (RFC 9250), one each, by quinn. No early data: a copy of it would be answered again.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, IdleTimeout, TransportConfig, VarInt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls;

use super::connection::{Connection, MAX_QUERIES, Message};
use super::failure::Failure;
use super::outlet::Query;
use crate::forward::now;

/// Octets of the length before each message (RFC 9250 §4.2).
const PREFIX: usize = 2;
/// Octets of a stream: the length, and what a DNS message may have.
const MAX_STREAM: u32 = PREFIX as u32 + 65_535;
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
    // Octets that a server may send before we read them: one message on each stream.
    transport.stream_receive_window(VarInt::from_u32(MAX_STREAM));
    transport.receive_window(VarInt::from_u32(MAX_STREAM * MAX_QUERIES as u32));
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
) -> Result<(Endpoint, quinn::Connection), Failure> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = Endpoint::client(any).map_err(Failure::connect)?;
    let connecting = endpoint.connect_with(config, address, name);
    let connecting = connecting.map_err(|error| Failure::protocol(&error.to_string()))?;
    let connection = connecting.await.map_err(|error| Failure::quic(&error))?;
    Ok((endpoint, connection))
}

/// Carries queries out and replies in, until the connection ends or is idle. Returns when its port is closed.
pub(super) async fn carry(
    connection: Arc<Connection>,
    endpoint: Endpoint,
    quic: quinn::Connection,
    mut queries: mpsc::Receiver<Query>,
) {
    let counted = Streams::default();
    let mut streams = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            // For any reason of the end, waiting queries are asked again on another connection.
            () = connection.end.cancelled() => break,
            _ = quic.closed() => break,
            Some((id, ended)) = streams.next(), if !streams.is_empty() => {
                connection.answered(id, ended, now());
            }
            Some(query) = queries.recv() => {
                streams.push(exchange(&connection, quic.clone(), &counted, query));
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
    let Query { id, octets } = query.without_id();
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
        read(&mut receive).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Failure::malformed(),
            _ => Failure::reset(&error.to_string()),
        })
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

/// The one message of a stream, behind its length. It takes about as much memory as has come: a server may promise the
/// longest message on thousands of streams, and send nothing.
///
/// # Errors
/// The stream breaks, ends before the message (`UnexpectedEof`), or holds more than it (`InvalidData`).
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Message> {
    let mut length = [0; PREFIX];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut octets = Vec::new();
    (&mut *stream).take(length as u64).read_to_end(&mut octets).await?;
    if octets.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match stream.read(&mut [0]).await? {
        0 => Ok(Message { octets, age_s: 0 }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Context;

    use tokio::io::ReadBuf;

    use super::*;

    #[tokio::test]
    async fn fw2_a_stream_of_quic_holds_one_whole_message() {
        let whole = read(&mut &[0, 2, 7, 8][..]).await.unwrap();
        assert_eq!(whole.octets, [7, 8]);
        let short = [&[][..], &[0], &[0, 2, 7]].map(|it| (it, io::ErrorKind::UnexpectedEof));
        let long = [&[0, 2, 7, 8, 9][..]].map(|it| (it, io::ErrorKind::InvalidData));
        for (mut wrong, kind) in short.into_iter().chain(long) {
            assert_eq!(read(&mut wrong).await.unwrap_err().kind(), kind);
        }
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
        assert!(read(&mut stream).await.is_err(), "its end came too early");
        assert!(stream.most <= 1024, "{} octets to read ten", stream.most);
    }
}
