//! Fields of a valid spec that change no object: other fields of the same spec make them useless, or the API server does
//! not have the kind. The condition `Accepted` names both; `check` knows only the first.

use crds::ClusterDNS;
use crds::config::MetricNames;
use crds::without_effect::WithoutEffect;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::observe::observed::Offers;

/// Fields that have no effect beside other fields of this spec. A field at its default is not among them.
pub fn beside_others(dns: &ClusterDNS) -> Vec<WithoutEffect> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let is_per_node = dns.spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some());
    let constraints = dns.spec.placement.iter().flat_map(|it| &it.topology_spread_constraints);
    let budget = dns.spec.pod_disruption_budget.clone().unwrap_or_default();
    let rows = [
        (
            metrics.labels.is_some_and(|labels| !labels.is_empty())
                && !metrics.pod_monitor
                && !metrics.prometheus_rule,
            "spec.metrics.labels",
            "podMonitor and prometheusRule are false, so no object has them",
        ),
        (
            metrics.interval_seconds.is_some() && !metrics.pod_monitor,
            "spec.metrics.intervalSeconds",
            "podMonitor is false, and only a PodMonitor has it",
        ),
        (
            metrics.probes.is_some_and(|probes| !probes.is_empty())
                && !metrics.compatibility.contains(&MetricNames::KubeDNS),
            "spec.metrics.probes",
            "compatibility does not have KubeDNS, so pods do not open the port that shows them",
        ),
        (
            is_per_node && constraints.flatten().next().is_some(),
            "spec.placement.topologySpreadConstraints",
            "scaling.perNode runs one pod on each node",
        ),
        (
            is_per_node && budget.max_unavailable.is_some(),
            "spec.podDisruptionBudget.maxUnavailable",
            "with scaling.perNode only minAvailable as a number has an effect: Kubernetes does not count how many pods a DaemonSet \
             should have",
        ),
        (
            is_per_node && matches!(budget.min_available, Some(IntOrString::String(_))),
            "spec.podDisruptionBudget.minAvailable",
            "with scaling.perNode only a number has an effect: Kubernetes does not count how many pods a DaemonSet should have",
        ),
    ];
    let used = rows.into_iter().filter(|(is_useless, _, _)| *is_useless);
    used.map(|(_, field, instead)| WithoutEffect { field: field.to_owned(), instead }).collect()
}

/// Kinds that this spec asks for and that the API server does not have.
pub fn missing_kinds(dns: &ClusterDNS, offers: &Offers) -> Vec<&'static str> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let rows = [
        (metrics.pod_monitor && !offers.pod_monitor, "PodMonitor (spec.metrics.podMonitor)"),
        (
            metrics.prometheus_rule && !offers.prometheus_rule,
            "PrometheusRule (spec.metrics.prometheusRule)",
        ),
    ];
    rows.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, kind)| kind).collect()
}

/// Fields that only objects of missing kinds would have.
pub fn of_missing_kinds(dns: &ClusterDNS, offers: &Offers) -> Vec<WithoutEffect> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let (monitor, rule) = (metrics.pod_monitor, metrics.prometheus_rule);
    let has_monitor = monitor && offers.pod_monitor;
    let has_rule = rule && offers.prometheus_rule;
    let rows = [
        (
            metrics.labels.is_some_and(|labels| !labels.is_empty())
                && (monitor || rule)
                && !has_monitor
                && !has_rule,
            "spec.metrics.labels",
            "the API server does not have the kinds of the objects that would have them",
        ),
        (
            metrics.interval_seconds.is_some() && monitor && !has_monitor,
            "spec.metrics.intervalSeconds",
            "the API server does not have the kind PodMonitor",
        ),
    ];
    let used = rows.into_iter().filter(|(is_useless, _, _)| *is_useless);
    used.map(|(_, field, instead)| WithoutEffect { field: field.to_owned(), instead }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::dns;

    fn fields(found: &[WithoutEffect]) -> Vec<&str> {
        found.iter().map(|it| it.field.trim_start_matches("spec.")).collect()
    }

    #[test]
    fn o18_fields_that_others_make_useless_are_named() {
        for (spec, expected) in [
            ("{}", &[][..]),
            ("{metrics: {labels: {a: b}, intervalSeconds: 30}}", &[]),
            ("{metrics: {labels: {a: b}, podMonitor: false}}", &[]),
            (
                "{metrics: {labels: {a: b}, podMonitor: false, prometheusRule: false}}",
                &["metrics.labels"],
            ),
            ("{metrics: {intervalSeconds: 30, podMonitor: false}}", &["metrics.intervalSeconds"]),
            ("{metrics: {probes: [{label: a, name: a.example}]}}", &["metrics.probes"]),
            ("{metrics: {compatibility: [KubeDNS], probes: [{label: a, name: a.example}]}}", &[]),
            (
                "{scaling: {perNode: {}}, placement: {topologySpreadConstraints: [{maxSkew: 1, \
                 topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}",
                &["placement.topologySpreadConstraints"],
            ),
            ("{scaling: {perNode: {}}, podDisruptionBudget: {minAvailable: 1}}", &[]),
            ("{podDisruptionBudget: {maxUnavailable: 25%}}", &[]),
            (
                "{scaling: {perNode: {}}, podDisruptionBudget: {maxUnavailable: 1}}",
                &["podDisruptionBudget.maxUnavailable"],
            ),
            (
                "{scaling: {perNode: {}}, podDisruptionBudget: {minAvailable: 50%}}",
                &["podDisruptionBudget.minAvailable"],
            ),
        ] {
            assert_eq!(fields(&beside_others(&dns(spec))), expected, "{spec}");
        }
    }

    #[test]
    fn o18_kinds_that_the_api_server_does_not_have_are_named_with_their_fields() {
        let spec = "{metrics: {labels: {a: b}, intervalSeconds: 30}}";
        for (pod_monitor, prometheus_rule, kinds, expected) in [
            (true, true, &[][..], &[][..]),
            (true, false, &["PrometheusRule (spec.metrics.prometheusRule)"], &[]),
            (false, true, &["PodMonitor (spec.metrics.podMonitor)"], &["metrics.intervalSeconds"]),
            (
                false,
                false,
                &[
                    "PodMonitor (spec.metrics.podMonitor)",
                    "PrometheusRule (spec.metrics.prometheusRule)",
                ],
                &["metrics.labels", "metrics.intervalSeconds"],
            ),
        ] {
            let offers = Offers { pod_monitor, prometheus_rule, ..Offers::default() };
            assert_eq!(missing_kinds(&dns(spec), &offers), kinds);
            assert_eq!(fields(&of_missing_kinds(&dns(spec), &offers)), expected);
        }
        let spec = "{metrics: {podMonitor: false, prometheusRule: false, labels: {a: b}}}";
        assert!(missing_kinds(&dns(spec), &Offers::default()).is_empty());
        assert!(of_missing_kinds(&dns(spec), &Offers::default()).is_empty(), "said once");
    }
}
