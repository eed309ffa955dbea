//! What explanations count and say, against the objects that they are about.

use core::net::IpAddr;

use super::*;
use crate::index::Index;
use crate::object::{Change, Endpoint, Key, Object, Service, ServiceKind, Slice};
use crate::records::DataSource;
use crate::settings::{ExtraData, ExtraRecord, Federation, ServiceAddresses, Settings};
use crate::testing::settings;

/// The records of these objects, all of them live.
fn records(settings: Settings, objects: Vec<Object>) -> Index {
    let mut index = Index::new(settings);
    for object in objects {
        index.apply(Change::Apply(object));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1);
    index
}

fn service(name: &str, kind: ServiceKind) -> Object {
    let (labels, ports) = (Vec::new(), Vec::new());
    Object::Service(Service {
        key: Key::new("shop", name),
        uid: 1,
        version: 1,
        labels,
        kind,
        ports,
    })
}

/// A slice of this many endpoints, from 10.1.`block`.0 on, all of one hostname.
fn slice(service: &str, name: &str, block: u8, endpoints: u8) -> Object {
    let endpoint = |end| Endpoint {
        addresses: vec![IpAddr::from([10, 1, block, end])],
        ready: true,
        hostname: Some("same".into()),
        target: None,
    };
    Object::Slice(Slice {
        key: Key::new("shop", name),
        uid: 1,
        version: 1,
        service: service.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: (0..endpoints).map(endpoint).collect(),
    })
}

/// The first name of an explanation.
fn first(index: &Index, name: &str, qtype: u16) -> Hop {
    trace(&index.records(), &Name::from_text(name).unwrap(), qtype).swap_remove(0)
}

#[test]
fn rr25_an_explanation_counts_each_slice_of_a_shared_name_once() {
    const SLICES: u8 = 40;
    let mut objects = vec![service("db", ServiceKind::Headless)];
    objects.extend((0..SLICES).map(|block| slice("db", &format!("db-{block}"), block, 100)));
    let hop = first(&records(settings(), objects), "same.db.shop.svc.cluster.local.", rtype::A);
    assert_eq!((hop.sources.len(), hop.source_count), (MAX_SOURCES, 1 + usize::from(SLICES)));
}

#[test]
fn rr61_an_explanation_counts_each_service_of_an_address_once() {
    const SERVICES: u8 = 40;
    let mut objects = Vec::new();
    for number in 0..SERVICES {
        let name = format!("db-{number}");
        objects.push(service(&name, ServiceKind::Headless));
        objects.push(slice(&name, &name, 0, 1));
        if number < 20 {
            objects.push(slice(&name, &format!("{name}-again"), 0, 1));
        }
    }
    let hop = first(&records(settings(), objects), "0.0.1.10.in-addr.arpa.", rtype::PTR);
    assert_eq!((hop.sources.len(), hop.source_count), (MAX_SOURCES, 40 + 40 + 20));
}

#[test]
fn rr60_an_explanation_names_the_hidden_service_of_a_cluster_ip() {
    let mut hiding = settings();
    hiding.hide_empty_services = true;
    hiding.reverse_cidrs = vec!["10.96.0.0/16".parse().unwrap()];
    let cluster_ip = ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, 9])]);
    let index = records(hiding, vec![service("db", cluster_ip)]);
    let hop = first(&index, "9.0.96.10.in-addr.arpa.", rtype::PTR);
    assert!(!hop.exists && hop.rules.iter().any(|rule| rule.id == "RR60"), "{hop:?}");
    assert_eq!(hop.source_count, 1);
}

/// Where a question leads, and the rules that say so.
fn asked(index: &Index, name: &str, qtype: u16) -> (Place, Vec<&'static str>) {
    let hop = first(index, name, qtype);
    (hop.place, hop.rules.iter().map(|rule| rule.id).collect())
}

