//! Periodic work of the writer: reasons that no longer hold because other objects changed, and counts that have expired.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dataplane_core::{Endpoint, Namespace, Object, Slice};

use super::*;

impl Setup {
    /// For tests: no counters, a resolv.conf that does not exist, and the identity of this process.
    pub(crate) fn reporting_to(status: Arc<Status>) -> Setup {
        Setup {
            counters: Vec::new(),
            identity: crate::identity::of_this_process(None),
            resolv_conf: PathBuf::from("/nonexistent"),
            location: Location::default(),
            status,
        }
    }
}

fn writer() -> Writer {
    let identity = Identity { instance_id: "00000000000000ab".repeat(2), ..Identity::default() };
    let setup = Setup { identity, ..Setup::reporting_to(Arc::default()) };
    Writer::new(&Config::default(), setup).unwrap()
}

/// A slice with two thousand addresses.
fn slice(number: u32) -> Change {
    let address = |at: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number * 2_000 + at));
    let endpoint = |at: u32| Endpoint {
        addresses: vec![address(2 * at), address(2 * at + 1)],
        ready: true,
        hostname: None,
        target: None,
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("shop", format!("wide-{number}")),
        uid: 1,
        version: 0,
        service: "wide".into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: (0..1_000).map(endpoint).collect(),
    }))
}

#[test]
fn e15_a_slice_that_is_served_again_is_named_no_more() {
    let mut writer = writer();
    for number in 0..51 {
        writer.apply(slice(number));
    }
    let named = |writer: &Writer| -> Vec<String> {
        writer.problems().map(|skipped| format!("{}: {}", skipped.name, skipped.reason)).collect()
    };
    let hidden = "wide-50: more than 100000 endpoint addresses in the slices of one Service";
    assert!(!writer.tick() && named(&writer) == [hidden]);
    let key = Key::new("shop", "wide-7");
    writer.apply(Change::Delete(Resource::EndpointSlices, key));
    assert!(writer.tick(), "there is something to report");
    assert_eq!(named(&writer), [""; 0]);
}

#[test]
fn what_a_person_had_counted_ends_without_a_query() {
    let mut writer = writer();
    let state = writer.state();
    let now = Instant::now();
    state.taps.count_top(now, Duration::from_secs(600));
    writer.tick();
    assert!(state.taps.wanted().begin(Duration::ZERO).is_some());
    state.taps.end_top(now + Duration::from_secs(600));
    state.taps.count_top(now, Duration::ZERO);
    assert!(state.taps.wanted().begin(Duration::ZERO).is_some());
    writer.tick();
    assert!(state.taps.wanted().begin(Duration::ZERO).is_none());
}

#[test]
fn a43_replicas_of_one_cluster_and_configuration_know_the_same_loop_probes() {
    let mut writer = writer();
    writer.location.config_map = Some("dns/main".into());
    let kube_system = || {
        let (name, labels) = (KUBE_SYSTEM.into(), Vec::new());
        Change::Apply(Object::Namespace(Namespace { name, uid: 7, version: 1, labels }))
    };
    let expected = identity::of_replicas(7, Some("dns/main"));
    let replicas = |writer: &Writer| writer.state().published.load().records.replicas();
    assert_eq!(replicas(&writer), 0xab, "its own, before anything is published");
    writer.apply(kube_system());
    writer.publish();
    assert_eq!(replicas(&writer), expected);
    // A second index is filled, and replaces the first.
    let by_name = r#"{"format":1,"endpointNames":"PodName"}"#;
    let config = Config::from_json(by_name).unwrap().0;
    assert_eq!(writer.renew(&config).unwrap(), Relist::Everything);
    writer.begin(Resource::Namespaces);
    writer.complete(Resource::Namespaces, 0);
    assert!(!writer.is_renewing());
    writer.publish();
    assert_eq!(replicas(&writer), expected);
}

/// A Service with one endpoint, whose name is as long as this.
fn named(service: &str, hostname_octets: usize) -> Change {
    let endpoint = Endpoint {
        addresses: vec![IpAddr::from([10, 1, 0, 1])],
        ready: true,
        hostname: Some("h".repeat(hostname_octets).into()),
        target: None,
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("n".repeat(63), service),
        uid: 1,
        version: 1,
        service: service.into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: vec![endpoint],
    }))
}

#[test]
fn e15_what_a_new_domain_leaves_too_long_is_named_when_it_takes_over() {
    // 119 octets.
    let long = ["d".repeat(57), "e".repeat(57), "arp".to_owned()].join(".");
    for (before, after) in [("short", &*long), (&*long, "short")] {
        let config = |domain: &str| {
            Config::from_json(&format!(r#"{{"format":1,"domain":"{domain}"}}"#)).unwrap().0
        };
        let mut writer = Writer::new(&config(before), Setup::reporting_to(Arc::default())).unwrap();
        let names = |writer: &Writer| -> Vec<String> {
            writer.problems().map(|skipped| skipped.name).collect()
        };
        let list = |writer: &mut Writer| {
            for resource in Resource::ALL {
                writer.begin(resource);
                if resource == Resource::EndpointSlices {
                    writer.apply(named("fits", 1));
                    writer.apply(named("long", 63));
                }
                writer.complete(resource, 0);
            }
        };
        let too_long = |domain: &str| if domain == long { vec!["long".to_owned()] } else { vec![] };
        list(&mut writer);
        assert_eq!(names(&writer), too_long(before));
        let reported = writer.changed_problems();
        assert_eq!(reported.new.len(), too_long(before).len());

        assert_eq!(writer.renew(&config(after)).unwrap(), Relist::Everything);
        writer.apply(named("gone", 63));
        assert_eq!(writer.changed_problems().new.len(), too_long(before).len());
        list(&mut writer);
        assert!(!writer.is_renewing());
        assert_eq!(names(&writer), too_long(after), "`gone` is in no list");
        let changes = writer.changed_problems();
        let names_of = |changed: &std::collections::BTreeSet<Arc<Skipped>>| -> Vec<String> {
            changed.iter().map(|skipped| skipped.name.clone()).collect()
        };
        assert_eq!(names_of(&changes.new), too_long(after));
        let gone = if before == long { vec!["gone".to_owned(), "long".to_owned()] } else { vec![] };
        assert_eq!(names_of(&changes.gone), gone);
    }
}
