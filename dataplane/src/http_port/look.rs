//! `/look?at=ADDRESS&as=UID`: whether another pod of our own Service answers. The operator asks this before it takes a silent
//! pod out of the Service: what is silent from two places is silent, and not cut off from one of them.
//!
//! It is no open proxy. `as` must be the uid of this very pod, which only those know who may read Pods; `at` must be an
//! endpoint of our own Service; and what is sent there is one question that any client may ask.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use axum::extract::{RawQuery, State as From};
use axum::http::StatusCode;
use crds::between_planes::{LONGEST_LOOK, LOOK_ANSWERS, LOOK_SILENT};
use dataplane_core::Records;
use dataplane_udp::wildcard;
use process::reached::{Attempt, Heard, first_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::{STARTING, Views, parameter};

/// Looks at a time: an operator and its standby ask about a few pods.
const MAX_LOOKS: usize = 8;
/// Octets of a reply that are read: its id and its flags say that it is one.
const HEADER: usize = 12;
/// Octets of a page that are read: `HTTP/1.1 200`.
const STATUS: usize = 12;
/// What is asked: one question, nothing else.
const ONE_QUESTION: [u8; 10] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
/// SOA, IN.
const SOA: [u8; 4] = [0, 6, 0, 1];
/// Set in the third octet of replies (RFC 1035 section 4.1.1).
const QR: u8 = 0x80;

/// What a look needs to know of this process.
#[derive(Debug)]
pub struct Looks {
    /// The uid of this pod; `None` where it is not known, and then no one may ask.
    pod_uid: Option<String>,
    /// Ports of this pod for DNS and for HTTP, which are those of all pods of our Service.
    ports: (u16, u16),
    places: Semaphore,
}

impl Looks {
    /// Of a process that answers at these ports.
    pub fn new(pod_uid: Option<String>, dns_port: u16, http_port: u16) -> Looks {
        let places = Semaphore::new(MAX_LOOKS);
        Looks { pod_uid, ports: (dns_port, http_port), places }
    }
}

/// The pod that a request asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    At(IpAddr),
    Refused(&'static str),
}

/// Handles `/look`: asks one pod of our Service over DNS and HTTP.
pub(super) async fn page(
    From(views): From<Views>,
    RawQuery(query): RawQuery,
) -> (StatusCode, &'static str) {
    let Some(running) = views.running.get() else { return STARTING };
    let looks = &running.looks;
    let published = running.state.published.load_full();
    let records = &published.records;
    let uid = looks.pod_uid.as_deref();
    let address = match asked(query.as_deref().unwrap_or_default(), uid, records) {
        Asked::At(address) => address,
        Asked::Refused(why) => return (StatusCode::FORBIDDEN, why),
    };
    // Not held while others are asked: these records would stay in memory (L17).
    let domain = records.domain().to_vec();
    drop(published);
    let Ok(_place) = looks.places.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many looks at once: ask again\n");
    };
    reply(answers(address, looks.ports, &domain).await)
}

fn reply(heard: Heard) -> (StatusCode, &'static str) {
    match heard {
        Heard::Answer => (StatusCode::OK, LOOK_ANSWERS),
        Heard::Silence => (StatusCode::OK, LOOK_SILENT),
        // The operator takes every other page for no report.
        Heard::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "this pod could not ask\n"),
    }
}

fn asked(query: &str, pod_uid: Option<&str>, records: &Records) -> Asked {
    let value = |key| parameter(query, key);
    if pod_uid.is_none() || value("as") != pod_uid {
        return Asked::Refused("as= is not the uid of this pod: only the operator asks this\n");
    }
    // ':' may be written as it is in a query (RFC 3986 section 3.4).
    match value("at").and_then(|at| at.parse::<IpAddr>().ok()).map(|at| at.to_canonical()) {
        Some(at) if records.is_behind_own_service(at) => Asked::At(at),
        Some(_) | None => Asked::Refused("at= is not the address of a pod behind our Service\n"),
    }
}

/// Asks over UDP, TCP and HTTP; the first answer counts, and silence is when all three have failed, or when the time is over.
async fn answers(address: IpAddr, (dns, http): (u16, u16), domain: &[u8]) -> Heard {
    let id: [u8; 2] = std::array::from_fn(|_| fastrand());
    let query = [&id[..], &ONE_QUESTION, domain, &SOA].concat();
    let dns = SocketAddr::new(address, dns);
    let attempts: Vec<Attempt<'_>> = vec![
        Box::pin(over_udp(&query, dns)),
        Box::pin(over_tcp(&query, dns)),
        Box::pin(over_http(SocketAddr::new(address, http))),
    ];
    first_answer(attempts, LONGEST_LOOK).await
}

/// One octet that is hard to guess.
fn fastrand() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8).to_le_bytes()[0]
}

