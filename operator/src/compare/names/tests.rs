//! Objects of a cluster, and the questions that they make.

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use serde_json::{from_value, json};

use super::*;

#[test]
fn each_object_of_a_cluster_gives_the_names_that_the_specification_gives_it() {
    let service = |name: &str, ip: &str| {
        from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {
            "clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": "http", "port": 80}]}}))
        .unwrap()
    };
    let slice = from_value(json!({
        "metadata": {"name": "x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.1"], "hostname": "db-0"}, {"addresses": ["10.244.0.2"], "targetRef": {"kind": "Pod", "name": "p"}}],
    }))
    .unwrap();
    let objects = Objects {
        services: vec![service("cart", "10.96.0.1"), service("db", "None")],
        slices: vec![slice],
        ..Objects::default()
    };
    let mut questions = Questions::default();
    of_cluster(&objects, "c.example", &mut questions);
    of_cluster(&objects, "c.example", &mut questions);
    let all: Vec<String> = questions.list().iter().map(ToString::to_string).collect();
    assert_eq!(
        all[8..],
        [
            "cart.shop.svc.c.example. A",
            "cart.shop.svc.c.example. AAAA",
            "cart.shop.svc.c.example. SRV",
            "_http._tcp.cart.shop.svc.c.example. SRV",
            "1.0.96.10.in-addr.arpa. PTR",
            "db.shop.svc.c.example. A",
            "db.shop.svc.c.example. AAAA",
            "db.shop.svc.c.example. SRV",
            "_http._tcp.db.shop.svc.c.example. SRV",
            "db-0.db.shop.svc.c.example. A",
            "1.0.244.10.in-addr.arpa. PTR",
            "10-244-0-2.db.shop.svc.c.example. A",
            "2.0.244.10.in-addr.arpa. PTR",
            "10-244-0-2.shop.pod.c.example. A",
        ]
    );
}

#[test]
fn ipv6_endpoints_and_what_a_cluster_dns_adds_have_names_too() {
    let service =
        json!({"metadata": {"name": "six", "namespace": "data"}, "spec": {"clusterIP": "None"}});
    let target = json!({"kind": "Pod", "name": "p"});
    let slice = json!({
        "metadata": {"name": "x", "namespace": "data", "labels": {"kubernetes.io/service-name": "six"}},
        "addressType": "IPv6",
        "endpoints": [{"addresses": ["fd00:244::66"], "targetRef": target}, {"addresses": ["fd00:244::"]},
            {"addresses": ["::0a:1"], "targetRef": target}],
    });
    let resource = json!({"metadata": {"name": "a"}, "spec": {"domain": "c.example",
        "hosts": [{"name": "*.h.example", "addresses": ["10.0.0.1"]}, {"name": "i.example", "addresses": ["fd00::1"]}],
        "records": [{"name": "t.example", "type": "TXT", "strings": ["x"]}, {"name": "d.example", "type": "DNAME", "target": "e.example"},
            {"name": "*.alias.example", "type": "CNAME", "target": "i.example"}]}});
    let objects = Objects {
        services: vec![from_value(service).unwrap()],
        slices: vec![from_value(slice).unwrap()],
        resources: vec![from_value(resource).unwrap()],
        ..Objects::default()
    };
    let mut questions = Questions::default();
    of_cluster(&objects, "c.example", &mut questions);
    let all: Vec<String> = questions.list().iter().map(ToString::to_string).collect();
    for expected in [
        "fd00-244--66.six.data.svc.c.example. AAAA",
        "fd00-244--66.data.pod.c.example. AAAA",
        // As we write them, and as CoreDNS does.
        "fd00-244--0.six.data.svc.c.example. AAAA",
        "fd00-244--.six.data.svc.c.example. AAAA",
        "0--a-1.six.data.svc.c.example. AAAA",
        "\\--0a-1.six.data.svc.c.example. AAAA",
        "0--a-1.data.pod.c.example. AAAA",
        "clusterdns-compare.h.example. A",
        "i.example. AAAA",
        "t.example. TXT",
        "clusterdns-compare.d.example. A",
        "clusterdns-compare.alias.example. A",
        "clusterdns-compare.alias.example. AAAA",
    ] {
        assert!(all.iter().any(|it| it == expected), "{expected}: {all:#?}");
    }
    assert!(
        !all.iter().any(|it| it.ends_with(" CNAME")),
        "a rewritten question has no alias: {all:#?}"
    );
    // Three endpoints, and the host that is no wildcard.
    let pointers = all.iter().filter(|it| it.ends_with("ip6.arpa. PTR")).count();
    assert_eq!(pointers, 4, "{all:#?}");
}

#[test]
fn a_namespace_with_more_names_than_can_be_asked_takes_no_place_of_another() {
    let port =
        |number: usize| ServicePort { name: Some(format!("p{number}")), ..ServicePort::default() };
    let service = |namespace: &str, ports: usize| Service {
        metadata: from_value(json!({"name": "a", "namespace": namespace})).unwrap(),
        spec: Some(ServiceSpec {
            ports: Some((0..ports).map(port).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    let services = vec![service("evil", MAX_QUESTIONS + 1), service("shop", 2)];
    let mut questions = Questions::default();
    of_cluster(&Objects { services, ..Objects::default() }, "c.example", &mut questions);
    let of_shop = questions.list().iter().filter(|it| it.to_string().contains(".shop."));
    assert_eq!(of_shop.count(), 3 + 2);
    assert!(questions.left_out > 0);
}

#[test]
fn questions_are_bounded_and_those_beyond_are_counted() {
    let mut questions = Questions::default();
    for number in 0..MAX_QUESTIONS + 3 {
        questions.add(&format!("n{number}.example"), RecordType::A);
    }
    questions.add("a..b", RecordType::A);
    assert_eq!((questions.list().len(), questions.left_out), (MAX_QUESTIONS, 3));
}
