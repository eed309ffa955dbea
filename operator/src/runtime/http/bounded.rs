//! HTTP connections in bounds, in all and per client, each for so long: clients that hold many open, or open them as
//! fast as they can, do not keep probes out (L14). As in the data plane, with which the operator shares no code.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::places::{Limits, Places};

/// HTTP connections at a time: of kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 128;
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

fn admit(open: &Arc<Open>, stream: tokio::net::TcpStream, client: SocketAddr, router: &Router) {
    let (mark, taken_back) = oneshot::channel();
    let client = client.ip().to_canonical();
    let number = open.lock().unwrap_or_else(PoisonError::into_inner).admit(client, mark);
    let (open, router) = (open.clone(), router.clone());
    tokio::spawn(async move {
        let _ = stream.set_nodelay(true);
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        tokio::select! {
            // How a connection ends is its client's affair.
            _ = served => {}
            // Its mark was dropped.
            _ = taken_back => {}
            () = tokio::time::sleep(MAX_AGE) => {}
        }
        open.lock().unwrap_or_else(PoisonError::into_inner).leave(number);
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::get;

    use super::*;

    fn ask(mut stream: TcpStream) -> String {
        let request = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn l14_a_probe_is_answered_beside_more_connections_than_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(serve(listener, router));
        let answers = tokio::task::spawn_blocking(move || {
            let connect = || TcpStream::connect(address).expect("a connection");
            let crowd: Vec<_> = (0..3 * MAX_CONNECTIONS).map(|_| connect()).collect();
            let answer = ask(connect());
            // Those of one address beyond its share are closed, not kept.
            let closed = crowd.into_iter().filter_map(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
                (stream.read(&mut [0]).ok()? == 0).then_some(())
            });
            (answer, closed.take(3 * MAX_CONNECTIONS - MAX_PER_CLIENT).count())
        });
        let (answer, closed) = answers.await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK");
        assert_eq!(closed, 3 * MAX_CONNECTIONS - MAX_PER_CLIENT);
    }
}
