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
    let read = Read { key, version: 0, is_deleted: false, text: &text, received: Instant::now() };
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
    for slices in [20, 60] {
        let mut sink = sink();
        adopt(&mut sink, &json!({"format": 1}));
        list_all(&mut sink);
        let mut edit = 0;
        let mut attack = |sink: &mut Sink, edits| {
            for _ in 0..edits {
                receive(sink, Resource::EndpointSlices, &wide(edit % slices, edit));
                edit += 1;
            }
        };
        let before = changes(&sink);
        attack(&mut sink, 3 * slices);
        receive(&mut sink, Resource::EndpointSlices, &slice_of_cart());
        while !is_held(&sink, Resource::EndpointSlices, "cart-0") {
            assert!(sink.apply_round(), "more waits");
            attack(&mut sink, 3);
        }
        let waited = changes(&sink) - before;
        // The last edit of each slice, as many as are seen together (E11), itself, and what the same round applies behind it.
        let together = slices.min(MAX_TOGETHER / wide(0, 0).to_string().len() + 1);
        assert!(waited <= together as u64 + 3, "{waited} changes of {together}");
    }
}

#[test]
fn e11_an_endpoint_that_moves_is_never_missing_while_edits_replace_others() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    let slice = |name: &str, last: usize| {
        let labels = json!({"kubernetes.io/service-name": "db"});
        json!({"metadata": {"name": name, "namespace": "shop", "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.2.1"]}, {"addresses": [format!("10.1.2.{last}")]}]})
    };
    list(&mut sink, Resource::EndpointSlices, &[slice("db-a", 2)]);
    receive(&mut sink, Resource::EndpointSlices, &slice("db-a", 3));
    for number in 0..12 {
        let mut filler = wide(number, number);
        filler["metadata"]["namespace"] = "shop".into();
        receive(&mut sink, Resource::EndpointSlices, &filler);
    }
    receive(&mut sink, Resource::EndpointSlices, &slice("db-b", 3));
    let text = slice("db-a", 3).to_string();
    let key = Some(dataplane_core::Key::new("shop", "db-a"));
    let read = Read { key, version: 0, is_deleted: true, text: &text, received: Instant::now() };
    sink.receive(&Watched::Objects(Resource::EndpointSlices), read);
    loop {
        let has_more = sink.apply_round();
        let [a, b] = ["db-a", "db-b"].map(|name| is_held(&sink, Resource::EndpointSlices, name));
        assert!(a || b, "the Service has no endpoint");
        if !has_more {
            break assert!(b && !a);
        }
    }
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
