//! HTTP connections in bounds: a number in all and per client, each for a limited time. Clients that hold many open, or
//! open them as fast as they can, neither use up the descriptors that DNS needs nor keep probes out (L14).

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::begun_request::Noted;
use super::places::{Limits, Places};
use super::rebinding::{REBOUND, is_rebound};

/// Connections of one client address at a time.
const MAX_PER_CLIENT: usize = 16;
/// Longest life of a connection; clients open another.
const MAX_AGE: Duration = Duration::from_secs(60);
/// From the end of the reply before, or the beginning of the connection, to the end of the head of a request. A connection on
/// which no request comes within this time is closed too, which is no refusal.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Octets of one connection that wait to be read or written.
const BUFFER: usize = 16 << 10;
/// Wait before the next attempt when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who asks, for the handlers: an IPv4-mapped address is the IPv4 one.
#[derive(Clone, Copy, Debug)]
pub struct Client(pub IpAddr);

impl Client {
    /// On this machine's own loopback. [`serve`] has refused what came from there for another host, except for probes.
    pub fn is_from_here(self) -> bool {
        self.0.is_loopback()
    }
}

/// Why a client did not get what it may have wanted.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Refusal {
    /// Closed for another connection: of the same client, or while all places were taken (L14).
    Evicted,
    /// Closed after [`MAX_AGE`].
    Age,
    /// The head of a request took longer than [`HEAD_WITHIN`].
    SlowHead,
    /// What came is no HTTP, or larger than [`BUFFER`].
    NotHttp,
    /// The system gave no connection, as without a free descriptor.
    AcceptFailed,
}

/// Labels of metrics, in the order of the reasons.
const LABELS: [&str; 5] = ["evicted", "age", "slow_head", "not_http", "accept_failed"];
/// Of all ports of this process.
static REFUSALS: [AtomicU64; LABELS.len()] = [const { AtomicU64::new(0) }; LABELS.len()];

impl Refusal {
    fn count(self) {
        REFUSALS[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// How many connections and requests of HTTP this process has refused or cut short, by reason.
pub fn refusals() -> [(&'static str, u64); LABELS.len()] {
    std::array::from_fn(|place| (LABELS[place], REFUSALS[place].load(Ordering::Relaxed)))
}

type Open = Mutex<Places<oneshot::Sender<()>>>;

/// Serves until the process ends, with at most this many connections at a time. Requests carry a [`Client`] extension.
/// Those of a web page whose name was bound to loopback are refused.
pub async fn serve(listener: TcpListener, router: Router, connections: usize) {
    let limits = Limits { connections, per_client: MAX_PER_CLIENT };
    let open = Arc::new(Mutex::new(Places::new(limits)));
    loop {
        match listener.accept().await {
            Ok((stream, client)) => admit(&open, stream, client, &router),
            Err(_) => {
                Refusal::AcceptFailed.count();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
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
            // First: a request that came with its connection is answered, also if newer connections took its place before this
            // task had its turn. So kubelet is answered where others ask from its address.
            biased;
            () = attend(stream, client, router) => {}
            // The table dropped the mark: this connection must close.
            _ = taken_back => Refusal::Evicted.count(),
            () = tokio::time::sleep(MAX_AGE) => Refusal::Age.count(),
        }
        open.lock().unwrap_or_else(PoisonError::into_inner).leave(number);
    });
}

async fn attend(stream: TcpStream, client: IpAddr, router: Router) {
    // Answers are short: delaying one gains nothing.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(Client(client));
        let router = router.clone();
        async move {
            if is_rebound(client, request.uri().path(), request.headers()) {
                return Ok((StatusCode::FORBIDDEN, REBOUND).into_response());
            }
            Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|e| match e {}))
        }
    });
    let (stream, has_begun) = Noted::new(stream);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    // An error here is the end of this connection only.
    match served.await {
        Err(error) if error.is_timeout() && has_begun.get() => Refusal::SlowHead.count(),
        Err(error) if error.is_parse() => Refusal::NotHttp.count(),
        // The client went away, or asked for nothing more.
        Err(_) | Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::get;

    use super::*;

    const CONNECTIONS: usize = 128;

    /// The first line of the reply to a request for another host.
    fn ask(mut stream: TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn l14_a_probe_is_answered_beside_more_connections_than_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(serve(listener, router, CONNECTIONS));
        let answers = tokio::task::spawn_blocking(move || {
            let connect = || TcpStream::connect(address).expect("a connection");
            let crowd: Vec<_> = (0..3 * CONNECTIONS).map(|_| connect()).collect();
            let answer = ask(connect(), "/livez");
            // Those of one address beyond its share are closed, not kept.
            let closed = crowd.into_iter().filter_map(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
                (stream.read(&mut [0]).ok()? == 0).then_some(())
            });
            (answer, closed.take(3 * CONNECTIONS - MAX_PER_CLIENT).count())
        });
        let (answer, closed) = answers.await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK");
        assert_eq!(closed, 3 * CONNECTIONS - MAX_PER_CLIENT);
        // A client may see the end of its connection before the task that closed it has counted it.
        until_counted("evicted", closed as u64).await;
    }

