//! Fields of a valid spec that change no object: other fields of the same spec make them useless, an empty list is the same as
//! none, or the API server does not have the kind. The condition `Accepted` names both; `check` knows only the first.

mod places;

use crds::ClusterDNS;
use crds::config::{self, MetricNames, Policy, Transport};
use crds::defaults::MAX_TTL_SECONDS;
use crds::v1alpha1::{GroupCache, Server};
use crds::without_effect::WithoutEffect;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::observe::observed::Offers;

/// By how much a use may differ before a HorizontalPodAutoscaler acts: its default.
const TOLERANCE_PERCENT: u32 = 10;

/// Fields that have no effect beside other fields of this spec, or as an empty list. A field at its default is not among them, but where people
/// would miss alerts or pods.
pub fn beside_others(dns: &ClusterDNS) -> Vec<WithoutEffect> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let is_per_node = dns.spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some());
    let constraints = dns.spec.placement.iter().flat_map(|it| &it.topology_spread_constraints);
    let budget = dns.spec.pod_disruption_budget.clone().unwrap_or_default();
    let rows = [
        (
            metrics.labels.is_some_and(|labels| !labels.is_empty()) && !metrics.pod_monitor,
            "spec.metrics.labels",
            "podMonitor is false, so no object has them",
        ),
        (
            metrics.prometheus_rule && !metrics.pod_monitor,
            "spec.metrics.prometheusRule",
            "podMonitor is false, and the alerts read only what Prometheus gets by that PodMonitor",
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
    let of_groups = of_upstreams(dns).into_iter().chain(of_stub_domains(dns));
    let of_groups = of_groups.chain(places::of_places(dns));
    of_rows(rows).chain(of_empty_lists(dns)).chain(of_load(dns)).chain(of_groups).collect()
}

/// Empty lists that are the same as none, where people may mean the opposite: that no client may ask, or that nothing is shown.
fn of_empty_lists(dns: &ClusterDNS) -> impl Iterator<Item = WithoutEffect> {
    let metrics = dns.spec.metrics.as_ref();
    let shows_probes = metrics.is_some_and(|it| it.compatibility.contains(&MetricNames::KubeDNS));
    let access = dns.spec.access.as_ref();
    let exposure = dns.spec.exposure.as_ref();
    of_rows([
        (
            is_empty(access.and_then(|it| it.clients.as_ref())),
            "spec.access.clients",
            "[] is the same as no list, so everyone may ask: write the ranges that may, or leave the list out",
        ),
        (
            is_empty(exposure.and_then(|it| it.namespaces.as_ref())),
            "spec.exposure.namespaces",
            "[] is the same as no list, so it hides no namespace: write those that are shown, or leave the list out",
        ),
        (
            shows_probes && is_empty(metrics.and_then(|it| it.probes.as_ref())),
            "spec.metrics.probes",
            "[] is the same as no list, so pods have the two probes of kube-dns: write your own, or leave the list out",
        ),
    ])
}

/// Is it written, and without an item?
fn is_empty<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(Vec::is_empty)
}

/// A pod never uses more CPU than its limit, and a HorizontalPodAutoscaler adds none up to its tolerance above what pods should
/// use.
fn of_load(dns: &ClusterDNS) -> Option<WithoutEffect> {
    let wanted = dns.spec.scaling.as_ref()?.load.as_ref()?.cpu_millicores_per_replica;
    let limit = dns.spec.resources.as_ref()?.limits.as_ref()?.get("cpu")?;
    // 0 is no limit.
    let most = crds::check::quantity(&limit.0).filter(|it| *it > 0.0)? * 1_000.0;
    let is_reached = most * 100.0 > f64::from(wanted) * f64::from(100 + TOLERANCE_PERCENT);
    (!is_reached).then(|| WithoutEffect {
        field: "spec.scaling.load.cpuMillicoresPerReplica".to_owned(),
        instead: format!(
            "with resources.limits.cpu {} the average of pods never gets more than {TOLERANCE_PERCENT} % above {wanted}m, as it \
             must before the autoscaler adds pods: leave the limit out, raise it, or write less here",
            limit.0
        )
        .into(),
    })
}

