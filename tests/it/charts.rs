//! The chart without a cluster: what it renders to, what it lets the operator do, and that everything made from it or
//! for it is up to date. `make manifests` (UPDATE_EXPECT=1) writes those files.

mod schema;
mod workload;
mod rights;
mod dashboards;
mod readme;
mod pages;
mod refused;
mod values;
mod helm_test;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use process::metrics::Form;
use serde_json::Value;
use tests::control_plane::path_of;

use crate::architecture::{read, root};

/// The namespace into which the plain YAML installs.
const NAMESPACE: &str = "clusterdns-system";
const GOLDEN: &str = "tests/golden/chart";
/// Labels that are about Helm; the plain YAML does not have them.
const OF_HELM: [&str; 2] = ["helm.sh/chart: ", "app.kubernetes.io/managed-by: Helm"];

/// The real helm, or None after saying that the test did not run. Where CI is set that is a failure.
pub(crate) fn helm() -> Option<PathBuf> {
    let helm = path_of("helm");
    if helm.exists() {
        return Some(helm);
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let message = format!("NOT RUN: {test} needs helm; `tests/tools/build helm` builds it\n");
    assert!(env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{message}");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
    None
}

/// Runs helm at the repository's root: what it printed, or what it complained about.
fn run(helm: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(helm).args(arguments).current_dir(root()).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stdout) + &text(&output.stderr)),
    }
}

fn template(helm: &Path, more: &[&str]) -> Result<String, String> {
    let arguments = ["template", "clusterdns", "charts/clusterdns", "--namespace", NAMESPACE];
    run(helm, &[&arguments[..], more].concat())
}

/// Every object of a rendered chart, or of plain YAML.
fn objects(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---").map(serde_saphyr::from_str::<Value>);
    documents.map(|object| object.expect("YAML")).filter(Value::is_object).collect()
}

/// The rendered charts that are committed, with their names.
fn golden() -> Vec<(String, String)> {
    let files = fs::read_dir(root().join(GOLDEN)).expect("golden charts");
    let mut cases: Vec<String> = files
        .map(|file| file.expect("a file").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".values.yaml").map(str::to_owned))
        .collect();
    cases.sort();
    assert!(cases.len() > 3, "{cases:?}");
    cases
        .into_iter()
        .map(|case| (read(&format!("{GOLDEN}/{case}.yaml")), case))
        .map(|(text, case)| (case, text))
        .collect()
}

/// The object of this kind and name.
fn object<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Compares a committed file with what it should be, or writes it.
fn expect(path: &str, wanted: &str) {
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(root().join(path), wanted).expect("the file is writable");
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    let line = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{path} is not up to date (line {line:?}): run `make manifests`");
}

#[test]
fn the_chart_installs_the_crd_of_the_types() {
    expect("charts/clusterdns/crds/clusterdns.yaml", &read("crds/clusterdns.yaml"));
}

/// With it go every ClusterDNS, its pods and its Service.
#[test]
fn the_crd_stays_when_a_tool_removes_what_is_no_longer_in_its_repository() {
    let crd: Value = serde_saphyr::from_str(&read("crds/clusterdns.yaml")).expect("YAML");
    let annotations = &crd["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/resource-policy"], "keep");
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/prune"], "disabled");
    assert_eq!(annotations["argocd.argoproj.io/sync-options"], "Prune=false,Delete=false");
}

#[test]
fn s1_the_chart_has_the_top_level_domains_of_the_data_plane() {
    let list = read("dataplane/core/src/index/top_level_domains.txt");
    expect("charts/clusterdns/top-level-domains.txt", &list);
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let chart: Value = serde_saphyr::from_str(&read("charts/clusterdns/Chart.yaml")).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let Some(helm) = helm() else { return };
    for case in golden().into_iter().map(|(case, _)| case) {
        let values = format!("{GOLDEN}/{case}.values.yaml");
        let linted = run(&helm, &["lint", "--strict", "charts/clusterdns", "--values", &values]);
        linted.unwrap_or_else(|complaint| panic!("{case}: {complaint}"));
    }
}

#[test]
fn the_chart_renders_to_what_is_committed() {
    let Some(helm) = helm() else { return };
    let files = fs::read_dir(root().join(GOLDEN)).expect("golden charts");
    for file in files.map(|file| file.expect("a file").file_name()) {
        let file = file.to_string_lossy().into_owned();
        let Some(case) = file.strip_suffix(".values.yaml") else { continue };
        let rendered = template(&helm, &["--values", &format!("{GOLDEN}/{file}")]);
        let rendered = rendered.unwrap_or_else(|complaint| panic!("{case}: {complaint}"));
        expect(&format!("{GOLDEN}/{case}.yaml"), &rendered);
    }
}

