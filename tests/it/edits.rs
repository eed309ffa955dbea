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
/// Ports and endpoints of each object.
const SIZE: u32 = 20;
/// Edits for which a reader keeps a state.
const READ_FOR: u32 = 7;

fn address(number: u32, index: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 | number.wrapping_mul(SIZE).wrapping_add(index) >> 8).to_be_bytes())
}

fn service(name: &str, number: u32, size: u32) -> Object {
    let port = |port: u32| ServicePort {
        name: format!("port-{number}-{port}").into(),
        port: (port + number) as u16,
        protocol: Protocol::Tcp,
    };
    let kind = match number % 3 {
        0 => ServiceKind::ClusterIp((0..2).map(|index| address(number, index)).collect()),
        1 => ServiceKind::Headless,
        // Not served, with another reason each time.
        _ => ServiceKind::ExternalName(format!("not a name {number}").into()),
    };
    let (key, ports) = (Key::new("evil", name), (0..size).map(port).collect());
    Object::Service(Service { key, uid: 1, version: 0, labels: Vec::new(), kind, ports })
}

fn slice(name: &str, number: u32) -> Object {
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
        service: "cart".into(),
        ipv6: false,
        ports: (0..SIZE).map(port).collect(),
        endpoints: (0..SIZE).map(endpoint).collect(),
    })
}

fn namespace(number: u32) -> Object {
    let name = format!("evil-{number}").into();
    Object::Namespace(Namespace { name, uid: 1, version: 0, labels: Vec::new() })
}

fn pod(number: u32) -> Object {
    let key = Key::new(format!("evil-{}", number % 5), format!("pod-{number}"));
    let addresses = (0..2).map(|index| address(number, index)).collect();
    Object::Pod(Pod { key, uid: 1, version: 0, addresses, host_network: false, finished: false })
}

/// An object of this number, and the deletion of the one three numbers before.
fn comes_and_goes(object: impl Fn(u32) -> Object, number: u32) -> Vec<Change> {
    let old = number.checked_sub(3).map(&object);
    let gone = old.map(|old| Change::Delete(old.resource(), old.key()));
    [Some(Change::Apply(object(number))), gone].into_iter().flatten().collect()
}

type Edit = fn(u32) -> Vec<Change>;

const KINDS: [(&str, Edit); 6] = [
    ("one Service", |number| vec![Change::Apply(service("cart", number, SIZE))]),
    ("Services that are not served", |number| {
        comes_and_goes(|number| service(&format!("not a label {number}"), number, 1), number)
    }),
    ("one slice", |number| vec![Change::Apply(slice("cart-0", number))]),
    ("slices that come and go", |number| {
        comes_and_goes(|number| slice(&format!("cart-{number}"), number), number)
    }),
    ("namespaces that come and go", |number| comes_and_goes(namespace, number)),
    ("Pods that come and go", |number| comes_and_goes(pod, number)),
];

fn writer() -> Writer {
    let status = Arc::<Status>::default();
    let identity = Identity::default();
    let resolv_conf = "/nonexistent".into();
    let setup =
        Setup { counters: Vec::new(), identity, resolv_conf, location: Default::default(), status };
    Writer::new(&Config::default(), setup).unwrap()
}

/// Plays edits, with a reader that keeps every state of some for a while, as a slow thread would.
fn play(writer: &mut Writer, edit: Edit, numbers: Range<u32>) {
    let mut read: Vec<Arc<Published>> = Vec::new();
    let state = writer.state();
    for number in numbers {
        for change in edit(number) {
            writer.apply(change);
        }
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
    for (kind, edit) in KINDS {
        let mut writer = writer();
        play(&mut writer, edit, 0..WARM_UP);
        let run = || play(&mut writer, edit, WARM_UP..WARM_UP + edits);
        let more = allocation_counter::measure(run).bytes_current;
        assert!(more < SLACK, "{kind}: {more} octets more after {edits} edits");
    }
}

#[test]
fn l13_edits_through_the_writer_leave_nothing_behind_while_old_states_are_read() {
    edits_hold_nothing(600);
}

/// `make edits` runs it, optimised.
#[test]
#[ignore = "takes a minute when optimised, many when not"]
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
        // As a thread that answers has it meanwhile.
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
