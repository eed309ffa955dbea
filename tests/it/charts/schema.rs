//! The schema of the values: what `clusterDNS.spec` may be is made of the resource's own schema, so that Helm refuses what
//! the API server would refuse, before anything of a release is written.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};
use tests::scratch::Scratch;

use super::{expect, helm, objects, read, run, template};
use crate::architecture::root;

const PAGE: &str = "charts/clusterdns/values.schema.json";
/// The line that this test generates.
const LINE: &str = "    \"clusterDNSSpec\": ";
/// What JSON Schema and the resource's schema have in common, besides what holds other schemas.
const KEPT: [&str; 12] = [
    "type",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
];

/// The schema of the resource as JSON Schema says it. What only the API server can check (CEL, keys of lists) is left out.
fn as_json_schema(schema: &Value) -> Value {
    let mut made = Map::new();
    for key in KEPT {
        made.extend(schema.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if schema["x-kubernetes-int-or-string"] == true {
        made.insert("type".to_owned(), json!(["integer", "string"]));
    } else if schema["nullable"] == true {
        made.insert("type".to_owned(), json!([schema["type"], "null"]));
    }
    if let Some(fields) = schema["properties"].as_object() {
        let fields = fields.iter().map(|(name, field)| (name.clone(), as_json_schema(field)));
        made.insert("properties".to_owned(), Value::Object(fields.collect()));
        // The API server would leave an unknown field out and say nothing.
        made.insert("additionalProperties".to_owned(), json!(false));
    }
    if let Some(rest) = schema.get("additionalProperties").filter(|rest| rest.is_object()) {
        made.insert("additionalProperties".to_owned(), as_json_schema(rest));
    }
    if let Some(items) = schema.get("items") {
        made.insert("items".to_owned(), as_json_schema(items));
    }
    Value::Object(made)
}

#[test]
fn the_schema_of_the_values_has_that_of_the_resource() {
    let crd: Value = serde_saphyr::from_str(&read("crds/clusterdns.yaml")).expect("YAML");
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = as_json_schema(&root["properties"]["spec"]);
    assert!(spec["properties"].as_object().is_some_and(|fields| fields.len() > 20));
    let page = read(PAGE);
    let lines = page.lines().map(|line| match line.starts_with(LINE) {
        true => format!("{LINE}{spec},\n"),
        false => format!("{line}\n"),
    });
    let wanted: String = lines.collect();
    assert!(wanted.contains(&format!("{LINE}{spec}")), "{PAGE} has no line for it");
    expect(PAGE, &wanted);
}

#[test]
fn a_mistake_in_the_spec_is_refused_by_helm_and_names_its_field() {
    let Some(helm) = helm() else { return };
    for (set, says) in [
        ("clusterDNS.spec.servce.adopt=true", "'servce' not allowed"),
        ("clusterDNS.spec.ttlSeconds=soon", "clusterDNS/spec/ttlSeconds"),
        ("clusterDNS.spec.podRecords=insecure", "clusterDNS/spec/podRecords"),
        ("clusterDNS.spec.hosts[0].name=A.example", "clusterDNS/spec/hosts/0"),
        ("clusterDNS.spec.scaling.fixed.replicas=0", "clusterDNS/spec/scaling/fixed/replicas"),
    ] {
        let refusal = template(&helm, &["--set", "clusterDNS.create=true", "--set", set]);
        let refusal = refusal.expect_err(set);
        assert!(refusal.contains(says), "{set}: {refusal}");
    }
}

/// Helm hands on to a part what its condition names: `clusterdns.enabled` of the whole is `enabled` of the part.
#[test]
fn another_chart_can_have_this_one_as_a_part_under_a_condition() {
    let Some(helm) = helm() else { return };
    let whole = Scratch::new("chart").expect("a folder");
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n\
         - {{name: clusterdns, version: {version}, repository: \"\", condition: clusterdns.enabled}}\n"
    );
    whole.write("Chart.yaml", text).expect("the folder is ours");
    let parts = whole.path().join("charts");
    fs::create_dir(&parts).expect("the folder is ours");
    let part = root().join("charts/clusterdns");
    let copied = Command::new("cp").arg("-R").arg(part).arg(parts).status();
    assert!(copied.expect("coreutils").success());
    let folder = whole.path().to_str().expect("text");
    for (is_enabled, count) in [(true, 1), (false, 0)] {
        let set = format!("clusterdns.enabled={is_enabled},global.region=one");
        let rendered = run(&helm, &["template", "platform", folder, "--set", &set]);
        let objects = objects(&rendered.expect("the schema takes both"));
        let operators = objects.iter().filter(|object| object["kind"] == "Deployment").count();
        assert_eq!(operators, count, "{set}");
    }
}
