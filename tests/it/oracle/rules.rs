//! The oracle itself against golden examples of docs/dns.md, so that it cannot be wrong alone
//! about the cases that people wrote down; and the CNAME limit, which random histories rarely reach.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dataplane_core::{
    Change, DataSource, Endpoint, EndpointNames, Exposure, Key, Name as CoreName, Namespace,
    Object, Pod, PodRecords, Protocol, Requirement, Resource, Selector, SelectorOperator, Service,
    ServiceAddresses, ServiceKind, ServicePort, Settings, Slice, SlicePort, TargetRef, Transport,
};
use tests::oracle::Oracle;
use tests::oracle::expected::{Edns, Expected, Question, rtype};
use tests::oracle::names::Name;

use crate::history::Play;
use crate::questions::reverse_name;
use crate::subject::identity;

pub(crate) fn settings() -> Settings {
    let hidden = Requirement {
        key: "dns.example.com/hidden".into(),
        operator: SelectorOperator::NotIn(vec!["true".into()]),
    };
    let ranges = ["10.96.0.0/16", "10.244.0.0/16", "fd00:96::/112", "fd00:244::/64"];
    Settings {
        cluster_domain: CoreName::from_text("cluster.local").unwrap(),
        ttl_s: 5,
        pods: PodRecords::Verified,
        endpoint_names: EndpointNames::Address,
        hide_empty_services: false,
        reverse_cidrs: ranges.iter().map(|text| text.parse().unwrap()).collect(),
        service_addresses: ServiceAddresses::Fixed {
            addresses: vec![address("10.96.0.10")],
            service: None,
        },
        exposure: Exposure { namespace_selector: Selector(vec![hidden]), ..Exposure::default() },
        federations: Vec::new(),
        extra: Vec::new(),
        stub_domains: Vec::new(),
        withheld_types: Vec::new(),
        default_upstreams: true,
        udp_payload_size: 1232,
        chaos: true,
        nsid: true,
        clients: Vec::new(),
        cache_entries: 16_384,
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap();
    Key::new(namespace, name)
}

fn namespace(name: &str, hidden: bool) -> Object {
    let labels =
        if hidden { vec![("dns.example.com/hidden".into(), "true".into())] } else { vec![] };
    Object::Namespace(Namespace { name: name.into(), uid: 1, version: 1, labels })
}

pub(crate) fn service(name: &str, kind: ServiceKind, ports: &[(&str, u16)]) -> Object {
    let port = |&(name, port): &(&str, u16)| ServicePort {
        name: name.into(),
        port,
        protocol: Protocol::Tcp,
    };
    let ports = ports.iter().map(port).collect();
    Object::Service(Service { key: key(name), uid: 1, version: 1, labels: vec![], kind, ports })
}

fn cluster_ip(address_text: &str) -> ServiceKind {
    ServiceKind::ClusterIp(vec![address(address_text)])
}

pub(crate) fn endpoint(text: &str, hostname: Option<&str>, pod: Option<&str>) -> Endpoint {
    Endpoint {
        addresses: vec![address(text)],
        ready: true,
        hostname: hostname.map(Box::from),
        target: pod.map(|name| TargetRef { namespace: "".into(), name: name.into() }),
    }
}

pub(crate) fn slice(
    name: &str,
    service: &str,
    port: (&str, u16),
    endpoints: Vec<Endpoint>,
) -> Object {
    Object::Slice(Slice {
        key: key(name),
        uid: 1,
        version: 1,
        service: service.into(),
        ipv6: endpoints.iter().any(|endpoint| endpoint.addresses[0].is_ipv6()),
        ports: vec![SlicePort { name: port.0.into(), port: port.1, protocol: Protocol::Tcp }],
        endpoints,
    })
}

pub(crate) fn pod(name: &str, address_text: &str) -> Object {
    Object::Pod(Pod {
        key: key(name),
        uid: 1,
        version: 1,
        addresses: vec![address(address_text)],
        host_network: false,
        finished: false,
    })
}

fn golden() -> Vec<Object> {
    let mut cart_a = pod("shop/cart-a", "10.244.1.11");
    if let Object::Pod(pod) = &mut cart_a {
        pod.addresses.push(address("fd00:244::11"));
    }
    let ready = endpoint;
    let mut lonely = ready("10.244.1.61", None, None);
    lonely.ready = false;
    vec![
        namespace("shop", false),
        namespace("data", false),
        namespace("hidden", true),
        service("shop/cart", cluster_ip("10.96.10.1"), &[("http", 80), ("grpc", 9000)]),
        service("shop/alias", ServiceKind::ExternalName("cart.shop.svc.cluster.local".into()), &[]),
        service(
            "shop/gone",
            ServiceKind::ExternalName("nothere.shop.svc.cluster.local".into()),
            &[],
        ),
        service("shop/legacy", ServiceKind::ExternalName("mail.example.com".into()), &[]),
        service("shop/byip", ServiceKind::ExternalName("192.0.2.77".into()), &[]),
        service("shop/self", ServiceKind::ExternalName("self.shop.svc.cluster.local".into()), &[]),
        service("data/db", ServiceKind::Headless, &[("pg", 5432)]),
        service("data/db-rw", cluster_ip("10.96.20.1"), &[("pg", 5432)]),
        service("data/lonely", ServiceKind::Headless, &[("http", 80)]),
        service("data/six", ServiceKind::Headless, &[]),
        service("data/thief", ServiceKind::Headless, &[("http", 80)]),
        service("hidden/secret", cluster_ip("10.96.99.1"), &[("http", 80)]),
        slice(
            "shop/cart",
            "cart",
            ("http", 8080),
            vec![ready("10.244.1.11", None, Some("cart-a"))],
        ),
        slice(
            "data/db",
            "db",
            ("pg", 5432),
            vec![
                ready("10.244.1.21", Some("db-0"), None),
                ready("10.244.2.22", Some("db-1"), None),
            ],
        ),
        slice("data/db-rw", "db-rw", ("pg", 5432), vec![ready("10.244.1.21", None, None)]),
        slice("data/lonely", "lonely", ("http", 80), vec![lonely]),
        slice("data/six", "six", ("http", 80), vec![ready("fd00:244::", None, None)]),
        slice(
            "data/thief",
            "thief",
            ("http", 80),
            vec![
                ready("10.244.1.11", Some("kubernetes"), None),
                ready("10.96.10.1", Some("claim"), None),
            ],
        ),
        cart_a,
    ]
}

/// The oracle with these objects, all live.
fn oracle(objects: &[Object]) -> Oracle {
    let mut oracle = Oracle::new(settings(), identity());
    for resource in Resource::ALL {
        oracle.store.begin_list(resource);
    }
    for object in objects {
        oracle.store.apply(Change::Apply(object.clone()));
    }
    for resource in Resource::ALL {
        oracle.store.end_list(resource, 0, DataSource::Live);
    }
    oracle
}

/// The core with these objects beside the oracle.
fn play(objects: &[Object]) -> Play {
    let mut play = Play::new(settings());
    play.oracle = oracle(objects);
    let index = &mut play.subject.index;
    for resource in Resource::ALL {
        index.begin_list(resource);
        for object in objects.iter().filter(|object| object.resource() == resource) {
            index.apply(Change::Apply(object.clone()));
        }
        index.end_list(resource, 0, DataSource::Live);
    }
    play.subject.publish();
    play
}

pub(crate) fn question(name: &str, qtype: u16) -> Question {
    Question {
        name: Name::text(name).to_wire(),
        qtype,
        class: rtype::CLASS_IN,
        rd: true,
        cd: false,
        edns: Some(Edns { payload: 1232, version: 0, dnssec_ok: false, nsid: false }),
        client: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4242),
        transport: Transport::Tcp,
    }
}