#[test]
fn a18_the_ds_record_of_a_stub_domain_is_asked_where_the_names_above_it_are() {
    let mut forwarding = settings();
    let domains = ["corp.example.", "lab.corp.example."];
    forwarding.stub_domains = domains.map(|name| Name::from_text(name).unwrap()).to_vec();
    let mut alone = forwarding.clone();
    alone.default_upstreams = false;
    let [both, alone] = [forwarding, alone].map(|settings| records(settings, Vec::new()));
    for index in [&both, &alone] {
        let of_lab = asked(index, "lab.corp.example.", rtype::DS);
        assert_eq!(of_lab, (Place::Group(1), vec!["A18", "A18"]));
        let below = asked(index, "x.corp.example.", rtype::DS);
        assert_eq!(below, (Place::Group(1), vec!["A18"]));
        let other_type = asked(index, "lab.corp.example.", rtype::SOA);
        assert_eq!(other_type, (Place::Group(2), vec!["A18"]));
    }
    let ds_of_corp = |index| asked(index, "corp.example.", rtype::DS);
    assert_eq!(ds_of_corp(&both), (Place::Group(0), vec!["A18", "A19"]));
    assert_eq!(ds_of_corp(&alone), (Place::Group(1), vec!["A18"]), "no other server is left");
    assert_eq!(asked(&both, ".", rtype::DS), (Place::Group(0), vec!["A19"]));
    assert_eq!(asked(&alone, "example.", rtype::DS), (Place::NoGroup, vec!["A20"]));
}

#[test]
fn rr75_the_ds_record_of_a_zone_of_ours_is_asked_where_the_names_above_it_are() {
    let mut forwarding = settings();
    forwarding.stub_domains = vec![Name::from_text("local.").unwrap()];
    forwarding.reverse_cidrs = vec!["10.96.0.0/16".parse().unwrap()];
    let mut alone = forwarding.clone();
    alone.default_upstreams = false;
    alone.stub_domains.clear();
    let [both, alone] = [forwarding, alone].map(|settings| records(settings, Vec::new()));
    let of_zone = asked(&both, "cluster.local.", rtype::DS);
    assert_eq!(of_zone, (Place::Group(1), vec!["RR75", "A18"]));
    let of_reverse = asked(&both, "96.10.in-addr.arpa.", rtype::DS);
    assert_eq!(of_reverse, (Place::Group(0), vec!["RR75", "A19"]));
    for (index, name, qtype, place) in [
        (&both, "svc.cluster.local.", rtype::DS, Place::ClusterZone),
        (&both, "cluster.local.", rtype::SOA, Place::ClusterZone),
        (&both, "1.96.10.in-addr.arpa.", rtype::DS, Place::Reverse),
        (&alone, "cluster.local.", rtype::DS, Place::ClusterZone),
        (&alone, "96.10.in-addr.arpa.", rtype::DS, Place::Reverse),
    ] {
        let (found, rules) = asked(index, name, qtype);
        assert!(found == place && !rules.contains(&"RR75"), "{name}: {rules:?}");
    }
}

