//! The pods where their number does not follow the nodes one by one.

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::instance::Instance;
use super::pod_template::{Spread, pod_template};
use crate::decide::plan::Size;

/// Pods that a rollout starts ahead of ending others: a quarter of them, so that a large service is renewed in steps...
const SURGE_SHARE: u32 = 4;
/// ...and never more than this at once, because each of them lists the whole cluster from the API server.
const MAX_SURGE: u32 = 4;
/// Seconds for which a new pod must be ready before a pod that serves ends for it. A program that starts, says that it is ready and
/// dies would otherwise replace all of them, three seconds apart. It is the price of each step of a rollout.
const READY_FOR: i32 = 10;

pub(super) fn deployment(of: &Instance<'_>) -> Option<Deployment> {
    let (replicas, running) = match of.plan.size {
        Size::PerNode => return None,
        Size::Replicas(replicas) => (Some(replicas), replicas),
        // Once there is a Deployment with pods, the autoscaler owns the number; `apply` makes sure that the number stays
        // when we give the field up. One without is scaled as one that is created.
        Size::Autoscaled { min, hold, .. } => {
            let live = live(of);
            let has_none = of.observed.deployment.is_none() || live == Some(0);
            let first = hold.filter(|_| has_none);
            (first, live.filter(|replicas| *replicas > 0).or(hold).unwrap_or(min))
        }
    };
    let rolling = RollingUpdateDeployment {
        max_unavailable: Some(IntOrString::Int(0)),
        max_surge: Some(IntOrString::Int(surge(running))),
    };
    let spec = DeploymentSpec {
        replicas: replicas.map(|replicas| i32::try_from(replicas).unwrap_or(i32::MAX)),
        selector: of.selector(),
        strategy: Some(DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(rolling),
        }),
        min_ready_seconds: Some(READY_FOR),
        template: pod_template(of, Spread::OverNodesAndZones),
        ..DeploymentSpec::default()
    };
    Some(Deployment { metadata: of.metadata(), spec: Some(spec), status: None })
}

fn live(of: &Instance<'_>) -> Option<u32> {
    let replicas = of.observed.deployment.as_ref()?.spec.as_ref()?.replicas?;
    u32::try_from(replicas).ok()
}

fn surge(replicas: u32) -> i32 {
    replicas.div_ceil(SURGE_SHARE).clamp(1, MAX_SURGE) as i32
}

#[cfg(test)]
mod tests {
    use super::surge;

    #[test]
    fn a_quarter_and_at_most_four_pods_are_started_ahead() {
        let surges = [0, 1, 2, 4, 5, 8, 9, 16, 17, 1000].map(surge);
        assert_eq!(surges, [1, 1, 1, 1, 2, 2, 3, 4, 4, 4]);
    }
}
