//! What watches keep of the cluster, so that a reconcile reads little from the API server: the metadata of Secrets, pods of others,
//! and what the budget does not keep. One watch per kind and namespace feeds a store and enqueues the ClusterDNS concerned; the
//! store has the change before their reconcile begins.

mod keep;
mod listings;
mod slim;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crds::ClusterDNS;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use tokio::task::{AbortHandle, JoinSet};

use super::budget::Budget;
use super::cluster_size::{self, SlimNode};
use super::list_and_watch::{Followed, Means};
use super::lists::Lists;
use super::observed::KnownClients;
use super::placement::{self, Fit, Wanted};
use super::stubs;
use super::unlisted::Unlisted;
use super::unreadable::Unreadable;
use super::waits::LONGEST_WAIT;
use crate::controller::triggers::{self, Triggers};
use crate::desired::Kind;
use crate::names;
use crate::runtime::critical_tasks::CriticalTasks;
use crate::runtime::metrics::Metrics;
use crate::runtime::resources;
use listings::Listings;
pub(super) use slim::slim_slice;
use slim::{has_our_label, keep_what_is_read, slim_pod, slim_replica_set};

/// How often changes of nodes are added up; kubelets write their status all the time.
const NODES_EVERY: Duration = Duration::from_secs(5);

/// The caches of all watched kinds; `observe` reads them.
pub struct Caches {
    means: Means,
    triggers: Arc<Triggers>,
    namespaces: Vec<String>,
    /// Every ClusterDNS, some as stubs ([`stubs::stub_of_resource`]); fed by [`Caches::keep_resources`].
    pub resources: Store<ClusterDNS>,
    /// Those that cannot be read, which are not among them.
    pub unreadable: Arc<Unreadable>,
    children: RwLock<HashMap<(Kind, String), Kept>>,
    slices: HashMap<String, Store<EndpointSlice>>,
    pods: HashMap<String, Store<Pod>>,
    replica_sets: HashMap<String, Store<ReplicaSet>>,
    nodes: Store<SlimNode>,
    listings: Arc<Listings>,
    watches: Mutex<JoinSet<()>>,
    /// Says if one of them ends: what it keeps would stay as it is.
    pub critical: CriticalTasks,
    /// What all stores but that of ClusterDNS may hold, and do.
    pub budget: Arc<Budget>,
    budget_of_resources: Arc<Budget>,
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
            unreadable: Arc::default(),
            children: RwLock::default(),
            slices: HashMap::new(),
            pods: HashMap::new(),
            replica_sets: HashMap::new(),
            nodes: nodes.as_reader(),
            listings: Arc::default(),
            watches: Mutex::default(),
            critical: CriticalTasks::default(),
            budget: Arc::default(),
            budget_of_resources: Arc::new(Budget::of_resources()),
            stores: AtomicU64::new(0),
        };
        let of_nodes = Followed {
            api: Api::all(client.clone()),
            kind: (),
            label: None,
            slim: |_| {},
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
        let pods = labelled_with(pods, names::INSTANCE, slim_pod);
        self.keep(writer, pods, |_, pod: &Pod| triggers::by_label(pod.meta()));
        let writer = Writer::new(());
        self.replica_sets.insert(key.clone(), writer.as_reader());
        let sets = Api::namespaced(client.clone(), namespace);
        let sets = labelled_with(sets, names::INSTANCE, slim_replica_set);
        self.keep(writer, sets, |_, set: &ReplicaSet| triggers::by_label(set.meta()));
        let writer = Writer::new(());
        self.slices.insert(key, writer.as_reader());
        let slices = Api::namespaced(client.clone(), namespace);
        let is_ours = |all: &[Arc<ClusterDNS>], slice: &EndpointSlice| {
            has_our_label(slice) || !triggers::of_slice(all, slice).is_empty()
        };
        let slices = Followed {
            stub: Some(stubs::stub),
            is_needed: is_ours,
            ..labelled_with(slices, names::SERVICE_NAME, slim_slice)
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
        // A ConfigMap of others is read when a ClusterDNS names it, and by no other decision. Of other kinds there are only ours.
        let stub: Option<fn(&mut DynamicObject)> = match kind {
            Kind::Service => Some(stubs::stub_of_service),
            Kind::PodDisruptionBudget => Some(stubs::stub_of_budget),
            _ => None,
        };
        let is_needed = |_: &[Arc<ClusterDNS>], object: &DynamicObject| has_our_label(object);
        let (longest_wait, resource) = (LONGEST_WAIT, resources::resource(kind));
        let followed = Followed { api, kind: resource, label, slim, stub, is_needed, longest_wait };
        let watch =
            self.keep(writer, followed, move |all, object| triggers::of_child(kind, all, object));
        let key = (kind, namespace.to_owned());
        self.children
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Kept { store, watch });
    }

    /// Every ClusterDNS is reconciled again when the size of the cluster has changed.
    fn watch_nodes(&self) {
        let (nodes, all, triggers) =
            (self.nodes.clone(), self.resources.clone(), self.triggers.clone());
        let counting = async move {
            let mut before = None;
            loop {
                tokio::time::sleep(NODES_EVERY).await;
                let size = super::cluster_size::of(nodes.state().iter().map(AsRef::as_ref));
                if before.replace(size).is_some_and(|before| before != size) {
                    let all = all.state();
                    triggers.enqueue(&all, all.iter().map(|dns| dns.name_any()));
                }
            }
        };
        let counting = self.critical.clone().run("the count of nodes".to_owned(), counting);
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).spawn(counting);
    }

    /// Returns when every list of this namespace was complete once, except for kinds that others bring. Empty: of what has none.
    pub async fn wait_until_read(&self, namespace: &str) {
        self.listings.wait_for(namespace).await;
    }

    /// Whether nothing may be decided from what is kept of this namespace: not all of it was listed once.
    pub fn is_unread(&self, namespace: &str) -> bool {
        self.listings.is_unread(namespace)
    }

    /// Why that is so; none: it may only take a moment.
    pub fn why_unread(&self, namespace: &str) -> Option<Unlisted> {
        self.listings.why_unread(namespace)
    }

    /// Kinds of this namespace, or without one, whose watches went well once and are refused now.
    pub fn refused_watches(&self, namespace: &str) -> Option<Unlisted> {
        self.listings.refused(namespace)
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
        let plural = resources::resource(kind).plural;
        self.listings.is_missing(namespace, &plural)
            || self.budget.is_incomplete(&plural, namespace)
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
    pub fn slices(&self, namespace: &str, service: &str) -> Option<Vec<Arc<EndpointSlice>>> {
        let store = self.slices.get(namespace)?;
        let label = Some(service);
        let is_its =
            |slice: &EndpointSlice| triggers::label(slice.meta(), names::SERVICE_NAME) == label;
        let mut found = store.state_filter(is_its);
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let kind = EndpointSlice::plural(&());
        let is_incomplete = self.listings.is_missing(namespace, &kind)
            || self.budget.is_incomplete(&kind, namespace);
        let is_stub = |slice: &Arc<EndpointSlice>| stubs::is_stub(slice.as_ref());
        (!is_incomplete && !found.iter().any(is_stub)).then_some(found)
    }

    /// How big the cluster is.
    pub fn size(&self) -> crate::observe::observed::ClusterSize {
        super::cluster_size::of(self.nodes.state().iter().map(AsRef::as_ref))
    }

    /// Ranges from which nodes give addresses to pods, and the addresses of nodes.
    pub fn known_clients(&self) -> KnownClients {
        let nodes = self.nodes.state();
        let nodes = || nodes.iter().map(AsRef::as_ref);
        let (pod_ranges, nodes) =
            (cluster_size::pod_ranges(nodes()), cluster_size::addresses(nodes()));
        KnownClients { pod_ranges, nodes, has_node_local: false }
    }

    /// How many nodes our pods may run on, and what keeps them off every node.
    pub(super) fn fit(&self, wanted: &Wanted) -> Fit {
        placement::fit(self.nodes.state().iter().map(AsRef::as_ref), wanted)
    }

    /// What this says of those nodes on which pods run. A node that is gone does not count: its pods are deleted too.
    pub(super) fn of_nodes<T>(
        &self,
        pods: &[Pod],
        of: impl Fn(&SlimNode) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let nodes = pods.iter().filter_map(super::pods::node);
        let said = |name: &str| of(self.nodes.get(&ObjectRef::new(name))?.as_ref());
        nodes.filter_map(|name| Some((name.to_owned(), said(name)?))).collect()
    }

    /// The namespaces that are watched.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }
}

/// `/api/v1/namespaces/dns/configmaps` ends in its kind.
fn plural<K: Resource>(api: &Api<K>) -> String {
    api.resource_url().rsplit('/').next().unwrap_or_default().to_owned()
}

/// Those with this label.
fn labelled_with<K>(api: Api<K>, label: &'static str, slim: fn(&mut K)) -> Followed<K>
where
    K: Resource<DynamicType = ()>,
{
    Followed {
        api,
        kind: (),
        label: Some(label),
        slim,
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

#[cfg(test)]
mod tests;
