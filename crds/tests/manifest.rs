//! A ClusterDNS from a file: mistakes are named with file, line and what to write.

use crds::manifest;

fn error(text: &str) -> String {
    manifest::read(text, "dns.yaml").expect_err(text).to_string()
}

const HEAD: &str =
    "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: default}\n";

#[test]
fn a_mistake_is_named_with_file_line_and_column() {
    let message = error(&format!("{HEAD}spec:\n  ttlSeconds: soon\n"));
    assert!(message.starts_with("dns.yaml:5:15: "), "{message}");
    let message = error(&format!("{HEAD}spec:\n  podRecords: Maybe\n"));
    assert!(message.starts_with("dns.yaml:5:") && message.contains("Insecure"), "{message}");
    let message = error(&format!("{HEAD}spec: [\n"));
    assert!(message.starts_with("dns.yaml:"), "{message}");
    assert!(!message.contains('\n'), "one line: {message}");
}

#[test]
fn another_kind_or_version_is_refused_with_what_to_write() {
    for text in [
        "kind: ClusterDNS\nspec: {}\n",
        "apiVersion: clusterdns.dev/v2\nkind: ClusterDNS\nspec: {}\n",
        "{}",
    ] {
        let message = error(text);
        assert!(
            message.contains("write apiVersion: clusterdns.dev/v1alpha1 and kind: ClusterDNS"),
            "{message}"
        );
    }
}

#[test]
fn a_misspelled_field_is_listed() {
    let text = format!("{HEAD}spec:\n  stubDomain: []\n  cache: {{memroy: 1Mi}}\n");
    let (_, unknown) = manifest::read(&text, "dns.yaml").expect("readable");
    assert_eq!(unknown.paths, ["spec.cache.memroy", "spec.stubDomain"]);
}

#[test]
fn json_is_read_too_and_a_status_does_no_harm() {
    let text = r#"{"apiVersion":"clusterdns.dev/v1alpha1","kind":"ClusterDNS","metadata":{"name":"a"},"spec":{},
        "status":{"observedGeneration":1,"conditions":[]}}"#;
    let (from_text, unknown) = manifest::read(text, "dns.json").expect("JSON is YAML");
    assert!(unknown.is_empty(), "{unknown}");
    let (from_value, _) =
        manifest::read_value(serde_json::from_str(text).expect("JSON")).expect("a ClusterDNS");
    assert_eq!(from_text, from_value);
    assert_eq!(from_text.metadata.name.as_deref(), Some("a"));
}

#[test]
fn a_field_of_the_wrong_shape_says_what_to_write() {
    let rows = [
        (
            "ttlSeconds: soon",
            "5:15: spec.ttlSeconds: expected a whole number from 0 to 3600, found \"soon\"",
        ),
        (
            "ttlSeconds: -1",
            "5:15: spec.ttlSeconds: expected a whole number from 0 to 3600, found -1",
        ),
        (
            "ttlSeconds:",
            "5:13: spec.ttlSeconds: expected a whole number from 0 to 3600, found nothing: leave the field out for its default",
        ),
        (
            "podRecords: Maybe",
            "5:15: spec.podRecords: expected one of Disabled, Insecure, Verified, found \"Maybe\"",
        ),
        ("domain: 5", "5:11: spec.domain: expected text, found 5"),
        ("cache: []", "5:3: spec.cache: expected fields (name: value), found a list"),
        (
            "stubDomains: [{domain: a.example}]",
            "5:17: spec.stubDomains[0].servers: is missing: write a list, each entry fields such as address: …",
        ),
        (
            "upstreams: {servers: [8.8.8.8]}",
            "5:25: spec.upstreams.servers[0]: expected fields such as address: …, found \"8.8.8.8\"",
        ),
        (
            "stubDomains: [corp.example]",
            "5:17: spec.stubDomains[0]: expected fields such as domain: …, servers: …, found \"corp.example\"",
        ),
        (
            "hosts: {a.example: 10.0.0.1}",
            "5:3: spec.hosts: expected a list, each entry fields such as addresses: …, name: …, found fields (name: value)",
        ),
        (
            "hideEmptyServices: yes please",
            "5:22: spec.hideEmptyServices: expected true or false, found \"yes please\"",
        ),
        (
            "reverseCIDRs: 10.0.0.0/8",
            "5:17: spec.reverseCIDRs: expected a list, each entry text, found \"10.0.0.0/8\"",
        ),
    ];
    for (spec, expected) in rows {
        let message = error(&format!("{HEAD}spec:\n  {spec}\n"));
        assert!(
            message.starts_with(&format!("dns.yaml:{expected}")),
            "{spec}:\n{message}\n{expected}"
        );
    }
    let both = error(&format!("{HEAD}spec:\n  ttlSeconds: soon\n  domain: 5\n"));
    assert_eq!(both.lines().count(), 2, "all of them at once: {both}");
}

