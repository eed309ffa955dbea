//! Rows E21 and E22: while a list is read, what is in it and what was there before is served all the time.

use std::net::IpAddr;

use super::*;

/// A slice of the Service that gives the pods of this process their endpoints, with these last octets.
fn own_slice(name: &str, version: u64, ends: &[u8]) -> Value {
    let labels = json!({"kubernetes.io/service-name": "kube-dns"});
    let endpoints: Vec<Value> =
        ends.iter().map(|end| json!({"addresses": [format!("10.1.0.{end}")]})).collect();
    json!({
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "uid": "00000000-0000-4000-8000-0000000000aa",
            "resourceVersion": version.to_string(),
            "labels": labels,
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
    })
}

/// The endpoints of that Service that queries see, of the first nine.
fn seen(sink: &Sink) -> Vec<u8> {
    let records = Arc::clone(&sink.ingest.writer.state().published.load().records);
    (1..9).filter(|end| records.is_behind_own_service(IpAddr::from([10, 1, 0, *end]))).collect()
}

/// An event of another stream makes visible what was applied so far.
fn another_event(sink: &mut Sink, name: &str) {
    let text = service(name).to_string();
    let key = decode::named(text.as_bytes()).map(|named| convert::key(&named.metadata));
    let read = Read { key, version: 0, is_deleted: false, text: &text, received: Instant::now() };
    sink.receive(&Watched::Objects(Resource::Services), read);
    while sink.apply_round() {}
}

const SLICES: Watched = Watched::Objects(Resource::EndpointSlices);

fn sink_with_two_slices() -> Sink {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    let slices = [own_slice("a", 1, &[1, 2]), own_slice("b", 2, &[3])];
    list(&mut sink, Resource::EndpointSlices, &slices);
    assert_eq!(seen(&sink), [1, 2, 3]);
    sink
}

#[test]
fn e21_an_endpoint_that_is_in_a_later_slice_of_the_list_is_never_missing() {
    let mut sink = sink_with_two_slices();
    sink.begin(&SLICES);
    apply(&mut sink, Resource::EndpointSlices, &own_slice("a", 5, &[2]));
    another_event(&mut sink, "one");
    assert_eq!(seen(&sink), [1, 2, 3], "1 may be in a slice that was not read yet");
    apply(&mut sink, Resource::EndpointSlices, &own_slice("b", 6, &[3, 1, 4]));
    another_event(&mut sink, "two");
    assert_eq!(seen(&sink), [1, 2, 3, 4], "what is new may show at once");
    complete(&mut sink, Resource::EndpointSlices);
    assert_eq!(seen(&sink), [1, 2, 3, 4]);
    // It is in one slice now.
    list(&mut sink, Resource::EndpointSlices, &[own_slice("a", 5, &[2]), own_slice("b", 7, &[3])]);
    assert_eq!(seen(&sink), [2, 3]);
}

#[test]
fn e22_a_list_that_breaks_off_takes_no_endpoint_away() {
    let mut sink = sink_with_two_slices();
    sink.begin(&SLICES);
    apply(&mut sink, Resource::EndpointSlices, &own_slice("a", 5, &[2]));
    // It broke off, and the next one begins.
    sink.begin(&SLICES);
    another_event(&mut sink, "one");
    assert_eq!(seen(&sink), [1, 2, 3]);
    apply(&mut sink, Resource::EndpointSlices, &own_slice("a", 7, &[1]));
    apply(&mut sink, Resource::EndpointSlices, &own_slice("b", 8, &[]));
    another_event(&mut sink, "two");
    assert_eq!(seen(&sink), [1, 2, 3]);
    complete(&mut sink, Resource::EndpointSlices);
    assert_eq!(seen(&sink), [1], "in one step, at its end");
}

#[test]
fn e25_what_waits_for_the_end_of_a_list_beside_a_watch_is_not_brought_back() {
    let mut sink = sink_with_two_slices();
    sink.begin_beside(&SLICES);
    apply(&mut sink, Resource::EndpointSlices, &own_slice("a", 5, &[2]));
    apply(&mut sink, Resource::EndpointSlices, &own_slice("b", 2, &[3]));
    another_event(&mut sink, "one");
    assert_eq!(seen(&sink), [1, 2, 3], "1 may be in a slice that was not read yet");
    let text = own_slice("a", 7, &[2]).to_string();
    let key = decode::named(text.as_bytes()).map(|named| convert::key(&named.metadata));
    let received = Instant::now();
    sink.receive(&SLICES, Read { key, version: 7, is_deleted: true, text: &text, received });
    complete(&mut sink, Resource::EndpointSlices);
    assert_eq!(seen(&sink), [3], "it was deleted since");
}
