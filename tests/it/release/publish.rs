//! What goes to a registry: to one that can be used, which the workflow looks at first, and only what arrived counts.

use std::fs;

use serde_json::json;

use super::contents::{has, installed};
use super::layers;
use super::{Tree, ran};
use crate::architecture::read;

/// A registry that has nothing: notes the digest of what it copies where `publish` looks for it.
const SKOPEO: &str = r#"[ "$1" != inspect ] || { echo 'reading manifest: manifest unknown' >&2; exit 1; }
for word in "$@"; do case $word in */publish/image) echo sha256:1d >"$word" ;; esac; done"#;

#[test]
fn a_workflow_stops_at_once_without_a_registry_that_can_be_used() {
    let tree = Tree::new();
    let check = |registry: Option<&str>| {
        let mut check = tree.step("check", "1.2.3");
        ran(check.env("GITHUB_ACTIONS", "true").envs(registry.map(|it| ("REGISTRY", it))))
    };
    for (registry, says) in [
        (None, "REGISTRY is not set"),
        (Some(""), "REGISTRY is not set"),
        (Some("https://registry.example.com/dns"), "without https://"),
        (Some("registry.example.com/dns/"), "without the / at its end"),
        (Some("registry.example.com/Some-One/DNS"), "write registry.example.com/some-one/dns"),
        (Some("docker.io/someone"), "names in Docker Hub have two parts only"),
        (Some("docker.io"), "names in Docker Hub have two parts only"),
        (Some("index.docker.io"), "names in Docker Hub have two parts only"),
        (Some("registry-1.docker.io/someone/dns"), "names in Docker Hub have two parts only"),
        (Some("ghcr.io"), "ghcr.io, without a path"),
        (Some("registry.example.com:5000"), "without a path"),
        (Some("someone"), "someone, without a path"),
        (Some("someone/dns"), "someone is no host"),
    ] {
        let (passed, text) = check(registry);
        assert!(!passed && text.contains(says), "{registry:?}: {text}");
    }
    let usable = ["registry.example.com:5000/some-one/dns", "ghcr.io/someone", "localhost/dns"];
    for registry in usable.iter().chain(&["registry:5000/dns"]) {
        let (passed, text) = check(Some(registry));
        assert!(passed, "{registry}: {text}");
    }
    let (passed, text) = tree.check("1.2.3");
    assert!(passed, "without a workflow nothing is published: {text}");
}

/// A fork names its registry in one place, from which people install.
#[test]
fn a_workflow_publishes_where_the_first_page_installs_from() {
    let tree = Tree::new();
    let digests = |variables: &[(&str, &str)]| {
        let mut digests = tree.step("digests", "1.2.3");
        ran(digests.envs(variables.iter().copied()))
    };
    let (passed, text) = digests(&[("REGISTRY", "ghcr.io/someone")]);
    assert!(!passed && !text.contains("image="), "nothing was pushed: {text}");
    for name in ["image", "chart"] {
        tree.write(&format!("target/release-1.2.3/publish/{name}"), "sha256:1d\n");
    }
    let readme =
        |registry: &str| format!("# It\n\n```console\n$ REGISTRY={registry} VERSION=1.2.3\n```\n");
    tree.write("README.md", &readme("ghcr.io/someone"));
    let (passed, text) = digests(&[("GITHUB_ACTIONS", "true")]);
    assert!(passed && text.contains("registry=ghcr.io/someone\n"), "{text}");
    let (passed, text) = digests(&[]);
    assert!(!passed && text.contains("REGISTRY is not set"), "only in a workflow: {text}");
    tree.write("README.md", &readme("registry.example.com/clusterdns"));
    let (passed, text) = digests(&[("GITHUB_ACTIONS", "true")]);
    assert!(!passed && text.contains("that of the example"), "{text}");
    assert!(!read(".github/workflows/release.yml").contains("vars.REGISTRY }}"), "one place");
}

/// Runs `publish` with this helm: whether it passed, what it wrote, and which digest of the chart it took.
fn published(helm: &str) -> (bool, String, String) {
    let tree = Tree::new();
    tree.write("target/release-1.2.3/image-digest.txt", "sha256:1d\n");
    tree.executable("tests/tools/build", "echo helm");
    let mut publish = tree.step_with(&[("skopeo", SKOPEO), ("helm", helm)], "publish");
    let (passed, text) = ran(publish.env("REGISTRY", "registry.example.com/dns"));
    let digest = tree.path().join("target/release-1.2.3/publish/chart");
    (passed, text, fs::read_to_string(digest).unwrap_or_default())
}

#[test]
fn a_chart_that_the_registry_does_not_take_stops_the_release() {
    let (passed, text, _) = published("echo 'Error: denied: who are you?' >&2; exit 1");
    assert!(!passed && text.contains("does not push the chart to oci://registry.example.com/dns"));
    assert!(text.contains("denied: who are you?"), "{text}");
    let (passed, text, _) = published("echo 'Pushed: something'");
    assert!(!passed && text.contains("which digest") && text.contains("Pushed: something"));
    let (passed, text, digest) = published("echo Pushed: something; echo Digest: sha256:2e >&2");
    assert!(passed && text.contains("chart sha256:2e"), "{text}");
    assert_eq!(digest, "sha256:2e\n");
}

