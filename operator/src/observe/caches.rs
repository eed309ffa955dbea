//! What watches keep of the cluster, so that a reconcile reads nothing from the API server. One watch per kind and namespace
//! feeds a store and enqueues the ClusterDNS concerned; the store has the change before their reconcile begins.

mod keep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crds::ClusterDNS;
use ipnet::IpNet;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::{AbortHandle, JoinSet};

use super::budget::Budget;
use super::cluster_size::SlimNode;
use super::list_and_watch::{Followed, Heard, Means};
use super::lists::Lists;
use super::pages::LONGEST_WAIT;
use super::stubs;
use crate::controller::triggers::{self, Triggers};
use crate::desired::Kind;
use crate::names;
use crate::runtime::metrics::Metrics;
use crate::runtime::resources;

/// How often changes of nodes are added up; kubelets write their status all the time.
const NODES_EVERY: Duration = Duration::from_secs(5);

/// What client-side apply writes: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The caches of all watched kinds; `observe` reads them.
pub struct Caches {
    means: Means,
    triggers: Arc<Triggers>,
    namespaces: Vec<String>,
    /// Every ClusterDNS; fed by [`Caches::keep_resources`].
    pub resources: Store<ClusterDNS>,
    children: RwLock<HashMap<(Kind, String), Kept>>,
    slices: HashMap<String, Store<EndpointSlice>>,
    pods: HashMap<String, Store<Pod>>,
    replica_sets: HashMap<String, Store<ReplicaSet>>,
    nodes: Store<SlimNode>,
    watches: Mutex<JoinSet<()>>,
    /// What all stores may hold, and do.
    pub budget: Arc<Budget>,
    stores: AtomicU64,
}

/// Children of one kind in one namespace, and what keeps them.
struct Kept {
    store: Store<DynamicObject>,
    watch: AbortHandle,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

impl Caches {
    /// Starts every watch but those of ClusterDNS and of kinds that may not exist.
    pub fn start(
        client: Client,
        namespaces: &[String],
        resources: Store<ClusterDNS>,
        triggers: Arc<Triggers>,
        metrics: Arc<Metrics>,
        lists: Arc<Lists>,
    ) -> Caches {
        let (nodes, all) = (Writer::new(()), resources.clone());
        let means = Means { client: client.clone(), lists, metrics, gauge: Metrics::cached, all };
        let mut caches = Caches {
            means,
            triggers,
            namespaces: namespaces.to_vec(),
            resources,
            children: RwLock::default(),
            slices: HashMap::new(),
            pods: HashMap::new(),
            replica_sets: HashMap::new(),
            nodes: nodes.as_reader(),
            watches: Mutex::default(),
            budget: Arc::default(),
            stores: AtomicU64::new(0),
        };
        let of_nodes = Followed {
            api: Api::all(client.clone()),
            label: None,
            slim: keep_labels,
            stub: None,
            is_needed: |_, _| true,
            longest_wait: LONGEST_WAIT,
        };
        caches.keep(nodes, of_nodes, |_, _| Vec::new());
        for namespace in namespaces {
            caches.keep_namespace(&client, namespace);
        }
        for kind in resources::CLUSTER {
            caches.keep_children(kind, "");
        }
        caches.watch_nodes();
        caches
    }

    fn keep_namespace(&mut self, client: &Client, namespace: &str) {
        let key = namespace.to_owned();
        for kind in resources::NAMESPACED {
            self.keep_children(kind, namespace);
        }
        let writer = Writer::new(());
        self.pods.insert(key.clone(), writer.as_reader());
        let pods = Api::namespaced(client.clone(), namespace);
        self.keep(writer, labelled_with(pods, names::INSTANCE), |_, pod: &Pod| {
            triggers::by_label(pod.meta())
        });
        let writer = Writer::new(());
        self.replica_sets.insert(key.clone(), writer.as_reader());
        let sets = Api::namespaced(client.clone(), namespace);
        self.keep(writer, labelled_with(sets, names::INSTANCE), |_, set: &ReplicaSet| {
            triggers::by_label(set.meta())
        });
        let writer = Writer::new(());
        self.slices.insert(key, writer.as_reader());
        let slices = Api::namespaced(client.clone(), namespace);
        let is_ours = |all: &[Arc<ClusterDNS>], slice: &EndpointSlice| {
            has_our_label(slice) || !triggers::of_slice(all, slice).is_empty()
        };
        let slices = Followed {
            stub: Some(stubs::stub),
            is_needed: is_ours,
            ..labelled_with(slices, triggers::SERVICE_NAME)
        };
        self.keep(writer, slices, triggers::of_slice);
    }

