//! Who says how many pods run, where that follows load.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
    MetricIdentifier, MetricSpec, MetricTarget, PodsMetricSource, ResourceMetricSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::instance::Instance;
use crate::decide::plan::Size;
use crate::names::QUERIES_PER_SECOND;

pub(super) fn autoscaler(of: &Instance<'_>) -> Option<HorizontalPodAutoscaler> {
    let (min, max, cpu, queries) = match of.plan.size {
        Size::Replicas(_) | Size::PerNode => return None,
        Size::Autoscaled { min, max, cpu_millicores, queries_per_second, hold: _ } => {
            (min, max, cpu_millicores, queries_per_second)
        }
    };
    let number = |pods: u32| i32::try_from(pods).unwrap_or(i32::MAX);
    let spec = HorizontalPodAutoscalerSpec {
        scale_target_ref: CrossVersionObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: "Deployment".to_owned(),
            name: of.child.clone(),
        },
        min_replicas: Some(number(min)),
        max_replicas: number(max),
        metrics: Some([cpu_metric(cpu)].into_iter().chain(queries.map(query_metric)).collect()),
        behavior: None,
    };
    Some(HorizontalPodAutoscaler { metadata: of.metadata(), spec: Some(spec), status: None })
}

/// A value, not a share of the request: what a pod can answer does not depend on what it asked for.
fn cpu_metric(millicores: u32) -> MetricSpec {
    MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource {
            name: "cpu".to_owned(),
            target: average(format!("{millicores}m")),
        }),
        ..MetricSpec::default()
    }
}

fn query_metric(per_second: u32) -> MetricSpec {
    MetricSpec {
        type_: "Pods".to_owned(),
        pods: Some(PodsMetricSource {
            metric: MetricIdentifier { name: QUERIES_PER_SECOND.to_owned(), selector: None },
            target: average(per_second.to_string()),
        }),
        ..MetricSpec::default()
    }
}

fn average(value: String) -> MetricTarget {
    MetricTarget {
        type_: "AverageValue".to_owned(),
        average_value: Some(Quantity(value)),
        ..MetricTarget::default()
    }
}
