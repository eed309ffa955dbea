//! The chart's README: its table of values is made of the comments in values.yaml.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{expect, helm, object, objects, read, template};

const PAGE: &str = "charts/clusterdns/README.md";
const TRIAL_PAGE: &str = "docs/install.md";
const VALUES: &str = "charts/clusterdns/values.yaml";
/// The table is between these lines.
const BEGIN: &str = "<!-- values: made from values.yaml by `make manifests` -->\n";
const END: &str = "<!-- end of values -->\n";

/// A key with the comment right above it.
struct Documented {
    /// The keys of `image.tag`: `image`, `tag`.
    path: Vec<String>,
    comment: String,
}

/// Every key of a map that has a comment right above it, in the order of the file.
fn documented(yaml: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut parents: Vec<(usize, String)> = Vec::new();
    for line in yaml.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(words) = text.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with("- ")) {
            parents.retain(|(depth, _)| *depth < indent);
            parents.push((indent, key.to_owned()));
            if !comment.is_empty() {
                let path = parents.iter().map(|(_, key)| key.clone()).collect();
                found.push(Documented { path, comment: comment.join(" ") });
            }
        }
        comment.clear();
    }
    found
}

fn default_of<'v>(values: &'v Value, path: &[String]) -> &'v Value {
    path.iter().fold(values, |value, key| &value[key.as_str()])
}

fn rows() -> String {
    let text = read(VALUES);
    let values: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut rows = String::from("| Value | Default | What it is for |\n|---|---|---|\n");
    for Documented { path, comment } in documented(&text) {
        let default = default_of(&values, &path);
        assert!(!comment.contains('|') && !default.to_string().contains('|'), "{path:?}");
        writeln!(rows, "| `{}` | `{default}` | {comment} |", path.join(".")).unwrap();
    }
    rows
}

#[test]
fn the_readme_of_the_chart_explains_its_values() {
    let page = read(PAGE);
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (_, after) = rest.split_once(END).expect("the table ends");
    expect(PAGE, &format!("{before}{BEGIN}{}{END}{after}", rows()));
}

/// The leaves of the values, a list being one.
fn leaves(value: &Value, path: Vec<String>, found: &mut Vec<Vec<String>>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (key, value) in map {
                leaves(value, [path.clone(), vec![key.clone()]].concat(), found);
            }
        }
        None => found.push(path),
    }
}

#[test]
fn every_value_has_a_comment() {
    let text = read(VALUES);
    let mut all = Vec::new();
    leaves(&serde_saphyr::from_str(&text).expect("YAML"), Vec::new(), &mut all);
    let documented = documented(&text);
    for leaf in all {
        // The key itself, or a map that is shown as a whole, such as `resources`.
        let is_documented = documented.iter().any(|entry| leaf.starts_with(&entry.path));
        assert!(is_documented, "{VALUES}: no comment right above {}", leaf.join("."));
    }
}

/// The values that a command of the page sets to try ClusterDNS beside the DNS that a cluster has.
fn trial_values() -> Vec<String> {
    let page = read(TRIAL_PAGE).replace("$REGISTRY", "registry.example");
    let command = page.split("$ helm upgrade --install").nth(1).expect("the command");
    let command = command.split("```").next().expect("up to its end");
    let words = command.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
    let words: Vec<String> = words.collect();
    let pairs = words.windows(2).filter(|pair| pair[0] == "--set");
    pairs.flat_map(|pair| pair.to_vec()).collect()
}

#[test]
fn the_trial_of_the_page_is_one_that_the_operator_may_run_beside_kube_dns() {
    let Some(helm) = helm() else { return };
    let values = trial_values();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = objects(&template(&helm, &values).expect("it renders"));
    // Not by the chart: an upgrade would bring it back.
    assert!(objects.iter().all(|object| object["kind"] != "ClusterDNS"));
    let page = read(TRIAL_PAGE);
    let trial = page.split("echo '").nth(1).and_then(|rest| rest.split('\'').next());
    let trial: Value = serde_saphyr::from_str(trial.expect("the trial")).expect("YAML");
    let dns: crds::ClusterDNS = serde_json::from_value(trial.clone()).expect("a ClusterDNS");
    assert!(crds::check_resource(&dns).is_ok());
    let service = &trial["spec"]["service"];
    assert_eq!((&service["name"], service.get("adopt")), (&json!("dns-trial"), None));
    let operator = object(&objects, "Deployment", "clusterdns-operator");
    let args = operator["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("--instances=default,trial"), "{args}");
    let role = object(&objects, "Role", "clusterdns:operator-workload")["rules"].to_string();
    assert!(role.contains("\"dns-trial\"") && role.contains("\"clusterdns-trial\""), "{role}");
}

/// Who copies the first command of a page must not lose stub domains, hosts and rewrites of a Corefile.
#[test]
fn the_first_command_of_the_chart_leaves_the_dns_of_the_cluster_as_it_is() {
    for page in [PAGE, TRIAL_PAGE, "README.md"] {
        let text = read(page);
        let commands = text.split("$ helm install ").skip(1).map(|rest| rest.split("```").next());
        let commands: Vec<&str> = commands.flatten().collect();
        assert!(!commands.is_empty(), "{page}");
        assert!(
            commands.iter().all(|it| !it.contains("clusterDNS.create")),
            "{page}: {commands:?}"
        );
    }
}

/// Each part of a page, and each note of the chart, that lets the chart take a Service over.
#[test]
fn where_the_chart_takes_a_service_over_import_is_named() {
    const ADOPT: &str = "adopt=true";
    let page = read(PAGE);
    let parts: Vec<&str> = page.split("\n## ").filter(|part| part.contains(ADOPT)).collect();
    assert!(!parts.is_empty());
    for part in parts {
        let (before, _) = part.split_once(ADOPT).unwrap();
        assert!(before.contains("clusterdns-operator import"), "{part}");
    }
    let notes = read("charts/clusterdns/templates/NOTES.txt");
    let branches: Vec<&str> = notes.split("{{").filter(|part| part.contains(ADOPT)).collect();
    assert!(!branches.is_empty());
    assert!(branches.iter().all(|it| it.contains("`import`")), "{branches:?}");
    let taken = notes.split_once("takes over the Service").expect("the note of adopt: true").1;
    assert!(taken.split("{{ end }}").next().unwrap().contains("clusterdns-operator import"));
}

/// The page says so of images that are loaded into the nodes of kind, minikube and k3d.
#[test]
fn an_image_that_is_on_the_node_is_not_pulled_by_default() {
    let values: Value = serde_saphyr::from_str(&read(VALUES)).expect("YAML");
    assert_eq!(values["image"]["pullPolicy"], "IfNotPresent");
    assert!(read(TRIAL_PAGE).contains("`image.pullPolicy` must stay `IfNotPresent`"));
}
