//! What is asked, how replies are judged, and both over real sockets on loopback.

use super::judge::Heard;
use super::questions::{Expects, Question};
use super::*;
use crate::fixtures::{compared, config, deploy, dns, own_service, says, write};
use crate::plan::{CanaryPod, RolloutPlan, RolloutState};
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::Ipv4Addr;
use std::str::FromStr;

fn asked(spec: &str) -> Vec<String> {
    let observed = Observed { service: Some(own_service()), ..Observed::default() };
    let list = questions(&config(&dns(spec)), &observed);
    list.iter().map(|question| format!("{} {}", question.name, question.kind)).collect()
}

const ALWAYS: [&str; 3] = [
    "kubernetes.default.svc.cluster.local. A",
    "kube-dns.kube-system.svc.cluster.local. A",
    "10.0.96.10.in-addr.arpa. PTR",
];

#[test]
fn what_is_asked_must_be_right_whatever_the_change_was() {
    let expected = |more: &[&str]| -> Vec<String> {
        ALWAYS.iter().chain(more).map(|text| (*text).to_owned()).collect()
    };
    assert_eq!(asked("{}"), expected(&["example.com. A"]));
    let spec = "{hosts: [{name: '*.a.example', addresses: [10.0.0.1]}, {name: b.example, addresses: ['fd00::1']}], \
                stubDomains: [{domain: corp.example, servers: [{address: 10.0.0.1}]}], upstreams: {none: true}}";
    assert_eq!(asked(spec), expected(&["b.example. AAAA", "corp.example. SOA"]));
    let record = "{records: [{name: t.example, type: TXT, strings: [x]}, {name: c.example, type: A, addresses: [10.0.0.1]}]}";
    assert_eq!(asked(record), expected(&["c.example. A", "example.com. A"]));
    // A stub domain decides what is asked of that name, and it is asked for already.
    let stub = "{stubDomains: [{domain: com, servers: [{address: 10.0.0.1}]}]}";
    assert_eq!(asked(stub), expected(&["com. SOA"]));
}

#[test]
fn what_was_hidden_on_purpose_is_not_asked() {
    let hidden = "{exposure: {namespaces: [shop]}}";
    assert_eq!(asked(hidden), ["example.com. A"]);
    assert_eq!(asked("{exposure: {namespaces: [default]}}"), [ALWAYS[0], "example.com. A"]);
    let by_label = "{exposure: {namespaceSelector: {matchLabels: {dns: shown}}}}";
    assert_eq!(asked(by_label), ["example.com. A"]);
    let overridden = "{hosts: [{name: kubernetes.default.svc.cluster.local, addresses: [10.0.0.1], overrideClusterZone: true}]}";
    assert!(
        asked(overridden).iter().filter(|name| name.starts_with("kubernetes.default")).count() == 1
    );
}

#[test]
fn reverse_names_are_those_of_rfc_1035_and_3596() {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    let spec = observed.service.as_mut().unwrap().spec.as_mut().unwrap();
    spec.cluster_ips = Some(vec!["fd00:96::a".to_owned()]);
    let list = questions(&config(&dns("{}")), &observed);
    let expected = format!("a.{}6.9.0.0.0.0.d.f.ip6.arpa.", "0.".repeat(23));
    assert_eq!(list[2].name.to_string(), expected);
    assert!(list[..2].iter().all(|question| question.kind == RecordType::AAAA));
}

fn question(expects: Expects, may_be_refused: bool) -> Question {
    let name = Name::from_ascii("a.example.").unwrap();
    Question { name, kind: RecordType::A, expects, may_be_refused }
}

fn heard(code: ResponseCode, address: Option<&str>) -> Heard {
    let mut reply = Message::error_msg(1, OpCode::Query, code);
    if let Some(ip) = address {
        let data = RData::A(A(Ipv4Addr::from_str(ip).unwrap()));
        reply.add_answer(Record::from_rdata(Name::from_ascii("a.example.").unwrap(), 5, data));
    }
    Ok(reply)
}

