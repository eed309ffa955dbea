//! Disagreements that random histories found, each as the smallest history that shows it.

use std::net::IpAddr;

use dataplane_core::{
    DataSource, Exposure, Object, PodRecords, Resource, ServiceAddresses, ServiceKind, Settings,
    Transport,
};
use tests::oracle::expected::{Expected, Question, rtype};

use crate::arrival::Arrival;
use crate::history::{Play, Step};
use crate::questions::reverse_name;
use crate::rules::{endpoint, key, pod, question, service, settings, slice};

const LIVE: DataSource = DataSource::Live;
const SNAPSHOT: DataSource = DataSource::Snapshot { confirmed_at_s: 5 };

/// A configuration in which all objects are visible, without pod records.
fn plain() -> Settings {
    Settings { exposure: Exposure::default(), pods: PodRecords::Disabled, ..settings() }
}

fn headless(name: &str) -> Object {
    service(name, ServiceKind::Headless, &[])
}

fn cluster_ip(name: &str, address: &str, ports: &[(&str, u16)]) -> Object {
    service(name, ServiceKind::ClusterIp(vec![address.parse().unwrap()]), ports)
}

fn alias(name: &str, target: &str) -> Object {
    service(name, ServiceKind::ExternalName(target.into()), &[])
}

/// These lists complete one after another, then one question: both must agree, on this Rcode.
fn agree(
    settings: Settings,
    lists: &[(Resource, DataSource)],
    objects: &[Object],
    asked: &Question,
    rcode: u16,
) {
    let mut play = Play::new(settings);
    for (resource, source) in lists.iter().copied() {
        let of = objects.iter().filter(|object| object.resource() == resource).cloned();
        play.step(&Step::Relist { resource, keep: 0, objects: of.collect(), source }).unwrap();
    }
    match play.oracle.answer(asked) {
        Expected::Reply(reply) => assert_eq!(reply.rcode, rcode, "{reply:?}"),
        Expected::Forward { .. } => panic!("the oracle forwards {asked:?}"),
    }
    for seed in [0, u64::MAX / 2 + 1, u64::MAX] {
        play.ask(asked, seed).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn all_live() -> Vec<(Resource, DataSource)> {
    Resource::ALL.map(|resource| (resource, LIVE)).to_vec()
}

fn in_zone(name: &str, qtype: u16) -> Question {
    question(&format!("{name}.svc.cluster.local"), qtype)
}

/// A denial below a Service needs the Namespaces too (§4.4 note 1).
#[test]
fn no_nxdomain_below_a_service_before_the_namespaces_are_known() {
    let lists = [(Resource::Services, LIVE), (Resource::EndpointSlices, LIVE)];
    let objects = [cluster_ip("shop/cart", "10.96.0.1", &[])];
    let asked = in_zone("10-244-0-1.cart.shop", rtype::A);
    agree(plain(), &lists, &objects, &asked, 2);
}

/// §4.4: only ClusterIP Services can be empty ones.
#[test]
fn an_external_name_needs_no_slices_while_empty_services_are_hidden() {
    let settings = Settings { hide_empty_services: true, ..plain() };
    let objects = [alias("shop/cart", "www.example.org")];
    let asked = in_zone("cart.shop", rtype::CNAME);
    agree(settings, &[(Resource::Services, LIVE)], &objects, &asked, 0);
}

/// RR60 with two Services between two events: the first by name as text, not by length.
#[test]
fn a_cluster_ip_held_twice_is_the_first_service_by_name() {
    let objects =
        [cluster_ip("shop/db", "10.96.0.1", &[]), cluster_ip("shop/cart", "10.96.0.1", &[])];
    let asked = question("1.0.96.10.in-addr.arpa", rtype::PTR);
    agree(plain(), &all_live(), &objects, &asked, 0);
}

/// RR63: with Pods of two namespaces on one address, the targetRefs decide as without `verified`.
#[test]
fn an_address_that_pods_of_two_namespaces_hold_goes_by_target_refs() {
    let address = "10.244.0.1";
    let settings = Settings { pods: PodRecords::Verified, ..plain() };
    let objects = [
        headless("shop/db"),
        headless("data/db"),
        slice("shop/s", "db", ("pg", 1), vec![endpoint(address, None, Some("p"))]),
        slice("data/s", "db", ("pg", 1), vec![endpoint(address, None, None)]),
        pod("shop/p", address),
        pod("data/p", address),
    ];
    let asked = question(&reverse_name(address.parse::<IpAddr>().unwrap()), rtype::PTR);
    agree(settings, &all_live(), &objects, &asked, 0);
}

/// RR45: the CNAME is no SRV record, so the SOA must come and addresses must not.
#[test]
fn an_alias_to_a_service_without_ports_is_nodata_for_srv() {
    let objects = [
        alias("shop/cart", "cart.data.svc.cluster.local"),
        cluster_ip("data/cart", "10.96.0.1", &[]),
    ];
    agree(plain(), &all_live(), &objects, &in_zone("cart.shop", rtype::SRV), 0);
}

/// RR37 where the same number does not follow itself.
#[test]
fn a_port_name_used_three_times_gives_each_number_once() {
    let ports = [("http", 80), ("http", 81), ("http", 80)];
    let objects = [cluster_ip("shop/cart", "10.96.0.1", &ports)];
    agree(plain(), &all_live(), &objects, &in_zone("_http._tcp.cart.shop", rtype::SRV), 0);
}

/// RR38: the additional section follows the rotated answer.
#[test]
fn additional_addresses_come_in_the_order_of_the_targets() {
    let endpoints =
        ["10.244.0.1", "10.244.0.2", "10.244.0.3"].map(|address| endpoint(address, None, None));
    let objects = [headless("data/db"), slice("data/s", "db", ("pg", 5432), endpoints.to_vec())];
    agree(plain(), &all_live(), &objects, &in_zone("db.data", rtype::SRV), 0);
}

/// E42 for a CNAME that leads outside and is answered alone (RR43).
#[test]
fn a_cname_from_a_snapshot_says_so_without_recursion() {
    let objects = [alias("shop/cart", "www.example.org")];
    let asked = Question { rd: false, ..in_zone("cart.shop", rtype::A) };
    agree(plain(), &[(Resource::Services, SNAPSHOT)], &objects, &asked, 0);
}

/// The DNS Service may be hidden, `ns.dns.Z` is not, and a change of it is published.
#[test]
fn n43_the_addresses_of_a_hidden_dns_service_are_published() {
    let exposure = Exposure { namespaces: vec!["data".into()], ..Exposure::default() };
    let service_addresses =
        ServiceAddresses::OfService { namespace: "shop".into(), name: "dns".into() };
    let settings = Settings { exposure, service_addresses, ..plain() };
    let asked = question("ns.dns.cluster.local", rtype::A);
    let mut play = Play::new(settings);
    for (resource, source) in all_live() {
        play.step(&Step::Relist { resource, keep: 0, objects: vec![], source }).unwrap();
    }
    for address in ["10.96.0.10", "10.96.0.11"] {
        let object = cluster_ip("shop/dns", address, &[]);
        play.step(&Step::Apply { object, again_after_delete: false }).unwrap();
        play.ask(&asked, 0).unwrap_or_else(|error| panic!("{error}"));
    }
    play.step(&Step::Delete(Resource::Services, key("shop/dns"))).unwrap();
    play.ask(&asked, 0).unwrap_or_else(|error| panic!("{error}"));
}

/// RR60: the cluster IP of a hidden or empty Service comes and goes at once, although no client sees the Service.
#[test]
fn the_cluster_ip_of_an_unseen_service_takes_the_ptr_of_endpoints_at_once() {
    let exposure = Exposure { namespaces: vec!["data".into()], ..Exposure::default() };
    let empty = Settings { hide_empty_services: true, ..plain() };
    for settings in [Settings { exposure, ..plain() }, empty] {
        let mut play = Play::new(settings);
        let bait = slice("data/s", "db", ("pg", 1), vec![endpoint("10.244.0.1", None, None)]);
        // Its namespace is known from another Service.
        let objects = [headless("data/db"), headless("shop/known"), bait];
        for (resource, source) in all_live() {
            let of = objects.iter().filter(|object| object.resource() == resource).cloned();
            play.step(&Step::Relist { resource, keep: 0, objects: of.collect(), source }).unwrap();
        }
        let asked = question("1.0.244.10.in-addr.arpa", rtype::PTR);
        let mut ask = |step: Step| {
            play.step(&step).unwrap();
            play.ask(&asked, 0).unwrap_or_else(|error| panic!("{error}"));
        };
        ask(Step::Repeat(0));
        ask(Step::Claim(key("shop/cart"), 0));
        ask(Step::Delete(Resource::Services, key("shop/cart")));
    }
}

/// WR20: what an EDE needs is taken from additional addresses, not the other way round.
#[test]
fn an_ede_comes_before_additional_addresses() {
    let settings = Settings { udp_payload_size: 512, ..plain() };
    let lists = [(Resource::Services, LIVE), (Resource::EndpointSlices, SNAPSHOT)];
    let asked = Question { transport: Transport::Udp, ..in_zone("db.data", rtype::SRV) };
    for (count, number) in (1..16).flat_map(|count| [(count, 1), (count, 10), (count, 100)]) {
        let endpoints = (0..count)
            .map(|at| endpoint(&format!("10.244.0.{}", number + at), None, None))
            .collect();
        let objects = [headless("data/db"), slice("data/s", "db", ("pg", 5432), endpoints)];
        agree(settings.clone(), &lists, &objects, &asked, 0);
    }
}

/// WR21, RR38: how much fits is a matter of the rotated answer: names differ in length, and a whole
/// RRset that does not fit can leave room unused.
#[test]
fn records_that_do_not_fit_are_no_disagreement() {
    let settings = Settings { udp_payload_size: 512, ..plain() };
    let asked = Question { transport: Transport::Udp, ..in_zone("db.data", rtype::SRV) };
    for count in 2..30 {
        let endpoints = (0..count).flat_map(|at| {
            let name = format!("db-{}{at}", if at % 2 == 0 { "of-a-long-name-" } else { "" });
            let second = (at % 3 == 0).then_some(1);
            let of = |net| endpoint(&format!("10.244.{net}.{at}"), Some(&name), None);
            [Some(0), second].into_iter().flatten().map(of).collect::<Vec<_>>()
        });
        let objects =
            vec![headless("data/db"), slice("data/s", "db", ("pg", 5432), endpoints.collect())];
        Arrival::reversed(settings.clone(), objects, vec![asked.clone(); 20]).run().unwrap();
    }
}
