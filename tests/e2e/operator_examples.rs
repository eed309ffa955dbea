//! What we show people works: every example becomes Ready in a real cluster, and `check --cluster` knows that cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tests::cluster::{Cluster, NAMESPACE};
use tests::control_plane::{ControlPlane, Setup};
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Play, Settings, program};
use tests::netns::inside;
use tests::objects::wait_for;
use tests::operator::{MONITORING_KINDS, OLD_SERVICE, Operator, children};

fn examples() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples");
    let files = std::fs::read_dir(folder).expect("the examples");
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    let with_text = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("an example");
        (path, text)
    };
    files.into_iter().map(with_text).collect()
}

#[test]
fn every_example_becomes_ready_and_goes_again() {
    inside(async || {
        let pretend = |_: &Pod| Play::Pretend { ready_after: Some(Duration::ZERO) };
        let settings = Settings { play: Box::new(pretend), ..Settings::default() };
        let nodes =
            FakeNode::several("node", 3).into_iter().map(|node| node.label("pool", "infra"));
        let nodes: Vec<FakeNode> = nodes.collect();
        let Some(cluster) = Cluster::start(&nodes, settings).await else { return };
        cluster.install_resource();
        cluster.tools.apply(MONITORING_KINDS).ok();
        let authority =
            rcgen::generate_simple_self_signed(["corp".to_owned()]).expect("a certificate");
        let bundle = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "corp-ca", "namespace": NAMESPACE}, "data": {"ca.crt": authority.cert.pem()}});
        cluster.tools.apply(&bundle.to_string()).ok();
        let certificate = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "dns-tls", "namespace": NAMESPACE,
                "labels": {"clusterdns.dev/certificate": "true"}},
            "stringData": {"tls.crt": "", "tls.key": ""}});
        cluster.tools.apply(&certificate.to_string()).ok();
        let _operator = Operator::start(cluster.plane.kubeconfig(), NAMESPACE);

        for (path, text) in examples() {
            let file = path.to_str().expect("a path in UTF-8");
            let mut written = text.lines().filter(|line| !line.starts_with('#'));
            let is_adopted = written.any(|line| line.contains("adopt: true"));
            if is_adopted {
                cluster.tools.apply(OLD_SERVICE).ok();
            }
            cluster.tools.kubectl(&["apply", "--server-side", "--filename", file]).ok();
            let name = if text.contains("name: trial") { "trial" } else { "default" };
            // It is ready before the last of its pods is.
            wait_for(&format!("all pods of {file}"), async || {
                let dns = cluster.wait_until_ready(name).await;
                let replicas = &dns["status"]["replicas"];
                let is_enough = replicas["desired"].as_u64() >= Some(2);
                (is_enough && replicas["ready"] == replicas["desired"]).then_some(())
            })
            .await;
            let table = cluster.tools.kubectl(&["get", "cdns", "--no-headers"]).ok();
            let row: Vec<&str> = table.split_whitespace().collect();
            assert_eq!(
                row[..3],
                // Accepted and Ready.
                [name, "True", "True"],
                "{table}"
            );

            wait_for(&format!("the PodMonitor of {file}, by the older schema"), async || {
                let monitors = ["get", "podmonitors", "--all-namespaces", "--output=name"];
                (!cluster.tools.kubectl(&monitors).ok().is_empty()).then_some(())
            })
            .await;

            cluster.tools.kubectl(&["delete", "clusterdns", name, "--timeout=60s"]).ok();
            wait_for(&format!("nothing of {file}"), async || {
                let left = children(&cluster.client, NAMESPACE, name).await;
                (left.is_empty() && cluster.kubelet.pods(NAMESPACE).is_empty()).then_some(())
            })
            .await;
            if is_adopted {
                let selector = [
                    "get",
                    "service",
                    "kube-dns",
                    "--namespace",
                    NAMESPACE,
                    "--output=jsonpath={.spec.selector}",
                ];
                wait_for("its Service is given back", async || {
                    (cluster.tools.kubectl(&selector).ok() == r#"{"k8s-app":"kube-dns"}"#)
                        .then_some(())
                })
                .await;
                cluster
                    .tools
                    .kubectl(&["delete", "service", "kube-dns", "--namespace", NAMESPACE])
                    .ok();
            }
        }
    });
}

/// What `check` said, and how it ended.
fn check(kubeconfig: &Path, file: &Path) -> (String, Option<i32>) {
    let output = Command::new(program("clusterdns-operator"))
        .args(["check", "--cluster", "--kubeconfig"])
        .arg(kubeconfig)
        .arg("-f")
        .arg(file)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text + &String::from_utf8_lossy(&output.stderr), output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_with_a_cluster_knows_which_address_its_kubelets_hand_out() {
    let Some(mut plane) = ControlPlane::start(Setup::default()).await else { return };
    let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
    let file = |name: &str, spec: &str| {
        let path = tools.folder().join(name);
        let text = format!(
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata:\n  name: default\nspec:\n  \
             reverseCIDRs: [10.96.0.0/16]\n  podRecords: Disabled\n{spec}"
        );
        std::fs::write(&path, text).expect("the folder is ours");
        path
    };
    let unused = file("unused.yaml", "  service:\n    clusterIPs: [10.96.0.11]\n");
    let used = file("used.yaml", "  service:\n    clusterIPs: [10.96.0.10]\n");
    let kubeconfig = plane.kubeconfig().to_owned();

    // What the kubelets use cannot be read: that is reported, and is no success.
    let (said, code) = check(&kubeconfig, &used);
    assert!(said.contains("neither its kubelets nor kubeadm's ConfigMap kubelet-config"), "{said}");
    assert_eq!(code, Some(2), "{said}");

    // As kubeadm leaves it.
    let configuration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS:\n- 10.96.0.10\n";
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubelet-config", "namespace": NAMESPACE}, "data": {"kubelet": configuration}});
    tools.apply(&map.to_string()).ok();
    let (said, code) = check(&kubeconfig, &unused);
    let warning = "unused.yaml:9: warning: spec.service.clusterIPs: NotUsedByKubelets: kubelets of this cluster make pods ask 10.96.0.10";
    assert!(said.contains(warning), "{said}");
    assert_eq!(code, Some(0), "a warning is no failure: {said}");
    let (said, code) = check(&kubeconfig, &used);
    assert!(said.contains(": 0 errors, 0 warnings"), "{said}");
    assert_eq!(code, Some(0));

    // Files are checked also when the cluster is away.
    let wrong = file("wrong.yaml", "  hosts:\n  - {name: a.example, addresses: [no]}\n");
    plane.stop_api_server();
    let (said, code) = check(&kubeconfig, &wrong);
    assert!(
        said.contains("the cluster (--cluster): ") && said.contains("spec.hosts[0].addresses[0]"),
        "{said}"
    );
    assert_eq!(code, Some(2), "{said}");
}
