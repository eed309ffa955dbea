//! Messages as streams of QUIC (RFC 9250), one each, by quinn. No early data: a copy of it would be answered again.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, IdleTimeout, TransportConfig, VarInt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_rustls::rustls;

use super::{Connection, Failure, IDLE, MAX_QUERIES, Message, Query};
use crate::forward::now;

/// Octets of the length before each message (RFC 9250 §4.2).
const PREFIX: usize = 2;
/// Octets of a stream: the length, and what a DNS message may have.
const MAX_STREAM: u32 = PREFIX as u32 + 65_535;
/// No packet in so long, not even an acknowledgement, and the connection is over.
const DEAD: Duration = Duration::from_secs(15);
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
    // What a server may send that we have not read: one message on each stream.
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

/// Carries queries out and replies in, until the connection ends or is idle.
pub(super) async fn carry(
    connection: Arc<Connection>,
    quic: quinn::Connection,
    mut queries: mpsc::Receiver<Query>,
) {
    let mut streams = FuturesUnordered::new();
    let mut heard = now();
    loop {
        tokio::select! {
            biased;
            // What waits is asked again elsewhere, whatever ended it.
            () = connection.end.cancelled() => break,
            _ = quic.closed() => break,
            Some((id, ended)) = streams.next(), if !streams.is_empty() => {
                heard = now();
                connection.answered(id, ended, heard);
            }
            Some(query) = queries.recv() => streams.push(exchange(quic.clone(), query)),
            () = sleep_until((heard + IDLE).into()) => break,
        }
    }
    connection.close();
    quic.close(NO_ERROR, b"");
}

/// One stream: the query with id 0, then its reply (RFC 9250 §4.2.1).
async fn exchange(quic: quinn::Connection, query: Query) -> (u16, Result<Message, Failure>) {
    let Query { id, octets } = query.without_id();
    let reply = async {
        let (mut send, mut receive) =
            quic.open_bi().await.map_err(|error| Failure::reset(&error.to_string()))?;
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

/// The one message of a stream, behind its length. Memory is taken for that length, however much the server sends.
///
/// # Errors
/// The stream breaks, ends before the message (`UnexpectedEof`), or holds more than it (`InvalidData`).
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Message> {
    let mut length = [0; PREFIX];
    stream.read_exact(&mut length).await?;
    let mut octets = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut octets).await?;
    match stream.read(&mut [0]).await? {
        0 => Ok(Message { octets, age_s: 0 }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
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
}
