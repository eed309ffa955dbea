//! The pods, one on every node.

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::instance::Instance;
use super::pod_template::{Spread, pod_template};
use crate::decide::plan::Size;

/// Seconds for which the new pod of a node must be ready before the old one ends. Fewer than those of a Deployment: the nodes have
/// their turns one after the other, so that 500 of them take this time 500 times, and a rollout so slow gives people time too.
const READY_FOR: i32 = 5;

pub(super) fn daemon_set(of: &Instance<'_>) -> Option<DaemonSet> {
    match of.plan.size {
        Size::Replicas(_) | Size::Autoscaled { .. } => return None,
        Size::PerNode => {}
    }
    // The new pod of a node is ready before the old one ends: both can run, because neither uses a port of the node.
    let rolling = RollingUpdateDaemonSet {
        max_surge: Some(IntOrString::Int(1)),
        max_unavailable: Some(IntOrString::Int(0)),
    };
    let spec = DaemonSetSpec {
        selector: of.selector(),
        update_strategy: Some(DaemonSetUpdateStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(rolling),
        }),
        min_ready_seconds: Some(READY_FOR),
        template: pod_template(of, Spread::OnePerNode),
        ..DaemonSetSpec::default()
    };
    Some(DaemonSet { metadata: of.metadata(), spec: Some(spec), status: None })
}
