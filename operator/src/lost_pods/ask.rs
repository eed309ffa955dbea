//! One question to one pod, over UDP, TCP and HTTP at the same time, and one to a data plane that looks at another
//! pod. It does I/O only.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crds::ClusterDNS;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption, NSIDPayload};
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::silence::Heard;
use crate::ask_pods::canary_analysis::query;
use crate::ask_pods::pod_reports::http_address;
use crate::observe::pods;

/// Time for a reply over UDP alone; after it, TCP and HTTP are tried beside it.
const OVER_UDP_ALONE: Duration = Duration::from_millis(250);
/// Time for an answer over any of the three. A dead node is noticed after three rounds and this time.
const PATIENCE: Duration = Duration::from_millis(700);
/// Time for the report of another data plane, which looks for 0.6 s.
const FOR_A_LOOK: Duration = Duration::from_millis(850);
/// Longest datagram that is read.
const MAX_DATAGRAM: usize = 4096;
/// Octets of an HTTP reply that are read.
const MAX_PAGE: u64 = 1024;

/// A pod that is asked.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) node: String,
    dns: SocketAddr,
    http: String,
    domain: Name,
}

/// How a ready pod is asked; `None` if its status has no address. Other data planes look only at addresses behind the Service, which
/// are of its families.
pub(super) fn target(dns: &ClusterDNS, pod: &Pod) -> Option<Target> {
    let served = dns.status.iter().flat_map(|status| &status.cluster_ips);
    let served: Vec<IpAddr> = served.filter_map(|text| text.parse().ok()).collect();
    Some(Target {
        uid: pods::uid(pod).to_owned(),
        name: pods::name(pod).to_owned(),
        namespace: pod.namespace()?,
        node: pod.spec.as_ref()?.node_name.clone()?,
        dns: SocketAddr::new(pods::address_beside(pod, &served)?, pods::dns_port(pod, dns)),
        http: http_address(pod)?,
        domain: Name::from_ascii(format!("{}.", dns.spec.domain)).ok()?,
    })
}

/// Asks over UDP and, a moment later, also over TCP and at `/livez`: the first answer counts.
pub(super) async fn ask(pod: &Target) -> Heard {
    let attempts = FuturesUnordered::new();
    attempts.push(boxed(over_udp(pod)));
    attempts.push(boxed(async {
        tokio::time::sleep(OVER_UDP_ALONE).await;
        over_tcp(pod).await
    }));
    attempts.push(boxed(async {
        tokio::time::sleep(OVER_UDP_ALONE).await;
        get(&pod.http, "/livez").await.map(drop)
    }));
    first_answer(attempts, PATIENCE).await
}

/// Asks one data plane whether another pod answers.
pub(super) async fn look(by: &Target, pod: &Target) -> Heard {
    let path = format!("/look?at={}&as={}", pod.dns.ip(), by.uid);
    match timeout(FOR_A_LOOK, get(&by.http, &path)).await {
        Ok(Ok(page)) if page.ends_with("\r\n\r\nsilent\n") => Heard::Silence,
        Ok(Ok(page)) if page.ends_with("\r\n\r\nanswers\n") => Heard::Answer,
        // A data plane of another version, or one that may not look: nothing is known about the pod.
        Ok(Ok(_) | Err(_)) | Err(_) => Heard::Unknown,
    }
}

type Attempt<'a> = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

fn boxed<'a>(attempt: impl Future<Output = io::Result<()>> + Send + 'a) -> Attempt<'a> {
    Box::pin(attempt)
}

async fn first_answer(mut attempts: FuturesUnordered<Attempt<'_>>, patience: Duration) -> Heard {
    let mut is_ours = false;
    let heard = async {
        while let Some(heard) = attempts.next().await {
            match heard.map_err(|error| error.kind()) {
                // The kernel of its node answered: the node is alive, and its kubelet decides.
                Ok(()) | Err(ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => {
                    return true;
                }
                // Errors of the network between us: not an answer of the pod.
                Err(
                    ErrorKind::HostUnreachable
                    | ErrorKind::TimedOut
                    | ErrorKind::UnexpectedEof
                    | ErrorKind::InvalidData,
                ) => {}
                Err(_) => is_ours = true,
            }
        }
        false
    };
    let heard = timeout(patience, heard).await;
    match heard {
        Ok(true) => Heard::Answer,
        Ok(false) | Err(_) if is_ours => Heard::Unknown,
        Ok(false) | Err(_) => Heard::Silence,
    }
}

/// SOA of the domain, with NSID (RFC 5001): a reply that names another pod is no answer of this one.
fn question(pod: &Target) -> Message {
    let mut question = query(&pod.domain, RecordType::SOA);
    if let (Some(edns), Ok(empty)) = (question.edns.as_mut(), NSIDPayload::new(Vec::new())) {
        edns.options_mut().insert(EdnsOption::NSID(empty));
    }
    question
}

fn is_its(question: &Message, reply: &[u8], name: &str) -> bool {
    let Ok(reply) = Message::from_vec(reply) else { return false };
    let nsid = reply.edns.as_ref().and_then(|edns| edns.option(EdnsCode::NSID));
    let is_another = match nsid {
        Some(EdnsOption::NSID(named)) => {
            !named.as_ref().is_empty() && named.as_ref() != name.as_bytes()
        }
        Some(_) | None => false,
    };
    reply.metadata.id == question.metadata.id
        && reply.metadata.message_type == MessageType::Response
        && !is_another
}

async fn over_udp(pod: &Target) -> io::Result<()> {
    let any: IpAddr = match pod.dns {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let question = question(pod);
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(pod.dns).await?;
    socket.send(&question.to_vec().map_err(io::Error::other)?).await?;
    let mut reply = [0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut reply).await?;
        if is_its(&question, &reply[..length], &pod.name) {
            return Ok(());
        }
    }
}

async fn over_tcp(pod: &Target) -> io::Result<()> {
    let question = question(pod);
    let wire = question.to_vec().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(pod.dns).await?;
    let length = u16::try_from(wire.len()).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all(&[&length[..], &wire].concat()).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; length.into()];
    stream.read_exact(&mut reply).await?;
    match is_its(&question, &reply, &pod.name) {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidData, "another pod replied")),
    }
}

