//! What is asked, how replies are judged, and both over real sockets on loopback.

mod hidden;
mod interrupted;
mod servers;
mod unwritten;

use super::reply::{NoReply, Reply};
use super::*;
use crate::decide::plan::{CanaryPod, RolloutPlan, RolloutState};
use crate::fixtures::{
    api, compared, config, deploy, dns, from, on_one_port, own_service, says, write,
};
use crate::observe::observed::CheckResult;
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::time::Duration;

/// The first round beside pods that run another spec.
fn first(spec: &str, before: &str, observed: &Observed) -> Vec<Question> {
    let (config, before) = (config(&dns(spec)), config(&dns(before)));
    questions(&config, &before, observed, ("fresh", &[]), &mut Progress::default())
}

/// What is asked where stable pods run an empty spec.
fn asked(spec: &str) -> Vec<String> {
    let observed = Observed { service: Some(own_service()), ..Observed::default() };
    let list = first(spec, "{}", &observed);
    list.into_iter().map(|question| question.what).collect()
}

const ALWAYS: [&str; 3] = [
    "kubernetes.default.svc.cluster.local. A",
    "kube-dns.kube-system.svc.cluster.local. A",
    "10.0.96.10.in-addr.arpa. PTR",
];

#[test]
fn o17_what_is_asked_is_what_clients_would_lose() {
    let expected = |more: &[&str]| -> Vec<String> {
        ALWAYS.iter().chain(more).map(|text| (*text).to_owned()).collect()
    };
    assert_eq!(asked("{}"), expected(&["the default upstreams"]));
    let spec = "{hosts: [{name: '*.a.example', addresses: [10.0.0.1]}, {name: b.example, addresses: ['fd00::1']}], \
                stubDomains: [{domain: corp.example, servers: [{address: 10.0.0.1}]}], upstreams: {none: true}}";
    let pointer = format!("1.{}d.f.ip6.arpa. PTR", "0.".repeat(29));
    let hosts =
        ["clusterdns-canary.a.example. A", "b.example. AAAA", &pointer, "stub domain corp.example"];
    assert_eq!(asked(spec), expected(&hosts));
    // A stub domain decides what is asked of that name, and another name shows what the default upstreams do.
    let stub = "{stubDomains: [{domain: com, servers: [{address: 10.0.0.1}]}]}";
    assert_eq!(asked(stub), expected(&["stub domain com", "the default upstreams"]));
    assert_eq!(asked_of_upstreams(stub), ["fresh.example.net. A", ". NS"]);
    assert_eq!(asked_of_upstreams("{}"), ["fresh.example.com. A", ". NS"]);
    // FW45: the pod itself would answer a type that is withheld.
    let withheld = "{upstreams: {withheldTypes: [A]}}";
    assert_eq!(asked_of_upstreams(withheld), ["fresh.example.com. SOA", ". NS"]);
}

#[test]
fn o17_names_that_a_record_replaces_on_purpose_test_nothing() {
    let dname = |name: &str, target: &str| {
        let record = format!("name: {name}, type: DNAME, target: {target}, overrideClusterZone");
        format!("{{records: [{{{record}: {}}}]}}", name.ends_with("cluster.local"))
    };
    // RR85: a DNAME takes the place of all names below its own.
    let spec = dname("default.svc.cluster.local", "shop.svc.cluster.local");
    let record = "default.svc.cluster.local. DNAME";
    assert_eq!(asked(&spec), [ALWAYS[1], ALWAYS[2], record, "the default upstreams"]);
    let spec = dname("other.svc.cluster.local", "shop.svc.cluster.local");
    assert_eq!(asked(&spec)[0], ALWAYS[0]);
    // A fresh name below a DNAME or a wildcard of ours reaches no upstream.
    let spec = dname("example.com", "corp.example");
    assert_eq!(asked_of_upstreams(&spec), ["fresh.example.net. A", ". NS"]);
    let spec = "{hosts: [{name: '*.example.com', addresses: [10.0.0.1]}]}";
    assert_eq!(asked_of_upstreams(spec), ["fresh.example.net. A", ". NS"]);
    // A host takes only its own name, none below it (RR81).
    let spec = "{hosts: [{name: example.com, addresses: [10.0.0.1]}]}";
    assert_eq!(asked_of_upstreams(spec), ["fresh.example.com. A", ". NS"]);
}

