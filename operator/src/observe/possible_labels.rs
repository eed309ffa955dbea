//! Which labels the pods of a ClusterDNS may have, whichever way it is decided: who selects by others does not concern it.
//! Selectors are compared where the caches keep them, and what may select our pods is copied, cut to what our labels can
//! meet. So copies are bounded by our own labels: anyone who edits the namespace can make thousands of Services and
//! PodDisruptionBudgets, with selectors of 1 MiB each (K23). Pure.

use std::collections::{BTreeMap, BTreeSet};

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::{Map, Value};

use crate::decide::config_map;
use crate::desired::own_labels;
use crate::observe::observed::Observed;

/// Each key with each value that it may have.
pub(super) struct PossibleLabels {
    values: BTreeMap<String, BTreeSet<String>>,
    /// Those that the spec writes.
    written: BTreeMap<String, String>,
}

impl PossibleLabels {
    /// Of its pods, behind this Service or the one that was deleted: see [`crate::desired::pod_labels`].
    pub(super) fn of(
        dns: &ClusterDNS,
        service: Option<&Service>,
        config_map: Option<&ConfigMap>,
    ) -> PossibleLabels {
        let placement = dns.spec.placement.as_ref();
        let written = placement.and_then(|it| it.pod_labels.clone()).unwrap_or_default();
        let theirs = service.and_then(|service| service.spec.as_ref()?.selector.clone());
        let manifest = config_map::state_in(config_map).service.manifest;
        let selector = manifest.as_ref().and_then(|it| it.pointer("/spec/selector")?.as_object());
        let deleted = selector.into_iter().flatten().filter_map(text);
        let deleted = deleted.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let sources = written.clone().into_iter().chain(own_labels(dns, &Observed::default()));
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (key, value) in sources.chain(theirs.into_iter().flatten()).chain(deleted) {
            values.entry(key).or_default().insert(value);
        }
        PossibleLabels { values, written }
    }

    fn has(&self, key: &str, value: &str) -> bool {
        self.values.get(key).is_some_and(|values| values.contains(value))
    }

    fn has_all(&self, selector: &Map<String, Value>) -> bool {
        selector.len() <= self.values.len()
            && selector
                .iter()
                .all(|(key, value)| value.as_str().is_some_and(|it| self.has(key, it)))
    }

    /// The selector of a Service that may lead to our pods; one without a selector leads to none.
    pub(super) fn selector(&self, service: &DynamicObject) -> Option<BTreeMap<String, String>> {
        let selector = service.data.pointer("/spec/selector")?.as_object()?;
        let may_lead = !selector.is_empty() && self.has_all(selector);
        let pairs = selector.iter().filter_map(text);
        may_lead.then(|| pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Selectors of these Services that may lead to our pods by a label that the spec writes: by name of the first Service
    /// that has it.
    pub(super) fn selectors<'a>(
        &self,
        services: impl Iterator<Item = &'a DynamicObject>,
    ) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut names: BTreeMap<BTreeMap<String, String>, String> = BTreeMap::new();
        if self.written.is_empty() {
            return BTreeMap::new();
        }
        for service in services {
            let Some(selector) = self.selector(service) else { continue };
            if !selector.iter().any(|(key, value)| self.written.get(key) == Some(value)) {
                continue;
            }
            let name = service.name_any();
            let first = names.entry(selector).or_insert_with(|| name.clone());
            if name < *first {
                *first = name;
            }
        }
        names.into_iter().map(|(selector, name)| (name, selector)).collect()
    }

    /// Budgets that may select our pods: one of each selector, which is cut to the values that our labels may have, and that
    /// counts pods or does not. Of its bounds only a number of pods is kept.
    pub(super) fn budgets<'a>(
        &self,
        budgets: impl Iterator<Item = &'a DynamicObject>,
    ) -> Vec<PodDisruptionBudget> {
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        for budget in budgets {
            let Some(selector) = budget.data.pointer("/spec/selector").and_then(|it| self.cut(it))
            else {
                continue;
            };
            let least = budget.data.pointer("/spec/minAvailable").and_then(Value::as_i64);
            let least = least.and_then(|least| i32::try_from(least).ok()).map(IntOrString::Int);
            let text = serde_json::to_string(&selector).unwrap_or_default();
            if known.insert((text, least.is_some())) {
                let mut kept = PodDisruptionBudget::default();
                kept.metadata.name = Some(budget.name_any());
                let spec = kept.spec.get_or_insert_default();
                (spec.selector, spec.min_available) = (Some(selector), least);
                found.push(kept);
            }
        }
        found
    }

    /// A selector that selects the same of our pods; none: it selects none of them.
    fn cut(&self, selector: &Value) -> Option<LabelSelector> {
        let equal = selector.as_object()?.get("matchLabels").and_then(Value::as_object);
        if equal.is_some_and(|equal| !self.has_all(equal)) {
            return None;
        }
        let equal = equal.into_iter().flatten().filter_map(text);
        let equal = equal.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let mut kept: BTreeSet<(String, String, Vec<String>)> = BTreeSet::new();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default();
            let operator = expression["operator"].as_str().unwrap_or_default();
            let is_possible = self.values.contains_key(key);
            let listed = expression["values"].as_array().into_iter().flatten();
            let listed: BTreeSet<&str> =
                listed.filter_map(Value::as_str).filter(|value| self.has(key, value)).collect();
            match operator {
                "In" if listed.is_empty() => return None,
                "Exists" if !is_possible => return None,
                // Each of our pods meets it.
                "NotIn" if listed.is_empty() => continue,
                "DoesNotExist" if !is_possible => continue,
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => return None,
            }
            let listed = listed.into_iter().map(str::to_owned).collect();
            kept.insert((key.to_owned(), operator.to_owned(), listed));
        }
        let expressions = kept.into_iter().map(|(key, operator, listed)| {
            let values = (!listed.is_empty()).then_some(listed);
            LabelSelectorRequirement { key, operator, values }
        });
        let match_expressions = Some(expressions.collect());
        Some(LabelSelector { match_labels: Some(equal), match_expressions })
    }
}

