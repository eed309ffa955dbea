//! Takes pods that no longer answer out of their Service, before Kubernetes gives up their node (O20). Every operator
//! asks each ready pod once a second, also a standby, which waits for the lease; while a pod is silent, that one every
//! 0.7 s. The flow of one round: ready pods -> `selection` (pure) -> questions -> `silence` decides (pure) -> `take_out`
//! writes, beside the next rounds. Off unless the API server narrows that write (`policy`).

mod rounds;
mod selection;
mod ask;
mod silence;
mod policy;
mod take_out;
mod take_outs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use tokio::time::sleep_until;

use crate::decide::admit::is_managed;
use crate::names;
use crate::observe::lists::Lists;
use crate::observe::pods;
use crate::observe::pods_to_ask::PodsToAsk;
use crate::runtime::metrics::Metrics;
use crate::runtime::write::Writes;
use crate::settings::Settings;
use ask::Target;
pub use policy::PolicyStanding;
use rounds::Round;
use silence::{Asked, Heard, Look, Loss, QUESTIONS, QUESTIONS_OF_STANDBY, Silences};
use take_outs::TakeOuts;

#[derive(Clone)]
pub struct Lookout {
    /// For watches, and for the one read before a write.
    pub client: Client,
    /// Reads the list before a write: a list of others never keeps it waiting.
    pub lists: Arc<Lists>,
    /// What the operator was started with: namespaces with pods of ours, and which ClusterDNS it manages.
    pub settings: Settings,
    /// Writes to the API server, with the check of the lease.
    pub writes: Writes,
    /// Counts pods that were taken out.
    pub metrics: Arc<Metrics>,
    /// Whether it may act, as it was seen last.
    pub standing: Arc<PolicyStanding>,
    /// The node that it runs on itself; none: not known.
    pub node: Option<String>,
}

impl std::fmt::Debug for Lookout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookout").finish_non_exhaustive()
    }
}

/// The ready pods of one ClusterDNS, and those that are out of the Service.
#[derive(Default)]
struct Group {
    ready: Vec<Target>,
    out: Vec<Loss>,
}

/// Runs for as long as its watches do; asks while the API server narrows the write.
pub async fn follow(it: Lookout) {
    let kept = PodsToAsk::start(&it.client, &it.settings.workload_namespaces, it.metrics.clone());
    tokio::select! {
        () = policy::follow(&it.client, &it.standing) => {}
        () = rounds(&it, &kept) => {}
        why = kept.critical.ended() => tracing::error!("a defect of the operator: {why}"),
    }
}

async fn rounds(it: &Lookout, kept: &PodsToAsk) {
    let mut begun = Instant::now();
    let mut silences: BTreeMap<String, Silences> = BTreeMap::new();
    let mut take_outs = TakeOuts::default();
    loop {
        let needed = if it.writes.leads() { QUESTIONS } else { QUESTIONS_OF_STANDBY };
        let is_soon = silences.values().any(|silences| silences.may_any_be_lost_soon(needed));
        let round = Round::next(is_soon);
        sleep_until((begun + round.wait()).into()).await;
        begun = Instant::now();
        take_outs.ended(&mut silences, begun);
        let out_lately = kept.take_out_lately();
        if !it.standing.may_act() {
            silences.values_mut().for_each(|silences| silences.forget(begun));
            continue;
        }
        let all = kept.resources.state();
        let ours = all.iter().filter(|dns| has_its_pods_asked(dns, &it.settings));
        let groups = groups(ours, kept);
        silences.retain(|name, _| groups.contains_key(name));
        show_out(&groups, &mut silences, (&out_lately, begun));
        let asked = ask_all(&groups, &mut silences, (round, needed), it.node.as_deref()).await;
        let heard = Instant::now();
        for (name, asked) in asked {
            let (Some(group), Some(silences)) = (groups.get(&name), silences.get_mut(&name)) else {
                continue;
            };
            let counts = (group.ready.len(), silences.count(&group.out, heard));
            for uid in silences.hear(&asked, counts, needed, heard) {
                let Some(pod) = group.ready.iter().find(|pod| pod.uid == uid) else { continue };
                take_outs.begin(it, (&name, &mut *silences), pod, heard);
            }
        }
    }
}

/// Whether it is this operator that manages it: pods of another one stay as they are.
fn has_its_pods_asked(dns: &ClusterDNS, settings: &Settings) -> bool {
    dns.spec.management_state == ManagementState::Managed
        && dns.metadata.deletion_timestamp.is_none()
        && is_managed(dns, settings).is_ok()
}

/// The pods of each of these ClusterDNS.
fn groups<'a>(
    ours: impl Iterator<Item = &'a Arc<ClusterDNS>>,
    kept: &PodsToAsk,
) -> BTreeMap<String, Group> {
    let group = |dns: &Arc<ClusterDNS>| {
        let name = dns.name_any();
        let its = |pod: &Pod| is_of(dns, pod);
        let pods: Vec<Arc<Pod>> =
            kept.pods.iter().flat_map(|store| store.state_filter(its)).collect();
        let mut ready: Vec<Target> = pods
            .iter()
            .filter(|pod| pods::is_ready(pod))
            .filter_map(|pod| ask::target(dns, pod))
            .collect();
        ready.sort_by(|a, b| a.uid.cmp(&b.uid));
        let out = pods.iter().filter_map(|pod| loss(pod)).collect();
        (name, Group { ready, out })
    };
    ours.map(group).collect()
}

