//! One question to one pod, over UDP, TCP and HTTP at the same time, and one to a data plane that looks at another
//! pod. It does I/O only.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crds::{ClusterDNS, between_planes};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption, NSIDPayload};
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use process::reached::{Attempt, Heard, first_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ask_pods::canary_analysis::query;
use crate::ask_pods::exchange::{over_tcp, over_udp};
use crate::ask_pods::pod_reports::http_address;
use crate::observe::pods;

/// Time for a reply over UDP alone; after it, TCP and HTTP are tried beside it.
const OVER_UDP_ALONE: Duration = Duration::from_millis(250);
/// Time for an answer over any of the three. A dead node is noticed after three rounds and this time.
const PATIENCE: Duration = Duration::from_millis(700);
/// Time for the report of another data plane.
const FOR_A_LOOK: Duration = Duration::from_millis(850);
// It has looked before that, and the report has some time to come.
const _: () = assert!(FOR_A_LOOK.as_millis() >= between_planes::LONGEST_LOOK.as_millis() + 200);
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
    let question = question(pod);
    let Ok(wire) = question.to_vec() else { return Heard::Unknown };
    let accept = |reply: &[u8]| is_its(&question, reply, &pod.name).then_some(());
    let attempts: Vec<Attempt<'_>> = vec![
        Box::pin(over_udp(&wire, pod.dns, accept)),
        Box::pin(async {
            tokio::time::sleep(OVER_UDP_ALONE).await;
            over_tcp(&wire, pod.dns, accept).await
        }),
        Box::pin(async {
            tokio::time::sleep(OVER_UDP_ALONE).await;
            get(&pod.http, "/livez").await.map(drop)
        }),
    ];
    first_answer(attempts, PATIENCE).await
}

/// Asks one data plane whether another pod answers.
pub(super) async fn look(by: &Target, pod: &Target) -> Heard {
    let path = format!("/look?at={}&as={}", pod.dns.ip(), by.uid);
    match timeout(FOR_A_LOOK, get(&by.http, &path)).await {
        Ok(Ok(page)) => said(&page),
        Ok(Err(_)) | Err(_) => Heard::Unknown,
    }
}

/// What a page of a data plane, with its head, says of the other pod.
fn said(page: &str) -> Heard {
    match page.split_once("\r\n\r\n") {
        Some((_, between_planes::LOOK_SILENT)) => Heard::Silence,
        Some((_, between_planes::LOOK_ANSWERS)) => Heard::Answer,
        // A data plane of another version, or one that may not look: nothing is known about the pod.
        Some(_) | None => Heard::Unknown,
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

/// A short page of a pod, with its head. Another status is not what a data plane says at these paths: a proxy of a service mesh
/// says 503 for a pod that does not answer it.
async fn get(address: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = Vec::new();
    stream.take(MAX_PAGE).read_to_end(&mut page).await?;
    let is_ok =
        page.starts_with(b"HTTP/1.") && page.get(8..).is_some_and(|it| it.starts_with(b" 200"));
    if !is_ok {
        return Err(io::Error::new(ErrorKind::InvalidData, "that is no page of a data plane"));
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

    #[tokio::test]
    async fn o20_a_proxy_that_says_that_a_pod_is_away_does_not_answer_for_it() {
        let local = "127.0.0.1:0";
        let proxy = tokio::net::TcpListener::bind(local).await.unwrap();
        let address = proxy.local_addr().unwrap().to_string();
        for (status, is_answer) in
            [("503 Service Unavailable", false), ("404 Not Found", false), ("200 OK", true)]
        {
            let page = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let says = async {
                let (mut stream, _) = proxy.accept().await.unwrap();
                stream.write_all(page.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                stream
            };
            let (got, _open) = tokio::join!(get(&address, "/livez"), says);
            match got {
                Ok(got) => assert!(is_answer && got == page, "{status}"),
                // As where no answer came: it is silence.
                Err(error) => {
                    assert!(!is_answer && error.kind() == ErrorKind::InvalidData, "{status}");
                }
            }
        }
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

    #[test]
    fn o20_only_a_page_that_says_so_is_a_report_about_the_other_pod() {
        let page =
            |body: &str| said(&format!("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{body}"));
        assert_eq!(page("silent\n"), Heard::Silence);
        assert_eq!(page("answers\n"), Heard::Answer);
        for other in ["", "silent", "not silent\n", "this pod could not ask\n", "<html>silent\n"] {
            assert_eq!(page(other), Heard::Unknown, "{other}");
        }
        assert_eq!(said("HTTP/1.1 200 OK\r\n"), Heard::Unknown, "cut");
    }
}