fn text<'a>((key, value): (&'a String, &'a Value)) -> Option<(&'a str, &'a str)> {
    Some((key.as_str(), value.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, from};
    use crate::names;
    use serde_json::json;

    fn object(name: &str, spec: Value) -> DynamicObject {
        from(json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}))
    }

    fn possible(spec: &str) -> PossibleLabels {
        PossibleLabels::of(&dns(spec), None, None)
    }

    /// 20,000 pairs, as no pod has them.
    fn large() -> Value {
        let pairs = (0..20_000).map(|n| (format!("k{n}"), json!("x".repeat(50))));
        Value::Object(pairs.collect())
    }

    const WRITTEN: &str = "{placement: {podLabels: {team: dns, k8s-app: own}}}";

    #[test]
    fn k23_only_selectors_that_may_lead_to_our_pods_are_copied_each_once() {
        let service = |name: &str, selector: Value| object(name, json!({"selector": selector}));
        let mut services: Vec<DynamicObject> =
            (0..5_000).map(|n| service(&format!("s{n:04}"), json!({"team": "dns"}))).collect();
        services.push(service("large", large()));
        services.push(service("other", json!({"team": "web"})));
        services.push(service("both", json!({"team": "dns", "app": "web"})));
        services.push(service("none", json!({})));
        services.push(object("nothing", json!({})));
        services.push(service("ours", json!({names::INSTANCE: "default"})));
        services.push(service("changed", json!({"k8s-app": "own", names::INSTANCE: "default"})));
        let found = possible(WRITTEN).selectors(services.iter());
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["changed", "s0000"]);
        assert_eq!(found["s0000"], BTreeMap::from([("team".to_owned(), "dns".to_owned())]));
        assert!(possible("{}").selectors(services.iter()).is_empty(), "no label is written");
    }

    #[test]
    fn s14_labels_of_the_service_and_of_the_deleted_one_are_possible() {
        let selector = json!({"app": "dns"});
        let service: Service = from(json!({"spec": {"selector": selector}}));
        let manifest = json!({"service": {"manifest": {"spec": {"selector": {"old": "dns"}}}}});
        let map: ConfigMap = from(json!({"data": {"rollout.json": manifest.to_string()}}));
        let labels = PossibleLabels::of(&dns("{}"), Some(&service), Some(&map));
        assert!(labels.has("app", "dns") && labels.has("old", "dns"));
        assert!(labels.has("k8s-app", "kube-dns") && labels.has(names::INSTANCE, "default"));
        assert!(!labels.has("app", "web"));
    }

    #[test]
    fn k23_budgets_are_cut_to_what_our_labels_can_meet() {
        let values: Vec<String> = (0..20_000).map(|n| format!("v{n}")).collect();
        let with_ours: Vec<&str> = values.iter().map(String::as_str).chain(["dns"]).collect();
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let cut = |selector: Value| {
            let budget = object("b", json!({"selector": selector}));
            let found = possible(WRITTEN).budgets(std::iter::once(&budget));
            found.first().map(|found| {
                let selector = found.spec.as_ref().unwrap().selector.clone().unwrap();
                (selector.match_labels.unwrap(), selector.match_expressions.unwrap())
            })
        };
        let none = || Some((BTreeMap::new(), Vec::new()));
        assert_eq!(cut(json!({})), none(), "it selects every pod");
        assert_eq!(cut(json!({"matchLabels": large()})), None);
        assert_eq!(cut(expression("team", "In", json!(values))), None);
        assert_eq!(cut(expression("team", "NotIn", json!(values))), none());
        assert_eq!(cut(expression("other", "NotIn", json!(values))), none());
        assert_eq!(cut(expression("other", "DoesNotExist", json!(null))), none());
        assert_eq!(cut(expression("other", "Exists", json!(null))), None);
        assert_eq!(cut(expression("team", "Like", json!(["dns"]))), None);
        for operator in ["In", "NotIn"] {
            let (equal, kept) = cut(expression("team", operator, json!(with_ours))).unwrap();
            assert!(equal.is_empty() && kept.len() == 1);
            assert_eq!(kept[0].values.as_deref(), Some(&["dns".to_owned()][..]), "{operator}");
        }
        let (equal, _) = cut(json!({"matchLabels": {"team": "dns"}})).unwrap();
        assert_eq!(equal.get("team").map(String::as_str), Some("dns"));
    }

    #[test]
    fn k23_of_many_budgets_with_one_selector_two_are_kept_by_whether_they_count_pods() {
        let least = |n: usize| if n.is_multiple_of(2) { json!(n) } else { json!("50%") };
        let spec = |n| json!({"selector": {"matchLabels": {"k8s-app": "kube-dns"}}, "minAvailable": least(n)});
        let many: Vec<DynamicObject> =
            (0..5_000).map(|n| object(&format!("b{n}"), spec(n))).collect();
        let found = possible("{}").budgets(many.iter());
        let bounds: Vec<_> =
            found.iter().map(|it| it.spec.as_ref().unwrap().min_available.clone()).collect();
        assert_eq!(bounds, [Some(IntOrString::Int(0)), None]);
        let without = [object("b", json!({"minAvailable": 1}))];
        assert!(possible("{}").budgets(without.iter()).is_empty(), "it selects no pod");
    }
}
