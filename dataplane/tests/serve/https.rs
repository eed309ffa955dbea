//! DNS over HTTPS (RFC 8484): both versions of HTTP, what is refused, and the limits of TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dataplane::serve::{CloseReason, Deadlines, Encrypted, Limits};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{House, OURS, PATIENCE, Reply, THEIRS, connect_from, query};
use crate::tls::{NAME, Secret};

const DNS: &str = "application/dns-message";

pub(crate) fn trust(trusted: &CertificateDer<'static>, protocols: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

/// A query with an option for padding (RFC 7830).
pub(crate) fn with_padding(mut query: Vec<u8>) -> Vec<u8> {
    query[11] = 1;
    query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4, 0, 12, 0, 0]);
    query
}

pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

/// A connection in HTTP/1.1.
pub(crate) struct Client(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Client {
    pub(crate) fn connect(server: SocketAddr, trusted: &CertificateDer<'static>) -> Client {
        Client::over(TcpStream::connect(server).unwrap(), trusted)
    }

    /// A client with this address of its own.
    pub(crate) fn from(
        address: &str,
        server: SocketAddr,
        trusted: &CertificateDer<'static>,
    ) -> Client {
        Client::over(connect_from(address, server), trusted)
    }

    fn over(stream: TcpStream, trusted: &CertificateDer<'static>) -> Client {
        let config = trust(trusted, &[b"http/1.1"]);
        let session = ClientConnection::new(Arc::new(config), NAME.try_into().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(StreamOwned::new(session, stream))
    }

    pub(crate) fn request(&mut self, line: &str, headers: &str, body: &[u8]) -> Response {
        let head = format!("{line} HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n");
        self.0.write_all(&[head.as_bytes(), body].concat()).expect("send");
        self.response()
    }

    pub(crate) fn response(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            self.0.read_exact(&mut octet).expect("a response");
            head.push(octet[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a whole body");
        Response { status, head, body }
    }

    pub(crate) fn post(&mut self, message: &[u8]) -> Response {
        let headers = format!("Content-Type: {DNS}\r\nContent-Length: {}\r\n", message.len());
        self.request("POST /dns-query", &headers, message)
    }
}

/// No handshake, message or write takes too long, and no connection is idle for too long, however slow the machine is.
pub(crate) fn patient() -> Limits {
    let long = 10 * PATIENCE;
    let deadlines = Deadlines { idle: long, message: long, write: long, ..Deadlines::default() };
    Limits { deadlines, ..Limits::default() }
}

pub(crate) fn serve(
    limits: Limits,
    name: &str,
) -> (House, SocketAddr, CertificateDer<'static>, Secret) {
    let secret = Secret::new(name);
    let trusted = secret.renew();
    let house = House::on(&["127.0.0.1:0"], limits);
    let over = Encrypted::Https { path: "/dns-query".to_owned() };
    let addresses = house.serving.serve_encrypted(&over, 0, secret.0.clone()).expect("a port");
    (house, addresses[0], trusted, secret)
}

#[test]
fn t8_get_and_post_over_http_1_1_are_answered_as_over_tcp() {
    let (house, server, trusted, _secret) = serve(patient(), "https-one");
    let mut client = Client::connect(server, &trusted);
    let response = client.post(&query(7, OURS));
    assert_eq!((response.status, Reply::parse(&response.body)), (200, Reply::ours(7)));
    assert!(
        response.head.contains("content-type: application/dns-message\r\n"),
        "{}",
        response.head
    );
    // The TTL of our records.
    assert!(response.head.contains("cache-control: max-age=5\r\n"), "{}", response.head);
    let text = URL_SAFE_NO_PAD.encode(query(0, OURS));
    let response = client.request(&format!("GET /dns-query?dns={text}"), "", b"");
    assert_eq!((response.status, Reply::parse(&response.body)), (200, Reply::ours(0)));
    house.upstream.release();
    let response = client.post(&query(9, THEIRS));
    assert_eq!((response.status, Reply::parse(&response.body)), (200, Reply::theirs(9)));
    assert!(response.head.contains("cache-control: max-age=60\r\n"), "{}", response.head);
    let padded = client.post(&with_padding(query(1, OURS))).body;
    assert_eq!(padded.len() % 468, 0, "WR14: {}", padded.len());
    house.serving.close_idle_tcp();
    house.until("it ends", |house| house.serving.counters().tcp_closed(CloseReason::Drain) == 1);
}

#[test]
fn t8_what_is_no_query_gets_the_status_that_says_why() {
    let (house, server, trusted, _secret) = serve(patient(), "https-status");
    let mut client = Client::connect(server, &trusted);
    let typed = |kind: &str| format!("Content-Type: {kind}\r\nContent-Length: 0\r\n");
    let rows = [
        ("GET /", String::new(), 404),
        ("GET /dns-query", String::new(), 400),
        ("GET /dns-query?dns=*", String::new(), 400),
        ("GET /dns-query?dns=AAAA", String::new(), 400),
        ("DELETE /dns-query", String::new(), 405),
        ("POST /dns-query", typed("text/plain"), 415),
        ("POST /dns-query", typed(DNS), 400),
    ];
    for (line, headers, status) in rows {
        let response = client.request(line, &headers, b"");
        assert_eq!(response.status, status, "{line} {headers}");
        assert_eq!(status == 405, response.head.contains("allow: get, post\r\n"));
        assert!(response.body.is_empty());
    }
    let headers = format!("Content-Type: {DNS}\r\nContent-Length: 65536\r\nConnection: close\r\n");
    assert_eq!(client.request("POST /dns-query", &headers, b"").status, 413);
    let counted = house.serving.counters().encrypted.https_responses();
    let counted: Vec<_> = counted.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("400", 4), ("404", 1), ("405", 1), ("413", 1), ("415", 1)]);
}

/// A connection in HTTP/2 whose client takes this many octets of a response that it does not read.
pub(crate) async fn connect_h2(
    server: SocketAddr,
    trusted: &CertificateDer<'static>,
    window: u32,
) -> SendRequest<Full<Bytes>> {
    let connector = TlsConnector::from(Arc::new(trust(trusted, &[b"h2"])));
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let session = connector.connect(NAME.try_into().unwrap(), stream).await.unwrap();
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(window);
    let (sender, connection) = http.handshake(TokioIo::new(session)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The head of a response, whose body is not read yet.
pub(crate) async fn begin_h2(
    sender: &mut SendRequest<Full<Bytes>>,
    message: &[u8],
) -> hyper::Result<hyper::Response<Incoming>> {
    let request = Request::post("https://dns.example/dns-query")
        .header("content-type", DNS)
        .body(Full::new(Bytes::from(message.to_vec())))
        .unwrap();
    sender.ready().await?;
    sender.send_request(request).await
}

pub(crate) async fn ask_h2(
    sender: &mut SendRequest<Full<Bytes>>,
    message: &[u8],
) -> hyper::Result<(u16, Reply)> {
    let response = begin_h2(sender, message).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, Reply::parse(&body)))
}

#[test]
fn t8_queries_over_one_connection_of_http_2_are_answered_side_by_side() {
    let (house, server, trusted, _secret) = serve(patient(), "https-two");
    let answered = house.runtime.block_on(async {
        let sender = connect_h2(server, &trusted, 1 << 16).await;
        let ask = |id, name| {
            let mut sender = sender.clone();
            async move { ask_h2(&mut sender, &query(id, name)).await.expect("a response") }
        };
        // One waits for its upstream while others are answered.
        let waiting = tokio::spawn(ask(1, THEIRS));
        for id in 2..22 {
            assert_eq!(ask(id, OURS).await, (200, Reply::ours(id)));
        }
        assert!(!waiting.is_finished());
        house.upstream.release();
        waiting.await.unwrap()
    });
    assert_eq!(answered, (200, Reply::theirs(1)));
}

#[test]
fn wr44_a_client_at_its_limit_of_https_loses_its_longest_idle() {
    let limits = Limits { tcp_connections_per_client: 1, ..patient() };
    let (house, server, trusted, _secret) = serve(limits, "https-limits");
    let mut first = Client::connect(server, &trusted);
    assert_eq!(first.post(&query(1, OURS)).status, 200);
    let mut second = Client::connect(server, &trusted);
    assert_eq!(second.post(&query(2, OURS)).status, 200);
    let counters = house.serving.counters();
    house.until("the first gives way", |_| counters.tcp_closed(CloseReason::EvictedByClient) == 1);
}

#[test]
fn wr42_a_session_of_https_without_a_whole_request_is_closed() {
    let deadlines = Deadlines { idle: Duration::from_millis(300), ..patient().deadlines };
    let (house, server, trusted, _secret) = serve(Limits { deadlines, ..patient() }, "https-idle");
    let begun = [&b""[..], b"GET /dns-que"].map(|octets| {
        let Client(mut client) = Client::connect(server, &trusted);
        client.conn.complete_io(&mut client.sock).expect("a session");
        // On a slow machine it may be closed by now.
        let _ = client.write_all(octets);
        client
    });
    let counters = house.serving.counters();
    house.until("both are closed", |_| counters.tcp_closed(CloseReason::Idle) == 2);
    drop(begun);
}

#[test]
fn t8_a_client_over_http_1_1_that_ends_its_side_gets_its_response() {
    let (house, server, trusted, _secret) = serve(patient(), "https-half");
    let mut client = Client::connect(server, &trusted);
    let asked = query(3, THEIRS);
    let length = asked.len();
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: {DNS}\r\nContent-Length: {length}\r\n\r\n"
    );
    client.0.write_all(&[head.as_bytes(), &asked].concat()).expect("send");
    client.0.conn.send_close_notify();
    client.0.flush().expect("send");
    client.0.sock.shutdown(std::net::Shutdown::Write).expect("half a connection");
    house.until("it is looked up", |house| house.forwarder.lookups() == 1);
    house.upstream.release();
    let response = client.response();
    assert_eq!((response.status, Reply::parse(&response.body)), (200, Reply::theirs(3)));
    let counters = house.serving.counters();
    house.until("it is closed", |_| counters.tcp_closed(CloseReason::Client) == 1);
}

#[test]
fn t8_what_http_itself_refuses_is_counted_by_status() {
    let (house, server, trusted, _secret) = serve(patient(), "https-refused");
    let mut endless = "GET /dns-query HTTP/1.1\r\nX: ".to_owned();
    // Exactly as much as is read, so that what is left unread does not reset the connection.
    endless.push_str(&"x".repeat((16 << 10) - endless.len()));
    for (head, status) in [(endless.as_str(), 431), ("@ /dns-query HTTP/1.1\r\n\r\n", 400)] {
        let Client(mut client) = Client::connect(server, &trusted);
        client.write_all(head.as_bytes()).expect("send");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("a response");
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes());
    }
    // HTTP/2 compresses headers: their size is known late.
    let answered = house.runtime.block_on(async {
        let mut sender = connect_h2(server, &trusted, 1 << 16).await;
        sender.ready().await.unwrap();
        let request = Request::get("https://dns.example/dns-query")
            .header("x", "x".repeat(20_000))
            .body(Full::default())
            .unwrap();
        sender.send_request(request).await.unwrap().status()
    });
    assert_eq!(answered, 431);
    let counters = house.serving.counters();
    house.until("they are counted", |_| {
        let counted = counters.encrypted.https_responses();
        counted.into_iter().filter(|(_, count)| *count > 0).eq([("400", 1), ("431", 2)])
    });
}

