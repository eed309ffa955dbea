//! `helm install` on a real node: kubelet and runc start both programs as Pod Security `restricted` wants them, and what
//! the manifests promise about users, capabilities and ports is so in the processes.

use std::path::Path;

use serde_json::Value;
use tests::node::{BUSYBOX, CLUSTER_DNS, OURS_NAME, OURS_TAG, Release};

use crate::several;
use crate::site::{Site, text};

/// Where the operator is, and what its pods are called.
pub(crate) const SYSTEM: &str = "clusterdns-system";
pub(crate) const OPERATORS: &str = "app.kubernetes.io/name=clusterdns-operator";
pub(crate) const DNS_NAMESPACE: &str = "kube-system";
pub(crate) const DNS_PODS: &str = "clusterdns.dev/instance=default";
pub(crate) const REPLICAS: usize = 2;

pub(crate) fn cluster_dns(service: &str) -> String {
    format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: default}}\nspec:\n  service: {service}\n"
    )
}

/// What is installed on these nodes: on the addresses that their kubelets give to pods.
pub(crate) fn usual(site: &Site) -> String {
    match site.is_dual_stack() {
        true => several::cluster_dns(REPLICAS),
        false => cluster_dns(&format!("{{clusterIPs: [{CLUSTER_DNS}]}}")),
    }
}

/// The packaged chart, with the image that the node has: those of a release if one is given.
pub(crate) fn install(site: &Site) {
    release(site, "install", &[]);
}

/// `helm install` or `helm upgrade` of the chart, with these values besides.
pub(crate) fn release(site: &Site, verb: &str, values: &[&str]) {
    let image = match Release::given() {
        Some(release) => {
            let digest = release.digest().expect("a whole release");
            let version = release.version().expect("a whole release");
            format!("image.digest={digest},image.tag={version}")
        }
        None => format!("image.tag={OURS_TAG}"),
    };
    release_of(site, verb, &site.chart, &[&[image.as_str()], values].concat());
}

/// The same of another packaged chart.
pub(crate) fn release_of(site: &Site, verb: &str, chart: &Path, values: &[&str]) {
    let repository = format!("image.repository={OURS_NAME}");
    let test = format!("test.image={BUSYBOX}");
    let chart = chart.display().to_string();
    let mut words = vec![verb, "clusterdns", &chart, "--namespace", SYSTEM];
    let sets = [&[repository.as_str(), test.as_str()], values].concat();
    words.extend(sets.into_iter().flat_map(|set| ["--set", set]));
    site.tools.helm(&words).ok();
}

pub(crate) async fn helm_installs_what_runs_as_restricted(site: &Site) {
    site.kubectl(&format!("create namespace {SYSTEM}"));
    only_restricted_pods(site);
    install(site);
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    site.say("two operator pods are ready");
    site.tools.apply(&usual(site)).ok();
    site.until_condition("Ready", "True", "Serving").await;
    let pods = site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    site.say("the ClusterDNS is Ready, with two pods");
    for pod in &pods {
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod:#}");
    }
    all_run_as_restricted(site).await;
}

/// From now on the namespaces take no other pods.
pub(crate) fn only_restricted_pods(site: &Site) {
    for namespace in [SYSTEM, DNS_NAMESPACE] {
        let label = "pod-security.kubernetes.io/enforce=restricted";
        site.kubectl(&format!("label namespace {namespace} {label}"));
    }
}

/// Operators and data planes, as their processes are.
pub(crate) async fn all_run_as_restricted(site: &Site) {
    let operators = site.until_ready(SYSTEM, OPERATORS, 2).await;
    for pod in &operators {
        is_restricted(site, pod);
    }
    if let Some(release) = Release::given() {
        let digest = release.digest().expect("a whole release");
        for pod in &operators {
            let image = text(pod, "/spec/containers/0/image");
            assert_eq!(image, format!("{OURS_NAME}@{digest}"), "the image of the release");
        }
        site.say(&format!("they are of the release, {digest}"));
    }
    for pod in &site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await {
        is_restricted(site, pod);
        listens_on_port_53(&site.network_of(pod));
    }
}

/// As the kernel sees the process.
fn is_restricted(site: &Site, pod: &Value) {
    let container = text(pod, "/status/containerStatuses/0/containerID");
    let status = site.node_of(pod).process_status(container);
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in\n{status}")).trim().to_owned()
    };
    assert_eq!(field("Uid").split_whitespace().collect::<Vec<_>>(), ["65532"; 4], "{status}");
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"] {
        assert_eq!(field(set), "0000000000000000", "{set}\n{status}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    // A filter, which only RuntimeDefault brings here.
    assert_eq!(field("Seccomp"), "2", "{status}");
}

fn listens_on_port_53(network: &Path) {
    let mut command = std::process::Command::new("nsenter");
    command.arg(format!("--net={}", network.display()));
    let sockets = command.args(["ss", "-H", "-l", "-n", "-u", "-t"]).output().expect("ss");
    let sockets = String::from_utf8_lossy(&sockets.stdout).into_owned();
    for kind in ["udp", "tcp"] {
        let mut lines = sockets.lines().filter(|line| line.starts_with(kind));
        assert!(lines.any(|line| line.contains(":53 ")), "{kind}\n{sockets}");
    }
}
