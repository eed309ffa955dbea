//! A snapshot among lists and configurations: what of it is taken, what live data does to it, and
//! what is written while one index takes over from another.

use dataplane_core::Pod;

use super::*;

pub(super) const OBJECTS: [Resource; 3] =
    [Resource::Services, Resource::EndpointSlices, Resource::Namespaces];

fn with_pods(records: &str) -> Config {
    let text = format!(r#"{{"format":1,"podRecords":"{records}"}}"#);
    Config::from_json(&text).unwrap().0
}

fn pod() -> Object {
    Object::Pod(Pod {
        key: Key::new("shop", "cart-0"),
        uid: 9,
        version: 90,
        addresses: vec![IpAddr::from([10, 244, 0, 9])],
        host_network: false,
        finished: false,
    })
}

/// A Service of `shop` with this last octet.
fn cluster_ip(name: &str, version: u64, last: u8) -> Object {
    let Object::Service(service) = service(name, 5, version) else { unreachable!("a Service") };
    let kind = ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, last])]);
    Object::Service(Service { kind, ..service })
}

/// A folder with a snapshot of these objects.
fn written_of(config: &Config, objects: Vec<Object>) -> Folder {
    let folder = Folder::new();
    let (mut writer, status) = writer(config);
    writer.keep_snapshots(&folder.0).unwrap();
    complete(&mut writer, objects);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    folder
}

#[test]
fn pods_of_a_snapshot_are_taken_only_where_they_are_read_and_hold_nothing_up() {
    let folder = written_of(&with_pods("Verified"), vec![service("cart", 5, 50), pod()]);
    let (verified, ..) = load(&folder, &with_pods("Verified"));
    assert!(matches!(source(&verified, Resource::Pods), DataSource::Snapshot { .. }));
    for records in ["Insecure", "Disabled"] {
        let (mut writer, status, is_loaded) = load(&folder, &with_pods(records));
        assert!(is_loaded);
        assert!(matches!(source(&writer, Resource::Services), DataSource::Snapshot { .. }));
        assert_eq!(source(&writer, Resource::Pods), DataSource::None, "{records}");
        assert_eq!(status.read().objects[Resource::Pods as usize], 0);

        // Pods are not listed, so only the other lists are waited for.
        writer.renew(&with_exposure(r#"{"matchLabels":{"tier":"front"}}"#)).unwrap();
        for resource in OBJECTS {
            writer.begin(resource);
            writer.complete(resource, 0);
        }
        assert!(!writer.is_renewing(), "{records}");
    }
}

/// As when etcd was restored from a backup: versions are lower than before, uids the same.
#[test]
fn e21_e42_live_data_replaces_it_also_with_lower_versions() {
    let objects = vec![cluster_ip("cart", 1_000, 1), cluster_ip("gone", 1_000, 2), kube_system(1)];
    let folder = written_of(&Config::default(), objects);
    let (mut writer, status, _) = load(&folder, &Config::default());
    writer.begin(Resource::Services);
    let live = cluster_ip("cart", 800, 3);
    assert!(writer.apply(Change::Apply(live.clone())).is_visible);
    assert_eq!(writer.complete(Resource::Services, 900), 1);
    writer.publish();
    assert_eq!(services(&status), 1);
    assert_eq!(source(&writer, Resource::Services), DataSource::Live);
    let page = crate::names::page(
        &writer.state(),
        &Config::default(),
        [live.clone()].into_iter(),
        &[],
        None,
    );
    assert!(page.contains("10.96.0.3") && !page.contains("10.96.0.1"), "{page}");

    // E14: from here on versions count again.
    assert!(!writer.apply(Change::Apply(cluster_ip("cart", 799, 4))).is_visible);
}

#[test]
fn an_index_that_takes_over_half_way_through_a_snapshot_leaves_none_of_it_out() {
    let folder = Folder::new();
    let (mut before, status) = writer(&Config::default());
    before.keep_snapshots(&folder.0).unwrap();
    let count = 3 * STEP;
    let mut objects: Vec<Object> =
        (0..count).map(|number| service(&format!("s{number}"), 1, 1)).collect();
    complete(&mut before, objects.clone());
    before.step_snapshot(false);
    assert_eq!(status.read().snapshot.writes, 0, "it has begun");

    // The same objects, at other places.
    objects.reverse();
    before
        .renew(&Config::from_json(r#"{"format":1,"endpointNames":"PodName"}"#).unwrap().0)
        .unwrap();
    complete(&mut before, objects);
    assert!(!before.is_renewing());
    // Then another snapshot is due at once.
    step_last_until(&mut before, &status, |reported| reported.writes == 1);
    let (_, status, is_loaded) = load(&folder, &Config::default());
    assert!(is_loaded);
    assert_eq!(services(&status), count);
}

#[test]
fn pods_that_are_forgotten_half_way_through_a_snapshot_are_not_in_it() {
    let folder = Folder::new();
    let (mut before, status) = writer(&with_pods("Verified"));
    before.keep_snapshots(&folder.0).unwrap();
    let mut objects: Vec<Object> =
        (0..STEP).map(|number| service(&format!("s{number}"), 1, 1)).collect();
    objects.push(pod());
    complete(&mut before, objects);
    before.step_snapshot(false);
    before.forget(Resource::Pods);
    before.publish();
    step_last_until(&mut before, &status, |reported| reported.writes == 1);
    let (writer, ..) = load(&folder, &with_pods("Verified"));
    assert_eq!(source(&writer, Resource::Pods), DataSource::None, "no Pod would be denied");
}
