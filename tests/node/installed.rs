//! `helm install` on a real node: kubelet and runc start both programs as Pod Security `restricted` wants them, and what
//! the manifests promise about users, capabilities and ports is so in the processes.

use std::path::Path;

use serde_json::Value;
use tests::helm::Tools;
use tests::node::{BUSYBOX, CLUSTER_DNS, OURS_NAME, OURS_TAG};

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

/// The chart, with the image that the node has.
pub(crate) fn install(site: &Site) {
    release(site, "install", &[]);
}

/// `helm install` or `helm upgrade` of the chart, with these values besides.
pub(crate) fn release(site: &Site, verb: &str, values: &[&str]) {
    let image = [format!("image.repository={OURS_NAME}"), format!("image.tag={OURS_TAG}")];
    let test = format!("test.image={BUSYBOX}");
    let chart = Tools::chart();
    let words = [verb, "clusterdns", &chart.display().to_string(), "--namespace", SYSTEM]
        .map(str::to_owned);
    let values = values.iter().copied().map(str::to_owned);
    let sets = image.into_iter().chain([test]).chain(values);
    let sets = sets.flat_map(|set| ["--set".to_owned(), set]);
    site.tools.helm(&words.into_iter().chain(sets).collect::<Vec<_>>()).ok();
}

pub(crate) async fn helm_installs_what_runs_as_restricted(site: &Site) {
    site.kubectl(&format!("create namespace {SYSTEM}"));
    for namespace in [SYSTEM, DNS_NAMESPACE] {
        let label = "pod-security.kubernetes.io/enforce=restricted";
        site.kubectl(&format!("label namespace {namespace} {label}"));
    }
    install(site);
    let operators = site.until_ready(SYSTEM, OPERATORS, 2).await;
    site.say("two operator pods are ready");
    for pod in &operators {
        is_restricted(site, pod);
    }

    site.tools.apply(&cluster_dns(&format!("{{clusterIPs: [{CLUSTER_DNS}]}}"))).ok();
    site.until_condition("Ready", "True", "Serving").await;
    let pods = site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    site.say("the ClusterDNS is Ready, with two pods");
    for pod in &pods {
        is_restricted(site, pod);
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod:#}");
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