#[test]
fn a_reply_is_right_when_it_says_what_must_be_said() {
    use ResponseCode::{NXDomain, NoError, Refused, ServFail};
    let ip = || Expects::Address("10.0.0.1".parse().unwrap());
    for (expects, reply, right) in [
        (Expects::Records, heard(NoError, Some("10.0.0.1")), true),
        (Expects::Records, heard(NoError, None), false),
        (Expects::Records, heard(NXDomain, None), false),
        (ip(), heard(NoError, Some("10.0.0.1")), true),
        (ip(), heard(NoError, Some("10.0.0.2")), false),
        (Expects::Reply, heard(NoError, None), true),
        (Expects::Reply, heard(NXDomain, None), false),
        (Expects::Reply, heard(ServFail, None), false),
        (Expects::Reply, heard(Refused, None), false),
        (Expects::Reply, Err("no reply within 1 s".to_owned()), false),
    ] {
        let shown = format!("{expects:?} {reply:?}");
        let good = heard(NoError, Some("10.0.0.1"));
        let check = judge(&question(expects, false), reply, good);
        assert_eq!(check.canary.is_ok(), right, "{shown}");
        assert!(check.stable.is_ok());
    }
}

#[test]
fn a_denial_from_elsewhere_is_right_where_the_other_pod_gets_it_too() {
    use ResponseCode::{NXDomain, NoError, ServFail};
    let judged = |canary, stable| {
        let check =
            judge(&question(Expects::Reply, false), heard(canary, None), heard(stable, None));
        (check.canary, check.stable.is_ok())
    };
    assert_eq!(judged(NXDomain, NXDomain), (Ok(()), true));
    assert_eq!(judged(NXDomain, NoError), (Err("NXDOMAIN".to_owned()), true));
    // A new stub domain with dead servers: where the others are told that there is no such name, the canary fails.
    assert_eq!(judged(ServFail, NXDomain), (Err("SERVFAIL".to_owned()), true));
    assert_eq!(judged(NoError, NXDomain), (Ok(()), true));
}

#[test]
fn who_may_not_ask_learns_nothing_from_being_refused() {
    let refused = || heard(ResponseCode::Refused, None);
    let check = judge(&question(Expects::Records, true), refused(), refused());
    assert_eq!((check.canary, check.stable), (Ok(()), Ok(())));
    let check = judge(&question(Expects::Records, false), refused(), refused());
    assert!(check.canary.is_err());
}

fn on_trial() -> Observed {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    deploy(&mut observed, 3);
    let canary = config(&dns("{ttlSeconds: 7}"));
    let state = RolloutState {
        stable: "s".to_owned(),
        canary: canary.revision(),
        canary_pod: Some(CanaryPod {
            name: "dns-1".to_owned(),
            uid: "dns-1-uid".to_owned(),
            ..CanaryPod::default()
        }),
        ..RolloutState::default()
    };
    let plan = RolloutPlan {
        stable: "{}".to_owned(),
        canary: Some(canary.to_json()),
        state,
        ..RolloutPlan::default()
    };
    write(&mut observed, &plan);
    for (name, revision) in [("dns-0", "t"), ("dns-1", canary.revision().as_str()), ("dns-2", "s")]
    {
        says(&mut observed, name, revision);
    }
    observed
}

#[test]
fn the_canary_is_asked_beside_a_pod_that_runs_stable_and_only_when_it_runs_what_it_tries() {
    let mut observed = on_trial();
    for (place, pod) in observed.pods.iter_mut().enumerate() {
        pod.status.as_mut().unwrap().pod_ip = Some(format!("10.244.0.{place}"));
    }
    let pair = pair(&dns("{}"), &observed).unwrap();
    assert_eq!(
        (pair.canary, pair.stable),
        ("10.244.0.1:53".parse().unwrap(), "10.244.0.2:53".parse().unwrap())
    );
    let mut late = observed.clone();
    says(&mut late, "dns-1", "s");
    assert_eq!(super::pair(&dns("{}"), &late), None);
    let mut alone = observed.clone();
    alone.answers.remove("dns-2-uid");
    assert_eq!(super::pair(&dns("{}"), &alone), None);
}

