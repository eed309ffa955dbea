//! What is exported, loaded and exported again is the same; a foreign snapshot leaves no trace.

use super::*;
use crate::object::{Change, Protocol};
use crate::records::Records;
use crate::settings::{
    EndpointNames, Exposure, PodRecords, Requirement, Selector, SelectorOperator, Settings,
};
use crate::testing;

const SNAPSHOT: DataSource = DataSource::Snapshot { confirmed_at_s: 90 };

fn settings() -> Settings {
    let reads = |key: &str| {
        Selector(vec![Requirement { key: key.into(), operator: SelectorOperator::DoesNotExist }])
    };
    Settings {
        pods: PodRecords::Verified,
        endpoint_names: EndpointNames::PodName,
        exposure: Exposure {
            namespaces: Vec::new(),
            namespace_selector: reads("hidden"),
            service_selector: reads("internal"),
        },
        ..testing::settings()
    }
}

fn service(name: &str, kind: ServiceKind) -> Object {
    Object::Service(Service {
        key: Key::new("shop", name),
        uid: 7,
        version: 70,
        labels: vec![("internal".into(), "no".into())],
        kind,
        ports: vec![ServicePort { name: "web".into(), port: 80, protocol: Protocol::Tcp }],
    })
}

fn endpoint(address: &str, hostname: Option<&str>, target: Option<(&str, &str)>) -> Endpoint {
    Endpoint {
        addresses: vec![address.parse().unwrap()],
        ready: true,
        hostname: hostname.map(Into::into),
        target: target
            .map(|(namespace, name)| TargetRef { namespace: namespace.into(), name: name.into() }),
    }
}

fn slice(name: &str, ipv6: bool, endpoints: Vec<Endpoint>) -> Object {
    Object::Slice(Slice {
        key: Key::new("shop", name),
        uid: 8,
        version: 80,
        service: "db".into(),
        ipv6,
        ports: vec![SlicePort { name: "sql".into(), port: 5432, protocol: Protocol::Tcp }],
        endpoints,
    })
}

/// One of everything, in the form in which it is exported.
fn objects() -> Vec<Object> {
    let mut objects = vec![
        service("cart", ServiceKind::ClusterIp(vec!["10.96.0.1".parse().unwrap()])),
        service("db", ServiceKind::Headless),
        service("mail", ServiceKind::ExternalName("mail.example.com.".into())),
        service("void", ServiceKind::ExternalName("".into())),
        slice(
            "db-1",
            false,
            vec![
                endpoint("10.244.1.1", Some("db-0"), Some(("", ""))),
                endpoint("10.244.1.2", None, Some(("", "db-x"))),
                endpoint("10.244.1.3", None, Some(("-", "db-y"))),
                endpoint("10.244.1.4", None, Some(("", ""))),
                endpoint("10.244.1.5", None, None),
            ],
        ),
        slice("db-2", true, vec![endpoint("fd00::5", None, None)]),
    ];
    objects.push(Object::Namespace(Namespace {
        name: "shop".into(),
        uid: 9,
        version: 90,
        labels: vec![("hidden".into(), "no".into())],
    }));
    objects.push(Object::Pod(Pod {
        key: Key::new("shop", "cart-1"),
        uid: 10,
        version: 100,
        addresses: vec!["10.244.2.1".parse().unwrap()],
        host_network: true,
        finished: false,
    }));
    objects
}

fn list(index: &mut Index, objects: &[Object], version: u64, source: DataSource) {
    for resource in Resource::ALL {
        index.begin_list(resource);
    }
    for object in objects {
        index.apply(Change::Apply(object.clone()));
    }
    for resource in Resource::ALL {
        index.end_list(resource, version, source);
    }
}

fn exported(index: &Index, budget: usize) -> Vec<Object> {
    let (mut export, mut objects) = (Export::default(), Vec::new());
    while index.export(&mut export, budget, |object| objects.push(object)) {}
    objects
}

fn sources(records: &Records) -> Vec<DataSource> {
    Resource::ALL.map(|resource| records.source(resource)).to_vec()
}

#[test]
fn e40_what_goes_in_comes_out_in_steps_of_any_size() {
    let mut index = Index::new(settings());
    list(&mut index, &objects(), 0, DataSource::Live);
    for budget in [1, 2, 3, 5, 1000] {
        assert_eq!(exported(&index, budget), objects(), "{budget}");
    }
}

#[test]
fn e40_what_no_answer_needs_is_left_out() {
    let mut index = Index::new(settings());
    let mut full = objects();
    if let Object::Service(cart) = &mut full[0] {
        cart.labels.push(("app".into(), "cart".into()));
    }
    if let Object::Slice(db) = &mut full[4] {
        let not_ready = Endpoint { ready: false, ..endpoint("10.244.1.9", Some("db-9"), None) };
        db.endpoints.insert(0, not_ready);
    }
    list(&mut index, &full, 0, DataSource::Live);
    assert_eq!(exported(&index, 10), objects());
}