#[test]
fn every_clusterdns_of_a_file_is_read_with_its_lines_and_other_kinds_are_skipped() {
    let text = format!(
        "kind: Service\n---\n{HEAD}spec:\n  ttlSeconds: 9\n---\n{HEAD}spec: {{ttlSeconds: x}}\n---\nkind: List\nitems:\n- apiVersion: clusterdns.dev/v1alpha1\n  kind: ClusterDNS\n  metadata: {{name: c}}\n"
    );
    let found = manifest::read_all(&text, "all.yaml").expect("YAML");
    let [one, two, three] = &found[..] else { panic!("three: {found:?}") };
    let one = one.as_ref().expect("good");
    assert_eq!(one.resource.spec.ttl_seconds, 9);
    assert_eq!(one.places.of("spec.ttlSeconds").map(|place| place.line), Some(7));
    let two = two.as_ref().expect_err("misshapen").to_string();
    assert!(two.starts_with("all.yaml:12:20: spec.ttlSeconds: "), "{two}");
    let three = three.as_ref().expect("good");
    assert_eq!(three.places.of("metadata.name").map(|place| place.line), Some(18));
    let broken = manifest::read_all("kind: [\n", "all.yaml").expect_err("no YAML");
    assert!(broken.to_string().starts_with("all.yaml:"), "{broken}");
}

#[test]
fn a_status_is_passed_over_as_the_api_server_does() {
    for status in ["{colour: red}", "{observedGeneration: soon}", "5"] {
        let text = format!("{HEAD}spec: {{ttlSeconds: 9}}\nstatus: {status}\n");
        let found = manifest::read_all(&text, "dns.yaml").expect("YAML");
        let found = found[0].as_ref().expect(status);
        assert_eq!(found.resource.spec.ttl_seconds, 9);
        assert!(found.resource.status.is_none() && found.unknown.paths.is_empty(), "{found:?}");
    }
}

/// sigs.k8s.io/yaml reads with YAML 1.1: `strconv.ParseInt(text, 0, 64)`, and a float where that fails.
#[test]
fn numbers_are_those_that_kubectl_sends() {
    for (written, sent) in [
        ("053", 43),
        ("010", 8),
        ("08", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1_000),
        ("30.0", 30),
        ("0", 0),
    ] {
        let (resource, _) =
            manifest::read(&format!("{HEAD}spec: {{ttlSeconds: {written}}}\n"), "dns.yaml")
                .expect(written);
        assert_eq!(resource.spec.ttl_seconds, sent, "{written}");
    }
}

#[test]
fn items_of_a_list_that_share_values_by_aliases_have_their_own_lines() {
    let version = "clusterdns.dev/v1alpha1";
    let text = format!(
        "kind: List\nitems:\n- apiVersion: &v {version}\n  kind: &k ClusterDNS\n  metadata: {{name: a}}\n  spec: {{}}\n\
         - apiVersion: *v\n  kind: *k\n  metadata: {{name: b}}\n  spec: {{ttlSeconds: x}}\n\
         - &c\n  apiVersion: *v\n  kind: *k\n  metadata: {{name: c}}\n  spec: {{}}\n\
         - *c\n- <<: *c\n  spec: {{ttlSeconds: y}}\n"
    );
    let found = manifest::read_all(&text, "all.yaml").expect("YAML");
    let said: Vec<String> =
        found.iter().filter_map(|it| it.as_ref().err().map(ToString::to_string)).collect();
    assert_eq!((found.len(), said.len()), (5, 2), "{said:?}");
    for (why, place) in said.iter().zip(["10:22", "18:22"]) {
        assert!(why.starts_with(&format!("all.yaml:{place}: spec.ttlSeconds")), "{why}");
    }
}

#[test]
fn a_file_that_is_no_yaml_is_reported_in_words_for_its_author() {
    let nine = |name: char| format!("[{}]", vec![format!("*{name}"); 9].join(", "));
    let bomb: String = ('b'..='i')
        .map(|name| format!("{name}: &{name} {}\n", nine(char::from(name as u8 - 1))))
        .collect();
    let rows = [
        (
            format!("{HEAD}spec:\n  domain: a.example\n  domain: b.example\n"),
            "dns.yaml:6:3: \"domain\" is written twice: leave one out",
        ),
        (
            format!("{HEAD}a: &a {}\n{bomb}", ["x"; 9].join(" ")),
            "dns.yaml:10:8: more than is read of one file, aliases (*) written out: split it",
        ),
        (
            format!("{HEAD}spec:\n  domain: a.example\n\tx: 1\n"),
            "dns.yaml:5:11: while scanning a plain scalar, found a tab",
        ),
    ];
    for key in ["", "~", "null"] {
        let text = format!("{HEAD}spec:\n  {key}: 5\n");
        assert_eq!(error(&text), "dns.yaml:5:3: the key before ':' is missing or null");
    }
    for (text, expected) in rows {
        assert_eq!(error(&text), expected);
    }
    let deep = error(&format!("{HEAD}spec: {}", "[".repeat(10_000)));
    assert!(deep.starts_with("dns.yaml:4:"), "{deep}");
}

#[test]
fn one_anchor_may_have_any_number_of_aliases() {
    let hosts: String = (1..150)
        .map(|number| format!("  - {{name: h{number}.example, addresses: *here}}\n"))
        .collect();
    let text = format!(
        "{HEAD}spec:\n  hosts:\n  - {{name: h0.example, addresses: &here [192.0.2.1]}}\n{hosts}"
    );
    let (resource, _) = manifest::read(&text, "dns.yaml").expect("YAML");
    assert_eq!(resource.spec.hosts.map(|hosts| hosts.len()), Some(150));
    assert_eq!(manifest::read_all(&text, "dns.yaml").expect("YAML").len(), 1);
}

#[test]
fn a_resource_without_a_name_says_what_to_write() {
    let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nspec: {}\n";
    assert_eq!(error(text), "dns.yaml:1:1: metadata: is missing: write metadata: {name: default}");
}
