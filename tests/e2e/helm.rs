//! The chart in a real cluster by the real helm: it installs, upgrades, and leaves what must stay; and its rights, as
//! the API server sees them.

mod namespaces;
mod ownership;
mod people;
mod quota;
mod rights;

use std::collections::BTreeSet;

use tests::control_plane::{ControlPlane, Setup};
use tests::helm::Tools;
use tests::objects::wait_for;

/// Where the operator is installed.
const NAMESPACE: &str = "clusterdns-system";
/// Who the operator is for the API server.
const OPERATOR: &str = "system:serviceaccount:clusterdns-system:clusterdns-operator";

/// A cluster of the test's own, for the chart's objects have fixed names, and the programs that people install with.
struct Site {
    plane: ControlPlane,
    tools: Tools,
}

impl Site {
    /// None, after saying so, when a program has not been built.
    async fn start() -> Option<Site> {
        Site::start_with(&[]).await
    }

    /// The same with these flags of the API server.
    async fn start_with(more: &[String]) -> Option<Site> {
        // As some distributions have it: owner references that block deletion need a right of their own.
        let flag = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned();
        let flags = [&[flag][..], more].concat();
        let setup = Setup { api_server_flags: flags, ..Setup::default() };
        let plane = ControlPlane::start(setup).await?;
        let tools = Tools::new(plane.kubeconfig())?;
        Some(Site { plane, tools })
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.tools.kubectl(arguments).ok()
    }

    fn helm(&self, verb: &str, more: &[&str]) -> String {
        let chart = &in_repository("charts/clusterdns");
        let common: &[&str] = match verb {
            "uninstall" => &["clusterdns", "--namespace", NAMESPACE],
            "install" => &["clusterdns", chart, "--namespace", NAMESPACE, "--create-namespace"],
            _ => &["clusterdns", chart, "--namespace", NAMESPACE],
        };
        self.tools.helm(&[&[verb], common, more].concat()).ok()
    }

    /// Everything in the cluster with our name, as `kind/name`, without Events, which expire by themselves.
    fn ours(&self) -> BTreeSet<String> {
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "--output=name"]);
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let arguments = ["get", &kinds.join(","), "--all-namespaces", "--output=name"];
        let all = self.kubectl(&arguments);
        all.lines().filter(|name| name.contains("clusterdns")).map(str::to_owned).collect()
    }

    async fn wait_until_ours_are(&self, what: &str, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        wait_for(&format!("{what}, of {:?}", self.ours()), async || {
            (self.ours() == wanted).then_some(())
        })
        .await;
    }
}

/// What stays after `helm uninstall`: DNS, what describes it, and the namespace, which Helm never removes.
const KEPT: [&str; 4] = [
    // The API server adds this to the CustomResourceDefinition.
    "apiservice.apiregistration.k8s.io/v1alpha1.clusterdns.dev",
    "clusterdns.clusterdns.dev/default",
    "customresourcedefinition.apiextensions.k8s.io/clusterdnses.clusterdns.dev",
    "namespace/clusterdns-system",
];

#[tokio::test]
async fn helm_installs_upgrades_and_leaves_only_what_keeps_dns_running() {
    let Some(site) = Site::start().await else { return };
    let with_dns = ["--set", "clusterDNS.create=true", "--set", "clusterDNS.spec.ttlSeconds=7"];

    // On a cluster that does not know the resource yet.
    let notes = site.helm("install", &with_dns);
    assert!(notes.contains("kubectl wait --for=condition=Ready"), "{notes}");
    let ttl = ["get", "clusterdns", "default", "--output=jsonpath={.spec.ttlSeconds}"];
    assert_eq!(site.kubectl(&ttl), "7");

    site.helm("upgrade", &[&with_dns[..], &["--set", "replicas=3"]].concat());
    let replicas = ["get", "deployment", "clusterdns-operator", "--namespace", NAMESPACE];
    let replicas = [&replicas[..], &["--output=jsonpath={.spec.replicas}"]].concat();
    assert_eq!(site.kubectl(&replicas), "3");

    // It also stays when it is removed from the values.
    site.helm("upgrade", &[]);
    assert_eq!(site.kubectl(&ttl), "7");

    site.helm("uninstall", &["--wait=legacy"]);
    site.wait_until_ours_are("only what must be kept", &KEPT).await;

    // A release of the same name adopts it again.
    site.helm("install", &with_dns);
    assert_eq!(site.kubectl(&ttl), "7");
    site.helm("uninstall", &["--wait=legacy"]);
    site.wait_until_ours_are("only what must be kept, again", &KEPT).await;
}

#[tokio::test]
async fn s8_the_plain_manifests_install_and_their_pods_are_admitted_as_restricted() {
    let Some(site) = Site::start().await else { return };
    let apply = |how: &str, path: &str| {
        let path = in_repository(path);
        site.kubectl(&["apply", "--server-side", how, &path])
    };
    apply("--filename", "charts/clusterdns/crds");
    apply("--kustomize", "charts/manifests");
    // A second time changes nothing.
    let again = apply("--kustomize", "charts/manifests");
    assert!(again.contains("clusterdns-operator serverside-applied"), "{again}");
    // The image is written in one place; the flag has the same value.
    let other = site.tools.folder().join("other-image");
    std::fs::create_dir(&other).expect("the folder is ours");
    for file in ["namespace.yaml", "operator.yaml", "kustomization.yaml"] {
        let text = std::fs::read_to_string(in_repository(&format!("charts/manifests/{file}")));
        let text = text.expect("it is there");
        let text = text.replace("newName: clusterdns", "newName: registry.example:5000/dns/own");
        std::fs::write(other.join(file), text).expect("the folder is ours");
    }
    let built = site.kubectl(&["kustomize", &other.display().to_string()]);
    let image = format!("registry.example:5000/dns/own:{}", env!("CARGO_PKG_VERSION"));
    assert!(built.contains(&format!("image: {image}\n")), "{built}");
    assert!(built.contains(&format!("- --dataplane-image={image}\n")), "{built}");
    let enforced = ["get", "namespace", NAMESPACE, "--output=jsonpath={.metadata.labels}"];
    assert!(
        site.kubectl(&enforced).contains(r#""pod-security.kubernetes.io/enforce":"restricted""#)
    );
    wait_for("two pods of the operator", async || {
        let pods = site.kubectl(&["get", "pods", "--namespace", NAMESPACE, "--output=name"]);
        (pods.lines().count() == 2).then_some(())
    })
    .await;
    // What `helm test` would run, in the same namespace.
    let test = site.helm("template", &["--show-only", "templates/tests/resolves.yaml"]);
    site.tools.apply(&test).ok();
}

/// A path of this repository, for programs that run elsewhere.
fn in_repository(path: &str) -> String {
    format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn helm_and_kubectl_see_this_cluster_and_nothing_of_the_machine() {
    let Some(tools) = Tools::offline() else { return };
    assert!(tools.helm(&["version"]).ok().contains("v4"));
    let refusal = tools.kubectl(&["get", "namespaces", "--request-timeout=2s"]).refused();
    assert!(!refusal.is_empty());
    let listed = tools.helm(&["repo", "list"]);
    assert!(!listed.success || !listed.stdout.contains("http"), "{listed:?}");
}
