//! What is refused while another configuration waits for lists.

use super::*;

fn is_refused(sink: &Sink) -> bool {
    sink.ingest.status.shared.read().rejection.is_some()
}

/// A sink with lists, and a configuration that waits for others.
fn sink_with_one_that_waits(waiting: &Value) -> Sink {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    // It is refused, and the next one is not.
    take(&mut sink, json!({"stable.json": "no document"}));
    assert!(is_refused(&sink));
    take(&mut sink, json!({"stable.json": waiting.to_string()}));
    assert!(!is_refused(&sink), "the newest one is not refused");
    sink
}

#[test]
fn e44_what_is_refused_while_another_waits_for_lists_stays_reported() {
    // Everything is listed again, or only what has labels.
    for waiting in [json!({"format": 1, "endpointNames": "PodName"}), selecting("front")] {
        for texts in [json!({"stable.json": "no document"}), json!({})] {
            let mut sink = sink_with_one_that_waits(&waiting);
            take(&mut sink, texts.clone());
            sink.tick(Instant::now());
            list_all(&mut sink);
            assert_eq!(reported(&sink), config(&waiting), "{texts}: it took over");
            assert!(is_refused(&sink), "{texts} is the newest, for {waiting}");
        }
        let mut sink = sink_with_one_that_waits(&waiting);
        sink.configuration.lose_config_map(&mut sink.ingest);
        sink.tick(Instant::now());
        list_all(&mut sink);
        assert!(is_refused(&sink), "there is no ConfigMap");

        let mut sink = sink_with_one_that_waits(&waiting);
        take(&mut sink, json!({"stable.json": "no document"}));
        adopt(&mut sink, &waiting);
        list_all(&mut sink);
        assert_eq!(reported(&sink), config(&waiting));
        assert!(!is_refused(&sink), "it came again");
    }
}
