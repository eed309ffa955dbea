//! Rows L8 and L13 through the writer that the sources use: reasons of what is not served, published states and their readers
//! besides the index.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crds::Config;
use dataplane::source::writer::{Setup, Writer};
use dataplane::state::Published;
use dataplane::status::{Skipped, Status};
use dataplane_core::{
    Change, Endpoint, Identity, Key, Namespace, Object, Pod, Protocol, Resource, Service,
    ServiceKind, ServicePort, Slice, SlicePort,
};

/// For how many edits memory may go up before it stays, and octets that it may differ by: nodes that are fuller or emptier
/// by chance.
const WARM_UP: u32 = 300;
const SLACK: i64 = 256 << 10;
/// Ports and endpoints of most objects; every 64th is as large as the limits allow, and larger.
const SMALL: u32 = 20;
const HOSTILE: u32 = 1_100;
const HOSTILE_EVERY: u32 = 64;
/// Edits for which a reader keeps a state.
const READ_FOR: u32 = 7;

fn size(number: u32) -> u32 {
    if number.is_multiple_of(HOSTILE_EVERY) { HOSTILE } else { SMALL }
}

fn address(number: u32, index: u32) -> IpAddr {
    let place = number.wrapping_mul(0x9e37_79b9).wrapping_add(index << 8);
    IpAddr::from((0x0a00_0000 | place >> 8).to_be_bytes())
}

/// A label that the configuration reads, and one that it does not.
fn labels(number: u32) -> Vec<(Box<str>, Box<str>)> {
    let value = || format!("{number}").repeat(10).into();
    vec![("kept".into(), value()), ("other".into(), value())]
}

fn service(name: &str, number: u32) -> Object {
    let port = |port: u32| ServicePort {
        name: format!("port-{number}-{port}").into(),
        port: (port + number) as u16,
        protocol: Protocol::Tcp,
    };
    let kind = match number % 3 {
        0 => ServiceKind::ClusterIp((0..2).map(|index| address(number, index)).collect()),
        1 => ServiceKind::Headless,
        // Objects that are not served, with another reason each time.
        _ => ServiceKind::ExternalName(format!("not a name {number}").into()),
    };
    let (key, ports) = (Key::new("evil", name), (0..size(number)).map(port).collect());
    Object::Service(Service { key, uid: 1, version: 0, labels: labels(number), kind, ports })
}

fn slice(name: &str, service: &str, number: u32) -> Object {
    let endpoint = |index: u32| Endpoint {
        addresses: vec![address(number, index), IpAddr::from([127, 0, 0, (number % 250) as u8])],
        ready: true,
        hostname: Some(format!("host-{}", index + number).into()),
        target: None,
    };
    let port = |port: u32| SlicePort {
        name: format!("port-{number}-{port}").into(),
        port: port as u16,
        protocol: Protocol::Tcp,
    };
    Object::Slice(Slice {
        key: Key::new("evil", name),
        uid: 1,
        version: 0,
        service: service.into(),
        ipv6: false,
        ports: (0..size(number)).map(port).collect(),
        endpoints: (0..size(number)).map(endpoint).collect(),
    })
}

fn namespace(name: &str, number: u32) -> Object {
    Object::Namespace(Namespace { name: name.into(), uid: 1, version: 0, labels: labels(number) })
}

fn pod(name: &str, number: u32) -> Object {
    let key = Key::new(format!("evil-{}", number % 5), name);
    let addresses = (0..size(number).min(64)).map(|index| address(number, index)).collect();
    Object::Pod(Pod { key, uid: 1, version: 0, addresses, host_network: false, finished: false })
}

/// What the ConfigMap says: labels are read and Pods count, with hosts and a stub domain that nothing else has.
fn configuration(number: u32) -> Config {
    let all = serde_json::json!({"matchExpressions": [{"key": "kept", "operator": "Exists"}]});
    let host = |index: u32| serde_json::json!({"name": format!("host-{number}-{index}.example"), "addresses": [address(number, index)]});
    let hosts: Vec<_> = (0..size(number)).map(host).collect();
    let document = serde_json::json!({
        "format": 1,
        "podRecords": "Verified",
        "exposure": {"namespaceSelector": all, "serviceSelector": all},
        "hosts": hosts,
        "stubDomains": [{"domain": format!("stub-{number}.example"),
                         "group": {"servers": [{"ip": address(number, 0), "port": 53}]}}],
    });
    serde_json::from_value(document).expect("a configuration")
}

/// Applies an object, and deletes the one three numbers before.
fn comes_and_goes(writer: &mut Writer, object: impl Fn(u32) -> Object, number: u32) {
    writer.apply(Change::Apply(object(number)));
    if let Some(old) = number.checked_sub(3).map(object) {
        writer.apply(Change::Delete(old.resource(), old.key()));
    }
}

type Edit = fn(&mut Writer, u32);

