//! Row L13: edits do not grow memory. Objects are edited, created and deleted again and again, with other contents each
//! time: the index holds the last contents and nothing of earlier ones.

use core::net::IpAddr;

use super::*;
use crate::object::{
    Endpoint, Namespace, Pod, Protocol, Service, ServiceKind, ServicePort, Slice, SlicePort,
    TargetRef,
};
use crate::settings::{PodRecords, Requirement, Selector, SelectorOperator, Settings};
use crate::testing::settings;

/// Edits of each kind, rows and ports of each object, and for how many edits memory may go up before it
/// stays.
const EDITS: u32 = 200;
const SIZE: u32 = 200;
const WARM_UP: u32 = 60;
/// Rows and ports of each object where the edits are many.
const SMALL: u32 = 20;
/// Octets by which live memory may differ: blocks and nodes are fuller or emptier by chance.
const SLACK: i64 = 64 * 1024;

/// Settings that keep labels and read Pods.
fn all_is_held() -> Settings {
    let mut settings = settings();
    settings.pods = PodRecords::Verified;
    let selector =
        || Selector(vec![Requirement { key: "kept".into(), operator: SelectorOperator::Exists }]);
    settings.exposure.namespace_selector = selector();
    settings.exposure.service_selector = selector();
    settings
}

fn labels(number: u32) -> Vec<(Box<str>, Box<str>)> {
    vec![("kept".into(), format!("{number}").repeat(20).into())]
}

fn address(number: u32, index: u32) -> IpAddr {
    IpAddr::from(
        (0x0a00_0000 | number.wrapping_mul(0x9e37_79b9).wrapping_add(index) >> 8).to_be_bytes(),
    )
}

fn service(name: &str, number: u32, size: u32) -> Change {
    let port = |port: u32| ServicePort {
        name: format!("port-{number}-{port}").into(),
        port: (port + number) as u16,
        protocol: Protocol::Tcp,
    };
    let kind = match number % 3 {
        0 => ServiceKind::ClusterIp((0..4).map(|index| address(number, index)).collect()),
        1 => ServiceKind::Headless,
        _ => ServiceKind::ExternalName(format!("name-{number}.example.org").into()),
    };
    Change::Apply(Object::Service(Service {
        key: Key::new("evil", name),
        uid: 1,
        version: 0,
        labels: labels(number),
        kind,
        ports: (0..size).map(port).collect(),
    }))
}

fn slice(name: &str, service: String, number: u32, size: u32) -> Change {
    let port = |port: u32| SlicePort {
        name: format!("port-{number}-{port}").into(),
        port: (port + number) as u16,
        protocol: Protocol::Tcp,
    };
    let endpoint = |index: u32| Endpoint {
        // Every second edit crowds one address.
        addresses: vec![if number.is_multiple_of(2) {
            address(number, index)
        } else {
            address(0, 0)
        }],
        ready: true,
        hostname: (!index.is_multiple_of(3)).then(|| format!("host-{number}-{index}").into()),
        target: Some(TargetRef { namespace: "".into(), name: format!("pod-{number}").into() }),
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("evil", name),
        uid: 1,
        version: 0,
        service: service.into(),
        ipv6: false,
        ports: (0..size).map(port).collect(),
        endpoints: (0..size).map(endpoint).collect(),
    }))
}

fn namespace(name: String, number: u32) -> Change {
    let (name, labels) = (name.into(), labels(number));
    Change::Apply(Object::Namespace(Namespace { name, uid: 1, version: 0, labels }))
}

fn pod(name: String, number: u32) -> Change {
    Change::Apply(Object::Pod(Pod {
        key: Key::new(format!("ns-{number}"), name),
        uid: 1,
        version: 0,
        addresses: (0..4).map(|index| address(number, index)).collect(),
        host_network: number.is_multiple_of(2),
        finished: number.is_multiple_of(5),
    }))
}

fn delete(change: &Change) -> Option<Change> {
    match change {
        Change::Apply(object) => Some(Change::Delete(object.resource(), object.key())),
        Change::Delete(..) => None,
    }
}

/// An endless series of edits: the changes of the edit with this number.
type Edit = fn(u32, u32) -> Vec<Change>;