/// The fields of the rows that say so, and what happens instead.
fn of_rows<const N: usize>(
    rows: [(bool, &str, &'static str); N],
) -> impl Iterator<Item = WithoutEffect> {
    let useless = rows.into_iter().filter(|(is_useless, _, _)| *is_useless);
    useless.map(|(_, field, instead)| WithoutEffect {
        field: field.to_owned(),
        instead: instead.into(),
    })
}

const NOT_ASKED: &str = "with none: true no server is asked";
const ABOVE_WHOLE: &str = "spec.cache.maxTTLSeconds is lower and bounds every group";
const OVER_UDP_ONLY: &str = "only names that are asked over UDP have random case, and no server of this group has the transport UDP";

fn of_upstreams(dns: &ClusterDNS) -> Vec<WithoutEffect> {
    let Some(upstreams) = &dns.spec.upstreams else { return Vec::new() };
    let is_none = upstreams.none == Some(true);
    let limit = upstreams.limits.as_ref().map(|limits| limits.in_flight);
    let has_limits = limit.is_some_and(|it| it != config::GroupLimits::default().in_flight);
    let has_cache = upstreams.cache.as_ref().is_some_and(|it| it.max_ttl_seconds.is_some());
    let has_withheld = upstreams.withheld_types.as_ref().is_some_and(|it| !it.is_empty());
    let rows = [
        (
            upstreams.from_resolv_conf == Some(false) && upstreams.servers.is_none() && !is_none,
            "spec.upstreams.fromResolvConf",
            "where neither servers nor none is written, the servers are those of the resolv.conf: write none: true to ask none",
        ),
        (is_none && upstreams.policy != Policy::default(), "spec.upstreams.policy", NOT_ASKED),
        (is_none && upstreams.case_randomisation, "spec.upstreams.caseRandomisation", NOT_ASKED),
        (is_none && has_limits, "spec.upstreams.limits", NOT_ASKED),
        (is_none && has_cache, "spec.upstreams.cache", NOT_ASKED),
        (is_none && has_withheld, "spec.upstreams.withheldTypes", NOT_ASKED),
        (
            !is_none && is_above_whole(upstreams.cache.as_ref(), dns),
            "spec.upstreams.cache.maxTTLSeconds",
            ABOVE_WHOLE,
        ),
        (
            upstreams.case_randomisation
                && upstreams.servers.as_deref().is_some_and(is_without_udp),
            "spec.upstreams.caseRandomisation",
            OVER_UDP_ONLY,
        ),
    ];
    of_rows(rows).collect()
}

fn of_stub_domains(dns: &ClusterDNS) -> impl Iterator<Item = WithoutEffect> {
    let stubs = dns.spec.stub_domains.iter().flatten().enumerate();
    stubs.flat_map(move |(index, stub)| {
        let rows = [
            (
                stub.case_randomisation && is_without_udp(&stub.servers),
                "caseRandomisation",
                OVER_UDP_ONLY,
            ),
            (is_above_whole(stub.cache.as_ref(), dns), "cache.maxTTLSeconds", ABOVE_WHOLE),
        ];
        of_rows(rows).map(move |it| WithoutEffect {
            field: format!("spec.stubDomains[{index}].{}", it.field),
            ..it
        })
    })
}

/// Is the bound of a group above that of the whole cache?
fn is_above_whole(group: Option<&GroupCache>, dns: &ClusterDNS) -> bool {
    let whole = dns.spec.cache.as_ref().map(|cache| cache.max_ttl_seconds);
    let whole = whole.unwrap_or(MAX_TTL_SECONDS);
    group.and_then(|group| group.max_ttl_seconds).is_some_and(|own| own > whole)
}

fn is_without_udp(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.transport != Transport::Udp)
}

/// Kinds that this spec asks for and that the API server does not have.
pub fn missing_kinds(dns: &ClusterDNS, offers: &Offers) -> Vec<&'static str> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let lacks_monitor = metrics.pod_monitor && !offers.pod_monitor;
    // Alerts read only what Prometheus gets by the monitor.
    let has_alerts = metrics.prometheus_rule && offers.prometheus_rule;
    let rows = [
        (lacks_monitor && !has_alerts, "PodMonitor (spec.metrics.podMonitor)"),
        (
            lacks_monitor && has_alerts,
            "PodMonitor (spec.metrics.podMonitor, and with it spec.metrics.prometheusRule)",
        ),
        (
            metrics.prometheus_rule && metrics.pod_monitor && !offers.prometheus_rule,
            "PrometheusRule (spec.metrics.prometheusRule)",
        ),
    ];
    rows.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, kind)| kind).collect()
}

