//! `status`: pods, revisions, upstreams, cache and what is skipped, in one screen, from the API server and from the pages
//! of each pod.

mod text;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crds::ClusterDNS;
use crds::v1alpha1::{ClusterDNSStatus, SkippedObject};
use futures::StreamExt;
use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;

use super::args::{Output, Status, Which};
use super::data_plane::DataPlane;
use super::lookups::{self, Cluster};
use super::output::{Printed, json};
use super::pages::Pages;
use crate::observe::pods;

/// Pods that are asked for their pages; the others are shown as the API server knows them.
const MAX_ASKED: usize = 50;
/// Of those, at once: each is a stream through the API server and a kubelet.
const SIDE_BY_SIDE: usize = 8;
/// Skipped objects that are shown.
const MAX_SKIPPED: usize = 20;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Screen {
    /// Name and generation of the ClusterDNS; none where only one data plane was asked.
    pub cluster_dns: Option<(String, i64)>,
    pub status: ClusterDNSStatus,
    pub pods: Vec<PodRow>,
    /// Each server of each group, over all pods.
    pub upstreams: Vec<UpstreamRow>,
    /// The caches of all pods together.
    pub cache: CacheSum,
    /// Objects that some pod does not serve in full.
    pub skipped: Vec<SkippedObject>,
    pub skipped_count: u64,
    /// What pods warn of, and configurations that they refused.
    pub warnings: Vec<String>,
    /// Pods without an answer, and why.
    pub not_asked: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its name, or an address.
    pub name: String,
    pub node: String,
    /// `ready`, `not ready`, `leaving` or `lost`.
    pub state: &'static str,
    /// Restarts of all its containers.
    pub restarts: u32,
    /// What it runs of a rollout.
    pub role: String,
    /// Of the configuration that it runs.
    pub revision: String,
    pub objects: Option<u64>,
    /// Those that it does not serve in full.
    pub skipped: Option<u64>,
}

/// One server of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamRow {
    /// `upstreams`, or the stub domain.
    pub group: String,
    pub server: String,
    /// `UDP`, `TLS` and so on.
    pub transport: String,
    /// The name that it must prove to have; empty over UDP and TCP.
    pub server_name: String,
    /// Pods by what they say of it, such as `healthy`.
    pub states: BTreeMap<String, usize>,
    /// The longest of all pods.
    pub latency_microseconds: Option<u64>,
    /// Queries sent by all pods.
    pub sent: u64,
    pub errors: u64,
    /// Sends without a reply in time.
    pub silent: u64,
}

/// The caches of all pods together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheSum {
    pub entries: u64,
    /// Memory of the entries, in octets.
    pub octets: u64,
    pub hits: u64,
    pub lookups: u64,
}

pub(super) async fn run(which: &Which, args: &Status) -> Printed {
    let screen = match which.address {
        Some(address) => {
            let row = PodRow { name: address.to_string(), state: "-", ..PodRow::default() };
            let pages = pages(&lookups::at(which, address)).await?;
            Screen::of(None, vec![(row, Ok(pages))])
        }
        None => {
            let cluster = Cluster::connect(which).await?;
            let dns = cluster.cluster_dns(which.clusterdns.as_deref()).await?;
            let mut pods = cluster.pods(&dns).await?;
            if let Some(name) = &which.pod {
                pods = vec![lookups::named(name, &pods)?.clone()];
            }
            // One that has ended has no pages, and takes no place of one that answers.
            pods.sort_by_key(|pod| (pods::has_ended(pod), !pods::is_ready(pod)));
            let asked = pods
                .iter()
                .take(MAX_ASKED)
                .map(|pod| async { (row(pod), pages_of(&cluster, pod).await) });
            let mut all: Vec<_> =
                futures::stream::iter(asked).buffered(SIDE_BY_SIDE).collect().await;
            let beyond = pods.iter().skip(MAX_ASKED).map(|pod| {
                (
                    row(pod),
                    Err(format!("{}: only the first {MAX_ASKED} pods are asked", pods::name(pod))),
                )
            });
            all.extend(beyond);
            Screen::of(Some(&dns), all)
        }
    };
    let text = match args.output {
        Output::Text => screen.text(),
        Output::Json => json(&screen),
    };
    Ok((text, ExitCode::SUCCESS))
}

async fn pages_of(cluster: &Cluster, pod: &Pod) -> Result<Pages, String> {
    match pods::has_ended(pod) {
        true => Err(format!("{}: it has ended, and its object is kept", pods::name(pod))),
        false => pages(&cluster.data_plane(pod)).await,
    }
}

/// The pages of one data plane.
async fn pages(data_plane: &DataPlane) -> Result<Pages, String> {
    let mut connection = data_plane.open().await?;
    let config = connection.page(Method::GET, "/config").await?;
    let upstreams = connection.page(Method::GET, "/upstreams").await?;
    let metrics = connection.page(Method::GET, "/metrics").await?;
    Pages::read(&config, &upstreams, &metrics).map_err(|why| format!("{}: {why}", data_plane.name))
}