#[test]
fn rr81_the_zone_that_begins_at_an_extra_record_is_asked_for_what_proves_it() {
    let mut forwarding = settings();
    forwarding.stub_domains = vec![Name::from_text("corp.example.").unwrap()];
    let extra = |owner: &str, wildcard, override_cluster_zone, data| ExtraRecord {
        owner: Name::from_text(owner).unwrap(),
        wildcard,
        data,
        ttl_s: 30,
        override_cluster_zone,
        reverse: false,
    };
    let text = || ExtraData::Txt(vec![(*b"a").into()]);
    let target = Name::from_text("www.example.org.").unwrap();
    forwarding.extra = vec![
        extra("corp.example.", false, false, text()),
        extra("alias.example.", false, false, ExtraData::Cname(target.clone())),
        extra("moved.example.", false, false, ExtraData::Dname(target)),
        extra("apps.example.", true, false, text()),
        extra("x.svc.cluster.local.", false, true, text()),
    ];
    let mut alone = forwarding.clone();
    alone.default_upstreams = false;
    let [both, alone] = [forwarding, alone].map(|settings| records(settings, Vec::new()));
    for (name, qtype, group, rules) in [
        ("corp.example.", rtype::DS, 0, &["RR81", "A18", "A19"][..]),
        ("corp.example.", rtype::DNSKEY, 1, &["RR81", "A18"]),
        ("alias.example.", rtype::DS, 0, &["RR81", "A19"]),
        ("alias.example.", rtype::DNSKEY, 0, &["RR81", "A19"]),
        ("moved.example.", rtype::DNSKEY, 0, &["RR81", "A19"]),
    ] {
        assert_eq!(asked(&both, name, qtype), (Place::Group(group), rules.to_vec()), "{name}");
    }
    for (index, name, qtype, place) in [
        (&both, "corp.example.", rtype::AAAA, Place::ExtraRecord),
        (&both, "x.moved.example.", rtype::DS, Place::ExtraRecord),
        (&both, "x.apps.example.", rtype::DS, Place::ExtraRecord),
        (&both, "x.svc.cluster.local.", rtype::DNSKEY, Place::ClusterZone),
        (&alone, "alias.example.", rtype::DS, Place::ExtraRecord),
    ] {
        assert_eq!(first(index, name, qtype).place, place, "{name} {qtype}");
    }
}

#[test]
fn rr3_our_own_addresses_need_the_services_where_only_our_service_is_named() {
    let mut by_name = settings();
    by_name.service_addresses =
        ServiceAddresses::OfService { namespace: "kube-system".into(), name: "dns".into() };
    let unlisted = |settings| first(&Index::new(settings), "ns.dns.cluster.local.", rtype::A);
    assert_eq!(unlisted(by_name).missing, [Resource::Services]);
    assert_eq!(unlisted(settings()).missing, []);
}

#[test]
fn rr96_an_explanation_says_that_an_external_name_needs_no_endpoint() {
    let mut federated = settings();
    let domain = Name::from_text("zone.region.west.example").unwrap();
    federated.federations =
        vec![Federation { name: Name::from_text("west").unwrap(), domain: Some(domain) }];
    let alias = service("alias", ServiceKind::ExternalName("www.example.org".into()));
    let objects = vec![alias, service("db", ServiceKind::Headless), slice("db", "db", 0, 1)];
    let index = records(federated, objects);
    for (name, said) in [
        ("alias", "the local Service is an ExternalName"),
        ("db", "the local Service has an endpoint"),
        ("none", "no local Service with a published endpoint"),
    ] {
        let hop = first(&index, &format!("{name}.shop.west.svc.cluster.local."), rtype::A);
        assert!(hop.notes.iter().any(|note| note.starts_with(said)), "{name}: {hop:?}");
    }
}

#[test]
fn fw45_an_explanation_says_that_a_type_is_withheld() {
    let mut withholding = settings();
    withholding.stub_domains = vec![Name::from_text("corp.example").unwrap()];
    withholding.withheld_types = vec![vec![rtype::AAAA], vec![rtype::A]];
    let index = records(withholding, Vec::new());
    for (name, qtype, place, rules) in [
        ("www.example.org", rtype::AAAA, Place::Group(0), &["A19", "FW45"][..]),
        ("www.example.org", rtype::A, Place::Group(0), &["A19"]),
        ("wiki.corp.example", rtype::A, Place::Group(1), &["A18", "FW45"]),
        ("wiki.corp.example", rtype::AAAA, Place::Group(1), &["A18"]),
    ] {
        assert_eq!(asked(&index, name, qtype), (place, rules.to_vec()), "{name} {qtype}");
    }
    let hop = first(&index, "wiki.corp.example", rtype::A);
    let said = "withheldTypes of this stub domain has this type, so no server is asked";
    assert!(hop.notes.iter().any(|note| note == said), "{hop:?}");
}