/// What the oracle says, in one line: Rcode and data, or where it is forwarded.
fn verdict(oracle: &Oracle, name: &str, qtype: u16) -> String {
    match oracle.answer(&question(name, qtype)) {
        Expected::Forward { group, name, cnames, ede: _ } => {
            format!("{} CNAME, {name} to group {group}", cnames.len())
        }
        Expected::Reply(reply) => {
            let rcode = match reply.rcode {
                0 if reply.soa.is_some() => "NODATA",
                0 => "NOERROR",
                2 => "SERVFAIL",
                3 => "NXDOMAIN",
                5 => "REFUSED",
                _ => "another Rcode",
            };
            let records = reply.answer.iter().flat_map(|set| &set.records);
            let data: Vec<String> = records.map(|record| format!(" {:?}", record.data)).collect();
            format!("{rcode}{}", data.concat())
        }
    }
}

#[test]
fn the_oracle_gives_the_golden_examples() {
    let oracle = oracle(&golden());
    let say = |name: &str, qtype: u16| verdict(&oracle, &name.replace('@', "cluster.local"), qtype);
    // The structure of the zone (G6, G9-G13).
    assert_eq!(say("shop.svc.@", rtype::SRV), "NODATA");
    assert_eq!(say("nons.svc.@", rtype::A), "NXDOMAIN");
    assert_eq!(say("nothere.shop.svc.@", rtype::SOA), "NXDOMAIN");
    assert_eq!(say("cart.shop.svc.@", rtype::A), "NOERROR A 10.96.10.1");
    assert_eq!(say("cart.shop.svc.@", rtype::AAAA), "NODATA");
    // SRV and ports (G19-G21, G25-G27, G31).
    let one = "NOERROR SRV 0 100 80 cart.shop.svc.cluster.local.";
    assert_eq!(say("_http._tcp.cart.shop.svc.@", rtype::SRV), one);
    assert_eq!(say("_tcp.cart.shop.svc.@", rtype::A), "NODATA");
    assert_eq!(say("_udp.cart.shop.svc.@", rtype::A), "NXDOMAIN");
    assert_eq!(say("_http._tcp.cart.shop.svc.@", rtype::A), "NOERROR A 10.96.10.1");
    assert_eq!(say("http.tcp.cart.shop.svc.@", rtype::SRV), "NXDOMAIN");
    let own = "NOERROR SRV 0 100 8080 10-244-1-11.cart.shop.svc.cluster.local.";
    assert_eq!(say("10-244-1-11.cart.shop.svc.@", rtype::SRV), own);
    // Headless Services (G34, G36, G37, G44, G48, G49).
    assert_eq!(say("db.data.svc.@", rtype::A), "NOERROR A 10.244.1.21 A 10.244.2.22");
    assert_eq!(say("db-0.db.data.svc.@", rtype::A), "NOERROR A 10.244.1.21");
    assert_eq!(say("10-244-1-21.db.data.svc.@", rtype::A), "NXDOMAIN");
    assert_eq!(say("lonely.data.svc.@", rtype::TXT), "NXDOMAIN");
    assert_eq!(say("six.data.svc.@", rtype::A), "NODATA");
    assert_eq!(say("fd00-244--0.six.data.svc.@", rtype::AAAA), "NOERROR AAAA fd00:244::");
    // ExternalName Services (G54, G56-G58, G60, G62, G63).
    assert_eq!(say("legacy.shop.svc.@", rtype::A), "1 CNAME, mail.example.com. to group 0");
    assert_eq!(say("legacy.shop.svc.@", rtype::ANY), "NOERROR CNAME mail.example.com.");
    assert_eq!(say("x.legacy.shop.svc.@", rtype::A), "NXDOMAIN");
    let alias = "NOERROR CNAME cart.shop.svc.cluster.local. A 10.96.10.1";
    assert_eq!(say("alias.shop.svc.@", rtype::A), alias);
    let gone = "NXDOMAIN CNAME nothere.shop.svc.cluster.local.";
    assert_eq!(say("gone.shop.svc.@", rtype::A), gone);
    assert_eq!(say("self.shop.svc.@", rtype::A), "SERVFAIL");
    assert_eq!(say("byip.shop.svc.@", rtype::A), "NXDOMAIN");
    // Pod names and exposure (G65-G67, G84).
    assert_eq!(say("10-244-1-11.shop.pod.@", rtype::A), "NOERROR A 10.244.1.11");
    assert_eq!(say("fd00-244-0-0-0-0-0-11.shop.pod.@", rtype::AAAA), "NOERROR AAAA fd00:244::11");
    assert_eq!(say("10-244-1-11.data.pod.@", rtype::A), "NXDOMAIN");
    assert_eq!(say("hidden.svc.@", rtype::A), "NXDOMAIN");
    // Reverse names (G72, G74, G76, G79-G82, G85).
    let ptr = |text: &str| say(&reverse_name(address(text)), rtype::PTR);
    assert_eq!(ptr("10.96.10.1"), "NOERROR PTR cart.shop.svc.cluster.local.");
    let both = "NOERROR PTR db-0.db.data.svc.cluster.local. \
                PTR 10-244-1-21.db-rw.data.svc.cluster.local.";
    assert_eq!(ptr("10.244.1.21"), both);
    assert_eq!(ptr("10.244.1.11"), "NOERROR PTR 10-244-1-11.cart.shop.svc.cluster.local.");
    assert_eq!(ptr("10.96.9.9"), "NXDOMAIN");
    assert_eq!(ptr("10.96.99.1"), "NXDOMAIN");
    assert_eq!(ptr("203.0.113.7"), "0 CNAME, 7.113.0.203.in-addr.arpa. to group 0");
    assert_eq!(say("10.96.10.in-addr.arpa", rtype::PTR), "NODATA");
    assert_eq!(say("foo.96.10.in-addr.arpa", rtype::PTR), "NXDOMAIN");
    assert_eq!(say("01.10.96.10.in-addr.arpa", rtype::PTR), "NXDOMAIN");
    // Special-use names (G98-G100).
    assert_eq!(say("a.b.localhost", rtype::AAAA), "NOERROR AAAA ::1");
    assert_eq!(say("2.0.0.127.in-addr.arpa", rtype::PTR), "NXDOMAIN");
    assert_eq!(say("x.invalid", rtype::A), "NXDOMAIN");
}

/// RR48: ten CNAMEs of ours are followed, eleven are not; inside and outside alike.
#[test]
fn k21_chains_of_ten_cnames_are_followed_and_of_eleven_are_not() {
    for (ends_in, length) in
        [("www.example.org", 10), ("www.example.org", 11), ("cart", 10), ("cart", 11)]
    {
        let mut objects = golden();
        for at in 0..length {
            let target = match at + 1 < length {
                true => format!("hop-{}.shop.svc.cluster.local", at + 1),
                false if ends_in == "cart" => "cart.shop.svc.cluster.local".to_owned(),
                false => ends_in.to_owned(),
            };
            let kind = ServiceKind::ExternalName(target.into());
            objects.push(service(&format!("shop/hop-{at}"), kind, &[]));
        }
        let mut play = play(&objects);
        let asked = question("hop-0.shop.svc.cluster.local", rtype::A);
        let expected = play.oracle.answer(&asked);
        let refused = matches!(&expected, Expected::Reply(reply) if reply.rcode == 2);
        assert_eq!(refused, length > 10, "{expected:?}");
        play.ask(&asked, 0).unwrap();
    }
}