/// What the API server knows of a pod.
fn row(pod: &Pod) -> PodRow {
    let state = match pod {
        _ if pods::has_ended(pod) => "ended",
        _ if pods::is_lost(pod) => "lost",
        _ if pods::is_leaving(pod) => "leaving",
        _ if pods::is_ready(pod) => "ready",
        _ => "not ready",
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let name = pods::name(pod).to_owned();
    PodRow { name, node, state, restarts: pods::restarts(pod), ..PodRow::default() }
}

impl Screen {
    /// What a ClusterDNS, its pods and their pages say together.
    pub fn of_pods(dns: &ClusterDNS, pods: &[(Pod, Result<Pages, String>)]) -> Screen {
        Screen::of(Some(dns), pods.iter().map(|(pod, pages)| (row(pod), pages.clone())).collect())
    }

    fn of(dns: Option<&ClusterDNS>, pods: Vec<(PodRow, Result<Pages, String>)>) -> Screen {
        let mut screen = Screen {
            cluster_dns: dns.map(|dns| (dns.name_any(), dns.metadata.generation.unwrap_or(0))),
            status: dns.and_then(|dns| dns.status.clone()).unwrap_or_default(),
            ..Screen::default()
        };
        for (mut row, pages) in pods {
            match pages {
                Ok(pages) => screen.add(&mut row, pages),
                Err(why) => screen.not_asked.push(why),
            }
            screen.pods.push(row);
        }
        screen.skipped_count = screen.skipped_count.max(screen.skipped.len() as u64);
        screen.skipped.truncate(MAX_SKIPPED);
        screen
    }

    fn add(&mut self, row: &mut PodRow, pages: Pages) {
        let Pages { config, upstreams, cache } = pages;
        (row.role, row.revision) = (config.role, config.revision);
        row.objects = Some(config.objects.values().filter_map(serde_json::Value::as_u64).sum());
        row.skipped = Some(config.skipped_object_count);
        self.skipped_count = self.skipped_count.max(config.skipped_object_count);
        for object in config.skipped_objects {
            if !self.skipped.contains(&object) {
                self.skipped.push(object);
            }
        }
        let refused = config.rejection.into_iter().flat_map(|rejection| rejection.violations);
        let refused = refused.map(|it| match (it.field.as_str(), it.reason.as_str()) {
            ("", "Missing") => format!("{} was given no configuration: {}", row.name, it.message),
            ("", _) => format!("{} refused its configuration: {}", row.name, it.message),
            (field, _) => {
                format!("{} refused its configuration: {field}: {}", row.name, it.message)
            }
        });
        for warning in refused.chain(config.warnings).chain(upstreams.warnings) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        for group in upstreams.groups {
            for server in group.servers {
                // One address may be asked over two transports, or by two names, which fail apart.
                let is_it = |it: &&mut UpstreamRow| {
                    it.group == group.name
                        && it.server == server.server
                        && it.transport == server.transport
                        && it.server_name == server.server_name
                };
                let row = match self.upstreams.iter_mut().find(is_it) {
                    Some(row) => row,
                    None => {
                        self.upstreams.push(UpstreamRow {
                            group: group.name.clone(),
                            server: server.server.clone(),
                            transport: server.transport.clone(),
                            server_name: server.server_name.clone(),
                            ..UpstreamRow::default()
                        });
                        self.upstreams.last_mut().expect("one was pushed")
                    }
                };
                *row.states.entry(server.state).or_default() += 1;
                row.latency_microseconds =
                    row.latency_microseconds.max(server.latency_microseconds);
                row.sent += server.sent;
                row.errors += server.errors;
                row.silent += server.silent;
            }
        }
        self.cache.entries += cache.entries;
        self.cache.octets += cache.octets;
        self.cache.hits += cache.hits;
        self.cache.lookups += cache.lookups;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::from;

    #[test]
    fn o14_a_pod_that_has_ended_is_shown_as_ended() {
        let pod = |status| from::<Pod>(json!({"metadata": {"name": "dns-0"}, "status": status}));
        let ended = json!({"phase": "Failed", "reason": "Evicted"});
        assert_eq!(row(&pod(ended)).state, "ended");
        assert_eq!(row(&pod(json!({"phase": "Running"}))).state, "not ready");
    }

    #[test]
    fn o14_a_pod_without_a_configuration_is_not_said_to_refuse_one() {
        let warning = |field: &str, reason: &str| {
            let violation = json!({"field": field, "reason": reason, "message": "why"});
            let config = json!({"rejection": {"violations": [violation]}});
            let pages = Pages { config: from(config), ..Pages::default() };
            let row = PodRow { name: "dns-0".to_owned(), ..PodRow::default() };
            Screen::of(None, vec![(row, Ok(pages))]).warnings[0].clone()
        };
        assert_eq!(warning("", "Missing"), "dns-0 was given no configuration: why");
        assert_eq!(warning("", "Malformed"), "dns-0 refused its configuration: why");
        let of_field = "dns-0 refused its configuration: spec.domain: why";
        assert_eq!(warning("spec.domain", "Missing"), of_field);
    }
}