/// A short page of a pod, with its head.
async fn get(address: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = Vec::new();
    stream.take(MAX_PAGE).read_to_end(&mut page).await?;
    if !page.starts_with(b"HTTP/") {
        return Err(io::Error::new(ErrorKind::InvalidData, "that is no HTTP"));
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::from;

    #[test]
    fn o20_a_pod_is_asked_at_its_address_that_is_behind_the_service() {
        let asked = |cluster_ips: &[&str], pod_ips: &[&str]| {
            let mut dns = crate::fixtures::dns("{}");
            dns.status = Some(from(json!({"clusterIPs": cluster_ips})));
            let all: Vec<_> = pod_ips.iter().map(|ip| json!({"ip": ip})).collect();
            let mut pod = crate::fixtures::pod("dns-0", 0, 0);
            pod.metadata.namespace = Some("kube-system".to_owned());
            pod.spec = Some(from(json!({"nodeName": "node", "containers": []})));
            pod.status = Some(from(json!({"podIP": pod_ips[0], "podIPs": all})));
            target(&dns, &pod).unwrap().dns.ip().to_string()
        };
        let (v4, v6) = ("10.0.0.7", "fd00::7");
        assert_eq!(asked(&["10.96.0.10"], &[v6, v4]), v4);
        assert_eq!(asked(&["fd00:96::a"], &[v4, v6]), v6);
        assert_eq!(asked(&["10.96.0.10", "fd00:96::a"], &[v6, v4]), v6, "both are behind it");
        assert_eq!(asked(&[], &[v6, v4]), v6, "no Service yet");
        assert_eq!(asked(&["10.96.0.10"], &[v6]), v6, "it has no other");
    }

    #[test]
    fn o20_an_answer_that_names_another_pod_is_not_the_pods() {
        let asked = query(&Name::root(), RecordType::SOA);
        let reply = |nsid: Option<&str>| {
            let mut reply = asked.clone();
            reply.metadata.message_type = MessageType::Response;
            if let (Some(edns), Some(nsid)) = (reply.edns.as_mut(), nsid) {
                let named = NSIDPayload::new(nsid.as_bytes().to_vec()).unwrap();
                edns.options_mut().insert(EdnsOption::NSID(named));
            }
            reply.to_vec().unwrap()
        };
        assert!(is_its(&asked, &reply(Some("dns-1")), "dns-1"));
        assert!(is_its(&asked, &reply(None), "dns-1"), "identity is switched off");
        assert!(!is_its(&asked, &reply(Some("dns-2")), "dns-1"), "its address went to another");
        assert!(!is_its(&asked, &asked.to_vec().unwrap(), "dns-1"), "the question itself");
    }

    #[tokio::test]
    async fn o20_a_closed_port_is_an_answer_and_our_own_trouble_is_no_silence() {
        let heard = async |errors: &[ErrorKind]| {
            let attempts = FuturesUnordered::new();
            for kind in errors {
                let kind = *kind;
                attempts.push(boxed(async move { Err(kind.into()) }));
            }
            first_answer(attempts, PATIENCE).await
        };
        assert_eq!(heard(&[ErrorKind::HostUnreachable, ErrorKind::TimedOut]).await, Heard::Silence);
        let refused = [ErrorKind::HostUnreachable, ErrorKind::ConnectionRefused];
        assert_eq!(heard(&refused).await, Heard::Answer);
        for ours in [ErrorKind::PermissionDenied, ErrorKind::NetworkUnreachable] {
            assert_eq!(heard(&[ErrorKind::TimedOut, ours]).await, Heard::Unknown, "{ours}");
        }
    }
}
