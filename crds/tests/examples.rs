//! Every example is a ClusterDNS that `check` accepts, and so is what it means.

use std::fs;
use std::path::{Path, PathBuf};

use crds::config::{CaBundle, Upstreams};
use crds::{Config, check_resource, manifest};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("examples/ is there")
        .map(|entry| entry.expect("examples/ is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

fn config(path: &Path) -> Config {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let text = fs::read_to_string(path).expect(name);
    let (resource, unknown) = manifest::read(&text, name).unwrap_or_else(|error| panic!("{error}"));
    assert!(unknown.is_empty(), "{name}: unknown fields {unknown}");
    check_resource(&resource).unwrap_or_else(|violations| panic!("{name}:\n{violations}"))
}

#[test]
fn every_example_is_accepted_and_its_configuration_survives_the_way_to_a_pod() {
    let files = examples();
    assert!(files.len() >= 9, "examples went missing: {files:?}");
    for path in files {
        let config = config(&path);
        let (read, unknown) =
            Config::from_json(&config.to_json()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, config, "{}", path.display());
        assert!(unknown.is_empty());
        assert_eq!(read.revision(), config.revision());
    }
}

#[test]
fn the_full_example_has_every_field_of_the_spec() {
    let text = include_str!("../examples/full.yaml");
    let spec = &serde_saphyr::from_str::<serde_json::Value>(text).expect("YAML")["spec"];
    let crd = serde_json::to_value(crds::v1alpha1::crd()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut missing = Vec::new();
    collect_missing(schema, &[spec], "", &mut missing);
    missing.retain(|field| !OTHERS.iter().any(|other| field.starts_with(other)));
    assert_eq!(missing, Vec::<String>::new());
}

/// What the full example cannot have, or need not: other members of unions, and fields that Kubernetes explains.
const OTHERS: [&str; 13] = [
    ".upstreams.fromResolvConf",
    ".upstreams.none",
    // Of servers over TLS; that of a stub domain is shown.
    ".upstreams.servers[].tls",
    ".scaling.fixed",
    ".scaling.ladder",
    ".scaling.load",
    ".scaling.perNode",
    ".podDisruptionBudget.minAvailable",
    ".exposure.",
    ".placement.affinity.",
    ".placement.tolerations[].",
    ".placement.topologySpreadConstraints[].",
    ".resources.",
];

/// Adds the fields of `schema`, which is at `path`, that none of these values has.
fn collect_missing(
    schema: &serde_json::Value,
    values: &[&serde_json::Value],
    path: &str,
    missing: &mut Vec<String>,
) {
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let found: Vec<_> = values.iter().filter_map(|value| value.get(key)).collect();
        match found.is_empty() {
            true => missing.push(path),
            false => collect_missing(below, &found, &path, missing),
        }
    }
    if schema["items"].is_object() {
        let items = values.iter().filter_map(|value| value.as_array()).flatten();
        let items: Vec<_> = items.collect();
        collect_missing(&schema["items"], &items, &format!("{path}[]"), missing);
    }
}

/// What an example needs of a cluster, as its own fields show it: each must be in its first lines.
fn needs(dns: &serde_json::Value) -> Vec<String> {
    let (name, spec) = (&dns["metadata"]["name"], &dns["spec"]);
    let service = &spec["service"];
    let mut needs = Vec::new();
    if name != "default" {
        needs.push(format!("{} in instances", name.as_str().expect("a name")));
    }
    match (service["name"].as_str().unwrap_or("kube-dns"), &service["adopt"]) {
        ("kube-dns", serde_json::Value::Bool(true)) => {
            needs.push("a Service kube-system/kube-dns to adopt".to_owned());
        }
        ("kube-dns", _) => needs.push("no Service kube-system/kube-dns yet".to_owned()),
        (other, _) => needs.push(format!("{other} in services")),
    }
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    needs.extend(service["clusterIPs"].as_array().into_iter().flatten().map(text));
    let listeners =
        ["tls", "https", "quic"].map(|kind| &spec["listeners"][kind]["certificate"]["name"]);
    needs.extend(listeners.into_iter().filter(|name| name.is_string()).map(text));
    let selector = spec["placement"]["nodeSelector"].as_object().into_iter().flatten();
    needs.extend(selector.map(|(key, value)| format!("{key}={}", text(value))));
    if spec["image"].is_string() {
        needs.push("allowedImages".to_owned());
    }
    if spec["scaling"]["load"].is_object() {
        needs.push("metrics.k8s.io".to_owned());
    }
    if spec["scaling"]["perNode"].is_object() {
        needs.push("500 nodes".to_owned());
    }
    let bundles = spec.to_string();
    let mut rest = bundles.as_str();
    while let Some((_, after)) = rest.split_once(r#""caBundle":"#) {
        let bundle = serde_json::Deserializer::from_str(after).into_iter::<serde_json::Value>();
        needs.extend(bundle.flatten().take(1).map(|bundle| text(&bundle["name"])));
        rest = after;
    }
    needs
}

#[test]
fn every_example_says_in_its_first_lines_what_it_needs() {
    for path in examples() {
        let text = std::fs::read_to_string(&path).expect("an example");
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("# ")).collect();
        let head = head.iter().map(|line| &line[2..]).collect::<Vec<_>>().join(" ");
        let said = head.split_once("Needs: ").unwrap_or_else(|| panic!("{}", path.display())).1;
        let dns: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        for need in needs(&dns) {
            assert!(said.contains(&need), "{}: {need}", path.display());
        }
    }
}

#[test]
fn every_file_of_the_quickstart_says_that_it_needs_no_cluster() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart");
    let files = fs::read_dir(folder).expect("the quickstart is there");
    let files = files.map(|entry| entry.expect("it is readable").path());
    let files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    assert!(files.len() >= 5, "files went missing: {files:?}");
    for path in files {
        let text = fs::read_to_string(&path).expect("an example");
        assert!(text.starts_with("# Needs: nothing;"), "{}", path.display());
    }
}

