//! The client of the API server, and the name by which we are known there.

use std::path::Path;

use anyhow::anyhow;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use process::bounded_file::{self, KUBECONFIG_OCTETS, SYSTEM_FILE_OCTETS};

use crate::args::Cluster;

/// A client that retries nothing by itself: before a repeated write, leadership would not be checked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    let mut config = config(cluster).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Where the cluster of these flags is, and as whom it is asked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn config(cluster: &Cluster) -> anyhow::Result<Config> {
    let options =
        KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    // As one text: these errors already contain the text of their cause.
    match &cluster.kubeconfig {
        Some(file) => {
            let unusable = |error| anyhow!("cannot use the kubeconfig {}: {error}", file.display());
            bounded_file::check_size(file, KUBECONFIG_OCTETS)
                .map_err(|error| anyhow!("cannot use the kubeconfig {}: {error}", file.display()))?;
            let read = Kubeconfig::read_from(file).map_err(unusable)?;
            Config::from_custom_kubeconfig(read, &options).await.map_err(unusable)
        }
        None if cluster.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| anyhow!("cannot use the kubeconfig: {error}")),
        None => Config::infer().await.map_err(|error| {
            anyhow!("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod with a service account: {error}")
        }),
    }
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