async fn over_udp(query: &[u8], server: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((wildcard(server.ip()), 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut reply = [0; HEADER];
    loop {
        let length = socket.recv(&mut reply).await?;
        if is_reply(query, reply.get(..length).unwrap_or_default()) {
            return Ok(());
        }
    }
}

async fn over_tcp(query: &[u8], server: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX).to_be_bytes();
    stream.write_all(&[&length[..], query].concat()).await?;
    let mut reply = [0; 2 + HEADER];
    stream.read_exact(&mut reply).await?;
    is_reply(query, &reply[2..]).then_some(()).ok_or_else(something_else)
}

async fn over_http(server: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: clusterdns\r\nconnection: close\r\n\r\n")
        .await?;
    let mut reply = [0; STATUS];
    stream.read_exact(&mut reply).await?;
    // A proxy of a service mesh says 503 for a pod that does not answer it.
    let is_ok = reply.starts_with(b"HTTP/1.") && reply.ends_with(b" 200");
    is_ok.then_some(()).ok_or_else(something_else)
}

fn something_else() -> io::Error {
    ErrorKind::InvalidData.into()
}

fn is_reply(query: &[u8], reply: &[u8]) -> bool {
    reply.get(..2) == query.get(..2) && reply.get(2).is_some_and(|flags| flags & QR != 0)
}

#[cfg(test)]
mod tests {
    use dataplane_core::{Change, Endpoint, Index, Key, Object, Slice};

    use std::sync::Arc;

    use super::*;

    const UID: &str = "0f3c";

    /// Records in which this Service has an endpoint at this address.
    fn records(service: &str, address: &str) -> Arc<Records> {
        let settings = crate::settings::of(&crds::Config::default()).expect("settings");
        let mut index = Index::new(settings);
        let endpoint = Endpoint {
            addresses: vec![address.parse().unwrap()],
            ready: true,
            hostname: None,
            target: None,
        };
        index.apply(Change::Apply(Object::Slice(Slice {
            key: Key::new("kube-system", format!("{service}-1")),
            uid: 1,
            version: 1,
            service: service.into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: vec![endpoint],
        })));
        index.publish(1);
        index.records()
    }

    #[test]
    fn o20_a_look_is_for_who_knows_the_pod_and_at_pods_of_the_own_service() {
        let records = records("kube-dns", "10.0.0.7");
        let asked = |query: &str| asked(query, Some(UID), &records);
        let at = |at: &str| Asked::At(at.parse().unwrap());
        assert_eq!(asked("at=10.0.0.7&as=0f3c"), at("10.0.0.7"));
        assert_eq!(asked("as=0f3c&at=::ffff:10.0.0.7"), at("10.0.0.7"));
        for query in [
            "",
            "at=10.0.0.7",
            "at=10.0.0.7&as=",
            "at=10.0.0.7&as=0f3d",
            "as=0f3c",
            "at=10.0.0.8&as=0f3c",
            "at=127.0.0.1&as=0f3c",
            "at=169.254.169.254&as=0f3c",
            "at=node.example&as=0f3c",
        ] {
            assert!(matches!(asked(query), Asked::Refused(_)), "{query}");
        }
        let of_others = self::records("other", "10.0.0.7");
        let refused = super::asked("at=10.0.0.7&as=0f3c", Some(UID), &of_others);
        assert!(matches!(refused, Asked::Refused(_)), "another Service");
        let unknown = super::asked("at=10.0.0.7&as=", None, &records);
        assert!(matches!(unknown, Asked::Refused(_)), "a process that is no pod has no uid");
    }

    /// A Service in `kube-system`, and in an older namespace 65 names at the address of its pod, 64 of which claim to be Pods
    /// of that namespace; also one at an address that is no pod of ours.
    fn crowded_by_an_older_namespace(spec: &str) -> String {
        let mut text = format!(
            "
apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {{name: default}}
spec: {spec}
---
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec: {{clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{{port: 53}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: a-older}}
spec: {{clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{{port: 53}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns-1, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
endpoints: [{{addresses: [10.0.0.7], conditions: {{ready: true}}}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: many, namespace: a-older, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
endpoints:
- {{addresses: [10.0.0.9], conditions: {{ready: true}}}}
"
        );
        for number in 0..65 {
            let is_pod = number < 64;
            let pod = format!(", targetRef: {{kind: Pod, name: p-{number}, namespace: a-older}}");
            text.push_str(&format!(
                "- {{addresses: [10.0.0.7], hostname: h-{number}, conditions: {{ready: true}}{}}}\n",
                if is_pod { &pod } else { "" }
            ));
        }
        text
    }

    #[test]
    fn o20_rows_of_an_older_namespace_do_not_hide_a_pod_of_our_service() {
        for spec in [
            "{}",
            "{service: {clusterIPs: [10.96.0.10]}}",
            "{serviceAddresses: [10.96.0.10]}",
            // An address that no Service has, as that of a cache on each node.
            "{serviceAddresses: [169.254.20.10]}",
            // The clusterIP of a Service that is not ours.
            "{serviceAddresses: [10.96.0.11]}",
        ] {
            let folder = crate::snapshot::tests::Folder::new();
            let text = crowded_by_an_older_namespace(spec);
            std::fs::write(folder.0.join("objects.yaml"), text).unwrap();
            let setup = crate::source::writer::Setup::reporting_to(Arc::default());
            let files = crate::source::files::Files::open(&folder.0, setup).unwrap();
            let records = Arc::clone(&files.state().published.load().records);
            let asked = |at: &str| asked(&format!("at={at}&as={UID}"), Some(UID), &records);
            assert_eq!(asked("10.0.0.7"), Asked::At("10.0.0.7".parse().unwrap()), "{spec}");
            assert!(matches!(asked("10.0.0.9"), Asked::Refused(_)), "not of our namespace: {spec}");
        }
    }

    /// Sockets of one port over UDP and TCP that answer nothing. Where another process has the port over TCP, another port
    /// is taken.
    async fn silent(local: IpAddr) -> (UdpSocket, tokio::net::TcpListener, u16) {
        for _ in 0..100 {
            let udp = UdpSocket::bind((local, 0)).await.unwrap();
            let port = udp.local_addr().unwrap().port();
            if let Ok(tcp) = tokio::net::TcpListener::bind((local, port)).await {
                return (udp, tcp, port);
            }
        }
        panic!("no port is free over UDP and TCP");
    }

    #[tokio::test]
    async fn o20_what_answers_on_one_way_answers_and_a_closed_port_is_no_silence() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let (_silent_udp, _silent_tcp, port) = silent(local).await;
        let silent_http = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
        let http = silent_http.local_addr().unwrap().port();
        let domain = b"\x07cluster\x05local\0";
        // The kernel takes connections and nothing answers, as with a stopped process.
        assert_eq!(answers(local, (port, http), domain).await, Heard::Silence);
        drop(silent_http);
        assert_eq!(answers(local, (port, http), domain).await, Heard::Answer, "HTTP is refused");
    }

    #[tokio::test]
    async fn o20_a_proxy_that_says_for_a_silent_pod_that_it_is_away_is_no_answer() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let (_silent_udp, _silent_tcp, port) = silent(local).await;
        for (status, heard) in [
            ("503 Service Unavailable", Heard::Silence),
            ("404 Not Found", Heard::Silence),
            ("200 OK", Heard::Answer),
        ] {
            let proxy = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
            let http = proxy.local_addr().unwrap().port();
            let says = async {
                let (mut stream, _) = proxy.accept().await.unwrap();
                let page = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(page.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                it = answers(local, (port, http), b"\x07cluster\x05local\0") => {
                    assert_eq!(it, heard, "{status}");
                }
                () = says => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn o20_a_pod_that_cannot_ask_confirms_no_loss() {
        let heard = async |errors: &[io::Error]| {
            let mut attempts: Vec<Attempt<'_>> = Vec::new();
            for error in errors {
                let error = match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => error.kind().into(),
                };
                attempts.push(Box::pin(async { Err(error) }));
            }
            // One way that is silent.
            attempts.push(Box::pin(std::future::pending()));
            first_answer(attempts, LONGEST_LOOK).await
        };
        let os = io::Error::from_raw_os_error;
        let of_the_network =
            [os(libc::EHOSTUNREACH), os(libc::ETIMEDOUT), ErrorKind::UnexpectedEof.into()];
        assert_eq!(heard(&of_the_network).await, Heard::Silence);
        for alive in [libc::ECONNREFUSED, libc::ECONNRESET] {
            assert_eq!(heard(&[os(libc::ETIMEDOUT), os(alive)]).await, Heard::Answer, "{alive}");
        }
        use libc::{EADDRNOTAVAIL, EMFILE, ENETUNREACH, ENFILE, ENOBUFS, EPERM};
        for ours in [EMFILE, ENFILE, EADDRNOTAVAIL, ENETUNREACH, EPERM, ENOBUFS] {
            let heard = heard(&[os(libc::EHOSTUNREACH), os(ours)]).await;
            assert_eq!(heard, Heard::Unknown, "{}", os(ours));
        }
        let (code, page) = reply(Heard::Unknown);
        assert!(code == 503 && page != reply(Heard::Silence).1, "it is no report of silence");
    }

    #[test]
    fn only_a_reply_to_what_was_asked_is_one() {
        let query = [1, 2, 0, 0];
        assert!(is_reply(&query, &[1, 2, 0x84, 5]));
        assert!(!is_reply(&query, &[1, 2, 0, 0]), "the query itself");
        assert!(!is_reply(&query, &[1, 3, 0x84, 0]) && !is_reply(&query, &[1]));
    }
}
