//! A ClusterDNS that the chart made: what Helm does to fields that kubectl changed, and how the ClusterDNS leaves its
//! release. As docs/upgrading.md and docs/switching.md say it.

use super::{NAMESPACE, Site};

/// Of the ClusterDNS: its TTL and the names of its hosts.
const SPEC: &str = "--output=jsonpath={.spec.ttlSeconds} {.spec.hosts[*].name}";
const ONE: &str = r#"{"name": "one.example", "addresses": ["192.0.2.1"]}"#;
const TWO: &str = r#"{"name": "two.example", "addresses": ["192.0.2.2"]}"#;

fn spec(site: &Site) -> String {
    site.kubectl(&["get", "clusterdns", "default", SPEC])
}

/// A file of a person with this TTL and these hosts.
fn file(ttl: u32, hosts: &str) -> String {
    format!(
        r#"{{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {{"name": "default"}},
            "spec": {{"ttlSeconds": {ttl}, "hosts": [{hosts}]}}}}"#
    )
}

/// `kubectl apply --server-side` of this text, with more flags.
fn apply(site: &Site, text: &str, more: &[&str]) -> tests::helm::Ran {
    std::fs::write(site.tools.folder().join("dns.yaml"), text).expect("the folder is ours");
    let arguments = ["apply", "--server-side", "--filename", "dns.yaml"];
    site.tools.kubectl(&[&arguments[..], more].concat())
}

/// Helm 3 has only this way, and Helm 4 keeps it for a release that Helm 3 installed.
#[tokio::test]
async fn a_release_of_helm_3_leaves_what_kubectl_changed_until_it_is_applied_with_force() {
    let Some(site) = Site::start().await else { return };
    let with_dns = ["--set", "clusterDNS.create=true", "--set", "clusterDNS.spec.ttlSeconds=7"];
    let patch = || {
        let nine = r#"{"spec": {"ttlSeconds": 9}}"#;
        site.kubectl(&["patch", "clusterdns", "default", "--type=merge", "--patch", nine]);
    };
    site.helm("install", &[&with_dns[..], &["--server-side=false"]].concat());
    patch();
    for way in ["--server-side=false", "--server-side=auto"] {
        site.helm("upgrade", &[&with_dns[..], &[way]].concat());
        assert_eq!(spec(&site), "9 ", "{way}");
        let rollback = ["rollback", "clusterdns", "1", "--namespace", NAMESPACE, way];
        site.tools.helm(&rollback).ok();
        assert_eq!(spec(&site), "9 ", "{way}");
    }
    // A value that differs between the two revisions is written.
    let eight = ["--set", "clusterDNS.create=true", "--set", "clusterDNS.spec.ttlSeconds=8"];
    site.helm("upgrade", &eight);
    assert_eq!(spec(&site), "8 ");

    patch();
    let manifest = ["get", "manifest", "clusterdns", "--namespace", NAMESPACE];
    let manifest = site.tools.helm(&manifest).ok();
    apply(&site, &manifest, &["--force-conflicts"]).ok();
    assert_eq!(spec(&site), "8 ");

    patch();
    site.helm("upgrade", &[&eight[..], &["--server-side=true", "--force-conflicts"]].concat());
    assert_eq!(spec(&site), "8 ");
}

/// `helm` owns its fields after that too, until it applies none.
#[tokio::test]
async fn a_clusterdns_that_left_its_release_follows_the_file_of_its_owner() {
    let Some(site) = Site::start().await else { return };
    let spec_of_chart = format!(r#"clusterDNS.spec={{"ttlSeconds": 7, "hosts": [{ONE}]}}"#);
    let with_dns = ["--set", "clusterDNS.create=true", "--set-json", &spec_of_chart];
    site.helm("install", &with_dns);
    site.helm("upgrade", &["--reset-then-reuse-values", "--set", "clusterDNS.create=false"]);
    assert_eq!(spec(&site), "7 one.example");

    // Without what the page says: a conflict, and with force a host that the file does not have.
    let refusal = apply(&site, &file(8, TWO), &[]).refused();
    assert!(refusal.contains(r#"conflict with "helm""#), "{refusal}");
    apply(&site, &file(8, TWO), &["--force-conflicts"]).ok();
    assert_eq!(spec(&site), "8 one.example two.example");

    let nothing = r#"{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "default"}}"#;
    apply(&site, nothing, &["--field-manager=helm"]).ok();
    assert_eq!(spec(&site), "8 two.example");
    apply(&site, &file(9, ""), &[]).ok();
    assert_eq!(spec(&site), "9 ");

    // Back into the release: Helm asks for a flag, and for another one where a value differs.
    site.helm("uninstall", &[]);
    let chart = super::in_repository("charts/clusterdns");
    let install = ["upgrade", "--install", "clusterdns", &chart, "--namespace", NAMESPACE];
    let install = [&install[..], &with_dns].concat();
    let refusal = site.tools.helm(&install).refused();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");
    let take = [&install[..], &["--take-ownership"]].concat();
    assert!(site.tools.helm(&take).refused().contains(r#"conflict with "kubectl""#));
    site.tools.helm(&[&take[..], &["--force-conflicts"]].concat()).ok();
    assert_eq!(spec(&site), "7 one.example");
}
