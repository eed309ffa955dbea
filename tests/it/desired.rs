//! What should exist for each example, as golden files (`UPDATE_EXPECT=1` writes them), and what must hold of all of
//! it, with any spec.

mod workload;
mod on_trial;
mod service;
mod configuration;
mod rights;
mod network;

use std::path::{Path, PathBuf};
use std::{env, fs};

use crds::{ClusterDNS, Config};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use operator::decide::plan::{Plan, RolloutPlan, RolloutState, ServicePlan, Size};
use operator::desired::{Desired, Kind};
use operator::observe::observed::{Certificate, DnsService, Observed, Offers};
use operator::offline;
use operator::settings::{DataPlane, Settings};
use serde::de::DeserializeOwned;

/// The settings of the operator in these tests.
fn settings() -> Settings {
    Settings {
        dataplane: DataPlane {
            image: "registry.example/clusterdns:test".to_owned(),
            ..DataPlane::default()
        },
        workload_namespaces: vec!["kube-system".to_owned()],
        own_namespace: Some("clusterdns-system".to_owned()),
        runbooks: Some("https://docs.example.com/runbooks".to_owned()),
        ..Settings::default()
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A ClusterDNS with this spec.
pub(crate) fn dns(spec: &str) -> ClusterDNS {
    let text = format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: default, uid: 11111111-2222-3333-4444-555555555555}}\nspec: {spec}\n"
    );
    crds::manifest::read(&text, "this test").unwrap_or_else(|error| panic!("{error}")).0
}

/// Every example: its name, and what it is.
fn examples() -> Vec<(String, ClusterDNS)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder("../crds/examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (mut dns, _) = crds::manifest::read(&fs::read_to_string(path).unwrap(), &name).unwrap();
        dns.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
        (name, dns)
    };
    files.into_iter().map(read).collect()
}

/// Decisions for a test that is about something else.
fn plan(config: &Config) -> Plan {
    let state = RolloutState { stable: config.revision(), ..RolloutState::default() };
    let rollout = RolloutPlan { stable: config.to_json(), state, ..RolloutPlan::default() };
    Plan { service: ServicePlan::Own, size: Size::Replicas(3), rollout, budget: true }
}

/// A cluster for a test that is about something else.
pub(crate) fn observed() -> Observed {
    let offers =
        Offers { pod_monitor: true, prometheus_rule: true, minor: 36, ..Offers::default() };
    // The Secret of the examples.
    let certificates = [("dns-tls".to_owned(), Certificate::Usable)].into();
    Observed { offers, certificates, ..Observed::default() }
}

/// What should exist, with these decisions.
pub(crate) fn desired(
    dns: &ClusterDNS,
    observed: &Observed,
    decide: impl FnOnce(&mut Plan),
) -> Desired {
    desired_by(&settings(), dns, observed, decide)
}

/// The same by an operator that was started otherwise.
pub(crate) fn desired_by(
    settings: &Settings,
    dns: &ClusterDNS,
    observed: &Observed,
    decide: impl FnOnce(&mut Plan),
) -> Desired {
    let config = crds::check_resource(dns).unwrap_or_else(|violations| panic!("{violations}"));
    let mut plan = plan(&config);
    decide(&mut plan);
    Desired::build(dns, &config, observed, &plan, settings)
}

/// The object of this kind.
fn object<K: DeserializeOwned>(desired: &Desired, kind: Kind) -> K {
    let object = desired.get(kind).unwrap_or_else(|| panic!("no {kind:?}"));
    serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()
}

/// The pod template of the workload, of any kind.
fn template(desired: &Desired) -> PodTemplateSpec {
    match desired.get(Kind::Deployment) {
        Some(_) => object::<Deployment>(desired, Kind::Deployment).spec.unwrap().template,
        None => object::<DaemonSet>(desired, Kind::DaemonSet).spec.unwrap().template,
    }
}

fn pod(desired: &Desired) -> PodSpec {
    template(desired).spec.unwrap()
}

/// Every example with every kind of scaling: what must hold for each must hold for all.
fn all() -> Vec<(String, ClusterDNS, Desired)> {
    let autoscaled = Size::Autoscaled {
        min: 2,
        max: 9,
        cpu_millicores: 300,
        queries_per_second: Some(1000),
        hold: None,
    };
    let mut all = Vec::new();
    for (name, dns) in examples() {
        for size in [Size::Replicas(3), autoscaled, Size::PerNode] {
            let desired = desired(&dns, &observed(), |plan| plan.size = size);
            all.push((format!("{name}, {size:?}"), dns.clone(), desired));
        }
    }
    all
}

/// Compares with a file; `UPDATE_EXPECT=1` writes it.
pub(crate) fn is_golden(path: &str, text: &str) {
    let path = folder("golden").join(path);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{} has changed: UPDATE_EXPECT=1 cargo test -p tests --test it desired, and read the difference\n{text}",
        path.display()
    );
}

#[test]
fn every_example_has_its_golden_objects() {
    let examples = examples();
    assert!(examples.len() >= 9, "examples went missing");
    for (name, dns) in &examples {
        let text =
            offline::rendered(dns, &settings()).unwrap_or_else(|why| panic!("{name}: {why}"));
        is_golden(&format!("desired/{name}.yaml"), &text);
    }
    let golden = fs::read_dir(folder("golden/desired")).unwrap().count();
    assert_eq!(golden, examples.len(), "a golden file without an example");
}

#[test]
fn objects_come_in_the_order_of_application_each_once_with_labels_and_owner() {
    for (name, dns, desired) in all() {
        assert!(desired.objects.is_sorted_by(|(one, _), (next, _)| one < next), "{name}");
        for (kind, object) in &desired.objects {
            let types = object.types.as_ref().expect("apiVersion and kind");
            assert_eq!(types.kind, format!("{kind:?}"), "{name}");
            let labels = object.metadata.labels.as_ref().expect("labels");
            assert_eq!(labels.get("clusterdns.dev/instance"), dns.metadata.name.as_ref(), "{name}");
            let [owner] = &object.metadata.owner_references.clone().expect("an owner")[..] else {
                panic!("{name}: {kind:?} has more than one owner")
            };
            assert_eq!(
                (owner.kind.as_str(), Some(&owner.uid)),
                ("ClusterDNS", dns.metadata.uid.as_ref())
            );
            assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
            assert!(object.metadata.name.as_ref().is_some_and(|name| name.len() <= 63), "{name}");
        }
    }
}