#[test]
fn t8_what_the_library_of_http_2_refuses_by_itself_is_counted() {
    let (house, server, trusted, _secret) = serve(patient(), "https-refused-h2");
    let counters = house.serving.counters();
    let ask = |octets: usize, body: &'static [u8]| {
        let (house, trusted) = (&house, &trusted);
        house.runtime.block_on(async move {
            let mut sender = connect_h2(server, trusted, 1 << 16).await;
            sender.ready().await.unwrap();
            let request = Request::post("https://dns.example/dns-query")
                .header("x", "x".repeat(octets))
                .body(Full::new(Bytes::from_static(body)))
                .unwrap();
            let response = sender.send_request(request).await;
            (response.ok().map(|response| response.status().as_u16()), sender)
        })
    };
    let refused = |status: u64, reset: u64| {
        let responses = counters.encrypted.https_responses();
        let resets = counters.encrypted.http2_resets();
        responses.into_iter().filter(|(_, count)| *count > 0).eq([("431", status)])
            && resets.into_iter().filter(|(_, count)| *count > 0).map(|it| it.1).sum::<u64>()
                == reset
    };
    // More than the library takes, and less than what it ends the connection for.
    let (status, _connection) = ask(40_000, b"");
    assert_eq!(status, Some(431));
    house.until("the response is counted", |_| refused(1, 0));
    // With a body to come the stream is reset as well; its client may see either first.
    let _connection = ask(40_000, b"x").1;
    house.until("the reset is counted", |_| refused(2, 1));
    // That much ends the connection.
    assert_eq!(ask(400_000, b"").0, None);
    house.until("the end is counted", |_| counters.tcp_closed(CloseReason::NotAQuery) == 1);
    assert!(refused(2, 1), "as what it is");
}
