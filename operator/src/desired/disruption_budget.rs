//! How many pods an eviction may take.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::instance::Instance;

pub(super) fn disruption_budget(of: &Instance<'_>) -> Option<PodDisruptionBudget> {
    let written = of.dns.spec.pod_disruption_budget.clone().unwrap_or_default();
    let min_available = written.min_available;
    let one = Some(IntOrString::Int(1)).filter(|_| min_available.is_none());
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: written.max_unavailable.or(one),
        min_available,
        selector: Some(of.selector()),
        // A pod that is not ready must not keep a node from being drained.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
    };
    of.plan.budget.then(|| PodDisruptionBudget {
        metadata: of.metadata(),
        spec: Some(spec),
        status: None,
    })
}
