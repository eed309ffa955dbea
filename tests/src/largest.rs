//! The largest legal ClusterDNS, with which the cost of CEL rules, the size of requests and that of a ConfigMap are
//! measured.

use serde_json::{Value, json};

/// Resources at every bound at once. Extra records and the size of the configuration limit each other, so there is one
/// of many small records and one of few large ones.
pub fn largest() -> Vec<(&'static str, Value)> {
    let host = |number: usize| json!({"name": format!("h{number}.x"), "addresses": ["10.0.0.1"]});
    let many = json!({"hosts": (0..4_096).map(host).collect::<Vec<_>>(), "stubDomains": stub_domains(100, 3)});

    let record =
        |number: usize| json!({"name": format!("r{number}.x"), "type": "TXT", "strings": ["a"]});
    let many_records = json!({"records": (0..4_096).map(record).collect::<Vec<_>>()});

    let long =
        |number: usize| format!("{number:04}{}", ".abcdefghijklmnopqrstuvwxyz0123".repeat(8));
    let wide_host = |number: usize| {
        let addresses: Vec<String> = (0..64)
            .map(|last| format!("fd00:aaaa:bbbb:cccc:dddd:eeee:{number:x}:{last:x}"))
            .collect();
        json!({"name": long(number), "addresses": addresses, "ttlSeconds": 86400})
    };
    let wide = json!({"hosts": (0..100).map(wide_host).collect::<Vec<_>>()});

    let stub_domains = json!({"stubDomains": stub_domains(100, 15)});
    [
        ("many-hosts", many),
        ("many-records", many_records),
        ("wide-hosts", wide),
        ("many-servers", stub_domains),
    ]
    .map(|(name, spec)| (name, at_every_other_bound(name, spec)))
    .into()
}

fn stub_domains(number: usize, servers: usize) -> Vec<Value> {
    let server = |last: usize| {
        json!({
            "address": format!("fd00:1111:2222:3333:4444:5555:6666:{last:x}"),
            "transport": "TLS",
            "tls": {"serverName": format!("s{last}.dns.example"), "caBundle": {"name": "ca"}},
        })
    };
    let stub = |number: usize| json!({"domain": format!("stub-{number}.example"), "servers": (0..servers).map(server).collect::<Vec<_>>()});
    (0..number).map(stub).collect()
}

fn at_every_other_bound(name: &str, mut spec: Value) -> Value {
    let v4 = |count: usize| {
        (0..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect::<Vec<_>>()
    };
    let addresses =
        |count: usize| (0..count).map(|n| format!("fd00:96::{n:x}")).collect::<Vec<_>>();
    let values: Vec<String> = (0..64).map(|n| format!("value-{n}")).collect();
    let requirement = |n: usize| json!({"key": format!("example.com/key-{n}"), "operator": "In", "values": values});
    let selector = json!({"matchExpressions": (0..32).map(requirement).collect::<Vec<_>>()});
    let step = |unit: &str| (1..=64).map(|n| json!({unit: n, "replicas": n})).collect::<Vec<_>>();
    let upstream = |n: usize| json!({"address": format!("192.0.2.{n}")});
    let others = json!({
        "reverseCIDRs": v4(64),
        "serviceAddresses": addresses(8),
        "exposure": {"namespaces": (0..1_024).map(|n| format!("namespace-{n}")).collect::<Vec<_>>(),
            "namespaceSelector": selector, "serviceSelector": selector},
        "access": {"clients": v4(256)},
        "upstreams": {"servers": (1..=15).map(upstream).collect::<Vec<_>>()},
        "service": {"clusterIPs": ["10.96.0.10", "fd00:96::a:a"]},
        "scaling": {"ladder": {"coresToReplicas": step("cores"), "nodesToReplicas": step("nodes")}},
        "listeners": {"tls": {"certificate": {"name": "dns-tls"}}, "https": {"certificate": {"name": "dns-tls"}}, "quic": {"certificate": {"name": "dns-tls"}}},
    });
    let others = others.as_object().expect("an object").clone();
    spec.as_object_mut().expect("an object").extend(others);
    json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": name}, "spec": spec})
}