#[test]
fn e20_a_resource_without_a_complete_list_is_not_exported() {
    let mut index = Index::new(settings());
    for object in objects() {
        index.apply(Change::Apply(object));
    }
    index.end_list(Resource::Namespaces, 0, DataSource::Live);
    let objects = exported(&index, 100);
    assert_eq!(objects.iter().map(Object::resource).collect::<Vec<_>>(), [Resource::Namespaces]);
}

#[test]
fn an_export_continues_while_objects_come_and_go() {
    let mut index = Index::new(settings());
    list(&mut index, &objects(), 0, DataSource::Live);
    let (mut export, mut names) = (Export::default(), Vec::new());
    let mut names_of = |index: &Index, export: &mut Export| {
        index.export(export, 1, |object| names.push(object.key().name.to_string()))
    };
    assert!(names_of(&index, &mut export));
    index.apply(Change::Delete(Resource::Services, Key::new("shop", "cart")));
    index.apply(Change::Delete(Resource::Services, Key::new("shop", "db")));
    index.apply(Change::Apply(service("zoo", ServiceKind::Headless)));
    while names_of(&index, &mut export) {}
    // The new object takes the place of `cart`, which this export has passed: the next export will have it.
    assert_eq!(names, ["cart", "mail", "void", "db-1", "db-2", "shop", "cart-1"]);
    assert_eq!(exported(&index, 100)[0].key().name, "zoo".into());
}

#[test]
fn e21_a_live_list_replaces_a_snapshot_in_one_step() {
    let mut index = Index::new(settings());
    list(&mut index, &objects(), 0, SNAPSHOT);
    assert_eq!(sources(&index.publish(1).unwrap()), [SNAPSHOT; 4]);
    let fewer: Vec<Object> = objects().into_iter().skip(1).collect();
    list(&mut index, &fewer, 1000, DataSource::Live);
    assert_eq!(exported(&index, 100), fewer);
    assert_eq!(index.forget_snapshot(), 0, "everything left has been confirmed");
}

#[test]
fn e42_a_foreign_snapshot_is_forgotten_and_what_is_live_stays() {
    let mut index = Index::new(settings());
    list(&mut index, &objects(), 0, SNAPSHOT);
    // All Services but one are live already; the versions of the other cluster are higher than ours.
    index.begin_list(Resource::Services);
    let ours = service("cart", ServiceKind::Headless);
    index.apply(Change::Apply(ours.clone()));
    index.end_list(Resource::Services, 1, DataSource::Live);
    // A list of slices has begun.
    index.begin_list(Resource::EndpointSlices);
    let slice = slice("db-3", false, vec![endpoint("10.244.9.9", None, None)]);
    index.apply(Change::Apply(slice.clone()));
    assert_eq!(index.forget_snapshot(), 7);
    let (live, none) = (DataSource::Live, DataSource::None);
    assert_eq!(sources(&index.publish(1).unwrap()), [live, none, none, none]);
    assert_eq!(exported(&index, 100), [ours]);
    index.end_list(Resource::EndpointSlices, 1, live);
    assert_eq!(exported(&index, 100)[1], slice);
    assert_eq!(index.forget_snapshot(), 0);
}

#[test]
fn e40_a_service_with_too_many_ports_is_known_to_have_more_after_a_restart() {
    let port =
        |port: u16| ServicePort { name: format!("p{port}").into(), port, protocol: Protocol::Tcp };
    let Object::Service(service) = service("cart", ServiceKind::ClusterIp(Vec::new())) else {
        unreachable!("a Service was made");
    };
    let ports = (0..=MAX_PORTS as u16).map(port).collect();
    let mut index = Index::new(testing::settings());
    let change = Change::Apply(Object::Service(Service { ports, ..service }));
    assert_eq!(index.apply(change).problems.len(), 1);
    index.end_list(Resource::Services, 0, DataSource::Live);
    let mut again = Index::new(testing::settings());
    let mut problems = Vec::new();
    index.export(&mut Export::default(), usize::MAX, |object| {
        problems.extend(again.apply(Change::Apply(object)).problems);
    });
    assert_eq!(problems.len(), 1);
    let (old, new) = (index.publish(1).unwrap(), again.publish(1).unwrap());
    let ports = |records: &Records| {
        let (_, entry) = records.service(b"\x04cart\x04shop").unwrap();
        alloc::sync::Arc::clone(&entry.object.as_ref().unwrap().ports)
    };
    assert_eq!(ports(&old), ports(&new));
}
