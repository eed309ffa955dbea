//! O18: every field of the schema has an effect that a test shows, or is in the list of fields without effect. A new field
//! without either fails here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crds::without_effect::FIELDS;
use serde_json::Value;

use crate::desired::{desired, dns, observed};

/// Kubernetes' own types: one effect is enough for all of their fields.
const WHOLE: [&str; 4] = [
    "spec.resources",
    "spec.placement.affinity",
    "spec.placement.tolerations",
    "spec.placement.topologySpreadConstraints",
];

/// One row of `fields.txt`.
struct Row {
    field: &'static str,
    kind: &'static str,
    evidence: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("fields.txt").lines();
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (field, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let (kind, evidence) = rest.trim().split_once(' ').unwrap_or_else(|| panic!("{line}"));
        Row { field, kind, evidence: evidence.trim() }
    });
    rows.collect()
}

/// The fields of the schema that hold a value.
fn leaves() -> BTreeSet<String> {
    let crd = serde_json::to_value(crds::v1alpha1::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut found = BTreeSet::new();
    collect(schema, "spec", &mut found);
    found
}

fn collect(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object();
    let inner = ["items", "additionalProperties"].map(|key| &schema[key]);
    let inner = inner.into_iter().find(|schema| schema.is_object());
    if WHOLE.contains(&path) || (properties.is_none() && inner.is_none()) {
        found.insert(path.to_owned());
        return;
    }
    for (name, field) in properties.into_iter().flatten() {
        collect(field, &format!("{path}.{name}"), found);
    }
    if let Some(inner) = inner {
        collect(inner, &format!("{path}[]"), found);
    }
}

/// Is `field` this path, or below it?
fn is_below(field: &str, path: &str) -> bool {
    let rest = field.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn o18_every_field_has_an_effect_that_a_test_shows_or_is_said_to_have_none() {
    let (rows, leaves) = (rows(), leaves());
    let is_shown = |leaf: &str| {
        rows.iter().any(|row| match row.kind {
            "covers" => is_below(leaf, row.field),
            _ => leaf == row.field,
        })
    };
    let is_listed =
        |leaf: &str| FIELDS.iter().any(|row| row.paths.iter().any(|path| is_below(leaf, path)));
    let missing: Vec<&String> =
        leaves.iter().filter(|leaf| !is_shown(leaf) && !is_listed(leaf)).collect();
    assert!(
        missing.is_empty(),
        "name the test that shows the effect of these fields in tests/it/fields.txt, or list them in \
         crds/src/without_effect.rs with what happens instead: {missing:#?}"
    );
    for row in &rows {
        assert!(leaves.iter().any(|leaf| is_below(leaf, row.field)), "{} is no field", row.field);
    }
    for path in FIELDS.iter().flat_map(|row| row.paths) {
        assert!(leaves.iter().any(|leaf| is_below(leaf, path)), "{path} is no field");
    }
}

#[test]
fn o18_the_tests_that_show_effects_exist() {
    let source = source();
    for row in rows().iter().filter(|row| row.kind != "applied") {
        let name = row.evidence.split(' ').next().unwrap_or_default();
        assert!(source.contains(&format!("fn {name}(")), "{}: there is no test {name}", row.field);
    }
}

#[test]
fn o18_fields_of_the_operator_change_what_it_applies() {
    let objects = |spec: &str| {
        let desired = desired(&dns(spec), &observed(), |plan| plan.rollout = Default::default());
        desired.objects.iter().map(|(_, object)| serde_json::to_value(object).unwrap()).collect()
    };
    let plain: Vec<Value> = objects("{}");
    for row in rows().iter().filter(|row| row.kind == "applied") {
        assert_ne!(objects(row.evidence), plain, "{} {}", row.field, row.evidence);
    }
}

#[test]
fn s14_the_threat_model_names_every_field_that_reaches_more_than_the_configuration() {
    let page = include_str!("../../docs/threat-model.md");
    let section = page.split("## A writer of ClusterDNS").nth(1).expect("the section");
    let table = section.lines().filter(|line| line.starts_with("| "));
    let fields = table.filter_map(|line| line.split('|').nth(1));
    let named: Vec<&str> = fields.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    // A `*` is any one part of the path.
    let is_named = |leaf: &str| {
        let leaf: Vec<&str> = leaf.trim_start_matches("spec.").split(['.', '[']).collect();
        named.iter().any(|path| {
            let parts: Vec<&str> = path.split('.').collect();
            parts.len() <= leaf.len()
                && parts.iter().zip(&leaf).all(|(part, of)| *part == "*" || part == of)
        })
    };
    let rows = rows();
    let applied = rows.iter().filter(|row| row.kind == "applied").map(|row| row.field);
    // Shown by other tests, because one change of the empty spec does not show them.
    let more = ["listeners", "scaling", "podDisruptionBudget", "service", "placement", "metrics"];
    let leaves = leaves();
    let below = leaves.iter().filter(|leaf| {
        let rest = leaf.trim_start_matches("spec.");
        more.iter().any(|path| is_below(rest, path)) && !rest.starts_with("metrics.probes")
    });
    let missing: BTreeSet<&str> =
        applied.chain(below.map(String::as_str)).filter(|leaf| !is_named(leaf)).collect();
    assert!(missing.is_empty(), "docs/threat-model.md, the table of fields, without {missing:#?}");
}

#[test]
fn o18_fields_of_the_core_change_its_settings() {
    let settings = |spec: &str| {
        let config = crds::check_resource(&dns(spec)).unwrap_or_else(|error| panic!("{error}"));
        format!("{:?}", dataplane::settings::of(&config).unwrap())
    };
    for row in rows().iter().filter(|row| row.kind == "core") {
        let (_, spec) = row.evidence.split_once(' ').unwrap_or_else(|| panic!("{}", row.field));
        assert_ne!(settings(spec), settings("{}"), "{} {spec}", row.field);
    }
}

/// The Rust of every package.
fn source() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut text = String::new();
    for package in ["crds", "dataplane", "operator", "tests"] {
        append(&root.join(package), &mut text);
    }
    text
}

fn append(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("corpus") {
            append(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
