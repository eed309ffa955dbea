//! What only the operator reads: the Service, scaling, rollout, placement. Data planes never see it.

use std::net::IpAddr;

use super::bounds::{at_most, in_range};
use super::names::{is_ours, label, object_name};
use super::placement::{check_budget, check_metrics, check_spread};
use super::tolerations::check_tolerations;
use super::violations::{Reason, Violations, shown};
use super::{affinity, resources};
use crate::ClusterDNS;
use crate::bounds as limit;
use crate::config::MetricNames;
use crate::defaults::HTTP_PORT;
use crate::names::is_label;
use crate::v1alpha1::{ClusterDNSSpec, Ladder, Load, Placement, Proportional, Scaling, Service};

/// Adds what is wrong with how the service runs.
pub(super) fn check(spec: &ClusterDNSSpec, violations: &mut Violations) {
    in_range("spec.drainSeconds", spec.drain_seconds, 0, limit::DRAIN_SECONDS, violations);
    if let Some(service) = &spec.service {
        check_service(service, spec, violations);
    }
    if let Some(scaling) = &spec.scaling {
        check_scaling(scaling, violations);
    }
    if let Some(rollout) = &spec.rollout {
        let (least, most) = (limit::OBSERVE_SECONDS_MIN, limit::OBSERVE_SECONDS_MAX);
        in_range("spec.rollout.observeSeconds", rollout.observe_seconds, least, most, violations);
    }
    if let Some(placement) = &spec.placement {
        check_placement(placement, violations);
        let constraints = placement.topology_spread_constraints.as_deref().unwrap_or_default();
        check_spread(constraints, violations);
    }
    if let Some(budget) = &spec.pod_disruption_budget {
        check_budget(budget, violations);
    }
    if let Some(metrics) = &spec.metrics {
        check_metrics(metrics, violations);
    }
    if let Some(image) = &spec.image
        && (image.len() > limit::IMAGE || crate::image::repository(image).is_none())
    {
        let message = format!(
            "{} is not an image: write one such as registry.example/clusterdns:0.1.0",
            shown(image)
        );
        violations.add("spec.image", Reason::InvalidName, message);
    }
    if let Some(resources) = &spec.resources {
        resources::check(resources, violations);
    }
    service_addresses(spec, violations);
}

/// Whether every API server takes a Service of this name. Of a ClusterDNS that exists nothing is refused: its Service may exist,
/// and the name cannot be changed.
pub(super) fn service_can_be_created(dns: &ClusterDNS, violations: &mut Violations) {
    let Some(Service { name, adopt, .. }) = &dns.spec.service else { return };
    let is_there = *adopt || dns.metadata.uid.is_some();
    if !is_there && is_label(name) && name.starts_with(|first: char| first.is_ascii_digit()) {
        let message = format!(
            "many API servers refuse a Service called {name}, because it begins with a digit: write a letter first, or adopt the \
             Service that has this name"
        );
        violations.add("spec.service.name", Reason::InvalidName, message);
    }
}

fn check_service(service: &Service, spec: &ClusterDNSSpec, violations: &mut Violations) {
    for (what, name) in [("name", &service.name), ("namespace", &service.namespace)] {
        if !is_label(name) {
            let message =
                format!("{} is not a name: write at most 63 of a-z, 0-9 and '-'", shown(name));
            violations.add(format!("spec.service.{what}"), Reason::InvalidName, message);
        }
    }
    let ips: Vec<IpAddr> =
        service.cluster_ips.iter().flatten().filter_map(|text| text.parse().ok()).collect();
    let v4 = ips.iter().filter(|ip| ip.is_ipv4()).count();
    if v4 > 1 || ips.len() - v4 > 1 {
        let message = "a Service has at most one clusterIP of each family: write one IPv4 and one IPv6 address";
        violations.add("spec.service.clusterIPs", Reason::TooMany, message);
    }
    let tls =
        spec.listeners.as_ref().and_then(|listeners| listeners.tls.as_ref()).map(|tls| tls.port);
    let https = spec
        .listeners
        .as_ref()
        .and_then(|listeners| listeners.https.as_ref())
        .map(|https| https.port);
    let quic =
        spec.listeners.as_ref().and_then(|listeners| listeners.quic.as_ref()).map(|quic| quic.port);
    let port = service.pod_port;
    let is_listeners = [tls, https, quic].contains(&Some(port));
    if port == 0 {
        violations.add("spec.service.podPort", Reason::OutOfRange, "0 is not in 1-65535");
    } else if u32::from(port) == HTTP_PORT || is_listeners {
        let message =
            format!("{port} is taken by metrics (9153) or by a listener: use 53, or another port");
        violations.add("spec.service.podPort", Reason::PortTaken, message);
    } else if shows_kube_dns(spec) && limit::KUBE_DNS_PORTS.contains(&port) {
        let message = format!(
            "{port} is a port of kube-dns, which metrics.compatibility asks for: use 53, or another port"
        );
        violations.add("spec.service.podPort", Reason::PortTaken, message);
    }
}