#[test]
fn the_plain_manifests_are_the_chart() {
    let Some(helm) = helm() else { return };
    let rendered = template(&helm, &["--skip-tests"]).expect("defaults render");
    let of_helm = |line: &&str| !OF_HELM.iter().any(|label| line.contains(label));
    let plain: Vec<&str> = rendered.lines().filter(of_helm).collect();
    let wanted = format!(
        "# Written by `make manifests` from charts/clusterdns. An upgrade replaces this file: docs/install.md (Without Helm) says how\n\
         # to install it, and how to change it in a file of your own.\n{}\n",
        plain.join("\n")
    );
    expect("charts/manifests/operator.yaml", &wanted);
}

#[test]
fn the_default_cluster_dns_outlives_the_release_and_is_no_hook() {
    for (case, text) in golden().into_iter().filter(|(_, text)| text.contains("kind: ClusterDNS\n"))
    {
        let objects = objects(&text);
        let dns = objects.iter().find(|object| object["kind"] == "ClusterDNS").unwrap();
        let annotations = &dns["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/resource-policy"], "keep", "{case}");
        // Argo CD prunes what has only the other one.
        let of_argo_cd = &annotations["argocd.argoproj.io/sync-options"];
        assert_eq!(of_argo_cd, "Prune=false,Delete=false", "{case}");
        assert!(annotations.get("helm.sh/hook").is_none(), "{case}");
        let dns: crds::ClusterDNS = serde_json::from_value(dns.clone()).expect("a ClusterDNS");
        crds::check_resource(&dns).unwrap_or_else(|violations| panic!("{case}: {violations}"));
    }
}

/// An image that is named by its digest, and more values.
fn digest(more: &str) -> String {
    format!("image.digest=sha256:{}{more}", "0123456789abcdef".repeat(4))
}

#[test]
fn values_that_cannot_work_are_refused_and_say_what_to_write() {
    let Some(helm) = helm() else { return };
    for (set, says) in [
        (
            "clusterDNS.name=other",
            "clusterDNS.name: the operator may not run a ClusterDNS \"other\": add it to instances",
        ),
        (
            "clusterDNS.spec.service.namespace=dns",
            "has no rights in \"dns\": add it to workloadNamespaces",
        ),
        (
            "clusterDNS.spec.service.name=dns",
            "may not change a Service \"dns\": add it to services",
        ),
        ("instances={operator}", "instances/0"),
        ("replica=3", "'replica' not allowed"),
        ("workloadNamespaces=null", "workloadNamespaces"),
        ("image.digest=latest", "image/digest"),
        ("image.tag=0.0.9", "the programs of 0.0.9 do not know all flags that the chart of"),
        ("image.tag=v0.0.9-rc.1", "leave image.tag empty, or use the chart of 0.0.9-rc.1"),
        (digest("").as_str(), "image.digest: write the version that it is of as image.tag"),
        (
            digest(",image.tag=0.0.9").as_str(),
            "write the new image.digest and image.tag, or make both",
        ),
        ("http.port=80", "http/port"),
        ("nameOverride=clusterdns-default", "nameOverride"),
        ("serviceAccount.create=false", "name the ServiceAccount that exists"),
        (
            "serviceAccount.create=false,serviceAccount.name=a,serviceAccountAnnotations.a=b",
            "annotate the one that exists",
        ),
        ("namespaceNames.also={corp}", "nothing is done about these names: write Deny, Warn or"),
        (
            "people.aggregateToView=true,people.clusterRoles=false",
            "people.aggregateToView: the role that it is about is not created",
        ),
        ("nameOverride=1a,metrics.serviceMonitor=true", "which must begin with a letter"),
        (
            "extraEnv[0].name=CLUSTERDNS_LOG_LEVEL,extraEnv[0].value=debug",
            "the flag of CLUSTERDNS_LOG_LEVEL itself: set the value logging.level",
        ),
        ("extraArgs={--namespace=x}", "its rights are for that: remove --namespace"),
        ("metrics.interval=often", "metrics/interval"),
        ("metrics.interval=30s1m", "metrics/interval"),
        (
            "metrics.prometheusRule=true,metrics.podMonitor=true,metrics.interval=1d",
            "a scrape each 1d is too rare",
        ),
        (
            "metrics.prometheusRule=true,metrics.podMonitor=true,metrics.interval=1m61s",
            "a scrape each 1m61s is too rare",
        ),
        ("dataplane.extraEnv.A=b\nPOD_NAME=c", "dataplane/extraEnv/A"),
        ("metrics.runbookBaseURL=docs/runbooks", "metrics/runbookBaseURL"),
        ("allowedImages={*}", "allowedImages/0"),
        ("dataplane.extraArgs={workers=2}", "dataplane/extraArgs/0"),
        ("dataplane.pullPolicy=Sometimes", "dataplane/pullPolicy"),
    ] {
        let refusal = template(&helm, &["--set", "clusterDNS.create=true", "--set", set]);
        let refusal = refusal.expect_err(set);
        assert!(refusal.contains(says), "{set}: {refusal}");
    }
}

