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
    assert_eq!(unknown.paths, ["spec.stubDomain", "spec.cache.memroy"]);
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
