//! HTTP connections in bounds: so many, in all and per client, each for so long. Clients that hold many open, or open
//! them as fast as they can, neither use up the descriptors that DNS needs nor keep probes out (L14).

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::places::{Limits, Places};

/// HTTP connections at a time: of kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 256;
/// Of these, of one client address.
const MAX_PER_CLIENT: usize = 16;
/// After so long a connection ends; clients open another.
const MAX_AGE: Duration = Duration::from_secs(60);
/// From the first octet of a request to the end of its head.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Octets of one connection that wait to be read or written.
const BUFFER: usize = 16 << 10;
/// Without a free descriptor, try again so often.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who asks, for the handlers: an IPv4-mapped address is the IPv4 one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client(pub(super) IpAddr);

type Open = Mutex<Places<oneshot::Sender<()>>>;

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let limits = Limits { connections: MAX_CONNECTIONS, per_client: MAX_PER_CLIENT };
    let open = Arc::new(Mutex::new(Places::new(limits)));
    loop {
        match listener.accept().await {
            Ok((stream, client)) => admit(&open, stream, client, &router),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn admit(open: &Arc<Open>, stream: TcpStream, client: SocketAddr, router: &Router) {
    let client = client.ip().to_canonical();
    let (mark, taken_back) = oneshot::channel();
    let number = open.lock().unwrap_or_else(PoisonError::into_inner).admit(client, mark);
    let (open, router) = (open.clone(), router.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = attend(stream, client, router) => {}
            // Its mark was dropped.
            _ = taken_back => {}
            () = tokio::time::sleep(MAX_AGE) => {}
        }
        open.lock().unwrap_or_else(PoisonError::into_inner).leave(number);
    });
}

async fn attend(stream: TcpStream, client: IpAddr, router: Router) {
    // Answers are short: nothing is gained by holding one back.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(Client(client));
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|e| match e {})) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    // How a connection ends is its client's affair.
    let _ = served.await;
}
