//! When each part of a cluster noticed that a pod is dead: its condition, its EndpointSlice, the rules of kube-proxy on
//! living nodes, and what their kernels remember of connections to it; and when the status of the ClusterDNS says it.

use std::time::{Duration, Instant};

use anyhow::Result;
use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;
use tests::node::Node;
use tests::node::steady::now;

use super::taken_out::LOST;
use crate::installed::DNS_NAMESPACE;
use crate::site::{Site, text};

const POLL: Duration = Duration::from_millis(100);

/// Seconds after the fault; none: not in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// The pod's condition `Ready` is False: it was noticed, and written.
    not_ready: Option<f64>,
    /// The reason in that condition; empty where there is none.
    pub(super) reason: String,
    /// The status of the ClusterDNS names the pod as lost.
    pub(super) said: Option<f64>,
    /// Its endpoint is not ready in the EndpointSlice.
    endpoint: Option<f64>,
    /// No rule of kube-proxy leads to it, on any living node.
    rules: Option<f64>,
    /// No kernel of a living node remembers a query to it without a reply.
    conntrack: Option<f64>,
}

/// A pod that died, of the Service of this name and address.
#[derive(Clone, Debug)]
pub(super) struct Dead {
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) service: String,
    pub(super) cluster_ip: String,
}

impl Dead {
    pub(super) fn of(pod: &Value, service: &str, cluster_ip: &str) -> Dead {
        Dead {
            pod: text(pod, "/metadata/name").to_owned(),
            address: text(pod, "/status/podIP").to_owned(),
            service: service.to_owned(),
            cluster_ip: cluster_ip.to_owned(),
        }
    }
}

impl Phases {
    pub(super) fn are_over(&self) -> bool {
        self.conntrack.is_some()
    }

    /// When nothing led to the pod any more.
    pub(super) fn over_at(&self) -> Option<f64> {
        self.conntrack
    }

    pub(super) fn in_words(&self) -> String {
        let at = |at: Option<f64>| at.map_or("not in time".to_owned(), |at| format!("{at:.1} s"));
        let Phases { not_ready, reason, said, endpoint, rules, conntrack } = self;
        let said = said.map_or(String::new(), |said| format!(", in the status at {said:.1} s"));
        format!(
            "not ready at {} ({reason:?}), endpoint gone at {}, rules at {}, conntrack at {}{said}",
            at(*not_ready),
            at(*endpoint),
            at(*rules),
            at(*conntrack)
        )
    }

    /// One look at the first thing that has not happened yet; each follows from the one before. And one at the status.
    async fn look(
        &mut self,
        client: &Client,
        dead: &Dead,
        living: &[&Node],
        since: f64,
    ) -> Result<()> {
        let at = || Some(now() - since);
        if self.said.is_none() && is_said(client, dead).await? {
            self.said = at();
        }
        if self.not_ready.is_none() {
            let ready = ready(client, dead).await?;
            if ready.as_ref().is_some_and(|it| it.status == "True") {
                return Ok(());
            }
            self.not_ready = at();
            self.reason = ready.and_then(|it| it.reason).unwrap_or_default();
        }
        if self.endpoint.is_none() {
            if is_endpoint(client, dead).await? {
                return Ok(());
            }
            self.endpoint = at();
        }
        if self.rules.is_none() {
            if living.iter().any(|node| leads_to(node, &dead.address)) {
                return Ok(());
            }
            self.rules = at();
        }
        if self.conntrack.is_none() && !living.iter().any(|node| remembers(node, dead)) {
            self.conntrack = at();
        }
        Ok(())
    }
}

async fn ready(client: &Client, dead: &Dead) -> Result<Option<PodCondition>> {
    let pod = Api::<Pod>::namespaced(client.clone(), DNS_NAMESPACE).get_opt(&dead.pod).await?;
    let mut conditions = pod.and_then(|pod| pod.status?.conditions).into_iter().flatten();
    Ok(conditions.find(|it| it.type_ == "Ready"))
}

/// Whether `Degraded` names it as lost.
async fn is_said(client: &Client, dead: &Dead) -> Result<bool> {
    let all = Api::<ClusterDNS>::all(client.clone()).list(&ListParams::default()).await?;
    let mut conditions = all.into_iter().filter_map(|it| it.status).flat_map(|it| it.conditions);
    Ok(conditions.any(|it| it.reason == LOST && it.message.contains(&dead.pod)))
}

/// Whether the EndpointSlices of its Service say that it is ready.
async fn is_endpoint(client: &Client, dead: &Dead) -> Result<bool> {
    let its = format!("kubernetes.io/service-name={}", dead.service);
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), DNS_NAMESPACE);
    let slices = slices.list(&ListParams::default().labels(&its)).await?;
    let mut endpoints = slices.into_iter().flat_map(|slice| slice.endpoints);
    Ok(endpoints.any(|it| {
        let is_ready = it.conditions.and_then(|it| it.ready) == Some(true);
        is_ready && it.addresses.contains(&dead.address)
    }))
}

fn leads_to(node: &Node, address: &str) -> bool {
    let rules = "iptables-save --table nat; nft list table ip kube-proxy 2>/dev/null || true";
    let rules = node.run_inside(&["sh", "-c", rules]);
    rules.lines().any(|line| {
        line.contains(&format!("{address}:53")) || line.contains(&format!("{address} . 53"))
    })
}

fn remembers(node: &Node, dead: &Dead) -> bool {
    remembered(node, dead, "udp").iter().any(|entry| entry.contains("UNREPLIED"))
}

/// What a kernel remembers of this protocol that was sent to the Service and led to the pod.
pub(super) fn remembered(node: &Node, dead: &Dead, protocol: &str) -> Vec<String> {
    let service = &dead.cluster_ip;
    let list = format!("conntrack --dump --proto {protocol} --orig-dst {service} 2>/dev/null");
    let entries = node.run_inside(&["sh", "-c", &list]);
    let from = format!("src={} ", dead.address);
    entries.lines().filter(|line| line.contains(&from)).map(str::to_owned).collect()
}

/// Watches until all of it is over, or this much time has passed.
pub(super) async fn follow(
    site: &Site,
    dead: &[Dead],
    living: &[&Node],
    since: f64,
    patience: Duration,
) -> Vec<Phases> {
    let client = site.plane.client().await;
    let deadline = Instant::now() + patience;
    let mut all = vec![Phases::default(); dead.len()];
    while Instant::now() < deadline && !all.iter().all(Phases::are_over) {
        for (phases, dead) in all.iter_mut().zip(dead) {
            if let Err(error) = phases.look(&client, dead, living, since).await {
                site.say(&format!("the API server does not answer: {error:#}"));
            }
        }
        tokio::time::sleep(POLL).await;
    }
    all
}