/// Names that the default upstreams are asked for.
fn asked_of_upstreams(spec: &str) -> Vec<String> {
    let list = first(spec, "{}", &Observed::default());
    let asked = list.into_iter().find(|question| question.what == "the default upstreams").unwrap();
    asked.asked.iter().map(|(name, kind)| format!("{name} {kind}")).collect()
}

#[test]
fn o17_a_service_selector_that_selects_something_hides_on_purpose() {
    let service = |name: &str| crate::observe::observed::SampledService {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        ..crate::observe::observed::SampledService::default()
    };
    let mut observed = Observed::default();
    observed.sample.namespaces = [("shop".to_owned(), Default::default())].into();
    observed.sample.services = vec![service("api"), service("web")];
    let spec = "{exposure: {serviceSelector: {matchLabels: {dns: shown}}}}";
    let asks = |selects: Option<bool>| {
        let mut observed = observed.clone();
        observed.sample.selects = selects;
        let list = first(spec, "{}", &observed);
        list.iter().any(|question| question.what == "api.shop.svc.cluster.local. A")
    };
    assert!(!asks(Some(true)), "what it selects is not in the sample");
    assert!(asks(Some(false)), "it is misspelled");
    assert!(asks(None));
}

#[test]
fn o17_a_round_that_finds_no_place_is_no_fault_of_the_canary() {
    let mut observed = on_trial();
    for (place, pod) in observed.pods.iter_mut().enumerate() {
        pod.status.as_mut().unwrap().pod_ip = Some(format!("127.0.0.{}", place + 1));
    }
    let full = RoundPermits { places: Semaphore::new(0), ..RoundPermits::default() };
    let Some(Look::Postponed(comparison)) = begin(&dns("{ttlSeconds: 7}"), &observed, &full) else {
        panic!("a canary is on trial, and no place is free")
    };
    assert!(comparison.checks.is_empty() && comparison.is_postponed);
    assert_eq!(comparison.unreachable, None, "nothing is wrong that people should mend");
}

#[test]
fn o17_what_goes_out_of_sight_by_mistake_is_still_asked() {
    let misspelled = asked("{exposure: {namespaces: [shpo]}}");
    assert_eq!(misspelled[0], ALWAYS[0]);
    let overridden = "{hosts: [{name: kubernetes.default.svc.cluster.local, addresses: [10.0.0.1], overrideClusterZone: true}]}";
    assert!(
        asked(overridden).iter().filter(|name| name.starts_with("kubernetes.default")).count() == 1
    );
}

#[test]
fn o17_a_configuration_of_any_size_asks_a_bounded_number_of_questions() {
    let mut large = config(&dns("{}"));
    let spec = "{hosts: [{name: h.example, addresses: [10.0.0.1]}], \
                stubDomains: [{domain: d.example, servers: [{address: 10.0.0.1}]}]}";
    let one = config(&dns(spec));
    for number in 0..4_096 {
        let mut host = one.hosts[0].clone();
        host.name = format!("h{number}.example");
        large.hosts.push(host);
    }
    for number in 0..100 {
        let mut stub = one.stub_domains[0].clone();
        stub.domain = format!("d{number}.example");
        large.stub_domains.push(stub);
    }
    let observed = Observed { service: Some(own_service()), ..Observed::default() };
    let (before, mut progress) = (config(&dns("{}")), Progress::default());
    let mut names = std::collections::BTreeSet::new();
    for round in 0..17 {
        assert!(round == 0 || progress.unasked().0 > 0, "{round}");
        let part = questions(&large, &before, &observed, ("fresh", &[]), &mut progress);
        assert!(part.len() <= 3 + 256 + 16 + 1, "{}", part.len());
        names.extend(part.into_iter().map(|question| question.what));
    }
    // All hosts have one address, and it one PTR.
    assert_eq!((progress.unasked(), names.len()), ((0, 4_197), 3 + 4_097 + 100 + 1));
}

