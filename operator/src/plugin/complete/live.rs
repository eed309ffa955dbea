//! Values that only the kubeconfig or the cluster knows. If they cannot be read within a moment, nothing is offered:
//! a shell has no place for an error.

use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use process::kubeconfig;

use super::super::args::{Args, Which};
use super::super::lookups::Cluster;

/// A person waits for it with a finger on the tab key.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is completed from the cluster or the kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Live {
    Contexts,
    Clusters,
    Users,
    Namespaces,
    /// `NAMESPACE/POD` of any pod.
    Pods,
    ClusterDns,
    /// `NAMESPACE/POD` of a data plane of the ClusterDNS.
    DataPlanes,
}

/// The values, each with what it is for.
pub(super) async fn values(live: Live, words: &[&str]) -> Vec<(String, String)> {
    let last = words.last().copied().unwrap_or_default();
    let found = tokio::time::timeout(PATIENCE, found(live, &which(words), last)).await;
    let names = found.ok().and_then(Result::ok).unwrap_or_default();
    names.into_iter().map(|name| (name, String::new())).collect()
}

/// The flags so far, of a command line that is not complete.
fn which(words: &[&str]) -> Which {
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let command = Args::command().ignore_errors(true);
    let matches =
        command.try_get_matches_from(std::iter::once(&"kubectl-clusterdns").chain(before));
    matches.ok().and_then(|it| Which::from_arg_matches(&it).ok()).unwrap_or_default()
}

async fn found(live: Live, which: &Which, last: &str) -> Result<Vec<String>, String> {
    let kubeconfig = || kubeconfig::read(which.kubeconfig.as_deref());
    match live {
        Live::Contexts => Ok(kubeconfig()?.contexts.into_iter().map(|it| it.name).collect()),
        Live::Clusters => Ok(kubeconfig()?.clusters.into_iter().map(|it| it.name).collect()),
        Live::Users => Ok(kubeconfig()?.auth_infos.into_iter().map(|it| it.name).collect()),
        Live::Namespaces => Cluster::connect(which).await?.namespaces().await,
        Live::Pods => {
            let cluster = Cluster::connect(which).await?;
            match last.trim_start_matches("--from=").split_once('/') {
                Some((namespace, _)) => cluster.pod_names(namespace).await,
                None => {
                    let namespaces = cluster.namespaces().await?;
                    Ok(namespaces.into_iter().map(|it| format!("{it}/")).collect())
                }
            }
        }
        Live::ClusterDns => Cluster::connect(which).await?.cluster_dns_names().await,
        Live::DataPlanes => {
            let cluster = Cluster::connect(which).await?;
            let dns = cluster.cluster_dns(which.clusterdns.as_deref()).await?;
            let pods = cluster.pods(&dns).await?;
            Ok(pods.into_iter().filter_map(|pod| pod.metadata.name).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_an_unfinished_line_are_read() {
        let which = which(&["explain", "--context", "prod", "--clusterdns=dns", "--from", ""]);
        assert_eq!(which.clusterdns.as_deref(), Some("dns"));
        assert_eq!(which.context.as_deref(), Some("prod"));
    }
}
