//! The CustomResourceDefinition: the committed file is the generated one, and it says what the types say.

use std::{env, fs};

use crds::ClusterDNSSpec;
use crds::v1alpha1::{crd, crd_yaml};
use serde_json::{Value, json};

#[test]
fn the_committed_file_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/clusterdns.yaml");
    let generated = crd_yaml();
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, &generated).expect("clusterdns.yaml is writable");
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == generated,
        "crds/clusterdns.yaml is not what the types say: run UPDATE_EXPECT=1 cargo test -p crds"
    );
}

#[test]
fn kubectl_apply_can_keep_it_in_its_annotation() {
    let bytes = serde_json::to_string(&crd()).expect("JSON").len();
    assert!(
        bytes < 256 * 1024,
        "{bytes} bytes: client-side apply keeps the whole document in an annotation of 256 KiB"
    );
}

fn schema() -> Value {
    let crd = serde_json::to_value(crd()).expect("JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn spec_schema() -> Value {
    schema()["properties"]["spec"].clone()
}

/// Fills in defaults as an API server does: in objects that are there.
fn default_by_schema(value: &mut Value, schema: &Value) {
    let (Some(fields), Some(properties)) =
        (value.as_object_mut(), schema["properties"].as_object())
    else {
        return;
    };
    for (key, schema) in properties {
        if let (false, Some(default)) = (fields.contains_key(key), schema.get("default")) {
            fields.insert(key.clone(), default.clone());
        }
        if let Some(value) = fields.get_mut(key) {
            default_by_schema(value, schema);
            for item in value.as_array_mut().into_iter().flatten() {
                default_by_schema(item, &schema["items"]);
            }
        }
    }
}

/// The fields that the schema requires and an object does not have.
fn missing(value: &Value, schema: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(fields) = value.as_object() {
        let absent = required.filter(|key| !fields.contains_key(*key));
        found.extend(absent.map(|key| format!("{path}.{key}")));
        for (key, value) in fields {
            let schema = &schema["properties"][key];
            found.extend(missing(value, schema, &format!("{path}.{key}")));
            for item in value.as_array().into_iter().flatten() {
                found.extend(missing(item, &schema["items"], &format!("{path}.{key}[]")));
            }
        }
    }
    found
}

#[test]
fn the_schema_has_the_defaults_that_serde_has() {
    let sections = json!({
        "exposure": {}, "cache": {}, "access": {}, "limits": {}, "identity": {}, "service": {}, "rollout": {},
        "warmStart": {}, "placement": {}, "logging": {}, "metrics": {}, "podDisruptionBudget": {},
        "listeners": {"tls": {"certificate": {"name": "a"}}, "https": {"certificate": {"name": "a"}}},
        "hosts": [{"name": "a", "addresses": ["10.0.0.1"]}],
        "records": [{"name": "b", "type": "SRV", "services": [{"port": 1, "target": "c"}]}],
        "stubDomains": [{
            "domain": "a",
            "servers": [{"address": "10.0.0.1", "tls": {"serverName": "a", "caBundle": {"name": "a"}}}],
            "limits": {}, "cache": {}
        }],
    });
    for written in [json!({}), sections] {
        let by_serde: ClusterDNSSpec = serde_json::from_value(written.clone()).expect("a spec");
        let mut by_schema = written;
        default_by_schema(&mut by_schema, &spec_schema());
        assert_eq!(
            missing(&by_schema, &spec_schema(), "spec"),
            [""; 0],
            "serde does not need them"
        );
        assert_eq!(by_schema, serde_json::to_value(by_serde).expect("JSON"));
    }
    assert_eq!(ClusterDNSSpec::default(), serde_json::from_value(json!({})).expect("a spec"));
}

fn visit(schema: &Value, path: &str, seen: &mut dyn FnMut(&str, &Value)) {
    seen(path, schema);
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        visit(field, &format!("{path}.{key}"), seen);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            visit(&schema[inner], &format!("{path}[]"), seen);
        }
    }
}

#[test]
fn unions_have_no_defaults_inside() {
    let spec = spec_schema();
    for union in ["scaling", "upstreams"] {
        visit(&spec["properties"][union], union, &mut |path, schema| {
            assert!(
                schema.get("default").is_none(),
                "{path} has a default, which would be stored beside another member"
            );
        });
    }
}

#[test]
fn no_list_that_is_merged_has_a_default() {
    visit(&spec_schema(), "spec", &mut |path, schema| {
        let is_merged =
            ["set", "map"].map(Some).contains(&schema["x-kubernetes-list-type"].as_str());
        assert!(
            !is_merged || schema.get("default").is_none(),
            "{path}: no client owns the stored default, so server-side apply keeps it beside what is written later"
        );
    });
}

/// Kubernetes' own types, whose bounds are its own.
const NOT_OURS: [&str; 5] = [
    "spec.placement.affinity",
    "spec.placement.tolerations[]",
    "spec.placement.topologySpreadConstraints[]",
    "spec.resources",
    "status.conditions[]",
];