/// Answers every question over UDP and TCP at this address, until the test ends.
fn server(address: (&str, u16), truncates: bool, ip: &'static str) -> SocketAddr {
    use std::io::{Read, Write};
    let tcp = std::net::TcpListener::bind(address).unwrap();
    let at = tcp.local_addr().unwrap();
    let udp = std::net::UdpSocket::bind(at).unwrap();
    let reply = move |wire: &[u8], truncated: bool| {
        let query = Message::from_vec(wire).unwrap();
        let mut reply = Message::response(query.metadata.id, OpCode::Query);
        let asked = query.queries[0].clone();
        reply.add_query(asked.clone());
        reply.metadata.truncation = truncated;
        let data = match asked.query_type() {
            RecordType::A => Some(RData::A(A(Ipv4Addr::from_str(ip).unwrap()))),
            RecordType::PTR => Some(RData::PTR(hickory_proto::rr::rdata::PTR(Name::root()))),
            RecordType::SOA => {
                Some(RData::SOA(SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, 1)))
            }
            _ => None,
        };
        if let Some(data) = data.filter(|_| !truncated) {
            reply.add_answer(Record::from_rdata(asked.name().clone(), 5, data));
        }
        reply.to_vec().unwrap()
    };
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = udp.recv_from(&mut buffer) {
            // A reply to somebody else first: it is not what was asked for.
            let mut other = reply(&buffer[..length], false);
            other[0] ^= 0xff;
            let _ = udp.send_to(&other, client);
            let _ = udp.send_to(&reply(&buffer[..length], truncates), client);
        }
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut wire = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut wire).unwrap();
            let reply = reply(&wire, false);
            stream.write_all(&(reply.len() as u16).to_be_bytes()).unwrap();
            stream.write_all(&reply).unwrap();
        }
    });
    at
}

#[tokio::test]
async fn both_transports_are_used_and_replies_to_others_are_not_taken() {
    let question = question(Expects::Address("10.96.0.10".parse().unwrap()), false);
    for truncates in [false, true] {
        let server = server(("127.0.0.1", 0), truncates, "10.96.0.10");
        let reply = ask(&question, server, Duration::from_secs(30)).await.unwrap();
        assert_eq!(reply.answers.len(), 1, "truncates: {truncates}");
        assert!(!reply.metadata.truncation);
    }
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(ask(&question, closed, Duration::from_secs(30)).await.is_err());
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let why =
        ask(&question, silent.local_addr().unwrap(), Duration::from_millis(1)).await.unwrap_err();
    assert!(why.starts_with("no reply within"), "{why}");
}

#[tokio::test]
async fn o7_a_canary_that_answers_wrongly_is_seen_beside_one_that_does_not() {
    let canary = server(("127.0.0.1", 0), false, "10.96.0.99");
    // The same port at another address, as pods have it.
    let port = canary.port();
    server(("127.0.0.2", port), false, "10.96.0.10");
    let mut observed = on_trial();
    observed.pods[1].status.as_mut().unwrap().pod_ip = Some("127.0.0.1".to_owned());
    observed.pods[2].status.as_mut().unwrap().pod_ip = Some("127.0.0.2".to_owned());
    let dns = dns(&format!("{{service: {{podPort: {port}}}}}"));
    let comparison = compare(&dns, &observed).await.expect("a canary is on trial");
    assert_eq!(comparison.canary_uid, compared("dns-1", "", true, true).canary_uid);
    let wrong: Vec<&str> = comparison
        .checks
        .iter()
        .filter(|check| check.canary.is_err())
        .map(|check| check.what.as_str())
        .collect();
    assert_eq!(wrong, [ALWAYS[1]], "{:?}", comparison.checks);
    assert!(comparison.checks.iter().all(|check| check.stable.is_ok()), "{:?}", comparison.checks);
}
