//! `/metrics` of the operator. Label values are reasons and kinds from fixed lists; names of ClusterDNS are bounded.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use kube::ResourceExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::report::status::conditions::CONDITIONS;

/// ClusterDNS with gauges of their own: a cluster has one or a few, and no one has tried more than some hundreds.
const MAX_RESOURCES: usize = 1_000;
/// 5 ms, doubled twelve times: 20 s.
const DURATIONS: (f64, f64, u16) = (0.005, 2.0, 13);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCondition {
    name: String,
    condition: String,
}

/// The metrics of the operator, see docs/metrics.md.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: Family<OutcomeLabel, Counter>,
    durations: Histogram,
    writes: Family<Write, Counter>,
    watch_failures: Counter,
    version_resets: Counter,
    cache_bytes: Family<Part, Gauge>,
    not_kept: Family<Resource, Counter>,
    lost_pods: Counter,
    http_refusals: Family<ReasonLabel, Counter>,
    is_leader: Gauge,
    conditions: Family<OfCondition, Gauge<f64, AtomicU64>>,
    shown: Mutex<BTreeSet<(String, String)>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("clusterdns_operator");
        let (first, factor, length) = DURATIONS;
        let buckets =
            prometheus_client::metrics::histogram::exponential_buckets(first, factor, length);
        let durations = Histogram::new(buckets);
        let help = "Duration of a reconcile in seconds";
        registry.register("reconcile_duration_seconds", help, durations.clone());
        let all = &mut registry;
        Metrics {
            reconciles: new(all, "reconciles", "Reconciles by outcome"),
            durations,
            writes: new(all, "writes", "Writes to the API server by kind and outcome"),
            watch_failures: new(
                all,
                "watch_failures",
                "Watches of the API server that failed and were started again",
            ),
            version_resets: new(
                all,
                "version_resets",
                "Watches whose version the API server did not have any more: its etcd was restored",
            ),
            cache_bytes: new(
                all,
                "cache_bytes",
                "Estimated size in memory of cached objects, in bytes: whole objects and stubs",
            ),
            not_kept: new(
                all,
                "objects_not_kept",
                "Objects stored as stubs because the cache was full, by resource",
            ),
            lost_pods: new(
                all,
                "lost_pods",
                "Pods removed from their Service because they stopped answering",
            ),
            http_refusals: new(
                all,
                "http_refusals",
                "Connections and requests of the HTTP port that were refused or cut short, by reason",
            ),
            is_leader: new(all, "is_leader", "1 while this process is the leader"),
            conditions: new(
                all,
                "condition",
                "Conditions of each ClusterDNS: 1 true, 0 false or absent, 0.5 unknown",
            ),
            shown: Mutex::default(),
            registry,
        }
    }
}

/// A metric of its own type, registered under this name.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// The text that a scraper reads.
    pub fn text(&self) -> String {
        for (reason, count) in process::http::refusals() {
            let counter = self.http_refusals.get_or_create(&ReasonLabel { reason });
            counter.inner().store(count, Ordering::Relaxed);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Counts a reconcile with its outcome, and how long it took.
    pub fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&OutcomeLabel { outcome }).inc();
        self.durations.observe(took.as_secs_f64());
    }

    /// A write to the API server ended.
    pub fn wrote(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&Write { kind, outcome }).inc();
    }

    /// Counts a watch or list that failed.
    pub fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// Counts a watch whose version the API server does not have any more.
    pub fn version_reset(&self) {
        self.version_resets.inc();
    }

    /// All caches hold this many octets of whole objects and of stubs.
    pub fn cached(&self, (whole, stubs): (usize, usize)) {
        for (part, octets) in [("whole", whole), ("stubs", stubs)] {
            let octets = i64::try_from(octets).unwrap_or(i64::MAX);
            self.cache_bytes.get_or_create(&Part { part }).set(octets);
        }
    }

    /// An object of this kind (its plural, one of those that are watched) was read and is not kept whole.
    pub fn not_kept(&self, resource: &str) {
        self.not_kept.get_or_create(&Resource { resource: resource.to_owned() }).inc();
    }

    /// A pod was taken out of its Service.
    pub fn pod_lost(&self) {
        self.lost_pods.inc();
    }

    /// This process became the leader, or is no leader any more.
    pub fn leads(&self, leads: bool) {
        self.is_leader.set(leads.into());
    }

    /// The status of a ClusterDNS is this.
    pub fn reported(&self, dns: &ClusterDNS, status: &ClusterDNSStatus) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        // A condition that is there only while it is true is false when it has left.
        let is_there = |kind: &str| status.conditions.iter().any(|it| it.type_ == kind);
        let name = dns.name_any();
        for (_, left) in shown.iter().filter(|(of, kind)| *of == name && !is_there(kind)) {
            let label = OfCondition { name: name.clone(), condition: left.clone() };
            self.conditions.get_or_create(&label).set(0.0);
        }
        for condition in &status.conditions {
            let key = (dns.name_any(), condition.type_.clone());
            if !shown.contains(&key) && shown.len() >= MAX_RESOURCES * CONDITIONS.len() {
                continue;
            }
            let value = match condition.status.as_str() {
                "True" => 1.0,
                "False" => 0.0,
                _ => 0.5,
            };
            let label = OfCondition { name: key.0.clone(), condition: key.1.clone() };
            self.conditions.get_or_create(&label).set(value);
            shown.insert(key);
        }
    }

    /// Removes the series of a ClusterDNS that was deleted.
    pub fn gone(&self, name: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.retain(|(shown_name, condition)| {
            let stays = shown_name != name;
            if !stays {
                let label = OfCondition { name: name.to_owned(), condition: condition.clone() };
                self.conditions.remove(&label);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns() -> ClusterDNS {
        let mut dns = ClusterDNS::default();
        dns.metadata.name = Some("cluster".into());
        dns
    }

    fn with_true(kinds: &[&str]) -> ClusterDNSStatus {
        let condition = |kind: &&str| {
            let condition = serde_json::json!({"type": kind, "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(condition).unwrap()
        };
        let conditions = kinds.iter().map(condition).collect();
        ClusterDNSStatus { conditions, ..ClusterDNSStatus::default() }
    }

    #[test]
    fn o14_a_condition_that_left_the_status_is_0() {
        let metrics = Metrics::default();
        let line = |kind: &str, value: &str| {
            format!(
                "clusterdns_operator_condition{{name=\"cluster\",condition=\"{kind}\"}} {value}"
            )
        };
        metrics.reported(&dns(), &with_true(&["Ready", "Stalled"]));
        assert!(metrics.text().contains(&line("Stalled", "1.0")), "{}", metrics.text());
        metrics.reported(&dns(), &with_true(&["Ready"]));
        assert!(metrics.text().contains(&line("Stalled", "0.0")), "{}", metrics.text());
        assert!(metrics.text().contains(&line("Ready", "1.0")), "{}", metrics.text());
    }

    #[test]
    fn conditions_of_what_is_gone_go() {
        let (metrics, dns, status) = (Metrics::default(), dns(), with_true(&["Ready"]));
        let line = r#"clusterdns_operator_condition{name="cluster",condition="Ready"} 1.0"#;
        metrics.reported(&dns, &status);
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.gone("cluster");
        assert!(!metrics.text().contains(line));
    }
}
