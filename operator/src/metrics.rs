//! `/metrics` of the operator. Label values are reasons and kinds from fixed lists; names of ClusterDNS are bounded.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
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
use prometheus_client::registry::Registry;

/// ClusterDNS with gauges of their own; a cluster has one or a few.
const MAX_RESOURCES: usize = 100;
/// 5 ms, doubled twelve times: 20 s.
const DURATIONS: (f64, f64, u16) = (0.005, 2.0, 13);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCondition {
    name: String,
    condition: String,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: Family<Outcome, Counter>,
    durations: Histogram,
    writes: Family<Write, Counter>,
    watch_failures: Counter,
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
        let metrics = Metrics {
            reconciles: Family::default(),
            durations: Histogram::new(buckets),
            writes: Family::default(),
            watch_failures: Counter::default(),
            is_leader: Gauge::default(),
            conditions: Family::default(),
            shown: Mutex::default(),
            registry: Registry::default(),
        };
        registry.register("reconciles", "Reconciles by outcome", metrics.reconciles.clone());
        registry.register(
            "reconcile_duration_seconds",
            "How long a reconcile took",
            metrics.durations.clone(),
        );
        registry.register(
            "writes",
            "Writes to the API server by kind and outcome",
            metrics.writes.clone(),
        );
        registry.register("watch_failures", "Watches that broke", metrics.watch_failures.clone());
        registry.register("is_leader", "1 when this process leads", metrics.is_leader.clone());
        registry.register(
            "condition",
            "Conditions of each ClusterDNS: 1 true, 0 false, 0.5 unknown",
            metrics.conditions.clone(),
        );
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    /// The text that a scraper reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }

    /// A reconcile ended.
    pub fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { outcome }).inc();
        self.durations.observe(took.as_secs_f64());
    }

    /// Something was written, or not.
    pub fn wrote(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&Write { kind, outcome }).inc();
    }

    /// A watch broke.
    pub fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// Leads or does not.
    pub fn leads(&self, leads: bool) {
        self.is_leader.set(leads.into());
    }

    /// What is reported about a ClusterDNS.
    pub fn reported(&self, dns: &ClusterDNS, status: &ClusterDNSStatus) {
        let mut shown = self.shown.lock().expect("nothing panics while holding this lock");
        for condition in &status.conditions {
            let key = (dns.name_any(), condition.type_.clone());
            if !shown.contains(&key) && shown.len() >= MAX_RESOURCES * 4 {
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

    /// A ClusterDNS is gone.
    pub fn gone(&self, name: &str) {
        let mut shown = self.shown.lock().expect("nothing panics while holding this lock");
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

    #[test]
    fn conditions_of_what_is_gone_go() {
        let metrics = Metrics::default();
        let mut dns = ClusterDNS::default();
        dns.metadata.name = Some("cluster".into());
        let condition = serde_json::json!({"type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = ClusterDNSStatus {
            conditions: vec![serde_json::from_value(condition).unwrap()],
            ..ClusterDNSStatus::default()
        };
        let line = r#"clusterdns_operator_condition{name="cluster",condition="Ready"} 1.0"#;
        metrics.reported(&dns, &status);
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.gone("cluster");
        assert!(!metrics.text().contains(line));
    }
}