/// Alerts on metrics or conditions that do not exist would never fire.
#[test]
fn o14_alerts_of_the_chart_are_about_metrics_and_conditions_that_exist() {
    let rule = read(&format!("{GOLDEN}/everything.yaml"));
    let metrics = operator::runtime::metrics::Metrics::default();
    let mut dns = crds::ClusterDNS::default();
    dns.metadata.name = Some("a".to_owned());
    let condition = serde_json::json!({"type": "Ready", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = serde_json::from_value(serde_json::json!({"conditions": [condition]}));
    metrics.reported(&dns, &status.expect("a status"));
    let page = String::from_utf8(metrics.page(Form::Text)).expect("text");
    let expressions = rule.lines().filter(|line| line.trim_start().starts_with("expr: "));
    let mut count = 0;
    for expression in expressions {
        count += 1;
        let metric = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metric =
            metric.into_iter().find(|word| word.starts_with("clusterdns_")).expect("a metric");
        assert!(page.contains(&format!("# HELP {metric} ")), "{metric}\n{page}");
        for rest in expression.split("condition=\"").skip(1) {
            let condition = rest.split('"').next().unwrap_or_default();
            assert!(operator::report::status::CONDITIONS.contains(&condition), "{condition}");
        }
    }
    assert_eq!(count, 7, "{rule}");
}

#[test]
fn a_service_monitor_in_place_of_a_pod_monitor_has_a_service_to_select() {
    let text = read(&format!("{GOLDEN}/service-monitor.yaml"));
    let objects = objects(&text);
    let monitor = object(&objects, "ServiceMonitor", "clusterdns-operator");
    let service = object(&objects, "Service", "clusterdns-operator");
    let labels = service["metadata"]["labels"].as_object().expect("labels");
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels") {
        assert_eq!(labels.get(key), Some(value), "{key}");
    }
    assert_eq!(monitor["metadata"]["labels"]["release"], "monitoring");
    assert_eq!(monitor["spec"]["endpoints"][0]["interval"], "1m");
    let port = &monitor["spec"]["endpoints"][0]["port"];
    assert_eq!(port, &service["spec"]["ports"][0]["name"]);
    let deployment = object(&objects, "Deployment", "clusterdns-operator");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let both = ["--set", "metrics.podMonitor=true", "--set", "metrics.serviceMonitor=true"];
    let Some(helm) = helm() else { return };
    let refusal = template(&helm, &both).expect_err("both would scrape twice");
    assert!(refusal.contains("choose one"), "{refusal}");
}

#[test]
fn the_plain_manifests_name_the_image_in_one_place() {
    let kustomization: Value =
        serde_saphyr::from_str(&read("charts/manifests/kustomization.yaml")).expect("YAML");
    let written = &kustomization["images"][0];
    let objects = objects(&read("charts/manifests/operator.yaml"));
    let operator = &object(&objects, "Deployment", "clusterdns-operator")["spec"]["template"];
    let container = &operator["spec"]["containers"][0];
    let image = container["image"].as_str().expect("an image");
    assert_eq!(image, format!("{}:{}", text(&written["name"]), text(&written["newTag"])));
    // The replaced flag is the one that names the image of the data plane.
    let target = &kustomization["replacements"][0]["targets"][0];
    let field = text(&target["fieldPaths"][0]);
    let at: usize = field.rsplit('.').next().and_then(|at| at.parse().ok()).expect("a number");
    assert_eq!(text(&container["args"][at]), format!("--dataplane-image={image}"));
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