/// Runs `publish` of an image whose index is the text `index` and a chart whose archive is the text `archive`. The registry
/// answers for each with what these lines of shell write; `copy` and `push` are said where something is pushed.
fn published_over(image: &str, chart: &str) -> (bool, String) {
    let tree = Tree::new();
    let out = "target/release-1.2.3";
    tree.executable("tests/tools/build", "echo helm");
    tree.write(&format!("{out}/chart/clusterdns-1.2.3.tgz"), "archive");
    tree.write(&format!("{out}/image-digest.txt"), &(digest("index") + "\n"));
    let skopeo = format!(
        r#"case $* in
            inspect*--format*) git rev-parse HEAD; exit ;;
            inspect*/charts/clusterdns:1.2.3) {chart}; exit ;;
            inspect*/clusterdns:1.2.3) {image}; exit ;;
        esac
        echo "copy $*"
        for word in "$@"; do case $word in */publish/image) cat {out}/image-digest.txt >"$word" ;; esac; done"#
    );
    let helm = r#"echo "push $*" >&2; echo Digest: sha256:2e"#;
    let mut publish = tree.step_with(&[("skopeo", skopeo.as_str()), ("helm", helm)], "publish");
    let (passed, mut text) = ran(publish.env("REGISTRY", "registry.example.com/dns"));
    let said = fs::read_to_string(tree.path().join(out).join("publish/helm.txt"));
    text.push_str(&said.unwrap_or_default());
    (passed, text)
}

/// The digest of a text, as registries write it.
fn digest(text: &str) -> String {
    format!("sha256:{}", layers::digest(text.as_bytes()))
}

const ABSENT: &str = "echo 'reading manifest 1.2.3: manifest unknown' >&2; false";
const SAME_IMAGE: &str = "printf index";

/// What the registry has for a chart with this archive.
fn chart_of(archive: &str) -> String {
    let kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let layers = json!({"layers": [{"mediaType": kind, "digest": digest(archive)}]});
    format!("echo '{layers}'")
}

fn pushes(text: &str) -> (bool, bool) {
    (text.contains("copy copy --all"), text.contains("push push"))
}

/// Nodes that have an image do not pull it again, so a tag that was moved must not change it.
#[test]
fn a_version_that_is_published_is_never_published_with_other_octets() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    for (image, chart) in [
        ("printf other", ABSENT),
        (SAME_IMAGE, chart_of("other").as_str()),
        (ABSENT, chart_of("other").as_str()),
    ] {
        let (passed, text) = published_over(image, chart);
        assert!(!passed && text.contains("is published already with other octets"), "{text}");
        assert!(text.contains("from this commit, so something else has changed"), "{text}");
        assert!(text.contains("release the next version. If no one has it yet"), "{text}");
        assert_eq!(pushes(&text), (false, false), "nothing is pushed: {text}");
    }
}

#[test]
fn a_release_that_stopped_half_way_is_finished_by_a_run_of_the_same_octets() {
    if !has(&installed("jq"), "install jq") {
        return;
    }
    let same = chart_of("archive");
    for (image, chart, pushed) in [
        (ABSENT, ABSENT, (true, true)),
        (SAME_IMAGE, ABSENT, (false, true)),
        (ABSENT, same.as_str(), (true, false)),
        (SAME_IMAGE, same.as_str(), (false, false)),
    ] {
        let (passed, text) = published_over(image, chart);
        assert!(passed, "{image}, {chart}: {text}");
        assert_eq!(pushes(&text), pushed, "{image}, {chart}: {text}");
        assert!(text.contains(&format!("image {}, chart sha256:", digest("index"))), "{text}");
    }
}

/// A registry that does not answer may have the version.
#[test]
fn only_a_registry_that_says_so_does_not_have_a_version() {
    let says = |what: &str| format!("echo 'reading manifest 1.2.3 in r: {what}' >&2; false");
    for absent in [
        "manifest unknown: The named manifest is not known to the registry.",
        "name unknown: repository name not known to registry",
        "unknown: artifact dns/clusterdns:1.2.3 not found",
        "unknown: repository dns/clusterdns not found",
        "StatusCode: 404, no page",
    ] {
        let (passed, text) = published_over(&says(absent), &says(absent));
        assert!(passed && pushes(&text) == (true, true), "{absent}: {text}");
    }
    for unclear in [
        "Get https://r/v2/: net/http: TLS handshake timeout",
        "received unexpected HTTP status: 503 Service Unavailable",
        "unauthorized: authentication required",
        "denied: requested access to the resource is denied",
        "dial tcp: lookup r: no such host",
        "executable file not found in $PATH",
    ] {
        for (image, chart) in [(says(unclear).as_str(), ABSENT), (ABSENT, &says(unclear))] {
            let (passed, text) = published_over(image, chart);
            assert!(!passed && text.contains(unclear), "{unclear}: {text}");
            assert!(text.contains("not known whether registry.example.com/dns/"), "{text}");
            assert_eq!(pushes(&text), (false, false), "nothing is pushed: {text}");
        }
    }
}