#[test]
fn every_field_is_explained_and_every_list_string_and_number_has_a_bound() {
    let mut missing = Vec::new();
    let schema = schema();
    for part in ["spec", "status"] {
        visit(&schema["properties"][part], part, &mut |path, schema| {
            if NOT_OURS
                .iter()
                .any(|other| path.strip_prefix(other).is_some_and(|rest| !rest.is_empty()))
            {
                return;
            }
            let bound = match schema["type"].as_str() {
                Some("array") => schema.get("maxItems").and(schema.get("x-kubernetes-list-type")),
                Some("string") => schema.get("maxLength").or(schema.get("enum")),
                Some("integer") if path == "status.observedGeneration" => Some(schema),
                Some("integer") => schema.get("minimum").and(schema.get("maximum")),
                Some("object") if schema.get("additionalProperties").is_some() => {
                    schema.get("maxProperties")
                }
                _ => Some(schema),
            };
            if bound.is_none() && !NOT_OURS.contains(&path) {
                missing.push(format!("{path}: no bound"));
            }
            if !path.ends_with("[]") && schema.get("description").is_none() {
                missing.push(format!("{path}: no description"));
            }
        });
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Comments of fields that are written in the schema, by file and field.
fn comments_of_fields() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/v1alpha1");
    let mut comments = Vec::new();
    for file in fs::read_dir(folder).expect(folder) {
        let path = file.expect("a file").path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let (mut is_in_schema, mut comment) = (false, Vec::new());
        for line in text.lines().map(str::trim) {
            let field = line.strip_prefix("pub ").and_then(|rest| rest.split_once(": "));
            if let Some(words) = line.strip_prefix("///") {
                comment.push(words.trim());
            } else if line.starts_with("#[derive") {
                is_in_schema = line.contains("JsonSchema");
            } else if let Some((field, _)) = field {
                if is_in_schema && !comment.is_empty() {
                    comments.push((format!("{}: {field}", path.display()), comment.join(" ")));
                }
                comment.clear();
            } else if !line.starts_with('#') {
                comment.clear();
            }
        }
    }
    comments
}

#[test]
fn the_comment_of_every_field_is_in_a_description() {
    let mut descriptions = Vec::new();
    visit(&schema(), "", &mut |_, schema| {
        descriptions.extend(schema["description"].as_str().map(str::to_owned));
    });
    let comments = comments_of_fields();
    assert!(comments.len() > 100, "{}", comments.len());
    let is_shown = |comment: &str| descriptions.iter().any(|shown| shown.contains(comment));
    let lost = comments.iter().filter(|(_, comment)| !is_shown(comment));
    assert_eq!(lost.collect::<Vec<_>>(), Vec::<&(String, String)>::new());
}

#[test]
fn the_schema_is_in_the_terms_of_api_servers() {
    fn all(value: &Value, path: &str) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            assert!(
                !["nullable", "oneOf", "anyOf", "allOf", "not", "$ref", "const"]
                    .contains(&key.as_str()),
                "{path}.{key}"
            );
            if key == "format" && value["type"] == "integer" {
                assert!(inner == "int32" || inner == "int64", "{path}: {inner}");
            }
            all(inner, &format!("{path}.{key}"));
        }
        for inner in value.as_array().into_iter().flatten() {
            all(inner, path);
        }
    }
    all(&schema(), "");
}

#[test]
fn lists_that_several_owners_share_are_maps_and_servers_are_atomic() {
    let spec = spec_schema();
    let keys = |list: &Value| {
        (list["x-kubernetes-list-type"].clone(), list["x-kubernetes-list-map-keys"].clone())
    };
    let fields = &spec["properties"];
    assert_eq!(keys(&fields["hosts"]), (json!("map"), json!(["name"])));
    assert_eq!(keys(&fields["records"]), (json!("map"), json!(["name", "type"])));
    assert_eq!(keys(&fields["stubDomains"]), (json!("map"), json!(["domain"])));
    for servers in [
        &fields["upstreams"]["properties"]["servers"],
        &fields["stubDomains"]["items"]["properties"]["servers"],
    ] {
        assert_eq!(keys(servers).0, json!("atomic"));
        assert!(servers["items"]["properties"]["port"].get("default").is_none());
    }
}

#[test]
fn kubectl_get_shows_conditions_with_the_reason_pods_and_revisions() {
    let crd = crd();
    let columns = crd.spec.versions[0].additional_printer_columns.as_ref().expect("columns");
    let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    let expected = ["Accepted", "Ready", "Degraded", "Reason", "Pods", "Running", "Desired"];
    assert_eq!(names, [&expected[..], &["Domain", "Message", "Age"]].concat());
    let wide: Vec<_> = columns.iter().filter(|column| column.priority == Some(1)).collect();
    assert_eq!(
        wide.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
        ["Domain", "Message"]
    );
    assert_eq!(crd.spec.names.plural, "clusterdnses");
    assert_eq!(crd.spec.names.short_names.as_deref(), Some(["cdns".to_owned()].as_slice()));
    assert_eq!(crd.spec.names.categories.as_deref(), Some(["dns".to_owned()].as_slice()));
    assert_eq!(crd.spec.scope, "Cluster");
}
