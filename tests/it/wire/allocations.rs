//! Deciding never allocates, for every outcome: counted by an allocator around `respond`.

use dataplane_core::Reason;
use serde_json::json;
use tests::client::Question;

use super::{BOTH, shop_with};

/// Each outcome with questions that have it.
const OUTCOMES: [(Reason, &[&str]); 22] = [
    (
        Reason::Found,
        &[
            "cart.shop.svc.cluster.local. A",
            "cart.shop.svc.cluster.local. A +nsid +dnssec",
            "cart.shop.svc.cluster.local. ANY",
            // SRV with addresses in additional, of a cluster IP and of endpoints.
            "_http._tcp.cart.shop.svc.cluster.local. SRV",
            "db.data.svc.cluster.local. SRV",
            "db-0.db.data.svc.cluster.local. SRV",
            "_pg._tcp.db.data.svc.cluster.local. A",
            // More than fits, which over TCP is 64 KiB.
            "big.data.svc.cluster.local. A",
            "big.data.svc.cluster.local. A +noedns",
            "big.data.svc.cluster.local. SRV",
            "_http._tcp.big.data.svc.cluster.local. SRV",
            "_http._tcp.big.data.svc.cluster.local. A",
            // PTR: of a cluster IP, of endpoints, of many endpoint names, of extra records.
            "1.10.96.10.in-addr.arpa. PTR",
            "21.1.244.10.in-addr.arpa. PTR",
            "1.11.244.10.in-addr.arpa. PTR",
            "5.0.20.10.in-addr.arpa. PTR",
            "10-244-1-11.shop.pod.cluster.local. A",
            "10-244-1-11.cart.shop.svc.cluster.local. A",
            "cluster.local. SOA",
            "cluster.local. NS",
            "ns.dns.cluster.local. A",
            "dns-version.cluster.local. TXT",
            "registry.corp.example. A",
            "x.apps.corp.example. A",
            "note.corp.example. TXT",
            "_ldap._tcp.corp.example. SRV",
            "pinned.shop.svc.cluster.local. A",
        ],
    ),
    (
        Reason::NxDomain,
        &[
            "nothere.shop.svc.cluster.local. A",
            "9.9.96.10.in-addr.arpa. PTR",
            "x.nons.pod.cluster.local. A",
        ],
    ),
    (
        Reason::NoData,
        &[
            "cart.shop.svc.cluster.local. AAAA",
            "shop.svc.cluster.local. A",
            "registry.corp.example. HTTPS",
        ],
    ),
    (
        Reason::Cname,
        &[
            "chain.shop.svc.cluster.local. A",
            "gone.shop.svc.cluster.local. A",
            "to-big.data.svc.cluster.local. A",
            "legacy.shop.svc.cluster.local. CNAME",
            "old.corp.example. A",
            "cart.moved.corp.example. A",
            "cart.old-shop.svc.cluster.local. AAAA",
        ],
    ),
    (Reason::CnameLoop, &["loop-a.shop.svc.cluster.local. A"]),
    (
        Reason::Forward,
        &[
            "www.example.org. A",
            "legacy.shop.svc.cluster.local. A +nsid",
            "wiki.corp.example. A",
            "zero.web.corp.example. A",
        ],
    ),
    (Reason::RecursionNotDesired, &["www.example.org. A +norecurse"]),
    (
        Reason::SpecialUse,
        &[
            "localhost. A",
            "x.invalid. A",
            "x.0000000000000000.clusterdns-loop. TXT",
            "1.0.0.127.in-addr.arpa. PTR",
        ],
    ),
    (
        Reason::Chaos,
        &[
            "version.bind. CH TXT",
            "hits.bind. CH TXT",
            "misses.bind. CH TXT",
            "servers.bind. CH TXT",
            "hostname.bind. CH TXT",
            "cachesize.bind. CH ANY",
        ],
    ),
    (Reason::Class, &["cart.shop.svc.cluster.local. NONE A", "nosuch.bind. CH TXT"]),
    (Reason::Transfer, &["cluster.local. AXFR"]),
    (Reason::EdnsVersion, &["cart.shop.svc.cluster.local. A +edns=1"]),
    (Reason::QueryType, &["cart.shop.svc.cluster.local. OPT"]),
    (Reason::Additional, &["hex 1234 0100 0001 0000 0000 0001 04\"cart\" 00 0001 0001"]),
    (Reason::Question, &["hex 1234 0100 0001 0000 0000 0000 c00c 0001 0001"]),
    (Reason::Counts, &["hex 1234 0100 0002 0000 0000 0000"]),
    (Reason::Opcode, &["cart.shop.svc.cluster.local. A +opcode=UPDATE"]),
    (Reason::IsResponse, &["hex 1234 8100 0001 0000 0000 0000"]),
    (Reason::Short, &["hex 1234 01"]),
    // Configurations of their own: below.
    (Reason::NoGroup, &[]),
    (Reason::Withheld, &[]),
    (Reason::Client, &[]),
];

fn measured(core: &tests::scenario::Core, question: &str, expected: Reason) {
    let packet = Question::parse(question).unwrap().packet;
    let mut buffer = vec![0; 65_535];
    for transport in BOTH {
        for seed in [0, 1 << 63, u64::MAX] {
            let mut reason = None;
            let allocations = allocation_counter::measure(|| {
                reason = Some(core.decide(&packet, transport, seed, &mut buffer).1);
            });
            assert_eq!(reason, Some(expected), "{question}");
            assert_eq!(allocations.count_total, 0, "{question} over {transport:?}");
        }
    }
}

#[test]
fn nothing_is_allocated_between_query_and_reply() {
    let alias = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "to-big", "namespace": "data"},
        "spec": {"type": "ExternalName", "externalName": "big.data.svc.cluster.local"},
    });
    // One address with more names than most: the larger of the two ways to sort them.
    let endpoints: Vec<_> = (0..40)
        .map(|n| {
            json!({
                "addresses": ["10.244.11.1"], "hostname": format!("n-{n}"),
                "conditions": {"ready": true},
            })
        })
        .collect();
    let names = super::headless("names", &endpoints, &json!([{"name": "http", "port": 80}]));
    let [service, slice] = names;
    let core = shop_with(&[alias, service, slice]);
    for (reason, questions) in OUTCOMES {
        for question in questions {
            measured(&core, question, reason);
        }
    }
}

#[test]
fn nothing_is_allocated_where_no_upstream_may_be_asked_or_the_client_is_refused() {
    for (reason, spec) in [
        (Reason::NoGroup, json!({"upstreams": {"none": true}})),
        (Reason::Withheld, json!({"upstreams": {"withheldTypes": ["A"]}})),
        (Reason::Client, json!({"access": {"clients": ["192.0.2.0/24"]}})),
    ] {
        let resource = json!({
            "apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": "default"}, "spec": spec,
        });
        match tests::scenario::Core::new(&[resource]) {
            Ok(core) => measured(&core, "www.example.org. A", reason),
            Err(error) => panic!("{reason:?}: {error:#}"),
        }
    }
}

/// Guards this test's counter: it sees an allocation.
#[test]
fn an_allocation_would_be_seen() {
    let allocations = allocation_counter::measure(|| drop(std::hint::black_box(vec![1; 100])));
    assert_eq!(allocations.count_total, 1);
}
