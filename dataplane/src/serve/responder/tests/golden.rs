//! Golden examples of docs/dns.md 9.10 in which access, configuration and cache meet.

use crds::rrtype::RrType;
use dataplane_core::{Change, DataSource, Resource};
use futures::poll;

use super::*;

pub(super) const A: u8 = 1;
const AAAA: u8 = 28;
const TXT: u8 = 16;
/// Two Services of docs/dns.md 9.1, and an ExternalName for one of them.
const SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart}
spec: {type: ClusterIP, clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12], ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: legacy}
spec: {type: ExternalName, externalName: legacy.example.net}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: inside}
spec: {type: ExternalName, externalName: cart.shop.svc.cluster.local}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";
/// A resolv.conf with one name server: 127.0.0.53.
const LOOPBACK: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/responder/tests/loopback.conf");
pub(super) const CART: &str = "cart.shop.svc.cluster.local";

/// Serves the Services above by this configuration.
pub(super) fn serving(config: &Config, resolv_conf: &str) -> Responder {
    let mut index = Index::new(settings::of(config).expect("settings"));
    let (objects, skipped) = crate::source::objects_from_yaml(SERVICES).expect("objects");
    assert!(skipped.is_empty(), "{skipped:?}");
    Resource::ALL.into_iter().for_each(|resource| index.begin_list(resource));
    for object in objects {
        index.apply(Change::Apply(object));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1_760_000_000);
    with_records(config, index.records(), resolv_conf)
}

/// Rcode, records of the answer, and the Extended DNS Error.
pub(super) async fn outcome(
    responder: &Responder,
    name: &str,
    qtype: u8,
    rd: bool,
) -> (u8, u8, Option<u8>) {
    let (reply, _) = responder.ask_for(&question(name, qtype, rd)).await;
    // The OPT is last and has at most one option (RFC 6891 §6.1.2, RFC 8914 §2).
    let opt = reply.windows(3).rposition(|octets| octets == [0, 0, 41]).expect("an OPT record");
    let options = &reply[opt + 11..];
    let code = options.starts_with(&[0, 15]).then(|| options[5]);
    (reply[3] & 15, reply[7], code)
}

#[tokio::test]
async fn g132_r3_without_rd_nothing_is_forwarded_nor_taken_from_the_cache() {
    let upstream = Upstream::start().await;
    let responder = serving(&upstream.config(), "/nonexistent");
    let www = "www.example.org";
    assert_eq!(outcome(&responder, www, A, false).await, (5, 0, Some(20)));
    assert_eq!(outcome(&responder, www, A, true).await, (0, 1, None));
    assert_eq!(outcome(&responder, www, A, false).await, (5, 0, Some(20)), "also when cached");
    assert_eq!(upstream.asked(), 1);
}

#[tokio::test]
async fn g136_n20_fw52_fw53_with_every_place_taken_only_names_of_the_cluster_are_there() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 2;
    let responder = serving(&config, "/nonexistent");
    // Each of those who wait for one lookup has a place.
    let mut waiting = [Box::pin(responder.ask()), Box::pin(responder.ask())];
    for client in &mut waiting {
        assert!(poll!(client).is_pending());
    }
    assert_eq!((responder.forwarder.lookups(), responder.forwarder.in_flight()), (1, 2));
    // At once: the first poll has the reply. The name that is asked already is no exception.
    for name in ["new.example.org", "www.example.org"] {
        let refused = outcome(&responder, name, A, true).now_or_never();
        assert_eq!(refused, Some((2, 0, Some(0))), "{name}");
    }
    let (cart, origin) = responder.ask_for(&question(CART, A, true)).now_or_never().expect("G12");
    assert_eq!((cart[3] & 15, origin), (0, Origin::Own));
    assert!(cart.windows(6).any(|octets| octets == [0, 4, 10, 96, 0, 12]), "{cart:?}");
    for client in waiting {
        assert_eq!(client.await, Got(0, vec![600], Origin::Upstream), "it had its place");
    }
    assert_eq!(upstream.asked(), 1);
    assert_eq!(outcome(&responder, "new.example.org", A, true).await, (0, 1, None));
}

#[tokio::test]
async fn g138_fw3_a_resolv_conf_with_loopback_only_leaves_names_of_the_cluster() {
    let config = Config {
        upstreams: config::Upstreams::FromResolvConf(GroupOptions::default()),
        ..Config::default()
    };
    let responder = serving(&config, LOOPBACK);
    for _ in 0..2 {
        // No failure of a server, so none is remembered (CA20).
        assert_eq!(outcome(&responder, "www.example.org", A, true).await, (2, 0, Some(0)));
    }
    assert_eq!(outcome(&responder, CART, A, true).await, (0, 1, None));
    let published = responder.state.published.load();
    let problems = published.upstreams.problems();
    assert!(problems.iter().any(|problem| problem.contains("127.0.0.53")), "{problems:?}");
}

