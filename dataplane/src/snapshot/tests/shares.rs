//! A snapshot with less room than there are objects.

use std::time::{SystemTime, UNIX_EPOCH};

use dataplane_core::{Endpoint, Slice};

use super::*;
use crate::settings;

/// A large slice of names.
fn slice(namespace: &str, number: u8) -> Object {
    let endpoint = |row: u8| Endpoint {
        addresses: vec![IpAddr::from([10, 9, number, row])],
        ready: true,
        hostname: Some(format!("{}-{row}", "n".repeat(50)).into()),
        target: None,
    };
    Object::Slice(Slice {
        key: Key::new(namespace, format!("wide-{number}")),
        uid: 1,
        version: 1,
        service: "wide".into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: (0..200).map(endpoint).collect(),
    })
}

#[test]
fn e40_a_namespace_that_fills_the_snapshot_leaves_out_its_own_objects_only() {
    let folder = Folder::new();
    let config = Config::default();
    let status = Arc::<Status>::default();
    let mut index = Index::new(settings::of(&config).unwrap());
    for resource in Resource::ALL {
        index.begin_list(resource);
    }
    for number in 0..100 {
        index.apply(Change::Apply(slice("evil", number)));
    }
    let names = ["cart", "till", "door"];
    for name in names {
        index.apply(Change::Apply(service(name, 1, 1)));
    }
    index.apply(Change::Apply(slice("shop", 200)));
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1);
    let mut snapshots =
        Snapshots::new(&folder.0, Arc::new(config.clone()), status.clone()).unwrap();
    snapshots.room = 300_000;
    let begin = Instant::now();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let contact = Contact { at: begin, unix_s: since_1970.as_secs() };
    while status.read().snapshot.writes == 0 {
        let circumstances = Circumstances {
            config: &config,
            contacts: [Some(contact); Resource::ALL.len()],
            kube_system: None,
            now: Instant::now(),
            is_last: false,
        };
        std::thread::sleep(snapshots.step(&index, &circumstances).min(NEXT_STEP));
        assert!(begin.elapsed() < PATIENCE, "{:?}", status.read().snapshot);
    }
    let reported = status.read().snapshot.clone();
    assert!(reported.octets <= 300_000 && reported.octets > 200_000, "{reported:?}");
    assert!((1..100).contains(&reported.left_out), "{reported:?}");
    assert!(reported.left_out_objects.iter().all(|name| name.starts_with("endpointslices evil/")));
    let mut of_shop = 0;
    Stored::open(&folder.file())
        .unwrap()
        .unwrap()
        .objects(|object| of_shop += usize::from(&*object.key().namespace == "shop"))
        .unwrap();
    assert_eq!(of_shop, names.len() + 1);

    // The next process says that objects are missing, and so does its snapshot until lists are live.
    let octets = fs::metadata(folder.file()).unwrap().len();
    let is_partial = || Stored::open(&folder.file()).unwrap().unwrap().is_partial();
    let (mut writer, status, is_loaded) = load(&folder, &config);
    assert!(is_loaded && is_partial());
    let reported = status.read().snapshot.clone();
    assert!(reported.octets == octets && reported.loaded.unwrap().is_partial, "{reported:?}");
    writer.keep_snapshots(&folder.0).unwrap();
    writer.begin(Resource::Namespaces);
    writer.complete(Resource::Namespaces, 0);
    writer.publish();
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    assert!(is_partial());
    complete(&mut writer, vec![service("cart", 1, 1)]);
    step_last_until(&mut writer, &status, |reported| reported.writes == 2);
    assert!(!is_partial());
}
