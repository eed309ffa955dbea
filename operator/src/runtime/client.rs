//! The client of the API server, and the name by which we are known there.

use std::path::Path;

use kube::Client;
use kube::config::{Config, KubeConfigOptions};
use process::bounded_file::{self, SYSTEM_FILE_OCTETS};
use process::kubeconfig;

use crate::args::Cluster;

/// A client that retries nothing by itself: before a repeated write, leadership would not be checked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    let mut config = config(cluster).await?;
    config.default_retry = false;
    kubeconfig::client(config).map_err(anyhow::Error::msg)
}

/// Where the cluster of these flags is, and as whom it is asked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn config(cluster: &Cluster) -> anyhow::Result<Config> {
    let options =
        KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    let Cluster { kubeconfig: file, context, .. } = cluster;
    let read = match file.is_some() || context.is_some() {
        true => kubeconfig::config(file.as_deref(), &options).await,
        false => kubeconfig::inferred().await.map_err(|error| {
            format!("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod with a service account: {error}")
        }),
    };
    read.map_err(anyhow::Error::msg)
}

/// Who we are, for the lease and Events.
pub fn own_name(given: Option<&str>) -> String {
    let set = |name: Option<String>| name.filter(|name| !name.is_empty());
    let file = Path::new("/proc/sys/kernel/hostname");
    let host = || bounded_file::read_text(file, SYSTEM_FILE_OCTETS).ok();
    set(given.map(str::to_owned))
        .or_else(|| set(std::env::var("POD_NAME").ok()))
        .or_else(|| set(host().map(|name| name.trim().to_owned())))
        .unwrap_or_else(|| "unknown".to_owned())
}
