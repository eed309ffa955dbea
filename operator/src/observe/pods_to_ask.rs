//! What the lookout for lost pods keeps (O20): of our pods and of each ClusterDNS the few fields that it reads. It runs in
//! a standby too, which has no other caches, so it has budgets of its own. Anyone who may create Pods in a watched
//! namespace can give them our label, and 1.5 MiB each.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crds::ClusterDNS;
use crds::v1alpha1::{ClusterDNSSpec, ClusterDNSStatus, Service};
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::budget::{Budget, Share};
use super::list_and_watch::{Followed, Heard, Means, follow};
use super::pods;
use super::waits::LONGEST_WAIT;
use crate::ask_pods::pod_reports::{HTTP_PORT_NAME, http_port};
use crate::desired::ports::DNS;
use crate::names;
use crate::runtime::critical_tasks::CriticalTasks;
use crate::runtime::metrics::Metrics;

/// Octets of all pods that are kept here, as they are counted in [`super::octets::octets`]: some 6,800, or 6,100 with two addresses.
const MOST_OF_PODS: usize = 40 << 20;
/// The same of every ClusterDNS. Without one of them none of its pods is asked, so pods do not take its room.
const MOST_OF_RESOURCES: usize = 8 << 20;
/// uids that are kept of pods that were out since the last look.
const MOST_OUT: usize = 1_000;
/// What happens with a pod that is not kept.
const NEVER_LOST: &str =
    "a pod is not asked whether it answers, so it stays in its Service if its node dies";
/// The same of a ClusterDNS.
const NONE_LOST: &str =
    "its pods are not asked whether they answer, so they stay in their Service if their node dies";

/// Our pods, and every ClusterDNS.
pub struct PodsToAsk {
    pub pods: Vec<Store<Pod>>,
    pub resources: Store<ClusterDNS>,
    /// uids of pods that a watch has shown as taken out, also for a moment between two looks at the store.
    out_lately: Arc<Mutex<BTreeSet<String>>>,
    /// They end with this value.
    watches: JoinSet<()>,
    /// Says if one of them ends: what it keeps would stay as it is.
    pub critical: CriticalTasks,
}

impl std::fmt::Debug for PodsToAsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodsToAsk").finish_non_exhaustive()
    }
}

impl PodsToAsk {
    /// Starts the watches of pods in these namespaces, and of each ClusterDNS.
    pub fn start(client: &Client, namespaces: &[String], metrics: Arc<Metrics>) -> PodsToAsk {
        PodsToAsk::within((MOST_OF_PODS, MOST_OF_RESOURCES), client, namespaces, metrics)
    }

    fn within(
        (of_pods, of_resources): (usize, usize),
        client: &Client,
        namespaces: &[String],
        metrics: Arc<Metrics>,
    ) -> PodsToAsk {
        let writer = Writer::new(());
        let resources = writer.as_reader();
        let of_resources = Budget::without_stubs(of_resources, NONE_LOST);
        let of_pods = Arc::new(Budget::without_stubs(of_pods, NEVER_LOST));
        let means = Means {
            client: client.clone(),
            lists: Arc::default(),
            metrics,
            gauge: Metrics::cached_for_lookout,
            all: resources.clone(),
        };
        // The gauge shows pods: of each ClusterDNS little is kept.
        let means_of_resources = Means { gauge: |_, _| {}, ..means.clone() };
        let (watches, critical) = (JoinSet::new(), CriticalTasks::default());
        let out_lately = Arc::default();
        let mut it = PodsToAsk { pods: Vec::new(), resources, out_lately, watches, critical };
        let share = Share::new(Arc::new(of_resources), 0, "clusterdnses");
        let all = followed(Api::all(client.clone()), None, slim_resource);
        it.keep(all, writer, (share, &means_of_resources), |_| {});
        for (store, namespace) in (1..).zip(namespaces) {
            let writer = Writer::new(());
            it.pods.push(writer.as_reader());
            let pods = Api::namespaced(client.clone(), namespace);
            let share = Share::new(of_pods.clone(), store, "pods");
            let out = it.out_lately.clone();
            let followed = followed(pods, Some(names::INSTANCE), slim_pod);
            it.keep(followed, writer, (share, &means), move |heard| note_out(&heard, &out));
        }
        it
    }

