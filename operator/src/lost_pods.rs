//! Takes pods that no longer answer out of their Service, before Kubernetes gives up their node (O20). Every operator
//! asks each ready pod once a second, also a standby, which waits for the lease; while a pod is silent, that one every
//! 0.7 s. The flow of one round: ready pods -> `selection` (pure) -> questions -> `silence` decides (pure) -> `take_out`
//! writes. Off unless the API server narrows that write (`policy`).

mod rounds;
mod selection;
mod ask;
mod silence;
mod policy;
mod take_out;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use tokio::time::sleep_until;

use crate::names;
use crate::observe::lists::Lists;
use crate::observe::pods;
use crate::observe::pods_to_ask::PodsToAsk;
use crate::runtime::metrics::Metrics;
use crate::runtime::write::Writes;
use ask::Target;
pub use policy::PolicyStanding;
use rounds::{Order, Round};
use silence::{Asked, Heard, Look, QUESTIONS, QUESTIONS_OF_STANDBY, Silences};

/// From the beginning of one round of questions to that of the next.
const EVERY: Duration = Duration::from_secs(1);
/// The same while a pod is silent that may be lost soon: a question has no answer after this time, and each tenth of a
/// second counts for clients whose queries go to a dead node.
const SOON: Duration = Duration::from_millis(700);

#[derive(Clone)]
pub struct Lookout {
    /// For watches, and for the one read before a write.
    pub client: Client,
    /// Reads the list before a write: a list of others never keeps it waiting.
    pub lists: Arc<Lists>,
    /// Namespaces with pods of ours.
    pub namespaces: Vec<String>,
    /// Writes to the API server, with the check of the lease.
    pub writes: Writes,
    /// Counts pods that were taken out.
    pub metrics: Arc<Metrics>,
    /// Whether it may act, as it was seen last.
    pub standing: Arc<PolicyStanding>,
}

impl std::fmt::Debug for Lookout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookout").finish_non_exhaustive()
    }
}

/// The ready pods of one ClusterDNS, and how many of it are lost.
struct Group {
    ready: Vec<Target>,
    lost: usize,
}

/// Runs for as long as its watches do; asks while the API server narrows the write.
pub async fn follow(it: Lookout) {
    let kept = PodsToAsk::start(&it.client, &it.namespaces, it.metrics.clone());
    tokio::select! {
        () = policy::follow(&it.client, &it.standing) => {}
        () = rounds(&it, &kept) => {}
        why = kept.vital.ended() => tracing::error!("a defect of the operator: {why}"),
    }
}

async fn rounds(it: &Lookout, kept: &PodsToAsk) {
    let mut begun = Instant::now();
    let mut silences: BTreeMap<String, Silences> = BTreeMap::new();
    let mut order = Order::default();
    loop {
        let needed = if it.writes.leads() { QUESTIONS } else { QUESTIONS_OF_STANDBY };
        let is_soon = silences.values().any(|silences| silences.may_any_be_lost_soon(needed));
        let round = order.next(is_soon);
        let wait = if round == Round::OfSilent { SOON } else { EVERY };
        sleep_until((begun + wait).into()).await;
        begun = Instant::now();
        if !it.standing.may_act() {
            silences.clear();
            continue;
        }
        let groups = groups(kept);
        silences.retain(|name, _| groups.contains_key(name));
        let asked = ask_all(&groups, &mut silences, (round, needed)).await;
        let heard = Instant::now();
        for (name, asked) in asked {
            let (Some(group), Some(silences)) = (groups.get(&name), silences.get_mut(&name)) else {
                continue;
            };
            for uid in silences.hear(&asked, (group.ready.len(), group.lost), needed, heard) {
                let Some(pod) = group.ready.iter().find(|pod| pod.uid == uid) else { continue };
                if take_out::take_out(it, &name, pod, heard).await {
                    silences.taken_out(&uid, Instant::now());
                }
            }
        }
    }
}

/// The pods of each ClusterDNS that the operator manages.
fn groups(kept: &PodsToAsk) -> BTreeMap<String, Group> {
    let is_managed = |dns: &&Arc<ClusterDNS>| {
        dns.spec.management_state == ManagementState::Managed
            && dns.metadata.deletion_timestamp.is_none()
    };
    let all = kept.resources.state();
    let group = |dns: &Arc<ClusterDNS>| {
        let name = dns.name_any();
        let its = |pod: &Pod| pod.labels().get(names::INSTANCE) == Some(&name);
        let pods: Vec<Arc<Pod>> =
            kept.pods.iter().flat_map(|store| store.state_filter(its)).collect();
        let mut ready: Vec<Target> = pods
            .iter()
            .filter(|pod| pods::is_ready(pod))
            .filter_map(|pod| ask::target(dns, pod))
            .collect();
        ready.sort_by(|a, b| a.uid.cmp(&b.uid));
        let lost = pods.iter().filter(|pod| pods::is_lost(pod)).count();
        (name, Group { ready, lost })
    };
    all.iter().filter(is_managed).map(group).collect()
}

/// Asks those whose turn it is, those that are silent, and those that look at them; all at the same time.
async fn ask_all(
    groups: &BTreeMap<String, Group>,
    silences: &mut BTreeMap<String, Silences>,
    round: (Round, u32),
) -> BTreeMap<String, Vec<Asked>> {
    let wanted = selection::wanted(groups, silences, round, Instant::now());
    let asking = wanted.into_iter().map(|(name, pod, suspect)| async move {
        let by = suspect.and_then(|it| groups.get(name)?.ready.iter().find(|pod| pod.uid == it.by));
        let look = async {
            match by {
                Some(by) => Some(Look { by: by.uid.clone(), heard: ask::look(by, pod).await }),
                None => None,
            }
        };
        let (heard, look) = futures::join!(ask::ask(pod), look);
        (name, Asked { uid: pod.uid.clone(), node: pod.node.clone(), heard, look })
    });
    let mut found: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    for (name, asked) in join_all(asking).await {
        if asked.heard == Heard::Unknown {
            tracing::debug!(uid = asked.uid, "a pod could not be asked");
        }
        found.entry(name.to_owned()).or_default().push(asked);
    }
    found
}
