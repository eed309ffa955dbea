//! What HTTP adds to an upstream: statuses, types and ages of its responses.

use std::collections::BTreeMap;

use futures::future::join_all;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tests::upstream::UpstreamTransport;

use super::super::stage::{FIRST, Stage, answers, failure};
use super::{ANSWERS, config_of, connections, named, refused, stage, start};

#[tokio::test]
async fn fw2_one_error_of_http_condemns_no_server_that_answers_others() {
    let script =
        format!("{ANSWERS}\nbad.example. *\n  http status 500\n  answer @ 600 A 192.0.2.1");
    let stage = stage(named(UpstreamTransport::Https), &script);
    stage.ask(0, "a.example", RecordType::A).await;
    let bad = stage.ask(0, "bad.example", RecordType::A).await;
    assert_eq!(failure(&bad).0, ResponseCode::ServFail);
    let text = stage.view().text();
    assert!(!text.contains("warning"), "{text}");
    assert!(
        text.contains("; latest error, ") && text.contains(" s ago: HTTP status 500"),
        "{text}"
    );
    stage.ask(0, "b.example", RecordType::A).await;
    let seen = connections(&stage);
    assert_eq!((seen.latest_failure, seen.latest_failure_seconds), (None, None), "a reply came");
    assert!(seen.failures["http_status"] > 0 && !stage.view().text().contains("latest error"));
}

#[tokio::test]
async fn fw2_a_server_that_gives_only_errors_of_http_is_named_with_the_remedy() {
    let stage = stage(named(UpstreamTransport::Https), &format!("{ANSWERS}\n  http status 404"));
    let text = refused(stage, "http_status").await;
    assert!(text.contains("gives no replies: it does not serve DNS at /dns-query"), "{text}");
}

#[tokio::test]
async fn fw21_what_http_gives_in_place_of_a_reply_is_counted_and_the_next_server_asked() {
    let cases = [
        ("http status 500", "http_status"),
        ("http status 204", "http_status"),
        ("http status 301", "http_status"),
        ("http status 429", "http_status"),
        ("http status 206", "http_status"),
        ("http type text/html", "http_content_type"),
        ("http octets 70000", "too_large"),
    ];
    join_all(cases.map(|(fault, reason)| async move {
        // Another address than that of the second server.
        let script = format!("* *\n  answer @ 600 A 192.0.2.8\n  {fault}");
        let (first, of_first) = start(named(UpstreamTransport::Https), &script);
        let (second, of_second) = start(named(UpstreamTransport::Tls), ANSWERS);
        let upstreams = [(FIRST.into(), first), ([10, 0, 0, 3].into(), second)];
        let stage = Stage::of(BTreeMap::from(upstreams), &config_of(vec![of_first, of_second]));
        let reply = stage.ask(0, "a.example", RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.9"], "{fault}: {}", stage.view().text());
        assert_eq!(connections(&stage).failures[reason], 1, "{fault}");
    }))
    .await;
}

#[tokio::test]
async fn ca2_the_age_of_a_response_of_http_is_taken_from_its_ttls() {
    let script = "* *\n  http age 50\n  answer @ 600 A 192.0.2.9";
    let stage = stage(named(UpstreamTransport::Https), script);
    let reply = stage.ask(0, "a.example", RecordType::A).await;
    assert_eq!(reply.answers[0].ttl, 550);
}