fn shows_kube_dns(spec: &ClusterDNSSpec) -> bool {
    let metrics = spec.metrics.as_ref();
    metrics.is_some_and(|metrics| metrics.compatibility.contains(&MetricNames::KubeDNS))
}

fn service_addresses(spec: &ClusterDNSSpec, violations: &mut Violations) {
    let addresses = spec.service_addresses.as_deref().unwrap_or_default();
    if addresses.len() > limit::SERVICE_ADDRESSES {
        let message = format!(
            "{} addresses; at most {} are served",
            addresses.len(),
            limit::SERVICE_ADDRESSES
        );
        violations.add("spec.serviceAddresses", Reason::TooMany, message);
    }
    for (index, address) in
        addresses.iter().enumerate().filter(|(i, address)| addresses[..*i].contains(address))
    {
        let message = format!("{} is there twice: leave one out", shown(address));
        violations.add(format!("spec.serviceAddresses[{index}]"), Reason::Duplicate, message);
    }
}

fn check_scaling(scaling: &Scaling, violations: &mut Violations) {
    let Scaling { fixed, proportional, ladder, load, per_node } = scaling;
    let chosen = [
        fixed.is_some(),
        proportional.is_some(),
        ladder.is_some(),
        load.is_some(),
        per_node.is_some(),
    ];
    if chosen.into_iter().filter(|chosen| *chosen).count() > 1 {
        let message =
            "choose one of fixed, proportional, ladder, load and perNode: leave the others out";
        violations.add("spec.scaling", Reason::MoreThanOneMember, message);
    }
    if let Some(fixed) = fixed {
        in_range("spec.scaling.fixed.replicas", fixed.replicas, 1, limit::REPLICAS, violations);
    }
    if let Some(proportional) = proportional {
        check_proportional(proportional, violations);
    }
    if let Some(ladder) = ladder {
        check_ladder(ladder, violations);
    }
    if let Some(load) = load {
        check_load(load, violations);
    }
}

fn check_proportional(proportional: &Proportional, violations: &mut Violations) {
    let field = "spec.scaling.proportional";
    in_range(
        &format!("{field}.coresPerReplica"),
        proportional.cores_per_replica,
        1,
        limit::SCALE,
        violations,
    );
    in_range(
        &format!("{field}.nodesPerReplica"),
        proportional.nodes_per_replica,
        1,
        limit::SCALE,
        violations,
    );
    replicas(field, 1, proportional.min_replicas, proportional.max_replicas, violations);
}

fn check_load(load: &Load, violations: &mut Violations) {
    let field = "spec.scaling.load";
    in_range(
        &format!("{field}.cpuMillicoresPerReplica"),
        load.cpu_millicores_per_replica,
        10,
        100_000,
        violations,
    );
    if let Some(queries) = load.queries_per_second_per_replica {
        in_range(
            &format!("{field}.queriesPerSecondPerReplica"),
            queries,
            1,
            limit::SCALE,
            violations,
        );
    }
    replicas(field, 2, load.min_replicas, load.max_replicas, violations);
}

fn replicas(field: &str, least: u32, min: u32, max: u32, violations: &mut Violations) {
    in_range(&format!("{field}.minReplicas"), min, least, limit::REPLICAS, violations);
    in_range(&format!("{field}.maxReplicas"), max, least, limit::REPLICAS, violations);
    if min > max {
        let message = format!("minReplicas {min} is above maxReplicas {max}: raise maxReplicas");
        violations.add(format!("{field}.minReplicas"), Reason::MinAboveMax, message);
    }
}

