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