    /// Starts the watches of these optional kinds as they appear, and ends those of kinds that were removed, with
    /// what was kept of them.
    pub fn keep_monitoring(&self, exist: &[Kind]) {
        for kind in resources::MONITORING {
            for namespace in &self.namespaces {
                let key = (kind, namespace.clone());
                let is_kept =
                    self.children.read().unwrap_or_else(PoisonError::into_inner).contains_key(&key);
                match (exist.contains(&kind), is_kept) {
                    (true, false) => self.keep_children(kind, namespace),
                    (false, true) => {
                        let mut all = self.children.write().unwrap_or_else(PoisonError::into_inner);
                        all.remove(&key).inspect(|kept| kept.watch.abort());
                    }
                    (true, true) | (false, false) => {}
                }
            }
        }
    }

    fn keep_children(&self, kind: Kind, namespace: &str) {
        let writer = Writer::new(resources::resource(kind));
        let store = writer.as_reader();
        // Services, ConfigMaps and budgets of others matter too: the one to adopt, authorities, the one that selects ours.
        let label = match kind {
            Kind::Service | Kind::ConfigMap | Kind::PodDisruptionBudget => None,
            _ => Some(names::INSTANCE),
        };
        let api = resources::api(&self.means.client, kind, namespace);
        let slim: fn(&mut DynamicObject) = match kind {
            Kind::ConfigMap => keep_what_is_read,
            _ => |_| {},
        };
        // A ConfigMap of others is read when a ClusterDNS names it, and by no other decision.
        let stub: Option<fn(&mut DynamicObject)> = match kind {
            Kind::ConfigMap => None,
            Kind::Service => Some(stubs::stub_of_service),
            _ => Some(stubs::stub_with_spec),
        };
        let is_needed = |_: &[Arc<ClusterDNS>], object: &DynamicObject| has_our_label(object);
        let followed = Followed { api, label, slim, stub, is_needed, longest_wait: LONGEST_WAIT };
        let watch =
            self.keep(writer, followed, move |all, object| triggers::of_child(kind, all, object));
        let key = (kind, namespace.to_owned());
        self.children
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Kept { store, watch });
    }