const KINDS: [(&str, Edit); 9] = [
    ("one Service", |number, size| vec![service("cart", number, size)]),
    ("one slice", |number, size| vec![slice("cart-0", "cart".to_owned(), number, size)]),
    ("a slice that moves from Service to Service", |number, size| {
        vec![slice("cart-0", format!("cart-{number}"), number, size)]
    }),
    ("many slices of one Service", |number, size| {
        vec![slice(&format!("cart-{}", number % 40), "cart".to_owned(), number, size)]
    }),
    ("one namespace", |number, _| vec![namespace("evil".to_owned(), number)]),
    ("namespaces that come and go", |number, _| {
        let name = |number| namespace(format!("evil-{number}"), number);
        [Some(name(number)), number.checked_sub(3).and_then(|old| delete(&name(old)))]
            .into_iter()
            .flatten()
            .collect()
    }),
    ("Pods that come and go", |number, _| {
        let pod = |number| pod("pod".to_owned(), number);
        [Some(pod(number)), number.checked_sub(3).and_then(|old| delete(&pod(old)))]
            .into_iter()
            .flatten()
            .collect()
    }),
    ("Services that come and go", |number, size| {
        let old = number.checked_sub(3).map(|old| service(&format!("cart-{old}"), old, 0));
        let mut changes = vec![service(&format!("cart-{number}"), number, size)];
        changes.extend(old.as_ref().and_then(delete));
        changes
    }),
    ("objects that are refused", |number, size| {
        vec![service(&format!("not a label {number}"), number, size)]
    }),
];

fn play(index: &mut Index, edit: Edit, numbers: core::ops::Range<u32>, size: u32) {
    for number in numbers {
        for change in edit(number, size) {
            index.apply(change);
        }
        index.publish(u64::from(number));
    }
}

/// Octets that are live after something and were not before.
fn grown(run: impl FnOnce()) -> i64 {
    allocation_counter::measure(run).bytes_current
}

fn edits_hold_nothing(edits: u32, size: u32) {
    for (kind, edit) in KINDS {
        let mut index = Index::new(all_is_held());
        play(&mut index, edit, 0..WARM_UP, size);
        let more = grown(|| play(&mut index, edit, WARM_UP..WARM_UP + edits, size));
        assert!(more < SLACK, "{kind}: {more} octets more after {edits} edits");
    }
}

#[test]
fn l13_edits_of_every_kind_leave_nothing_behind() {
    edits_hold_nothing(EDITS, SIZE);
}

#[test]
fn l13_twenty_thousand_small_edits_leave_nothing_behind() {
    edits_hold_nothing(20_000 / KINDS.len() as u32, SMALL);
}

/// `make edits` runs it, optimised.
#[test]
#[ignore = "takes a minute when optimised, many when not"]
fn l13_a_million_edits_leave_nothing_behind() {
    edits_hold_nothing(1_000_000 / KINDS.len() as u32, SMALL);
}

#[test]
fn l13_what_is_deleted_gives_its_memory_back() {
    let objects = |number: u32| {
        [
            service(&format!("cart-{number}"), number, 5),
            slice(&format!("cart-{number}"), format!("cart-{number}"), number, 10),
            namespace(format!("ns-{number}"), number),
            pod(format!("pod-{number}"), number),
        ]
    };
    let mut index = Index::new(all_is_held());
    let mut peak = 0;
    let left = grown(|| {
        peak = grown(|| {
            for number in 0..3_000 {
                for change in objects(number) {
                    index.apply(change);
                }
            }
            index.publish(1);
        });
        for number in 0..3_000 {
            objects(number).iter().filter_map(delete).for_each(|change| {
                index.apply(change);
            });
        }
        index.publish(2);
    });
    assert!(peak > 3_000 * 1_000, "{peak} octets at most");
    assert!(left < SLACK, "{left} of {peak} octets are left");
}

#[test]
fn l13_a_list_that_shows_nothing_gives_all_memory_back() {
    let mut index = Index::new(all_is_held());
    let left = grown(|| {
        for number in 0..2_000 {
            index.apply(service(&format!("cart-{number}"), number, 5));
        }
        index.publish(1);
        index.begin_list(Resource::Services);
        index.end_list(Resource::Services, 0, DataSource::Live);
        index.publish(2);
    });
    assert!(left < SLACK, "{left} octets are left");
}
