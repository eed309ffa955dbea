//! Every type of the extra records is in the places that neither the compiler nor another test would miss. CONTRIBUTING.md
//! ("Add a record type") says what each place is for.

use serde_json::Value;

use super::read;

/// A file, how a type (`{}`) is written in it, and types that are not there on purpose.
const PLACES: [(&str, &str, &[&str]); 12] = [
    ("crds/src/v1alpha1/rules.rs", "{}", &[]),
    // A CNAME is followed: `decide/alias.rs`.
    ("dataplane/core/src/decide/answer.rs", "rtype::{}", &["CNAME"]),
    ("dataplane/src/names.rs", "\"{}\"", &[]),
    ("crds/src/rrtype.rs", "\"{}\"", &[]),
    ("dataplane/src/explain/dig.rs", "\"{}\"", &[]),
    // In a Corefile `rewrite name suffix` means a DNAME.
    ("operator/src/import/corefile/template.rs", "\"{}\"", &["DNAME"]),
    ("docs/operating.md", "{}", &[]),
    ("tests/it/canary.yaml", "{}", &[]),
    ("tests/it/oracle/questions.rs", "rtype::{}", &[]),
    ("tests/it/oracle/reach.rs", "rtype::{}", &[]),
    ("tests/src/oracle/decode.rs", "::{}", &[]),
    ("tests/src/oracle/expected.rs", "\"{}\"", &[]),
];
/// Fields of a record of any type.
const COMMON: [&str; 5] = ["name", "type", "ttlSeconds", "reverse", "overrideClusterZone"];

/// `spec.records` in the schema.
fn records() -> Value {
    let crd = serde_json::to_value(crds::v1alpha1::crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["records"]
        .clone()
}

/// Whether a text has this, not as a part of a longer word.
fn has(text: &str, written: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = written.starts_with(is_word);
    text.match_indices(written).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + written.len()..]);
        let is_part = begins && before.ends_with(is_word) || after.starts_with(is_word);
        !is_part
    })
}

#[test]
fn every_type_of_records_is_in_each_place_that_has_a_list_of_types() {
    let records = records();
    let properties = &records["items"]["properties"];
    let types = properties["type"]["enum"].as_array().expect("types");
    let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
    assert!(types.len() >= 6 && types.contains(&"SRV"), "{types:?}");
    let mut missing = Vec::new();
    for (path, form, without) in PLACES {
        let text = read(path);
        let is_there = |of: &str| has(&text, &form.replace("{}", of));
        missing.extend(
            types
                .iter()
                .filter(|of| !without.contains(of) && !is_there(of))
                .map(|of| format!("{path}: {}", form.replace("{}", of))),
        );
        assert!(!is_there("LOC"), "{path}: this test finds a type that there is not");
    }
    for described in [&records["description"], &properties["type"]["description"]] {
        let described = described.as_str().expect("a description");
        let missed = types.iter().filter(|of| !has(described, of));
        missing.extend(missed.map(|of| format!("`kubectl explain`: {of} in {described:?}")));
    }
    let fields = properties.as_object().expect("fields").keys();
    for field in fields.filter(|field| !COMMON.contains(&field.as_str())) {
        for (path, written) in [
            ("crds/src/v1alpha1/rules.rs", format!("has(self.{field})")),
            ("crds/src/check/read/records.rs", format!("(\"{field}\", record.")),
        ] {
            missing.extend((!read(path).contains(&written)).then(|| format!("{path}: {written}")));
        }
    }
    assert!(
        missing.is_empty(),
        "CONTRIBUTING.md, \"Add a record type\", says what to add: {missing:#?}"
    );
}
