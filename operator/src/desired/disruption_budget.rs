//! How many pods an eviction may take.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::instance::Instance;

pub(super) fn disruption_budget(of: &Instance<'_>) -> Option<PodDisruptionBudget> {
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(of.selector()),
        // A pod that serves nobody must not keep a node from being drained.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        ..PodDisruptionBudgetSpec::default()
    };
    of.plan.budget.then(|| PodDisruptionBudget {
        metadata: of.metadata(),
        spec: Some(spec),
        status: None,
    })
}
