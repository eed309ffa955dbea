//! Row L18: events of one namespace delay those of no other. Counted in changes, not timed.

use super::*;

/// A slice with as many endpoints as the API server allows, each edit with other addresses.
fn wide(number: usize, edit: usize) -> Value {
    let labels = json!({"kubernetes.io/service-name": "wide"});
    let endpoints: Vec<Value> = (0..1_000)
        .map(|row| json!({"addresses": [format!("10.{}.{}.{}", edit % 200, row / 250, row % 250)]}))
        .collect();
    json!({"metadata": {"name": format!("wide-{number}"), "namespace": "evil", "labels": labels},
        "addressType": "IPv4", "endpoints": endpoints})
}

fn receive(sink: &mut Sink, resource: Resource, object: &Value) {
    let text = object.to_string();
    let key = decode::named(text.as_bytes()).map(|named| convert::key(&named.metadata));
    let read = Read { key, is_deleted: false, text: &text, received: Instant::now() };
    sink.receive(&Watched::Objects(resource), read);
}

fn changes(sink: &Sink) -> u64 {
    sink.ingest.status.shared.read().changes
}

fn is_held(sink: &Sink, resource: Resource, name: &str) -> bool {
    sink.ingest.writer.rows(resource, &dataplane_core::Key::new("shop", name)) > 1
}

fn slice_of_cart() -> Value {
    let labels = json!({"kubernetes.io/service-name": "cart"});
    json!({"metadata": {"name": "cart-0", "namespace": "shop", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.1.1"]}, {"addresses": ["10.1.1.2"]}]})
}

#[test]
fn l18_slices_that_are_edited_without_end_delay_another_by_one_round() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    let mut edit = 0;
    let mut attack = |sink: &mut Sink, edits| {
        for _ in 0..edits {
            receive(sink, Resource::EndpointSlices, &wide(edit % 20, edit));
            edit += 1;
        }
    };
    let before = changes(&sink);
    attack(&mut sink, 60);
    receive(&mut sink, Resource::EndpointSlices, &slice_of_cart());
    while !is_held(&sink, Resource::EndpointSlices, "cart-0") {
        assert!(sink.apply_round(), "more waits");
        attack(&mut sink, 3);
    }
    let waited = changes(&sink) - before;
    // One edit before it, itself, and what the same round applies behind it.
    assert!(waited <= 4, "{waited} changes");
}

#[test]
fn l18_what_waits_is_applied_before_a_list_begins_and_when_nothing_else_comes() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    let before = changes(&sink);
    receive(&mut sink, Resource::Services, &service("gone"));
    (0..5).for_each(|edit| receive(&mut sink, Resource::EndpointSlices, &wide(edit, edit)));
    list(&mut sink, Resource::Services, &[service("cart")]);
    assert_eq!(changes(&sink) - before, 7, "each once, and what was listed");
    assert!(!sink.apply_round());
    assert!(serves_cart(&sink));
    receive(&mut sink, Resource::EndpointSlices, &slice_of_cart());
    assert!(!sink.apply_round(), "all of it");
    assert!(is_held(&sink, Resource::EndpointSlices, "cart-0"));
}
