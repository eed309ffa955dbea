//! Compute resources: what the API server would refuse in every pod.

use k8s_openapi::api::core::v1::ResourceRequirements;

use super::violations::{Reason, Violations, shown};
use crate::names::is_label_key;

/// Adds what is wrong with requests and limits.
pub(super) fn check(resources: &ResourceRequirements, violations: &mut Violations) {
    let ResourceRequirements { claims, limits, requests } = resources;
    if claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        let message = "pods of this ClusterDNS have no resource claims that a container could name: leave it out";
        violations.add("spec.resources.claims", Reason::Unused, message);
    }
    for (what, quantities) in [("requests", requests), ("limits", limits)] {
        for (resource, written) in quantities.iter().flatten() {
            let field = format!("spec.resources.{what}.{resource}");
            if !is_resource(resource) {
                let message = format!(
                    "{} is no resource of a container: write cpu, memory, ephemeral-storage, hugepages-<size>, or one of \
                     a device such as example.com/card",
                    shown(resource)
                );
                violations.add(field.clone(), Reason::InvalidName, message);
            }
            if quantity(&written.0).is_none() {
                let message = format!(
                    "{} is not a quantity: write one such as 50m or 64Mi",
                    shown(&written.0)
                );
                violations.add(field, Reason::InvalidQuantity, message);
            }
        }
    }
    for (resource, request) in requests.iter().flatten() {
        let field = format!("spec.resources.requests.{resource}");
        let most = limits.as_ref().and_then(|limits| limits.get(resource));
        let Some(most) = most else {
            if !is_overcommitted(resource) && is_resource(resource) {
                let message = format!(
                    "nodes give {resource} to one pod only, so its limit must be the same: write it in limits too"
                );
                violations.add(field, Reason::Missing, message);
            }
            continue;
        };
        let (Some(least), Some(largest)) = (quantity(&request.0), quantity(&most.0)) else {
            continue;
        };
        if least > largest {
            let message =
                format!("the request {} is above the limit {}: raise the limit", request.0, most.0);
            violations.add(field, Reason::MinAboveMax, message);
        } else if least < largest && !is_overcommitted(resource) {
            let message = format!(
                "nodes give {resource} to one pod only, so its request must be its limit {}",
                most.0
            );
            violations.add(field, Reason::OutOfRange, message);
        }
    }
}

/// Does a container have this resource? Names without a domain are those of Kubernetes; others are of devices.
fn is_resource(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, _)) => {
            let is_of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
            is_label_key(name) && !is_of_kubernetes && !name.starts_with("requests.")
        }
        None => {
            let size = name.strip_prefix("hugepages-");
            ["cpu", "memory", "ephemeral-storage"].contains(&name)
                || size.is_some_and(|size| quantity(size).is_some())
        }
    }
}

/// May pods of one node together have higher limits than the node has?
fn is_overcommitted(resource: &str) -> bool {
    !resource.contains('/') && !resource.starts_with("hugepages-")
}

/// A quantity of Kubernetes as a number; close enough to compare two.
fn quantity(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let exponent = match unit {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => 10f64.powi(unit.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some(number.parse::<f64>().ok()? * exponent)
}