    fn keep<K>(
        &self,
        writer: Writer<K>,
        followed: Followed<K>,
        whose: impl Fn(&[Arc<ClusterDNS>], &K) -> Vec<String> + Send + Sync + 'static,
    ) -> AbortHandle
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Clone + Eq + Hash + Send + Sync,
    {
        let (all, triggers) = (self.resources.clone(), self.triggers.clone());
        let heard = move |heard: Heard<'_, K>| {
            let Heard::Changed(object) = heard else { return };
            let all = all.state();
            triggers.enqueue(&all, whose(&all, object));
        };
        self.spawn(writer, followed, heard)
    }

    /// Every ClusterDNS is reconciled again when the size of the cluster has changed.
    fn watch_nodes(&self) {
        let (nodes, all, triggers) =
            (self.nodes.clone(), self.resources.clone(), self.triggers.clone());
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            let mut before = None;
            loop {
                tokio::time::sleep(NODES_EVERY).await;
                let size = super::cluster_size::of(nodes.state().iter().map(AsRef::as_ref));
                if before.replace(size).is_some_and(|before| before != size) {
                    let all = all.state();
                    triggers.enqueue(&all, all.iter().map(|dns| dns.name_any()));
                }
            }
        });
    }

    /// Returns when every store has had its first complete list, but for kinds that others bring: a problem with
    /// these kinds must not delay the others.
    pub async fn wait_until_ready(&self) {
        let children: Vec<_> = {
            let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
            let needed = |kind: Kind| !resources::MONITORING.contains(&kind);
            let needed = children.iter().filter(|((kind, _), _)| needed(*kind));
            needed.map(|(_, kept)| kept.store.clone()).collect()
        };
        for store in &children {
            let _ = store.wait_until_ready().await;
        }
        for store in self.pods.values() {
            let _ = store.wait_until_ready().await;
        }
        for store in self.replica_sets.values() {
            let _ = store.wait_until_ready().await;
        }
        for store in self.slices.values() {
            let _ = store.wait_until_ready().await;
        }
        let _ = self.nodes.wait_until_ready().await;
    }

    /// The object of this kind and name, where it is kept.
    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        let store = &children.get(&(kind, namespace.to_owned()))?.store;
        let reference = ObjectRef::new_with(name, resources::resource(kind));
        store.get(&match namespace {
            "" => reference,
            namespace => reference.within(namespace),
        })
    }

    /// May there be objects of this kind that are not kept at all?
    pub fn is_incomplete(&self, kind: Kind, namespace: &str) -> bool {
        self.budget.is_incomplete(&resources::resource(kind).plural, namespace)
    }

    /// All objects of a kind that are kept.
    pub fn objects(&self, kind: Kind, namespace: &str) -> Vec<Arc<DynamicObject>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        let kept = children.get(&(kind, namespace.to_owned()));
        kept.map(|kept| kept.store.state()).unwrap_or_default()
    }

    /// Where objects are kept: kind and namespace, empty for kinds without.
    pub fn places(&self) -> Vec<(Kind, String)> {
        let mut places: Vec<_> =
            self.children.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        places.sort();
        places
    }

    /// The pods that have the labels of this ClusterDNS.
    pub fn pods(&self, namespace: &str, instance: &str) -> Vec<Pod> {
        labelled(self.pods.get(namespace), instance)
    }

    /// ReplicaSets of this instance's Deployment.
    pub fn replica_sets(&self, namespace: &str, instance: &str) -> Vec<ReplicaSet> {
        labelled(self.replica_sets.get(namespace), instance)
    }

    /// The EndpointSlices of a Service; none: not all of them are kept whole.
    pub fn slices(&self, namespace: &str, service: &str) -> Option<Vec<EndpointSlice>> {
        let store = self.slices.get(namespace)?;
        let label = Some(service);
        let is_its =
            |slice: &EndpointSlice| triggers::label(slice.meta(), triggers::SERVICE_NAME) == label;
        let found = sorted(store.state_filter(is_its));
        let is_incomplete = self.budget.is_incomplete(&EndpointSlice::plural(&()), namespace);
        (!is_incomplete && !found.iter().any(stubs::is_stub)).then_some(found)
    }

    /// How big the cluster is.
    pub fn size(&self) -> crate::observe::observed::ClusterSize {
        super::cluster_size::of(self.nodes.state().iter().map(AsRef::as_ref))
    }

    /// Ranges from which nodes give addresses to pods.
    pub fn pod_ranges(&self) -> Vec<IpNet> {
        super::cluster_size::pod_ranges(self.nodes.state().iter().map(AsRef::as_ref))
    }

    /// Nodes with these labels.
    pub fn placeable_nodes(&self, labels: &BTreeMap<String, String>) -> u32 {
        let nodes = self.nodes.state_filter(|node: &SlimNode| node.has(labels));
        u32::try_from(nodes.len()).unwrap_or(u32::MAX)
    }

    /// Those of these nodes whose kubelet is not ready. A node that is gone is none: its pods go with it.
    pub fn dead_nodes<'a>(&self, names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
        let is_dead =
            |name: &&str| self.nodes.get(&ObjectRef::new(name)).is_some_and(|node| node.is_dead());
        names.filter(is_dead).map(str::to_owned).collect()
    }

    /// The namespaces that are watched.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }
}

/// Our own, found by a label.
fn labelled_with<K: Resource>(api: Api<K>, label: &'static str) -> Followed<K> {
    Followed {
        api,
        label: Some(label),
        slim: drop_managed_fields,
        stub: None,
        is_needed: |_, _| true,
        longest_wait: LONGEST_WAIT,
    }
}

fn labelled<K>(store: Option<&Store<K>>, instance: &str) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone,
{
    let Some(store) = store else { return Vec::new() };
    sorted(store.state_filter(|object: &K| {
        triggers::label(object.meta(), names::INSTANCE) == Some(instance)
    }))
}

/// Stores have no order; decisions must not depend on chance.
fn sorted<K: Resource<DynamicType = ()> + Clone>(found: Vec<Arc<K>>) -> Vec<K> {
    let mut found: Vec<K> = found.into_iter().map(Arc::unwrap_or_clone).collect();
    found.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
    found
}

fn drop_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

fn has_our_label(object: &impl Resource) -> bool {
    triggers::label(object.meta(), names::INSTANCE).is_some()
}

/// Of the metadata of a Node only its name and its labels are read.
fn keep_labels<K: Resource>(object: &mut K) {
    let metadata = object.meta_mut();
    (metadata.managed_fields, metadata.annotations) = (None, None);
    (metadata.owner_references, metadata.finalizers) = (None, None);
}

/// ConfigMaps of others are kept because a ClusterDNS may refer to one: their binary data, and what `kubectl apply`
/// wrote into annotations, is not needed.
fn keep_what_is_read(object: &mut DynamicObject) {
    if triggers::label(object.meta(), names::INSTANCE).is_some() {
        return;
    }
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("binaryData");
    }
    let annotations = object.metadata.annotations.as_mut();
    annotations.map(|annotations| annotations.remove(LAST_APPLIED));
}

#[cfg(test)]
mod tests;
