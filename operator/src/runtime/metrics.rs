//! `/metrics` of the operator. Label values are reasons and kinds from fixed lists; names of ClusterDNS are bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crds::ClusterDNS;
use crds::v1alpha1::{ClusterDNSStatus, ManagementState};
use kube::ResourceExt;
use process::histogram::{DELAY_BUCKETS, Durations, Writers};
use process::metrics::{Form, Page, Part, Process, REVISION, Section};

use crate::report::status::conditions::{CONDITIONS, SERVED_OTHERWISE};

/// ClusterDNS with gauges of their own: a cluster has one or a few, and no one has tried more than some hundreds.
const MAX_RESOURCES: usize = 1_000;
/// The lowest classic bound of the duration of a reconcile in seconds, and how many there are, each twice the one before:
/// 4 ms to 33 s.
const LOWEST_S: f64 = 0.004;
const BOUNDS: usize = 14;
/// Outcomes of a reconcile. Each has a row from the start: a rate does not count the increase from no row to 1.
const OUTCOMES: [&str; 3] = ["done", "failed", "incomplete"];

/// The metrics of the operator, see docs/metrics.md.
#[derive(Debug)]
pub struct Metrics {
    counted: Arc<Counted>,
    own: Section,
    process: Section,
}

/// What was counted.
#[derive(Debug, Default)]
struct Counted {
    reconciles: Counters<&'static str>,
    durations: Durations<DELAY_BUCKETS>,
    writes: Counters<(&'static str, &'static str)>,
    watch_failures: AtomicU64,
    version_resets: AtomicU64,
    /// Octets of whole objects and of stubs; none before they were counted.
    cached: Mutex<Option<(usize, usize)>>,
    /// The same of every ClusterDNS, whole or not.
    cached_resources: Mutex<Option<usize>>,
    /// The same of what the lookout for lost pods keeps, all of it whole.
    cached_pods: Mutex<Option<usize>>,
    not_kept: Counters<String>,
    lost_pods: AtomicU64,
    services_not_given_back: AtomicU64,
    is_leader: AtomicBool,
    is_reconciling: AtomicBool,
    /// The value of each condition by the name of the ClusterDNS and its type.
    conditions: Mutex<BTreeMap<(String, String), f64>>,
}

/// Counters by label; labels are from fixed lists.
#[derive(Debug)]
struct Counters<K>(Mutex<BTreeMap<K, u64>>);

impl<K> Default for Counters<K> {
    fn default() -> Counters<K> {
        Counters(Mutex::default())
    }
}

impl<K: Ord + Clone> Counters<K> {
    /// These have a row before they are counted.
    fn begin(&self, keys: impl IntoIterator<Item = K>) {
        locked(&self.0).extend(keys.into_iter().map(|key| (key, 0)));
    }

    fn add(&self, key: K) {
        *locked(&self.0).entry(key).or_default() += 1;
    }

    fn read(&self) -> Vec<(K, u64)> {
        locked(&self.0).iter().map(|(key, count)| (key.clone(), *count)).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The page of what was counted.
#[derive(Debug)]
struct Own(Arc<Counted>);

impl Part for Own {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let counted = &self.0;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("revision", REVISION)];
        page.gauges("build_info", "Version and source revision", [(labels, 1.0)])?;
        let rows = counted.reconciles.read().into_iter();
        let rows = rows.map(|(outcome, count)| ([("outcome", outcome)], count));
        page.counters("reconciles", "Reconciles by outcome", rows)?;
        let durations = counted.durations.read().coarser(LOWEST_S, BOUNDS);
        let help = "Duration of a reconcile in seconds";
        page.histogram("reconcile_duration_seconds", help, &durations)?;
        let rows = counted.writes.read().into_iter();
        let rows =
            rows.map(|((kind, outcome), count)| ([("kind", kind), ("outcome", outcome)], count));
        page.counters("writes", "Writes to the API server by kind and outcome", rows)?;
        let help = "Watches of the API server that failed and were started again";
        page.counter("watch_failures", help, counted.watch_failures.load(Ordering::Relaxed))?;
        let help =
            "Watches whose version the API server did not have any more: its etcd was restored";
        page.counter("version_resets", help, counted.version_resets.load(Ordering::Relaxed))?;
        self.cache(page)?;
        let help = "Pods removed from their Service because they stopped answering";
        page.counter("lost_pods", help, counted.lost_pods.load(Ordering::Relaxed))?;
        let help = "Adopted Services that could not be given back though their ClusterDNS is gone";
        let services = counted.services_not_given_back.load(Ordering::Relaxed);
        page.gauge("services_not_given_back", help, services as f64)?;
        let rows = process::http::refusals().map(|(reason, count)| ([("reason", reason)], count));
        let help =
            "Connections and requests of the HTTP port that were refused or cut short, by reason";
        page.counters("http_refusals", help, rows)?;
        let is_leader = f64::from(u8::from(counted.is_leader.load(Ordering::Relaxed)));
        page.gauge("is_leader", "1 while this process is the leader", is_leader)?;
        let is_reconciling = f64::from(u8::from(counted.is_reconciling.load(Ordering::Relaxed)));
        let help = "1 while this process is the leader and has listed every ClusterDNS";
        page.gauge("is_reconciling", help, is_reconciling)?;
        let conditions = locked(&counted.conditions).clone();
        let rows = conditions.iter().map(|((name, kind), value)| {
            ([("name", name.as_str()), ("condition", kind.as_str())], *value)
        });
        let help = "Conditions of each ClusterDNS: 1 true, 0 false or absent, 0.5 unknown";
        page.gauges("condition", help, rows)
    }
}

