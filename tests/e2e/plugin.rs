//! `kubectl clusterdns` against a real API server, which forwards a port of a pod to a data plane that runs: with the rights
//! of docs/plugin.md, and without them. The kubelet behind it is a small stand-in (`tests::port_forward`).

use std::path::Path;
use std::process::Command;

use tests::control_plane::{ControlPlane, Setup};
use tests::data_plane::DataPlane;
use tests::helm::Tools;
use tests::kubelet::program;
use tests::port_forward::forward_from;

/// A ClusterDNS as the operator left it, its pod, a pod that asks, and two users.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: kube-system}
---
apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {name: default}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: clusterdns-default-a, namespace: kube-system, labels: {clusterdns.dev/instance: default}}
spec:
  nodeName: plugin
  containers: [{name: dns, image: i, ports: [{name: metrics, containerPort: 9153}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: plugin, containers: [{name: web, image: i}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: explain}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clusterdns-explain}
subjects: [{kind: User, name: jane}, {kind: User, name: mallory}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: explain, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: clusterdns-explain}
subjects: [{kind: User, name: jane}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: see-pods, namespace: kube-system}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see-pods, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: see-pods}
subjects: [{kind: User, name: mallory}]
"#;

const READY: &str = r#"{"status": {"phase": "Running", "podIP": "10.244.1.7", "podIPs": [{"ip": "10.244.1.7"}],
    "conditions": [{"type": "Ready", "status": "True"}]}}"#;
const CLUSTER_IPS: &str =
    r#"{"status": {"clusterIPs": ["10.96.0.10"], "domain": "cluster.local"}}"#;

fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rights that the page tells people to give.
fn rights() -> String {
    let page = page("docs/plugin.md");
    let yaml = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    yaml.expect("docs/plugin.md has the rights as YAML").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_reaches_data_planes_with_the_rights_of_its_user() {
    // What controllers would make is among the objects.
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/quickstart");
    let data_plane = DataPlane::of_manifests(&quickstart);
    forward_from(&plane.client().await, "plugin", data_plane.http()).await;
    tools.apply(&page("crds/clusterdns.yaml")).ok();
    tools.wait_until_established("crd/clusterdnses.clusterdns.dev");
    tools.apply(&rights()).ok();
    tools.apply(OBJECTS).ok();
    let patch = |namespace: &str, what: &str, name: &str, status: &str| {
        let to = ["patch", what, name, "--namespace", namespace, "--subresource=status"];
        tools.kubectl(&[&to[..], &["--type=merge", "--patch", status]].concat()).ok();
    };
    patch("kube-system", "pod", "clusterdns-default-a", READY);
    patch("shop", "pod", "web-0", READY);
    patch("default", "clusterdns", "default", CLUSTER_IPS);

    let kubeconfig = plane.kubeconfig().to_owned();
    let plugin = |words: &[&str]| {
        let output = Command::new(program("kubectl-clusterdns"))
            .args(words)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .output()
            .expect("it runs");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };

    let (text, why, code) = plugin(&["explain", "db.data", "--from", "shop/web-0", "--as", "jane"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("asked of  pod kube-system/clusterdns-default-a\n"), "{text}");
    assert!(
        text.contains("resolver  nameserver 10.96.0.10; search shop.svc.cluster.local "),
        "{text}"
    );
    assert!(
        text.ends_with("found as db.data.svc.cluster.local. after 4 questions and 2 names\n"),
        "{text}"
    );
    let (text, why, code) = plugin(&["status", "--as", "jane"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(
        text.starts_with("ClusterDNS default, generation 1: cluster.local at 10.96.0.10\n"),
        "{text}"
    );
    assert!(
        text.contains("clusterdns-default-a  plugin  ready") && !text.contains("not asked"),
        "{text}"
    );

    // Without the one right, each command names the pod and the right.
    let (_, why, code) = plugin(&["explain", "cart", "--from", "shop/web-0", "--as", "mallory"]);
    assert_eq!(code, Some(1), "{why}");
    let missing = "pod kube-system/clusterdns-default-a cannot be reached: you need the rights to get and create pods/portforward";
    assert!(why.contains(missing), "{why}");
    let (text, _, code) = plugin(&["status", "--as", "mallory"]);
    assert_eq!(code, Some(0), "what the API server knows is shown");
    assert!(text.contains(&format!("not asked  {missing}")), "{text}");
    let (_, why, code) = plugin(&["status", "--as", "stranger"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("you need the rights to get and list clusterdnses"), "{why}");

    for (words, says) in [
        (&["explain", "cart", "--from", "shop/gone"][..], "there is no pod shop/gone"),
        (&["explain", "cart", "--from", "a/b/c"], "write NAMESPACE/POD"),
        (&["status", "--clusterdns", "other"], "there is no ClusterDNS other: there are default"),
        (&["explain", "cart", "--pod", "x"], "--pod x is no pod of this ClusterDNS"),
        (&["status", "--context", "none"], "cannot use the kubeconfig"),
    ] {
        let (_, why, code) = plugin(words);
        assert_eq!(code, Some(1), "{words:?}");
        assert!(why.contains(says), "{why}");
    }
}
