//! One client connection: TLS and HTTP for as long as the link is up, and an RST when it is cut.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::Link;
use super::forward::{Upstream, answer};
use super::rules::Rules;

/// Serves one connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    tls: TlsAcceptor,
    upstream: Arc<Upstream>,
    rules: Arc<Rules>,
) {
    // A second handle: the first is inside TLS, inside HTTP, when the connection has to be reset.
    let Ok(socket) = SockRef::from(&stream).try_clone() else { return };
    let _ = stream.set_nodelay(true);
    let reset_asked = Arc::new(Notify::new());
    let mut link = rules.link();
    let mut serving =
        Box::pin(speak(stream, tls, upstream, Arc::clone(&rules), Arc::clone(&reset_asked)));
    loop {
        let state = *link.borrow_and_update();
        match state {
            Link::Cut => break,
            // Nothing is polled, so nothing moves.
            Link::Hung => _ = link.changed().await,
            Link::Up => tokio::select! {
                () = &mut serving => return,
                () = reset_asked.notified() => break,
                _ = link.changed() => {}
            },
        }
    }
    reset(&socket);
    // The RST goes out when the last handle closes.
    drop(serving);
}

fn reset(socket: &Socket) {
    let _ = socket.set_linger(Some(Duration::ZERO));
}

async fn speak(
    stream: TcpStream,
    tls: TlsAcceptor,
    upstream: Arc<Upstream>,
    rules: Arc<Rules>,
    reset: Arc<Notify>,
) {
    // Clients that give up in the middle are part of the tests, so no error here is reported.
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| {
        answer(request, Arc::clone(&upstream), Arc::clone(&rules), Arc::clone(&reset))
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