impl Own {
    fn cache(&self, page: &mut Page<'_>) -> fmt::Result {
        let cached = *locked(&self.0.cached);
        let rows =
            cached.into_iter().flat_map(|(whole, stubs)| [("whole", whole), ("stubs", stubs)]);
        let pods = locked(&self.0.cached_pods).map(|octets| ("lost_pods", octets));
        let resources = locked(&self.0.cached_resources).map(|octets| ("clusterdns", octets));
        let rows = rows.chain(resources).chain(pods);
        let rows = rows.map(|(part, octets)| ([("part", part)], octets as f64));
        let help = "Estimated size in memory of cached objects, in bytes: whole objects, stubs, every ClusterDNS, and what is kept to find lost pods";
        page.gauges("cache_bytes", help, rows)?;
        let rows = self.0.not_kept.read().into_iter();
        let rows = rows.map(|(resource, count)| ([("resource", resource)], count));
        let help = "Objects not kept whole, because the cache was full or they cannot be read, by resource";
        page.counters("objects_not_kept", help, rows)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let counted = Arc::<Counted>::default();
        counted.reconciles.begin(OUTCOMES);
        let own = Own(counted.clone());
        Metrics {
            counted,
            own: Section::of("clusterdns_operator", own),
            process: Section::of("", Process::default()),
        }
    }
}

impl Metrics {
    /// What a scraper reads, in this form.
    pub fn page(&self, form: Form) -> Vec<u8> {
        Section::page(&[&self.own, &self.process], form)
    }

    /// The page as text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.page(Form::Text)).into_owned()
    }

    /// Counts a reconcile with its outcome, and how long it took.
    pub fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.counted.reconciles.add(outcome);
        self.counted.durations.add(took, Writers::Several);
    }

    /// A write to the API server ended.
    pub fn wrote(&self, kind: &'static str, outcome: &'static str) {
        self.counted.writes.add((kind, outcome));
    }

    /// Counts a watch or list that failed.
    pub fn watch_failed(&self) {
        self.counted.watch_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a watch whose version the API server does not have any more.
    pub fn version_reset(&self) {
        self.counted.version_resets.fetch_add(1, Ordering::Relaxed);
    }

    /// This many adopted Services still select our pods, because giving them back failed.
    pub fn services_not_given_back(&self, count: usize) {
        self.counted.services_not_given_back.store(count as u64, Ordering::Relaxed);
    }

    /// All caches but that of ClusterDNS hold this many octets of whole objects and of stubs.
    pub fn cached(&self, octets: (usize, usize)) {
        *locked(&self.counted.cached) = Some(octets);
    }

    /// Every ClusterDNS takes this many octets, whole or as a stub.
    pub fn cached_resources(&self, (whole, stubs): (usize, usize)) {
        *locked(&self.counted.cached_resources) = Some(whole + stubs);
    }

    /// The lookout for lost pods holds this many octets of whole objects; of stubs it has none.
    pub fn cached_for_lookout(&self, (octets, _): (usize, usize)) {
        *locked(&self.counted.cached_pods) = Some(octets);
    }

    /// An object of this kind (its plural, one of those that are watched) was read and is not kept whole.
    pub fn not_kept(&self, resource: &str) {
        self.counted.not_kept.add(resource.to_owned());
    }

    /// A pod was taken out of its Service.
    pub fn pod_lost(&self) {
        self.counted.lost_pods.fetch_add(1, Ordering::Relaxed);
    }

    /// This process became the leader, or is no leader any more.
    pub fn leads(&self, leads: bool) {
        self.counted.is_leader.store(leads, Ordering::Relaxed);
    }

    /// This process leads, knows every ClusterDNS, and reconciles them until it ends.
    pub fn reconciles(&self) {
        self.counted.is_reconciling.store(true, Ordering::Relaxed);
    }

    /// The status of a ClusterDNS is this.
    pub fn reported(&self, dns: &ClusterDNS, status: &ClusterDNSStatus) {
        let mut shown = locked(&self.counted.conditions);
        // A condition that is there only while it is true is false when it has left.
        let is_there = |kind: &str| status.conditions.iter().any(|it| it.type_ == kind);
        let name = dns.name_any();
        for ((of, kind), value) in shown.iter_mut() {
            if *of == name && !is_there(kind) {
                *value = 0.0;
            }
        }
        // A person chose that the spec is not applied: no alert for that, whether it is refused or not.
        let has_up_to_date = match dns.spec.management_state {
            ManagementState::Managed => true,
            ManagementState::Unmanaged => false,
        };
        for condition in &status.conditions {
            let key = (name.clone(), condition.type_.clone());
            // Clients have DNS: no alert says that they have none.
            let is_served = condition.type_ == "Ready"
                && condition.status == "False"
                && SERVED_OTHERWISE.contains(&condition.reason.as_str());
            // Nothing says whether the spec is accepted: no alert says that it is refused.
            let is_open = condition.type_ == "Accepted" && condition.status == "Unknown";
            if is_served || is_open || (condition.type_ == "UpToDate" && !has_up_to_date) {
                shown.remove(&key);
                continue;
            }
            if !shown.contains_key(&key) && shown.len() >= MAX_RESOURCES * CONDITIONS.len() {
                continue;
            }
            let value = match condition.status.as_str() {
                "True" => 1.0,
                "False" => 0.0,
                _ => 0.5,
            };
            shown.insert(key, value);
        }
    }

    /// Removes the series of a ClusterDNS that was deleted.
    pub fn gone(&self, name: &str) {
        self.retain(|of| of != name);
    }

    /// Removes the series of all but these.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        locked(&self.counted.conditions).retain(|(of, _), _| is_there(of));
    }
}

#[cfg(test)]
mod tests;