/// Each kind of object that is read, edited in place and made and deleted; and what the writer holds of it at the end.
const KINDS: [(&str, Edit, Option<Resource>); 11] = [
    (
        "one Service",
        |writer, number| _ = writer.apply(Change::Apply(service("cart", number))),
        Some(Resource::Services),
    ),
    (
        "Services that come and go",
        |writer, number| {
            comes_and_goes(writer, |number| service(&format!("cart-{number}"), number), number);
        },
        Some(Resource::Services),
    ),
    (
        "Services that are not served",
        |writer, number| {
            comes_and_goes(
                writer,
                |number| service(&format!("not a label {number}"), number),
                number,
            );
        },
        None,
    ),
    (
        "one slice",
        |writer, number| {
            writer.apply(Change::Apply(slice("cart-0", "cart", number)));
        },
        Some(Resource::EndpointSlices),
    ),
    (
        "slices that come and go",
        |writer, number| {
            comes_and_goes(
                writer,
                |number| slice(&format!("cart-{number}"), "cart", number),
                number,
            );
        },
        Some(Resource::EndpointSlices),
    ),
    (
        "a slice that moves from Service to Service",
        |writer, number| {
            writer.apply(Change::Apply(slice("cart-0", &format!("cart-{number}"), number)));
        },
        Some(Resource::EndpointSlices),
    ),
    (
        "one Namespace",
        |writer, number| {
            writer.apply(Change::Apply(namespace("evil", number)));
        },
        Some(Resource::Namespaces),
    ),
    (
        "Namespaces that come and go",
        |writer, number| {
            comes_and_goes(writer, |number| namespace(&format!("evil-{number}"), number), number);
        },
        Some(Resource::Namespaces),
    ),
    (
        "one Pod",
        |writer, number| {
            writer
                .apply(Change::Delete(Resource::Pods, pod("pod", number.saturating_sub(1)).key()));
            writer.apply(Change::Apply(pod("pod", number)));
        },
        Some(Resource::Pods),
    ),
    (
        "Pods that come and go",
        |writer, number| {
            comes_and_goes(writer, |number| pod(&format!("pod-{number}"), number), number);
        },
        Some(Resource::Pods),
    ),
    (
        "the ConfigMap",
        |writer, number| {
            writer.configure(&configuration(number)).expect("it can be used");
        },
        None,
    ),
];

pub(crate) fn setup() -> Setup {
    Setup {
        counters: Vec::new(),
        identity: Identity::default(),
        resolv_conf: "/nonexistent".into(),
        location: Default::default(),
        status: Arc::default(),
    }
}

fn writer() -> Writer {
    Writer::new(&Config::default(), setup()).unwrap()
}

/// Plays edits, with a reader that keeps every state of some for a while, as a slow thread would.
fn play(writer: &mut Writer, edit: Edit, numbers: Range<u32>) {
    let mut read: Vec<Arc<Published>> = Vec::new();
    let state = writer.state();
    for number in numbers {
        edit(writer, number);
        writer.publish();
        if number % READ_FOR == 0 {
            read.clear();
        }
        read.push(state.published.load_full());
    }
    drop(read);
    writer.tick();
}

fn edits_hold_nothing(edits: u32) {
    for (kind, edit, held) in KINDS {
        let setup = setup();
        let status = Arc::clone(&setup.status);
        let mut writer = Writer::new(&configuration(1), setup).unwrap();
        play(&mut writer, edit, 0..WARM_UP);
        let run = || play(&mut writer, edit, WARM_UP..WARM_UP + edits);
        let more = allocation_counter::measure(run).bytes_current;
        assert!(more < SLACK, "{kind}: {more} octets more after {edits} edits");
        let objects = status.read().objects;
        assert!(held.is_none_or(|held| objects[held as usize] > 0), "{kind}: {objects:?}");
    }
}

#[test]
fn l13_edits_through_the_writer_leave_nothing_behind_while_old_states_are_read() {
    edits_hold_nothing(600);
}

/// `make edits` runs it, optimised.
#[test]
#[ignore = "takes minutes when optimised, an hour when not"]
fn l13_a_million_edits_through_the_writer_leave_nothing_behind() {
    edits_hold_nothing(1_000_000 / KINDS.len() as u32);
}

#[test]
fn l14_a_page_takes_a_copy_of_the_status_that_costs_the_same_however_much_it_says() {
    let skipped = |number: usize| Skipped {
        kind: "Service",
        namespace: format!("evil-{}", number % 100),
        name: format!("cart-{number}"),
        reason: "it cannot be read".repeat(10),
    };
    let status = Status::default();
    let warnings = vec!["a warning".repeat(100); 100];
    status.report_unserved((0..10_000).map(skipped).collect(), Vec::new(), warnings);
    let copy = allocation_counter::measure(|| drop(status.read().clone()));
    assert!(copy.bytes_total < 4096, "{} octets while the source waits", copy.bytes_total);
    assert_eq!(status.read().skipped.first(150).len(), 150);
}

/// A thousand endpoints of one of a hundred Services.
fn wide(number: u32) -> Change {
    let endpoint = |index: u32| Endpoint {
        addresses: vec![IpAddr::from((0x0a00_0000 + number * 1_000 + index).to_be_bytes())],
        ready: true,
        hostname: None,
        target: None,
    };
    Change::Apply(Object::Slice(Slice {
        key: Key::new("shop", format!("wide-{number}")),
        uid: 1,
        version: 7,
        service: format!("wide-{number}").into(),
        ipv6: false,
        ports: Vec::new(),
        endpoints: (0..1_000).map(endpoint).collect(),
    }))
}

#[test]
fn l8_a_second_list_of_a_hundred_thousand_endpoints_takes_a_fifth_more_at_most() {
    let mut writer = writer();
    let state = writer.state();
    let mut list = || {
        // A serving thread holds it meanwhile.
        let read = state.published.load_full();
        writer.begin(Resource::EndpointSlices);
        (0..100).for_each(|number| _ = writer.apply(wide(number)));
        writer.complete(Resource::EndpointSlices, 7);
        writer.publish();
        drop(read);
        writer.tick();
    };
    let steady = allocation_counter::measure(&mut list).bytes_current;
    assert!(steady > 100_000 * 16, "{steady} octets for a hundred thousand rows");
    let again = allocation_counter::measure(&mut list);
    assert!(again.bytes_current < SLACK, "{} octets stay", again.bytes_current);
    let peak = i64::try_from(again.bytes_max).unwrap();
    assert!(peak <= steady / 5, "{peak} octets more while it is read, beside {steady}");
}