fn check_ladder(ladder: &Ladder, violations: &mut Violations) {
    let field = "spec.scaling.ladder";
    let cores = ladder
        .cores_to_replicas
        .iter()
        .flatten()
        .map(|step| (step.cores, step.replicas))
        .collect::<Vec<_>>();
    let nodes = ladder
        .nodes_to_replicas
        .iter()
        .flatten()
        .map(|step| (step.nodes, step.replicas))
        .collect::<Vec<_>>();
    if cores.is_empty() && nodes.is_empty() {
        let message = "a ladder needs a step in coresToReplicas or nodesToReplicas, such as {nodes: 1, replicas: 2}";
        violations.add(field, Reason::Missing, message);
    }
    steps(&format!("{field}.coresToReplicas"), "cores", &cores, violations);
    steps(&format!("{field}.nodesToReplicas"), "nodes", &nodes, violations);
}

fn steps(field: &str, unit: &str, steps: &[(u32, u32)], violations: &mut Violations) {
    if steps.len() > limit::LADDER_STEPS {
        let message = format!("{} steps; at most {} are read", steps.len(), limit::LADDER_STEPS);
        violations.add(field, Reason::TooMany, message);
    }
    for (index, (size, replicas)) in steps.iter().enumerate() {
        in_range(&format!("{field}[{index}].{unit}"), *size, 1, limit::SCALE, violations);
        in_range(&format!("{field}[{index}].replicas"), *replicas, 1, limit::REPLICAS, violations);
        if steps[..index].iter().any(|(other, _)| other == size) {
            let message = format!("a step for {size} {unit} is there twice: leave one out");
            violations.add(format!("{field}[{index}].{unit}"), Reason::Duplicate, message);
        }
    }
}

fn check_placement(placement: &Placement, violations: &mut Violations) {
    let field = "spec.placement";
    for (what, labels) in
        [("nodeSelector", &placement.node_selector), ("podLabels", &placement.pod_labels)]
    {
        let field = format!("{field}.{what}");
        for (key, value) in labels.iter().flatten() {
            label(key, [value.as_str()], &field, violations);
        }
        at_most(
            labels.as_ref().map_or(0, std::collections::BTreeMap::len),
            limit::SELECTOR_ENTRIES,
            &field,
            violations,
        );
    }
    for key in placement.pod_labels.iter().flatten().map(|(key, _)| key).filter(|key| is_ours(key))
    {
        let message = format!("{key} is set by ClusterDNS itself: leave it out");
        violations.add(format!("{field}.podLabels"), Reason::ReservedLabel, message);
    }
    for (key, value) in placement.pod_annotations.iter().flatten() {
        label(key, [], &format!("{field}.podAnnotations"), violations);
        if value.len() > limit::ANNOTATION {
            let message = format!(
                "the value of {key} has {} octets and may have {}",
                value.len(),
                limit::ANNOTATION
            );
            violations.add(format!("{field}.podAnnotations"), Reason::TooLong, message);
        }
    }
    let annotations = placement.pod_annotations.as_ref().map_or(0, std::collections::BTreeMap::len);
    at_most(annotations, limit::SELECTOR_ENTRIES, &format!("{field}.podAnnotations"), violations);
    check_tolerations(placement.tolerations.as_deref().unwrap_or_default(), violations);
    if let Some(written) = &placement.affinity {
        affinity::check(written, violations);
    }
    object_name(
        &placement.priority_class_name,
        &format!("{field}.priorityClassName"),
        "PriorityClass",
        violations,
    );
    let secrets = placement.image_pull_secrets.as_deref().unwrap_or_default();
    at_most(secrets.len(), limit::POD_ENTRIES, &format!("{field}.imagePullSecrets"), violations);
    for (index, secret) in secrets.iter().enumerate() {
        let field = format!("{field}.imagePullSecrets[{index}].name");
        object_name(&secret.name, &field, "Secret", violations);
        if secrets[..index].contains(secret) {
            let message = format!("{} is there twice: leave one out", secret.name);
            violations.add(field, Reason::Duplicate, message);
        }
    }
}