/// What its condition says, if an operator took it out.
fn loss(pod: &Pod) -> Option<Loss> {
    pods::lost_at(pod).map(|at| Loss { uid: pods::uid(pod).to_owned(), at })
}

/// Whether it is a pod of this ClusterDNS: one of another namespace with the same label is none, and confirms no loss.
fn is_of(dns: &ClusterDNS, pod: &Pod) -> bool {
    pod.labels().get(names::INSTANCE) == dns.metadata.name.as_ref()
        && pod.metadata.namespace.as_ref() == Some(&names::service(dns).0)
}

/// Notes the pods that any operator took out: those that are out now, and those that a kubelet set back since the last round.
fn show_out(
    groups: &BTreeMap<String, Group>,
    silences: &mut BTreeMap<String, Silences>,
    (lately, now): (&BTreeSet<String>, Instant),
) {
    for (name, group) in groups {
        let silences = silences.entry(name.clone()).or_default();
        let back = group.ready.iter().map(|pod| &pod.uid).filter(|uid| lately.contains(*uid));
        back.for_each(|uid| silences.shown_out(uid, None, now));
        group.out.iter().for_each(|it| silences.shown_out(&it.uid, Some(it.at), now));
    }
}

/// Asks those whose turn it is, those that are silent, and those that look at them; all at the same time.
async fn ask_all(
    groups: &BTreeMap<String, Group>,
    silences: &mut BTreeMap<String, Silences>,
    round: (Round, u32),
    own_node: Option<&str>,
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
        let is_here = own_node == Some(pod.node.as_str());
        (name, Asked { uid: pod.uid.clone(), node: pod.node.clone(), is_here, heard, look })
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fixtures;

    #[test]
    fn o20_a_pod_of_another_namespace_is_no_pod_of_this_clusterdns() {
        let dns = fixtures::dns("{service: {namespace: dns}}");
        let mut pod = fixtures::pod("dns-0", 0, 0);
        for (namespace, expected) in [("dns", true), ("kube-system", false)] {
            pod.metadata.namespace = Some(namespace.to_owned());
            assert_eq!(is_of(&dns, &pod), expected, "{namespace}");
        }
        pod.metadata.namespace = Some("dns".to_owned());
        pod.metadata.labels.as_mut().unwrap().remove(names::INSTANCE);
        assert!(!is_of(&dns, &pod));
    }
    #[test]
    fn o20_pods_of_a_clusterdns_that_this_operator_does_not_manage_are_not_asked() {
        let settings = |instances: &[&str], namespaces: &[&str]| Settings {
            instances: instances.iter().map(|it| (*it).to_owned()).collect(),
            workload_namespaces: namespaces.iter().map(|it| (*it).to_owned()).collect(),
            ..fixtures::settings()
        };
        let dns = fixtures::dns("{service: {namespace: dns}}");
        let name = dns.name_any();
        for (instances, namespaces, expected) in [
            (&[][..], &["dns"][..], true),
            (&["other", name.as_str()], &["dns"], true),
            (&["other"], &["dns"], false),
            (&[], &["other"], false),
        ] {
            let settings = settings(instances, namespaces);
            assert_eq!(has_its_pods_asked(&dns, &settings), expected, "{settings:?}");
        }
        let unmanaged = fixtures::dns("{managementState: Unmanaged, service: {namespace: dns}}");
        assert!(!has_its_pods_asked(&unmanaged, &settings(&[], &["dns"])));
    }
    #[test]
    fn o20_a_pod_that_another_operator_took_out_is_noted_also_where_it_is_back() {
        let mut pod = fixtures::pod("dns-0", 0, 0);
        pod.metadata.namespace = Some("dns".to_owned());
        pod.spec = Some(fixtures::from(serde_json::json!({"nodeName": "node", "containers": []})));
        let back = ask::target(&fixtures::dns("{}"), &pod).unwrap();
        let uid = back.uid.clone();
        let out = vec![Loss { uid: "out".to_owned(), at: Timestamp::UNIX_EPOCH }];
        let group = Group { ready: vec![back], out };
        let groups = BTreeMap::from([("default".to_owned(), group)]);
        for (lately, expected) in [(vec![], false), (vec![uid.clone(), "other".to_owned()], true)] {
            let mut silences = BTreeMap::new();
            let now = Instant::now();
            show_out(&groups, &mut silences, (&lately.into_iter().collect(), now));
            let noted = |uid: &str| silences["default"].was_taken_out_lately(uid, now);
            assert_eq!((noted(&uid), noted("out"), noted("other")), (expected, true, false));
        }
    }
}
