//! What a tenant who writes everything in its own namespaces can take of others, and what any client can list (S2, S4, S5).

use tests::client::{Question, Transport};
use tests::scenario::Core;

/// The namespace `shop` has a Pod behind a headless Service, and an API server. `evil` writes what it likes.
const OBJECTS: &str = r#"
apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {name: default}
spec:
  domain: cluster.local
  podRecords: Verified
  reverseCIDRs: [10.96.0.0/16, 10.244.0.0/16]
  serviceAddresses: [10.96.0.10]
  upstreams: {servers: [{address: 10.0.0.2}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: default}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: evil}}
---
{apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default}, spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop}, spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop}, status: {phase: Running, podIPs: [{ip: 10.244.1.5}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints: [{addresses: [10.244.1.5], hostname: db-0, conditions: {ready: true}}]
---
{apiVersion: v1, kind: Service, metadata: {name: trap, namespace: evil}, spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}}
---
# Addresses of the API server, of the Pod of `shop`, and of nothing in the cluster, with names that look like theirs.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: trap-1, namespace: evil, labels: {kubernetes.io/service-name: trap}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: [10.96.0.1], hostname: kubernetes, conditions: {ready: true}}
- {addresses: [10.244.1.5], hostname: db-0, conditions: {ready: true}}
- {addresses: [10.244.9.9], hostname: outside, conditions: {ready: true}}
---
# A slice for the Service of another namespace.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-2, namespace: evil, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints: [{addresses: [10.244.66.6], hostname: db-0, conditions: {ready: true}}]
"#;

struct Site(Core);

impl Site {
    fn new() -> Site {
        let objects = OBJECTS.split("\n---").map(serde_saphyr::from_str);
        Site(Core::new(&objects.collect::<Result<Vec<_>, _>>().unwrap()).unwrap())
    }

    /// The status of a reply, and its answers as `owner type data`.
    fn answers(&self, text: &str) -> (String, Vec<String>) {
        let question = Question::parse(text).unwrap();
        let transport = question.only.unwrap_or(Transport::Udp);
        let outcome = self.0.ask(&question.packet, transport, 1).unwrap();
        let text = outcome.text(&question, transport, &self.0.names());
        let status = text.status.trim_start_matches("status: ");
        let status = status.split_whitespace().next().unwrap_or_default().to_owned();
        let without_ttl = |record: &String| {
            let mut words: Vec<&str> = record.split_whitespace().collect();
            words.remove(1);
            words.join(" ")
        };
        (status, text.records[0].iter().map(without_ttl).collect())
    }

    /// Whether these are the answers, in any order.
    fn has(&self, question: &str, answers: &[&str]) {
        let (status, found) = self.answers(question);
        let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!((status.as_str(), found), ("NOERROR", answers.to_vec()), "{question}");
    }

    fn has_none(&self, question: &str, status: &str) {
        assert_eq!(self.answers(question), (status.to_owned(), Vec::new()), "{question}");
    }
}

#[test]
fn s2_a_tenant_takes_no_name_of_another_and_no_address_with_an_owner() {
    let site = Site::new();
    // Names of others are as they were.
    site.has(
        "kubernetes.default.svc.cluster.local. A",
        &["kubernetes.default.svc.cluster.local. A 10.96.0.1"],
    );
    site.has("db.shop.svc.cluster.local. A", &["db.shop.svc.cluster.local. A 10.244.1.5"]);
    site.has(
        "db-0.db.shop.svc.cluster.local. A",
        &["db-0.db.shop.svc.cluster.local. A 10.244.1.5"],
    );
    let port = "_sql._tcp.db.shop.svc.cluster.local. SRV";
    site.has(port, &[&format!("{port} 0 100 5432 db-0.db.shop.svc.cluster.local.")]);
    // Its own names lead where it likes.
    for (name, address) in [("kubernetes", "10.96.0.1"), ("db-0", "10.244.1.5")] {
        let owner = format!("{name}.trap.evil.svc.cluster.local. A");
        site.has(&owner, &[&format!("{owner} {address}")]);
    }
    // An address belongs to the Service, or to the namespace of the Pod, that has it.
    let ptr = "1.0.96.10.in-addr.arpa. PTR";
    site.has(ptr, &[&format!("{ptr} kubernetes.default.svc.cluster.local.")]);
    let ptr = "5.1.244.10.in-addr.arpa. PTR";
    site.has(ptr, &[&format!("{ptr} db-0.db.shop.svc.cluster.local.")]);
    // Nothing is published of a slice without a Service in its own namespace.
    site.has_none("6.66.244.10.in-addr.arpa. PTR", "NXDOMAIN");
    site.has_none("db.evil.svc.cluster.local. A", "NXDOMAIN");
}

#[test]
fn s4_a_pod_name_needs_a_pod_of_that_namespace_at_the_address() {
    let site = Site::new();
    let name = "10-244-1-5.shop.pod.cluster.local. A";
    site.has(name, &[&format!("{name} 10.244.1.5")]);
    for name in
        ["10-244-1-5.evil", "10-96-0-1.evil", "1-2-3-4.evil", "10-244-9-9.evil", "1-2-3-4.shop"]
    {
        site.has_none(&format!("{name}.pod.cluster.local. A"), "NXDOMAIN");
    }
}

#[test]
fn s5_names_cannot_be_listed_by_wildcards_transfers_or_types() {
    let site = Site::new();
    for name in ["*", "*.svc", "*.shop.svc", "*.db.shop.svc", "any.*.svc", "*.pod"] {
        let name = format!("{name}.cluster.local.");
        for qtype in ["A", "SRV", "TXT"] {
            site.has_none(&format!("{name} {qtype}"), "NXDOMAIN");
        }
    }
    for zone in
        ["cluster.local.", "svc.cluster.local.", "shop.svc.cluster.local.", "10.in-addr.arpa."]
    {
        site.has_none(&format!("{zone} AXFR +tcp"), "REFUSED");
        site.has_none(&format!("{zone} IXFR"), "REFUSED");
    }
    // A name in the middle has no records, and its reply says nothing about those below.
    for name in ["svc.cluster.local.", "shop.svc.cluster.local."] {
        for qtype in ["A", "SRV", "NS", "HINFO"] {
            site.has_none(&format!("{name} {qtype}"), "NOERROR");
        }
    }
    // A walk through the addresses finds what is published, and nothing else.
    let found: Vec<String> = (0..=255)
        .flat_map(|octet| site.answers(&format!("{octet}.1.244.10.in-addr.arpa. PTR")).1)
        .collect();
    assert_eq!(found, ["5.1.244.10.in-addr.arpa. PTR db-0.db.shop.svc.cluster.local."]);
}