#[test]
fn reverse_names_are_those_of_rfc_1035_and_3596() {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    let spec = observed.service.as_mut().unwrap().spec.as_mut().unwrap();
    spec.cluster_ips = Some(vec!["fd00:96::a".to_owned()]);
    let empty = config(&dns("{}"));
    let list = questions(&empty, &empty, &observed, ("fresh", &[]), &mut Progress::default());
    let expected = format!("a.{}6.9.0.0.0.0.d.f.ip6.arpa. PTR", "0.".repeat(23));
    assert_eq!(list[2].what, expected);
    assert!(list[..2].iter().all(|question| question.what.ends_with(" AAAA")));
}

/// A reply with this code and these Extended DNS Errors.
fn reply(code: ResponseCode, codes: &[u16], text: &str) -> Reply {
    use hickory_proto::rr::rdata::opt::EdnsOption;
    let mut reply = Message::error_msg(1, OpCode::Query, code);
    let mut edns = hickory_proto::op::Edns::new();
    for code in codes {
        let octets = [&code.to_be_bytes()[..], text.as_bytes()].concat();
        edns.options_mut().insert(EdnsOption::Unknown(15, octets));
    }
    reply.edns = Some(edns);
    Ok(reply)
}

#[test]
fn o17_extended_dns_errors_say_what_a_server_did() {
    use super::upstream_health::{UpstreamHealth, health};
    use ResponseCode::{NXDomain, NoError, Refused, ServFail};
    for (heard, expected) in [
        (reply(NoError, &[], ""), UpstreamHealth::Answered),
        (reply(NXDomain, &[], ""), UpstreamHealth::Answered),
        (
            reply(ServFail, &[23], "upstream servers answered only with errors"),
            UpstreamHealth::Errors,
        ),
        (reply(ServFail, &[22], "no upstream server answered"), UpstreamHealth::Silent),
        // The codes of a server come after our own.
        (reply(ServFail, &[23, 22], ""), UpstreamHealth::Errors),
        (reply(ServFail, &[23, 13], ""), UpstreamHealth::Errors),
        (reply(ServFail, &[22, 23], ""), UpstreamHealth::Silent),
        (reply(ServFail, &[0], "no usable upstream server is configured"), UpstreamHealth::Silent),
        (reply(ServFail, &[0], "forward limit"), UpstreamHealth::Unknown),
        (reply(ServFail, &[13], ""), UpstreamHealth::Unknown),
        (reply(ServFail, &[13], crds::between_planes::SILENCE_BEFORE), UpstreamHealth::Silent),
        (reply(ServFail, &[13], crds::between_planes::ERRORS_BEFORE), UpstreamHealth::Errors),
        (reply(ServFail, &[14], ""), UpstreamHealth::Unknown),
        (reply(NoError, &[3], ""), UpstreamHealth::Unknown),
        (reply(NXDomain, &[19], ""), UpstreamHealth::Unknown),
        (reply(ServFail, &[], ""), UpstreamHealth::Unknown),
        (reply(Refused, &[18], ""), UpstreamHealth::Unknown),
        (reply(Refused, &[20], "no upstream for this name"), UpstreamHealth::Unknown),
        (Err(NoReply::Silent(String::new())), UpstreamHealth::Silent),
        (Err(NoReply::Unsent(String::new())), UpstreamHealth::Unknown),
    ] {
        let shown = format!("{heard:?}");
        assert_eq!(health(&[heard]), expected, "{shown}");
    }
    let both = [reply(ServFail, &[22], ""), reply(NXDomain, &[], "")];
    assert_eq!(health(&both), UpstreamHealth::Answered, "one name may be dropped on purpose");
}

