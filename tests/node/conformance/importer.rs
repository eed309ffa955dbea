//! Some tests of Kubernetes write the ConfigMap of kube-dns and expect the DNS server to read it. ClusterDNS reads no such
//! ConfigMap; `clusterdns-operator import` makes a ClusterDNS of one. This is the loop around it that a cluster would have in
//! which the ConfigMap is still what people edit.

use std::process::Command;

use serde_json::{Value, json};
use tests::kubelet::program;

use crate::installed::DNS_NAMESPACE;
use crate::site::Site;

/// Keeps the ClusterDNS what the ConfigMap says.
pub(super) struct Importer<'s> {
    site: &'s Site,
    /// What is right while there is no ConfigMap: made of the Corefile of the cluster.
    without: String,
    /// The keys of the ConfigMap that was imported last.
    imported: Value,
}

impl Importer<'_> {
    /// Imports what CoreDNS runs with, and applies it.
    pub(super) fn of_the_cluster(site: &Site) -> Importer<'_> {
        let kubeconfig = site.kubeconfig.display().to_string();
        let without = import(&["--from-cluster", "--kubeconfig", &kubeconfig]);
        site.tools.apply(&without).ok();
        Importer { site, without, imported: Value::Null }
    }

    /// Imports the ConfigMap if it was written, changed or deleted since the last time.
    pub(super) fn follow(&mut self) {
        let get = "get configmap kube-dns --ignore-not-found --output=json";
        let found = self.site.does(&format!("{get} --namespace {DNS_NAMESPACE}"));
        let Some(text) = found else { return };
        let map: Value = serde_json::from_str(&text).unwrap_or_default();
        let keys = map["data"].clone();
        if keys == self.imported {
            return;
        }
        let dns = match keys.is_null() {
            true => self.without.clone(),
            false => {
                let folder = self.site.tools.folder();
                let file = folder.join("kube-dns.json");
                std::fs::write(&file, &text).expect("the folder is ours");
                import(&["--kube-dns-config", &file.display().to_string()])
            }
        };
        self.site.tools.apply(&dns).ok();
        self.site.say(&format!("imported {keys}"));
        self.imported = keys;
    }
}

/// The ClusterDNS that it prints. All pods take an edit at once: tried by one pod first, it would be in that one alone when a
/// test has seen it and ends.
fn import(arguments: &[&str]) -> String {
    let mut command = Command::new(program("clusterdns-operator"));
    command.args(["import", "--output=json"]).args(arguments);
    let output = command.output().expect("the operator runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "import {arguments:?}: {said}");
    let mut dns: Value = serde_json::from_slice(&output.stdout).expect("a ClusterDNS");
    dns["spec"]["rollout"] = json!({"canary": false});
    dns.to_string()
}
