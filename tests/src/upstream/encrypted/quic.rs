//! QUIC: one query per stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, TokioRuntime,
    TransportConfig,
};
use tokio::task::JoinSet;
use tokio_rustls::rustls::ServerConfig;

use super::super::script::Stream;
use super::{Encrypted, Shared, UpstreamTransport};

/// Some code of the application.
const RESET: u32 = 5;

pub(super) async fn serve(
    shared: &Arc<Shared>,
    encrypted: &Arc<Encrypted>,
    config: Arc<ServerConfig>,
    socket: std::net::UdpSocket,
) {
    let tls = QuicServerConfig::try_from(config).expect("TLS 1.3");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    if let Some(streams) = encrypted.streams {
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(streams.into());
        config.transport_config(Arc::new(transport));
    }
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime);
    let endpoint = endpoint.expect("a socket");
    while let Some(incoming) = endpoint.accept().await {
        let (shared, encrypted) = (Arc::clone(shared), Arc::clone(encrypted));
        tokio::spawn(async move {
            // The client closes, breaks off, or refuses our certificate: all end the connection.
            _ = connection(&shared, &encrypted, incoming).await;
        });
    }
}

async fn connection(shared: &Arc<Shared>, encrypted: &Encrypted, incoming: Incoming) -> Result<()> {
    if encrypted.stalls {
        let _open = incoming;
        return std::future::pending().await;
    }
    let connection = if encrypted.takes_early_data {
        // It takes streams before the handshake ends.
        let connecting = incoming.accept()?;
        match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(connecting) => connecting.await?,
        }
    } else {
        incoming.await?
    };
    shared.handshakes.count(false);
    let queries = AtomicUsize::new(0);
    let mut streams = JoinSet::new();
    loop {
        let (send, receive) = connection.accept_bi().await?;
        if receive.is_0rtt() {
            shared.handshakes.count_early();
        }
        if encrypted.ends(queries.fetch_add(1, Ordering::Relaxed) + 1) {
            connection.close(0u32.into(), b"");
            return Ok(());
        }
        streams.spawn(stream(Arc::clone(shared), connection.clone(), send, receive));
    }
}

async fn stream(
    shared: Arc<Shared>,
    connection: Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<()> {
    let framed = receive.read_to_end(2 + 65_535).await?;
    let (length, packet) = framed.split_first_chunk().context("no length")?;
    let from = connection.remote_address();
    let is_whole = usize::from(u16::from_be_bytes(*length)) == packet.len();
    // Id 0 (RFC 9250 §4.2.1).
    anyhow::ensure!(is_whole && packet.starts_with(&[0, 0]), "not one message with id 0");
    let reaction = shared.receive(packet, from, UpstreamTransport::Quic).context("not a query")?;
    tokio::time::sleep(reaction.delay).await;
    let Some(reply) = reaction.reply else {
        // Until the client asks for no reply any more (RFC 9000 §3.5).
        send.stopped().await?;
        return Ok(());
    };
    match reaction.stream {
        Stream::Answer | Stream::Once => {
            let framed = [&u16::try_from(reply.len())?.to_be_bytes()[..], &reply].concat();
            send.write_all(&framed).await?;
            send.finish()?;
            send.stopped().await?;
        }
        Stream::Close => send.reset(RESET.into())?,
        Stream::Hang => std::future::pending().await,
        Stream::Half => {
            send.write_all(&u16::try_from(reply.len())?.to_be_bytes()).await?;
            send.write_all(&reply[..reply.len() / 2]).await?;
            send.finish()?;
            send.stopped().await?;
        }
    }
    Ok(())
}