fn on_trial() -> Observed {
    on_trial_of("{ttlSeconds: 7}")
}

fn on_trial_of(spec: &str) -> Observed {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    deploy(&mut observed, 3);
    let canary = config(&dns(spec));
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
fn the_canary_is_asked_beside_a_stable_pod_once_it_runs_what_it_tries() {
    let mut observed = on_trial();
    for (place, pod) in observed.pods.iter_mut().enumerate() {
        pod.status.as_mut().unwrap().pod_ip = Some(format!("10.244.0.{place}"));
    }
    let pair = pair(&dns("{}"), &observed).unwrap();
    assert_eq!(
        (pair.canary, pair.stable),
        ("10.244.0.1:53".parse().unwrap(), "10.244.0.2:53".parse().unwrap())
    );
    // A rollout to another port is stuck: each pod is asked where it answers.
    let mut before = observed.clone();
    before.pods[2].spec = Some(from(json!({"containers": [{"name": "clusterdns",
        "ports": [{"name": "dns", "containerPort": 1053, "protocol": "UDP"}]}]})));
    let pair = super::pair(&dns("{}"), &before).unwrap();
    assert_eq!((pair.canary.port(), pair.stable.port()), (53, 1053));
    let mut late = observed.clone();
    says(&mut late, "dns-1", "s");
    assert_eq!(super::pair(&dns("{}"), &late), None);
    let mut alone = observed.clone();
    alone.pod_reports.remove("dns-2-uid");
    assert_eq!(super::pair(&dns("{}"), &alone), None);
}

/// Answers every question over UDP and TCP at this address, until the test ends.
fn server(address: (&str, u16), truncates: bool, ip: &'static str) -> SocketAddr {
    use std::io::{Read, Write};
    let (udp, tcp) = on_one_port(address);
    let at = tcp.local_addr().unwrap();
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
            // A reply to another question first: it is not what was asked for.
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
    use super::ask::once;
    let name = Name::from_ascii("a.example.").unwrap();
    let asked = (&name, RecordType::A);
    for truncates in [false, true] {
        let server = server(("127.0.0.1", 0), truncates, "10.96.0.10");
        let reply = once(asked, server, Duration::from_secs(30)).await.unwrap();
        assert_eq!(reply.answers.len(), 1, "truncates: {truncates}");
        assert!(!reply.metadata.truncation);
    }
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let heard = once(asked, closed, Duration::from_secs(30)).await;
    assert!(matches!(heard, Err(NoReply::Closed(_))), "{heard:?}");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let heard = once(asked, silent.local_addr().unwrap(), Duration::from_millis(1)).await;
    assert!(matches!(heard, Err(NoReply::Silent(_))), "{heard:?}");
    // The system refuses to send to a broadcast address: that is no fault of the pod's.
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::BROADCAST), 53);
    let heard = once(asked, nowhere, Duration::from_secs(30)).await;
    assert!(matches!(heard, Err(NoReply::Unsent(_))), "{heard:?}");
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
    let dns = dns(&format!("{{ttlSeconds: 7, service: {{podPort: {port}}}}}"));
    let rounds = RoundPermits::default();
    let Some(Look::Round(round)) = begin(&dns, &observed, &rounds) else {
        panic!("a canary is on trial, and a place is free")
    };
    let no_server = api::client(|asked| panic!("no one asks the API server: {asked:?}"));
    let comparison = round.ask(&observed, &no_server, &Lists::default()).await;
    assert_eq!(comparison.canary_uid, compared("dns-1", "", true, true).canary_uid);
    let is_worse = |outcome: &CheckResult| matches!(outcome, CheckResult::Worse(_));
    let wrong = comparison.checks.iter().filter(|check| is_worse(&check.outcome));
    let wrong: Vec<&str> = wrong.map(|check| check.what.as_str()).collect();
    assert_eq!(wrong, [ALWAYS[1]], "{:?}", comparison.checks);
    assert_eq!(comparison.unreachable, None);
}
