//! Which cluster, who we are in it, and when we are asked to stop: what the process is given by its surroundings.

use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::FutureExt;
use futures::future::Shared;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Cluster;

/// What runs is given so long to finish after SIGTERM; Kubernetes gives 30 s.
const FINISH: Duration = Duration::from_secs(20);

/// Ready once SIGTERM or SIGINT has come.
pub type Stop = Shared<futures::future::BoxFuture<'static, ()>>;

/// A client that leaves retrying to those who know what for: a request that is repeated below them would be a write
/// whose leadership nobody has checked again.
///
/// # Errors
/// When nothing names a cluster.
pub async fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    let options =
        KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    // In one piece: what these errors stand on is in their own words already.
    let mut config = match &cluster.kubeconfig {
        Some(file) => {
            let unusable = |error| anyhow!("cannot use the kubeconfig {}: {error}", file.display());
            let read = Kubeconfig::read_from(file).map_err(unusable)?;
            Config::from_custom_kubeconfig(read, &options).await.map_err(unusable)?
        }
        None if cluster.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| anyhow!("cannot use the kubeconfig: {error}"))?,
        None => Config::infer().await.map_err(|error| {
            anyhow!("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod with a service account: {error}")
        })?,
    };
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Who we are, for the lease and Events.
pub fn own_name(given: Option<&str>) -> String {
    let set = |name: Option<String>| name.filter(|name| !name.is_empty());
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    set(given.map(str::to_owned))
        .or_else(|| set(std::env::var("POD_NAME").ok()))
        .or_else(|| set(host().map(|name| name.trim().to_owned())))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// When we are asked to stop. What has not finished some time after that is left as it is: all of it is repeatable.
///
/// # Errors
/// When signals cannot be caught.
pub fn asked_to_stop() -> anyhow::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
    let asked = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
    };
    let asked = asked.boxed().shared();
    Ok(asked)
}

/// Ready when the time to finish is over.
pub async fn time_to_finish(stop: Stop) {
    stop.await;
    tokio::time::sleep(FINISH).await;
}
