//! Compute resources: what the API server would refuse in every pod.

use k8s_openapi::api::core::v1::ResourceRequirements;

use super::violations::{Reason, Violations, shown};
use crate::names::is_label_key;

/// A memory limit below this lets no process start.
const LEAST_MEMORY: f64 = 1024.0 * 1024.0;

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
            if let Some((reason, message)) = wrong_amount(resource, &written.0) {
                violations.add(field, reason, message);
            } else if what == "limits"
                && let Some(message) = too_little(resource, &written.0)
            {
                violations.add(field, Reason::InvalidQuantity, message);
            }
        }
    }
    needs_cpu_or_memory(resources, violations);
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

/// What is wrong with the name or the amount of one resource.
fn wrong_amount(resource: &str, written: &str) -> Option<(Reason, String)> {
    if !is_resource(resource) {
        let message = format!(
            "{} is no resource of a container: write cpu, memory, ephemeral-storage, hugepages-<size>, or one of a device \
             such as example.com/card",
            shown(resource)
        );
        return Some((Reason::InvalidName, message));
    }
    let Some(amount) = quantity(written) else {
        let message =
            format!("{} is not a quantity: write one such as 50m or 64Mi", shown(written));
        return Some((Reason::InvalidQuantity, message));
    };
    if resource.contains('/') && !is_native(resource) && !is_multiple(amount, 1.0) {
        let message = format!(
            "{written} is not a whole number: nodes give {resource} to pods in whole pieces only"
        );
        return Some((Reason::InvalidQuantity, message));
    }
    let (size, octets) = page_size(resource)?;
    let message = || format!("{written} is not a multiple of a page of {size}: write one that is");
    (!is_multiple(amount, octets)).then(|| (Reason::InvalidQuantity, message()))
}

/// No pod starts with a limit like this, so its rollout would never end. 0 is no limit. A request that is too small only misleads
/// the scheduler, and of storage too small a limit only evicts pods that are not critical: pods run, and `check` warns.
fn too_little(resource: &str, written: &str) -> Option<String> {
    let in_range = |octets: &f64| *octets > 0.0 && *octets < LEAST_MEMORY;
    let octets = quantity(written).filter(|octets| resource == "memory" && in_range(octets))?;
    let meant = in_mebibytes(written);
    Some(match octets < 1.0 {
        true => format!("{written} is less than one octet: did you mean {meant}"),
        false => format!(
            "{written} is {octets} octets, and no pod starts with so few: did you mean {meant}"
        ),
    })
}

/// The same number in the unit that people most likely mean.
pub fn in_mebibytes(written: &str) -> String {
    let written = written.strip_prefix('+').unwrap_or(written);
    let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(written.len());
    format!("{}Mi", &written[..digits])
}

/// Huge pages alone are refused: the kubelet could not put the pod into a class of quality of service.
fn needs_cpu_or_memory(resources: &ResourceRequirements, violations: &mut Violations) {
    let names = || [&resources.requests, &resources.limits].into_iter().flatten().flatten();
    let has_pages = names().any(|(name, _)| page_size(name).is_some());
    if has_pages && !names().any(|(name, _)| name == "cpu" || name == "memory") {
        let message = "Kubernetes refuses pods with huge pages and neither cpu nor memory: write cpu or memory too";
        violations.add("spec.resources", Reason::Missing, message);
    }
}

/// Does a container have this resource? Names without a domain are those of Kubernetes; others are of devices, or of
/// Kubernetes' own domains, whose names the API server does not know one by one.
fn is_resource(name: &str) -> bool {
    if !name.contains('/') {
        return ["cpu", "memory", "ephemeral-storage"].contains(&name) || page_size(name).is_some();
    }
    // A quota names a device `requests.<name>`, which must be a name too.
    is_label_key(name)
        && (is_native(name)
            || !name.starts_with("requests.") && is_label_key(&format!("requests.{name}")))
}

/// Is it in `kubernetes.io/`, or in a domain that ends with it, as the API server asks?
fn is_native(resource: &str) -> bool {
    resource.contains("kubernetes.io/")
}

/// The size in the name of huge pages, as it is written and in octets.
fn page_size(resource: &str) -> Option<(&str, f64)> {
    let size = resource.strip_prefix("hugepages-")?;
    let octets = quantity(size)?;
    (octets > 0.0 && is_multiple(octets, 1.0)).then_some((size, octets))
}

/// Is it a whole number of these? Decimal parts such as those of `1.001k` are not exact.
fn is_multiple(amount: f64, of: f64) -> bool {
    let times = amount / of;
    (times - times.round()).abs() <= times.abs() * 1e-12
}

/// May pods of one node together have higher limits than the node has?
fn is_overcommitted(resource: &str) -> bool {
    (!resource.contains('/') || is_native(resource)) && !resource.starts_with("hugepages-")
}

/// A quantity of Kubernetes as a number; close enough to compare two.
pub fn quantity(text: &str) -> Option<f64> {
    let text = text.strip_prefix('+').unwrap_or(text);
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
