//! The autoscaler of this ClusterDNS stands still, so the number of pods no longer follows the load.

use crds::ClusterDNS;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::problem::{Problem, problem};
use crate::observe::observed::Observed;

/// A new autoscaler, and one whose metrics are away for a moment, has this time.
const STOPPED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// What the controller of autoscalers says of ours. It stops one whose pods another autoscaler selects too, as that of a server
/// whose Service was adopted may (`AmbiguousSelector`), and one without metrics.
pub(super) fn not_scaled(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Option<Problem> {
    dns.spec.scaling.as_ref()?.load.as_ref()?;
    let autoscaler = observed.autoscaler.as_ref()?;
    let conditions = autoscaler.status.as_ref()?.conditions.as_ref()?;
    let active = conditions.iter().find(|it| it.type_ == "ScalingActive")?;
    let reason = active.reason.as_deref().unwrap_or_default();
    // With 0 replicas: no pod is wanted, which is a problem of its own.
    if active.status != "False" || reason == "ScalingDisabled" {
        return None;
    }
    let since = active.last_transition_time.as_ref()?.0;
    if now.duration_since(since) < STOPPED_FOR {
        return None;
    }
    let (namespace, name) = (autoscaler.namespace().unwrap_or_default(), autoscaler.name_any());
    // Not in its own words: these name other autoscalers, and pods, in an order that changes.
    let remedy = match reason {
        "AmbiguousSelector" => {
            "another autoscaler selects the same pods, as that of a DNS server whose Service was adopted may. Delete the other one"
        }
        _ => "install the metrics API if it is missing, or use another kind of spec.scaling",
    };
    problem(
        "NotScaled",
        format!(
            "HorizontalPodAutoscaler {namespace}/{name} is not active ({reason}), so the number of pods does not follow the load: \
             {remedy}. Details: kubectl -n {namespace} describe hpa {name}"
        ),
    )
}
