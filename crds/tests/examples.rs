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
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let missing: Vec<_> =
        schema.as_object().expect("fields").keys().filter(|key| spec.get(key).is_none()).collect();
    assert_eq!(missing, Vec::<&String>::new());
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
