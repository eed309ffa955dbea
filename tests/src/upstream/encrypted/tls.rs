//! TLS over TCP: messages behind their length, or HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::super::reply::Reaction;
use super::super::script::Stream;
use super::{Encrypted, Shared, UpstreamTransport, https};

/// The type of a record with a part of a handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

pub(super) async fn serve(
    shared: &Arc<Shared>,
    encrypted: &Arc<Encrypted>,
    config: Arc<ServerConfig>,
    listener: TcpListener,
) {
    let acceptor = TlsAcceptor::from(config);
    loop {
        let Ok((stream, from)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (shared, encrypted) = (Arc::clone(shared), Arc::clone(encrypted));
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if encrypted.stalls {
                let _open = stream;
                return std::future::pending().await;
            }
            if is_in_clear_text(&stream).await {
                return shared.handshakes.count_clear();
            }
            // The client closes, breaks off, or refuses our certificate: all end the connection.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if stream.get_mut().1.early_data().is_some() {
                shared.handshakes.count_early();
            }
            let kind = stream.get_ref().1.handshake_kind();
            shared.handshakes.count(kind == Some(HandshakeKind::Resumed));
            match encrypted.over {
                UpstreamTransport::Https => https::serve(&shared, &encrypted, stream, from).await,
                UpstreamTransport::Udp
                | UpstreamTransport::Tcp
                | UpstreamTransport::Tls
                | UpstreamTransport::Quic => {
                    _ = messages(&shared, &encrypted, stream, from).await;
                }
            }
        });
    }
}

/// Where nothing is served over TCP: counts what still comes in clear text.
pub(super) async fn refuse(shared: &Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            if is_in_clear_text(&stream).await {
                shared.handshakes.count_clear();
            }
        });
    }
}

/// Whether a client begins with something else than a handshake. One that sends nothing says nothing.
async fn is_in_clear_text(stream: &TcpStream) -> bool {
    let mut first = [0];
    stream.peek(&mut first).await.is_ok_and(|octets| octets == 1) && first != [HANDSHAKE]
}

/// Queries are answered side by side: the one that has waited enough comes first.
async fn messages(
    shared: &Arc<Shared>,
    encrypted: &Encrypted,
    stream: TlsStream<TcpStream>,
    from: SocketAddr,
) -> Result<()> {
    let (mut reader, writer) = tokio::io::split(stream);
    let writer = Arc::new(Mutex::new(writer));
    // Those that are left end with the connection.
    let mut replies = JoinSet::new();
    for queries in 1.. {
        let packet = tokio::select! {
            packet = read(&mut reader) => packet?,
            Some(ended) = replies.join_next() => {
                ended??;
                continue;
            }
        };
        if encrypted.ends(queries) {
            break;
        }
        let reaction =
            shared.receive(&packet, from, UpstreamTransport::Tls).context("not a query")?;
        if reaction.stream == Stream::Close {
            break;
        }
        replies.spawn(reply(Arc::clone(&writer), reaction));
    }
    Ok(())
}

async fn read(reader: &mut ReadHalf<TlsStream<TcpStream>>) -> Result<Vec<u8>> {
    let mut packet = vec![0; reader.read_u16().await?.into()];
    reader.read_exact(&mut packet).await?;
    Ok(packet)
}

async fn reply(
    writer: Arc<Mutex<WriteHalf<TlsStream<TcpStream>>>>,
    reaction: Reaction,
) -> Result<()> {
    tokio::time::sleep(reaction.delay).await;
    let Some(reply) = reaction.reply else { return Ok(()) };
    let framed = [&u16::try_from(reply.len())?.to_be_bytes()[..], &reply].concat();
    let mut writer = writer.lock().await;
    writer.write_all(&framed).await?;
    writer.flush().await?;
    Ok(())
}
