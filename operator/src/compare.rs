//! Asks the canary and a stable pod the same things at the same time, as a client would. An edge: what is asked and how two
//! replies are judged is pure, in the modules below.

mod ask;
mod judge;
mod questions;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crds::ClusterDNS;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;

use crate::observed::{Comparison, Observed};
use crate::{pods, rollout};
use ask::ask;
use judge::judge;
use questions::questions;

/// For one reply. A stub resolver waits 5 s, but what takes so long is not well.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions in progress: with 104 of them, both pods are asked within 7 s even if neither ever replies.
const SIDE_BY_SIDE: usize = 16;

/// Asks both, if a canary is on trial and said that it runs what it tries: call it last, when `answers` are fresh.
pub async fn compare(dns: &ClusterDNS, observed: &Observed) -> Option<Comparison> {
    let pair = &pair(dns, observed)?;
    let (config, state) = rollout::canary(observed)?;
    let checks = stream::iter(questions(&config, observed))
        .map(|question| async move {
            let canary = ask(&question, pair.canary, PATIENCE);
            let stable = ask(&question, pair.stable, PATIENCE);
            let (canary, stable) = futures::join!(canary, stable);
            judge(&question, canary, stable)
        })
        .buffered(SIDE_BY_SIDE)
        .collect()
        .await;
    Some(Comparison { canary_uid: pair.uid.clone(), revision: state.canary, checks })
}

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    uid: String,
    canary: SocketAddr,
    stable: SocketAddr,
}

/// The canary, if it runs what it tries, and a pod that runs what all the others run.
fn pair(dns: &ClusterDNS, observed: &Observed) -> Option<Pair> {
    let state = rollout::state(observed);
    let uid = state.canary_pod.as_ref()?.uid.clone();
    let port = dns.spec.service.clone().unwrap_or_default().pod_port;
    let canary = observed.pods.iter().find(|pod| pods::uid(pod) == uid)?;
    if pods::said(observed, canary)?.revision != state.canary {
        return None;
    }
    let stable = pods::ready(observed).filter(|pod| pods::uid(pod) != uid).find_map(|pod| {
        let runs_stable =
            pods::said(observed, pod).is_some_and(|said| said.revision == state.stable);
        address(pod).filter(|_| runs_stable)
    })?;
    Some(Pair {
        uid,
        canary: SocketAddr::new(address(canary)?, port),
        stable: SocketAddr::new(stable, port),
    })
}

fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests;
