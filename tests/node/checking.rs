//! `clusterdns-operator check --cluster` asks a real kubelet, through the API server, which address it gives to pods.

use std::process::Command;

use tests::kubelet::program;
use tests::node::{CLUSTER_DNS, CLUSTER_DNS_V6};

use crate::installed::cluster_dns;
use crate::site::Site;

/// A clusterIP that no kubelet gives to pods, and no Service has.
const NOT_GIVEN: &str = "10.96.0.13";

pub(crate) fn check_asks_the_kubelet(site: &Site) {
    let fits = check(site, CLUSTER_DNS);
    assert!(!fits.contains("NotUsedByKubelets") && fits.contains(": 0 errors, "), "{fits}");
    let differs = check(site, NOT_GIVEN);
    let warning = differs.lines().find(|line| line.contains("NotUsedByKubelets"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in\n{differs}"));
    let given = match site.is_dual_stack() {
        true => format!("{CLUSTER_DNS} and {CLUSTER_DNS_V6}"),
        false => CLUSTER_DNS.to_owned(),
    };
    assert!(warning.contains(&format!("make pods ask {given},")), "{warning}");
    // There is no kubeadm here: the kubelet itself reported it.
    assert!(site.does("get configmap kubelet-config --namespace kube-system").is_none());
    site.say("check --cluster read clusterDNS from the kubelet");
}

fn check(site: &Site, address: &str) -> String {
    let file = site.tools.folder().join("check.yaml");
    let document = cluster_dns(&format!("{{clusterIPs: [{address}]}}"));
    std::fs::write(&file, document).expect("the folder is ours");
    let mut command = Command::new(program("clusterdns-operator"));
    command.args(["check", "--cluster", "--kubeconfig"]).arg(&site.kubeconfig);
    let output = command.arg("--file").arg(file).output().expect("the operator's program");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}