    /// The pods that were out since the last call, whether they are now or not.
    pub fn take_out_lately(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.out_lately.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep<K>(
        &mut self,
        followed: Followed<K>,
        writer: Writer<K>,
        (share, means): (Share, &Means),
        heard: impl Fn(Heard<'_, K>) + Send + Sync + 'static,
    ) where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Clone + Eq + Hash + Send + Sync,
    {
        let name = format!("the watch of {}", followed.api.resource_url());
        let following = follow(followed, writer, share, means.clone(), heard);
        self.watches.spawn(self.critical.clone().run(name, following));
    }
}

/// Notes a pod that is out. Where the set is full, the store shows most of them too.
fn note_out(heard: &Heard<'_, Pod>, out: &Mutex<BTreeSet<String>>) {
    let Heard::Changed(pod, _) = heard else { return };
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    if pods::is_lost(pod) && out.len() < MOST_OUT {
        out.insert(pods::uid(pod).to_owned());
    }
}

/// What has no room is not kept at all: a stub of a pod would have nothing to ask it by.
fn followed<K>(api: Api<K>, label: Option<&'static str>, slim: fn(&mut K)) -> Followed<K>
where
    K: Resource<DynamicType = ()>,
{
    let longest_wait = LONGEST_WAIT;
    Followed { api, kind: (), label, slim, stub: None, is_needed: |_, _| false, longest_wait }
}

/// Its name, its instance, whether it is being deleted or ready, where it runs, its addresses, and its ports of HTTP and DNS.
fn slim_pod(pod: &mut Pod) {
    let port = |name: &str, number: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number.into(),
        ..ContainerPort::default()
    };
    let mut ports = vec![port(HTTP_PORT_NAME, http_port(pod))];
    ports.extend(pods::port(pod, DNS).map(|number| port(DNS, number)));
    let container = Container { ports: Some(ports), ..Container::default() };
    slim_metadata(&mut pod.metadata);
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        node_name: spec.node_name,
        containers: vec![container],
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| {
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        // That of the other family.
        let is_other = |it: &PodIP| status.pod_ip.as_ref() != Some(&it.ip);
        let others =
            status.pod_ips.map(|ips| ips.into_iter().filter(is_other).take(1).collect::<Vec<_>>());
        PodStatus {
            pod_ip: status.pod_ip,
            pod_ips: others.filter(|others| !others.is_empty()),
            conditions: ready.map(|mut ready| {
                ready.message = None;
                vec![ready]
            }),
            ..PodStatus::default()
        }
    });
}

/// Whether it is managed, where its pods are, the name that they are asked for, on which port, and the families of its Service.
fn slim_resource(dns: &mut ClusterDNS) {
    slim_metadata(&mut dns.metadata);
    dns.status = dns.status.take().map(|status| ClusterDNSStatus {
        cluster_ips: status.cluster_ips,
        ..ClusterDNSStatus::default()
    });
    let spec = std::mem::take(&mut dns.spec);
    dns.spec = ClusterDNSSpec {
        management_state: spec.management_state,
        domain: spec.domain,
        service: spec.service.map(|it| Service {
            namespace: it.namespace,
            pod_port: it.pod_port,
            ..Service::default()
        }),
        ..ClusterDNSSpec::default()
    };
}

fn slim_metadata(metadata: &mut ObjectMeta) {
    let full = std::mem::take(metadata);
    let mut labels = full.labels.unwrap_or_default();
    labels.retain(|key, _| key == names::INSTANCE);
    *metadata = ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        deletion_timestamp: full.deletion_timestamp,
        labels: Some(labels),
        ..ObjectMeta::default()
    };
}

#[cfg(test)]
mod tests;