#[tokio::test]
async fn fw45_n22_a_type_that_is_withheld_asks_no_server_and_takes_no_place() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 0;
    let config::Upstreams::Servers(group) = &mut config.upstreams else { panic!() };
    group.options.withheld_types = vec![RrType(AAAA.into())];
    let responder = serving(&config, "/nonexistent");
    let www = "www.example.org";
    assert_eq!(outcome(&responder, www, AAAA, true).await, (0, 0, Some(17)));
    assert_eq!(outcome(&responder, www, AAAA, false).await, (5, 0, Some(20)), "N14");
    let legacy = outcome(&responder, "legacy.shop.svc.cluster.local", AAAA, true).await;
    assert_eq!(legacy, (0, 1, Some(17)), "our CNAME alone");
    assert_eq!(outcome(&responder, www, A, true).await, (2, 0, Some(0)), "there is no place");
    let (reply, origin) = responder.ask_for(&question(www, AAAA, true)).await;
    assert_eq!((reply[2] & 4, reply[9], origin), (0, 0, Origin::Own), "neither AA nor an SOA");
    assert_eq!(responder.state.counters[0].count(dataplane_core::Reason::Withheld), 3);

    config.limits.in_flight = 1;
    let responder = serving(&config, "/nonexistent");
    assert_eq!(outcome(&responder, www, AAAA, true).await, (0, 0, Some(17)));
    assert_eq!(upstream.asked(), 0);
    assert_eq!(outcome(&responder, www, A, true).await, (0, 1, None));
    assert_eq!(upstream.asked(), 1);
}

#[tokio::test]
async fn g139_without_upstreams_other_names_are_refused_behind_our_cname_too() {
    let config = Config { upstreams: config::Upstreams::None, ..Config::default() };
    let responder = serving(&config, "/nonexistent");
    assert_eq!(outcome(&responder, "www.example.org", A, true).await, (5, 0, Some(20)));
    let legacy = outcome(&responder, "legacy.shop.svc.cluster.local", A, true).await;
    assert_eq!(legacy, (2, 1, Some(20)), "SERVFAIL with the CNAME");
    assert_eq!(outcome(&responder, CART, A, true).await, (0, 1, None));
}

#[tokio::test]
async fn g140_a43_a_loop_probe_is_answered_with_its_label_backwards() {
    let responder = serving(&Config::default(), "/nonexistent");
    let name = "0123456789abcdef0123456789abcdef.0000000000000000.clusterdns-loop";
    let (reply, origin) = responder.ask_for(&question(name, TXT, true)).await;
    assert_eq!((reply[2] & 4, reply[3] & 15, ttls(&reply), origin), (4, 0, vec![0], Origin::Own));
    assert!(reply.windows(33).any(|octets| octets == b"\x20fedcba9876543210fedcba9876543210"));
    let (reply, _) = responder.ask_for(&question(name, A, true)).await;
    assert_eq!((reply[2] & 4, reply[3] & 15, reply[7], reply[9]), (4, 0, 0, 1), "NODATA");
    // SOA of clusterdns-loop.; its TTL, and the last field of its data, 300 s.
    let soa = reply.windows(8).any(|octets| octets == [0, 6, 0, 1, 0, 0, 1, 44]);
    assert!(soa && reply.windows(4).any(|octets| octets == [0, 0, 1, 44]));
}

#[tokio::test]
async fn g140_a43_a_loop_probe_of_another_clusterdns_is_forwarded_like_any_name() {
    let upstream = Upstream::start().await;
    let responder = serving(&upstream.config(), "/nonexistent");
    for name in ["x.0123456789abcdef.clusterdns-loop", "x.00.clusterdns-loop", "x.clusterdns-loop"]
    {
        let (_, origin) = responder.ask_for(&question(name, TXT, true)).await;
        assert_ne!(origin, Origin::Own, "{name}");
    }
}

#[tokio::test]
async fn g147_ca1_clients_that_may_not_ask_get_nothing_from_the_cache_either() {
    let upstream = Upstream::start().await;
    let responder = serving(&upstream.config(), "/nonexistent");
    assert_eq!(outcome(&responder, "www.example.org", A, true).await, (0, 1, None));
    let clients = vec!["10.244.0.0/16".parse().expect("a network")];
    let access = config::Access { clients, ..config::Access::default() };
    let denied = serving(&Config { access, ..upstream.config() }, "/nonexistent");
    let records = Arc::clone(&denied.state.published.load().records);
    let upstreams = Arc::clone(&responder.state.published.load().upstreams);
    responder.state.published.store(Arc::new(Published { records, upstreams }));
    for name in [CART, "www.example.org"] {
        assert_eq!(outcome(&responder, name, A, true).await, (5, 0, Some(18)), "{name}");
    }
    assert_eq!(upstream.asked(), 1);
}

#[tokio::test]
async fn s3_fw43_of_a_public_name_with_a_private_address_only_the_cname_is_left() {
    for is_on in [true, false] {
        let upstream = Upstream::start().await;
        upstream.is_private.store(true, Ordering::Relaxed);
        let access = config::Access { rebind_protection: is_on, ..config::Access::default() };
        let responder = serving(&Config { access, ..upstream.config() }, "/nonexistent");
        // Asked twice: a reply that lost its address is not cached, and a whole reply is.
        for _ in 0..2 {
            let legacy = outcome(&responder, "legacy.shop.svc.cluster.local", A, true).await;
            assert_eq!(legacy, if is_on { (0, 1, Some(15)) } else { (0, 2, None) });
        }
        // A name of the cluster passes no upstream: its address is no secret to a pod, which may ask for it by name.
        let inside = outcome(&responder, "inside.shop.svc.cluster.local", A, true).await;
        assert_eq!(inside, (0, 2, None));
    }
}
