//! Pages of data planes, of this version and of others, and large ones.

use super::*;
use serde_json::json;

#[test]
fn o4_a_document_is_taken_from_a_pod_only_with_its_own_revision() {
    let written = crds::Config::default().to_json();
    let shown = |revision: &str| {
        let document: serde_json::Value = serde_json::from_str(&written).unwrap();
        let page = json!({"revision": revision, "maxFormat": 1, "document": document});
        document_of(&serde_json::to_string_pretty(&page).unwrap())
    };
    fn document_of(page: &str) -> Option<String> {
        document(page.as_bytes()).unwrap()
    }
    assert_eq!(shown(&config::revision_of(&written)).as_deref(), Some(written.as_str()));
    assert_eq!(shown("0123456789ab"), None);
    assert_eq!(document_of(r#"{"revision": "0123456789ab"}"#), None, "it does not say");
}

#[test]
fn what_a_data_plane_shows_is_read() {
    let shown = json!({"revision": "0123456789ab", "format": 1, "maxFormat": 2, "role": "stable", "document": {},
        "rejection": {"origin": "stable.json", "violations": [
            {"field": "spec.domain", "reason": "Invalid", "message": "no"}]},
        "skippedObjects": [{"kind": "Service", "namespace": "n", "name": "s", "reason": "r"}],
        "upstreamsDown": [{"group": "upstreams", "server": "192.0.2.1", "seconds": 61},
            {"group": "upstreams", "server": "192.0.2.2", "seconds": 59},
            {"group": "upstreams", "server": "192.0.2.3", "transport": "TLS", "serverName": "dns.example",
                "groupServers": 3, "seconds": 99, "remedy": "renew it"}],
        "upstreamsFailing": [{"group": "upstreams", "server": "192.0.2.5", "groupServers": 3, "seconds": 60},
            {"group": "upstreams", "server": "192.0.2.6", "groupServers": 3, "seconds": 59}],
        "upstreamsLooping": [{"group": "upstreams", "server": "192.0.2.4", "groupServers": 3, "seconds": 1,
            "remedy": "point it elsewhere"}],
        "upstreamsWithoutServers": [{"group": "corp.example", "why": "correct tls"}],
        "certificates": [{"secret": "dns-tls", "notBeforeSeconds": 5, "notAfterSeconds": 7, "trouble": null},
            {"secret": "doh", "notBeforeSeconds": null, "notAfterSeconds": null, "trouble": "not PEM"}],
        "closedListeners": [{"listener": "TLS", "port": 853, "why": "Permission denied"}]});
    let reported = read(shown.to_string().as_bytes()).unwrap();
    assert_eq!(reported.process, "", "as of a version that does not say");
    assert!(reported.ignored.is_empty());
    let mut newer = shown.clone();
    let fields: Vec<String> = (0..40).map(|n| format!("access.future{n}")).collect();
    newer["unknownFields"] = json!(fields);
    assert_eq!(read(newer.to_string().as_bytes()).unwrap().ignored, fields[..MAX_IGNORED]);
    newer["instanceId"] = json!("5e11");
    newer["fromTheFuture"] = json!({});
    assert_eq!(read(newer.to_string().as_bytes()).unwrap().process, "5e11");
    assert_eq!(
        (reported.revision.as_str(), reported.max_format, reported.role.as_str()),
        ("0123456789ab", 2, "stable")
    );
    assert_eq!(reported.rejection.as_deref(), Some("spec.domain: no"));
    assert_eq!(reported.skipped[0].name, "s");
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let [good, bad] = &reported.certificates[..] else { panic!("two certificates") };
    assert_eq!((good.secret.as_str(), good.validity), ("dns-tls", Some((at(5), at(7)))));
    assert_eq!((bad.validity, bad.trouble.as_deref()), (None, Some("not PEM")));
    let down = |server: &str, transport: &str, group_servers, remedy: Option<&str>| DownServer {
        group: "upstreams".to_owned(),
        server: server.to_owned(),
        transport: transport.to_owned(),
        group_servers,
        remedy: remedy.map(str::to_owned),
        ..DownServer::default()
    };
    let mut over_tls = down("192.0.2.3", "TLS", 3, Some("renew it"));
    over_tls.server_name = "dns.example".to_owned();
    let expected = [down("192.0.2.1", "", 0, None), over_tls];
    assert_eq!(reported.upstreams_down, expected);
    assert_eq!(reported.upstreams_failing, [down("192.0.2.5", "", 3, None)]);
    let mut older = shown.clone();
    for field in ["upstreamsFailing", "closedListeners"] {
        older.as_object_mut().unwrap().remove(field);
    }
    let older = read(older.to_string().as_bytes()).unwrap();
    assert_eq!(older.upstreams_failing, [], "as of a version that does not say");
    assert_eq!(older.closed_listeners, []);
    let why = "Permission denied".to_owned();
    let closed = ClosedListener { listener: "TLS".to_owned(), port: 853, why };
    assert_eq!(reported.closed_listeners, [closed]);
    let looping = down("192.0.2.4", "", 3, Some("point it elsewhere"));
    assert_eq!(reported.upstreams_looping, [looping], "at once: a probe has shown it");
    let empty = EmptyGroup { group: "corp.example".to_owned(), why: "correct tls".to_owned() };
    assert_eq!(reported.upstreams_without_servers, [empty]);
}

#[test]
fn e15_of_skipped_objects_the_first_of_the_page_are_kept() {
    let object = |namespace: &str, n: usize| json!({"kind": "Service", "namespace": namespace, "name": format!("s{n:02}"), "reason": "r"});
    // As data planes list them: of each namespace in turn.
    let mut all = vec![object("a", 0), object("shop", 0)];
    all.extend((1..30).map(|n| object("a", n)));
    let shown = json!({"revision": "r", "maxFormat": 1, "skippedObjects": all});
    let reported = read(shown.to_string().as_bytes()).unwrap();
    let namespaces: Vec<&str> = reported.skipped.iter().map(|it| it.namespace.as_str()).collect();
    assert_eq!(namespaces[..3], ["a", "shop", "a"]);
    assert_eq!(namespaces.len(), MAX_SKIPPED);
}

#[test]
fn k23_a_report_is_bounded_also_where_a_pod_answers_with_much() {
    let long = "x".repeat(2_000);
    let down = json!({"group": long, "server": long, "transport": long, "serverName": long,
        "seconds": 61, "remedy": long});
    let skipped = json!({"kind": long, "namespace": long, "name": long, "reason": long});
    let shown = json!({"instanceId": long, "revision": long, "maxFormat": 1, "role": long,
        "rejection": {"violations": vec![json!({"field": long, "message": long}); 9]},
        "skippedObjects": vec![skipped; 25], "upstreamsDown": vec![down.clone(); 300],
        "upstreamsFailing": vec![down.clone(); 300],
        "upstreamsLooping": vec![down; 300],
        "upstreamsWithoutServers": vec![json!({"group": long, "why": long}); 300],
        "certificates": vec![json!({"secret": long, "trouble": long}); 9],
        "closedListeners": vec![json!({"listener": long, "port": 853, "why": long}); 9]});
    let reported = read(shown.to_string().as_bytes()).unwrap();
    assert_eq!((reported.certificates.len(), reported.closed_listeners.len()), (3, 3));
    let why = &reported.closed_listeners[0].why;
    assert!(why.len() <= MAX_TROUBLE, "{} octets", why.len());
    let mut without = reported.clone();
    without.closed_listeners.clear();
    let size = |reported| size::Size::default().with(Some(reported), 0);
    assert!(size(&reported) > size(&without) + 3 * why.len(), "they count");
    let octets = size(&reported);
    assert!(octets < 176 << 10, "{octets}");

    let short = json!({"group": "", "server": "", "seconds": 61});
    let many = json!({"revision": "r", "maxFormat": 1, "upstreamsDown": vec![short; 100_000]});
    let reported = read(many.to_string().as_bytes()).unwrap();
    assert_eq!((reported.upstreams_down.len(), reported.revision.as_str()), (MAX_ROWS, "r"));
    let octets = size(&reported);
    assert!(octets < 176 << 10, "{octets}");
}

#[test]
fn k23_servers_that_are_down_for_a_moment_take_no_row_of_those_that_are_down() {
    let down = |server: &str, seconds: u64| json!({"group": "g", "server": server, "seconds": seconds, "remedy": "x".repeat(150)});
    let mut all = vec![down("192.0.2.1", DOWN_S - 1); MAX_ROWS];
    all.push(down("192.0.2.2", DOWN_S));
    let shown = json!({"revision": "r", "maxFormat": 1, "upstreamsDown": all});
    let reported = read(shown.to_string().as_bytes()).unwrap();
    let servers: Vec<&str> = reported.upstreams_down.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(servers, ["192.0.2.2"]);

    let shown = json!({"revision": "r", "maxFormat": 1,
        "upstreamsDown": vec![down("192.0.2.3", DOWN_S); MAX_ROWS],
        "upstreamsLooping": [down("192.0.2.4", 1)],
        "upstreamsWithoutServers": [{"group": "corp.example", "why": "correct tls"}]});
    let reported = read(shown.to_string().as_bytes()).unwrap();
    assert!(reported.upstreams_down.len() < MAX_ROWS, "there is no room for all");
    assert_eq!(
        (reported.upstreams_looping.len(), reported.upstreams_without_servers.len()),
        (1, 1)
    );
}

#[test]
fn k23_of_a_page_with_many_rows_few_are_held_while_it_is_read() {
    let skipped = json!({"kind": "", "namespace": "", "name": "", "reason": ""});
    let shown = json!({"revision": "r", "maxFormat": 1, "skippedObjects": vec![skipped; 5_000],
        "rejection": {"violations": vec![json!({"field": "", "message": ""}); 5_000]}});
    let shown: Shown = serde_json::from_value(shown).unwrap();
    let violations = shown.rejection.unwrap().violations.len();
    assert_eq!((shown.skipped_objects.len(), violations), (MAX_ROWS, MAX_ROWS));
}

#[test]
fn e44_a_pod_that_was_given_no_document_refuses_none() {
    let read_with = |violations: serde_json::Value| {
        let shown =
            json!({"revision": "r", "maxFormat": 1, "rejection": {"violations": violations}});
        read(shown.to_string().as_bytes()).unwrap()
    };
    let missing = json!({"field": "", "reason": "Missing", "message": "there is no ConfigMap a/b"});
    let reported = read_with(json!([missing]));
    assert_eq!(reported.rejection.as_deref(), Some("there is no ConfigMap a/b"));
    assert!(reported.has_no_document && reported.refusal().is_none());
    let field = json!({"field": "spec.domain", "reason": "Missing", "message": "write one"});
    let malformed = json!({"field": "", "reason": "Malformed", "message": "not JSON"});
    for violations in [json!([field]), json!([malformed]), json!([missing, malformed]), json!([])] {
        let reported = read_with(violations);
        assert!(!reported.has_no_document && reported.refusal().is_some(), "{reported:?}");
    }
}

#[test]
fn o17_a_pod_that_cannot_read_its_configuration_says_why_and_for_how_long() {
    let cut_off = |watches: serde_json::Value| {
        let shown = json!({"revision": "r", "maxFormat": 1, "watches": watches});
        read(shown.to_string().as_bytes()).unwrap().cut_off
    };
    let watch = |resource: &str, trouble: Option<&str>| json!({"resource": resource, "trouble": trouble, "troubleSeconds": trouble.map(|_| 70), "events": 5});
    let refused = "the API server does not accept the credentials (401): Unauthorized";
    let services = watch("services", Some(refused));
    assert_eq!(cut_off(json!([services, watch("configmaps", None)])), None);
    let found = cut_off(json!([services, watch("configmaps", Some(refused))])).unwrap();
    let why = "the API server does not accept the credentials (401)";
    assert_eq!((found.why.as_str(), found.seconds), (why, 70));
    let many = vec![watch("configmaps", Some(&"x".repeat(2_000))); 5_000];
    assert!(cut_off(json!(many)).unwrap().why.len() <= MAX_TROUBLE);
}