/// Fields that only objects of missing kinds would have, or that need a metric that is missing.
pub fn of_missing_kinds(dns: &ClusterDNS, offers: &Offers) -> Vec<WithoutEffect> {
    let metrics = dns.spec.metrics.clone().unwrap_or_default();
    let load = dns.spec.scaling.as_ref().and_then(|scaling| scaling.load.as_ref());
    let lacks_monitor = metrics.pod_monitor && !offers.pod_monitor;
    let rows = [
        (
            metrics.labels.is_some_and(|labels| !labels.is_empty()) && lacks_monitor,
            "spec.metrics.labels",
            "the API server does not have the kind PodMonitor",
        ),
        (
            metrics.interval_seconds.is_some() && lacks_monitor,
            "spec.metrics.intervalSeconds",
            "the API server does not have the kind PodMonitor",
        ),
        (
            load.is_some_and(|load| load.queries_per_second_per_replica.is_some())
                && offers.queries_per_second == Some(false),
            "spec.scaling.load.queriesPerSecondPerReplica",
            "custom.metrics.k8s.io does not have the metric clusterdns_queries_per_second of pods, so only CPU counts: add a rule \
             to the metrics adapter",
        ),
    ];
    of_rows(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, fields};

    #[test]
    fn o18_fields_that_others_make_useless_are_named() {
        for (spec, expected) in [
            ("{}", &[][..]),
            ("{metrics: {labels: {a: b}, intervalSeconds: 30}}", &[]),
            (
                "{metrics: {labels: {a: b}, podMonitor: false}}",
                &["metrics.labels", "metrics.prometheusRule"],
            ),
            (
                "{metrics: {labels: {a: b}, podMonitor: false, prometheusRule: false}}",
                &["metrics.labels"],
            ),
            (
                "{metrics: {intervalSeconds: 30, podMonitor: false}}",
                &["metrics.prometheusRule", "metrics.intervalSeconds"],
            ),
            ("{metrics: {podMonitor: false, prometheusRule: false}}", &[]),
            ("{metrics: {probes: [{label: a, name: a.example}]}}", &["metrics.probes"]),
            ("{metrics: {compatibility: [KubeDNS], probes: [{label: a, name: a.example}]}}", &[]),
            ("{access: {clients: []}}", &["access.clients"]),
            ("{access: {clients: [10.0.0.0/8]}, exposure: {namespaces: [shop]}}", &[]),
            ("{exposure: {namespaces: []}}", &["exposure.namespaces"]),
            ("{metrics: {probes: []}}", &[]),
            ("{metrics: {compatibility: [KubeDNS], probes: []}}", &["metrics.probes"]),
            (
                "{scaling: {perNode: {}}, placement: {topologySpreadConstraints: [{maxSkew: 1, \
                 topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}",
                &["placement.topologySpreadConstraints"],
            ),
            ("{scaling: {perNode: {}}, podDisruptionBudget: {minAvailable: 1}}", &[]),
            ("{podDisruptionBudget: {maxUnavailable: 25%}}", &[]),
            ("{upstreams: {fromResolvConf: true, policy: Fastest, limits: {inFlight: 9}}}", &[]),
            ("{limits: {inFlight: 20000}}", &["limits.inFlight"]),
            ("{upstreams: {fromResolvConf: false}}", &["upstreams.fromResolvConf"]),
            ("{upstreams: {fromResolvConf: false, none: true}}", &[]),
            (
                "{upstreams: {none: true, policy: Fastest, caseRandomisation: true, limits: {inFlight: 9}, \
                 cache: {maxTTLSeconds: 5}, withheldTypes: [AAAA]}}",
                &[
                    "upstreams.policy",
                    "upstreams.caseRandomisation",
                    "upstreams.limits",
                    "upstreams.cache",
                    "upstreams.withheldTypes",
                ],
            ),
            (
                "{upstreams: {caseRandomisation: true, servers: [{address: 192.0.2.1, transport: TCP}]}}",
                &["upstreams.caseRandomisation"],
            ),
            (
                "{stubDomains: [{domain: a.example, caseRandomisation: true, servers: [{address: 192.0.2.1, \
                 transport: TCP}, {address: 192.0.2.2}]}, {domain: b.example, caseRandomisation: true, \
                 servers: [{address: 192.0.2.1, transport: TCP}]}]}",
                &["stubDomains[1].caseRandomisation"],
            ),
            (
                "{upstreams: {cache: {maxTTLSeconds: 3601}}, stubDomains: [{domain: a.example, servers: [{address: \
                 192.0.2.1}], cache: {maxTTLSeconds: 3600}}]}",
                &["upstreams.cache.maxTTLSeconds"],
            ),
            (
                "{cache: {maxTTLSeconds: 30}, stubDomains: [{domain: a.example, servers: [{address: 192.0.2.1}], \
                 cache: {maxTTLSeconds: 31}}]}",
                &["stubDomains[0].cache.maxTTLSeconds"],
            ),
            (
                "{scaling: {perNode: {}}, podDisruptionBudget: {maxUnavailable: 1}}",
                &["podDisruptionBudget.maxUnavailable"],
            ),
            ("{scaling: {load: {}}}", &[]),
            ("{scaling: {load: {}}, resources: {limits: {memory: 1Gi}}}", &[]),
            ("{scaling: {fixed: {replicas: 3}}, resources: {limits: {cpu: 200m}}}", &[]),
            ("{scaling: {load: {}}, resources: {limits: {cpu: 1}}}", &[]),
            ("{scaling: {load: {}}, resources: {limits: {cpu: 0}}}", &[]),
            (
                "{scaling: {load: {}}, resources: {limits: {cpu: 200m}}}",
                &["scaling.load.cpuMillicoresPerReplica"],
            ),
            (
                "{scaling: {load: {cpuMillicoresPerReplica: 1000}}, resources: {limits: {cpu: 1.1}}}",
                &["scaling.load.cpuMillicoresPerReplica"],
            ),
            (
                "{scaling: {load: {cpuMillicoresPerReplica: 1000}}, resources: {limits: {cpu: 1101m}}}",
                &[],
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
            (
                false,
                true,
                &["PodMonitor (spec.metrics.podMonitor, and with it spec.metrics.prometheusRule)"],
                &["metrics.labels", "metrics.intervalSeconds"],
            ),
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

    #[test]
    fn o18_queries_per_second_without_their_metric_are_named() {
        let by_load = "{scaling: {load: {queriesPerSecondPerReplica: 9}}}";
        for (spec, queries_per_second, expected) in [
            (by_load, Some(false), &["scaling.load.queriesPerSecondPerReplica"][..]),
            (by_load, Some(true), &[]),
            (by_load, None, &[]),
            ("{scaling: {load: {}}}", Some(false), &[]),
        ] {
            let offers = Offers { queries_per_second, ..Offers::default() };
            let found = of_missing_kinds(&dns(spec), &offers);
            assert_eq!(fields(&found), expected, "{spec} {queries_per_second:?}");
            let names_it =
                |it: &WithoutEffect| it.instead.contains(crate::names::QUERIES_PER_SECOND);
            assert!(found.iter().all(names_it), "{found:?}");
        }
    }
}
