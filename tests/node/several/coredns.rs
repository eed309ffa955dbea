//! CoreDNS as kubeadm installs it, with a Service of its own beside ours, so that both meet the same fault in the same run.

use tests::node::COREDNS;

use crate::site::Site;

pub(super) const PODS: &str = "k8s-app=coredns-beside";
pub(super) const CLUSTER_IP: &str = "10.96.0.11";

pub(super) fn start(site: &Site) {
    let manifest = include_str!("../coredns.yaml");
    let manifest = manifest
        .replace("kube-dns", "coredns-beside")
        .replace("{image}", COREDNS)
        .replace("{cluster_dns}", CLUSTER_IP);
    site.tools.apply(&manifest).ok();
}
