//! DNS over TLS (RFC 7858): a connection of the TCP side behind a handshake, with its limits and deadlines.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::super::certificate::{Certificate, LOOK_EVERY};
use super::super::counters::CloseReason;
use super::super::responder::Asker;
use super::TcpServer;
use super::connection::Connection;
use super::table::Permit;

/// What a session is counted as, about what rustls keeps for it.
pub(super) const SESSION_OCTETS: usize = 16 << 10;

/// One more listener, for TLS.
#[derive(Debug)]
pub(in crate::serve) struct Listener {
    pub(in crate::serve) tcp: std::net::TcpListener,
    pub(in crate::serve) certificate: Arc<Certificate>,
}

impl Listener {
    pub(super) fn open(self) -> io::Result<(TcpListener, Arc<Certificate>)> {
        Ok((TcpListener::from_std(self.tcp)?, self.certificate))
    }
}

/// Looks at a certificate's files for as long as its listener is there.
pub(super) async fn follow(server: Rc<TcpServer>, certificate: Arc<Certificate>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let certificate = Arc::clone(&certificate);
        // Files of a slow disk must not hold up connections.
        let _ = server.runtime.spawn_blocking(move || certificate.refresh()).await;
    }
}

/// One connection from its handshake to its end.
pub(super) async fn attend(
    server: Rc<TcpServer>,
    stream: TcpStream,
    asker: Asker,
    permit: Permit,
    certificate: Arc<Certificate>,
) -> CloseReason {
    // Without a certificate there is nothing to begin with: it is reported where it is read.
    let Some(config) = certificate.config() else { return CloseReason::Refused };
    let stream = match handshake(&server, stream, &permit, config).await {
        Ok(stream) => stream,
        Err(reason) => return reason,
    };
    let mut connection = Connection::behind(server, stream, asker, permit, true);
    let reason = connection.run().await;
    // The alert that says that nothing was cut off. It is small: a client that does not take it gets none.
    let closed = tokio::time::timeout(CLOSE_WITHIN, connection.stream.shutdown());
    let _ = closed.await;
    reason
}

/// How long the end of a session may take.
const CLOSE_WITHIN: std::time::Duration = std::time::Duration::from_millis(100);

/// A handshake has the time of a message (WR42), and gives way like an idle connection (WR44).
async fn handshake(
    server: &TcpServer,
    stream: TcpStream,
    permit: &Permit,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<TcpStream>, CloseReason> {
    let within = server.table.deadlines().message;
    let accepted = tokio::time::timeout(within, TlsAcceptor::from(config).accept(stream));
    tokio::select! {
        reason = poll_fn(|cx| permit.poll_close(cx)) => Err(reason),
        accepted = accepted => match accepted {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(_)) => Err(CloseReason::Failed),
            Err(_) => Err(CloseReason::SlowMessage),
        },
    }
}