    /// Waits until this many refusals are counted; other tests of this process may add more.
    async fn until_counted(reason: &str, count: u64) {
        let counted = || refusals().iter().find(|(label, _)| *label == reason).expect("a reason").1;
        let waiting = async {
            while counted() < count {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "{reason}: {} of {count}", counted());
    }

    #[tokio::test]
    async fn l14_what_came_with_a_connection_is_answered_although_newer_ones_took_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // All wait when the first is accepted; the kernel may have room for 128.
        let clients = [(); 5 * MAX_PER_CLIENT].map(|()| {
            let mut client = TcpStream::connect(address).unwrap();
            let request = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            client.write_all(request).unwrap();
            client
        });
        let router = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(serve(listener, router, CONNECTIONS));
        let answered = tokio::task::spawn_blocking(move || {
            let answers = clients.into_iter().filter_map(|mut client| {
                let mut text = String::new();
                client.read_to_string(&mut text).ok()?;
                text.starts_with("HTTP/1.1 200 OK").then_some(())
            });
            answers.count()
        });
        assert_eq!(answered.await.unwrap(), 5 * MAX_PER_CLIENT);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn n41_every_port_refuses_a_web_page_that_bound_its_name_to_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = || get(|| async { "ok\n" });
        let router = Router::new().route("/livez", page()).route("/metrics", page());
        tokio::spawn(serve(listener, router, CONNECTIONS));
        let status = async |path: &'static str| {
            let asked = move || ask(TcpStream::connect(address).expect("a connection"), path);
            tokio::task::spawn_blocking(asked).await.unwrap()
        };
        assert_eq!(status("/livez").await, "HTTP/1.1 200 OK");
        assert_eq!(status("/metrics").await, "HTTP/1.1 403 Forbidden");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn l14_only_a_request_that_comes_too_slowly_is_a_refusal_and_no_idle_connection() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(serve(listener, router, CONNECTIONS));
        let slow_heads = || refusals().into_iter().find(|(label, _)| *label == "slow_head");
        let before = slow_heads();
        let ask = async |request: &str| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text).await;
            text
        };
        // A scraper that keeps its connection, one that says nothing at all, and one that does not end its request.
        let requests = ["GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", "", "GET /livez HT"];
        let [kept, silent, slow] = requests.map(ask);
        let (kept, silent, _slow) = tokio::join!(kept, silent, slow);
        assert!(kept.starts_with("HTTP/1.1 200 OK") && silent.is_empty(), "{kept}{silent}");
        let expected = before.map(|(label, count)| (label, count + 1));
        until_counted("slow_head", expected.unwrap().1).await;
        assert_eq!(slow_heads(), expected);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn l14_what_is_no_http_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new(), CONNECTIONS));
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(b"@ /\r\n\r\n").expect("a connection");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            text
        });
        assert!(answer.await.unwrap().starts_with("HTTP/1.1 400"));
        until_counted("not_http", 1).await;
    }
}