#[test]
fn the_cluster_dns_of_the_first_page_passes() {
    let page = include_str!("../../README.md");
    let shown = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let (resource, unknown) = manifest::read(shown.expect("YAML"), "README.md").expect("readable");
    assert!(unknown.is_empty(), "{unknown}");
    check_resource(&resource).expect("it passes");
}

/// A line that is added to the file moves the mistake, and nothing else would notice.
#[test]
fn the_mistake_that_the_page_of_the_resource_shows_is_refused_so() {
    let page = include_str!("../../docs/resource.md");
    let shown = page.split("jq .rejection\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown: serde_json::Value = serde_json::from_str(shown.expect("the answer")).expect("JSON");
    let text = include_str!("../examples/quickstart/dns.yaml")
        .replace("domain: corp.example", "domain: cluster.local");
    let mut found = manifest::read_all(&text, "dns.yaml").expect("YAML");
    let found = found.remove(0).unwrap_or_else(|error| panic!("{error}"));
    let violations = check_resource(&found.resource).expect_err("it is refused");
    let violations: Vec<serde_json::Value> = violations
        .listed()
        .iter()
        .map(|it| {
            serde_json::json!({"field": it.field, "reason": it.reason.to_string(), "message": it.message,
                "line": found.places.of(&it.field).map(|place| place.line)})
        })
        .collect();
    assert_eq!(shown["violations"], serde_json::json!(violations));
}

#[test]
fn a34_ports_are_filled_in_by_transport() {
    let config =
        config(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/encrypted-upstreams.yaml"));
    let Upstreams::Servers(group) = &config.upstreams else { panic!("{:?}", config.upstreams) };
    assert_eq!(group.servers.iter().map(|server| server.port).collect::<Vec<_>>(), [853, 443]);
    let corp = &config.stub_domains[0].group.servers[0];
    let bundle = corp.tls.as_ref().and_then(|tls| tls.ca_bundle.as_ref());
    let expected = CaBundle::ConfigMap { name: "corp-ca".to_owned(), key: "ca.crt".to_owned() };
    assert_eq!(bundle, Some(&expected));
}
