//! Another Service for DNS leads to our pods, beside those of others. Such a Service is not adopted any more; one that was adopted
//! before that was checked is left as it is.

use crds::ClusterDNS;

use super::problem::{Problem, named, problem};
use crate::decide::plan::{Plan, ServicePlan};
use crate::desired::would_join_another;
use crate::names;
use crate::observe::observed::{DnsService, Observed};

/// Clients of the other Service get answers by two configurations.
pub(super) fn pods_shared(dns: &ClusterDNS, plan: &Plan, observed: &Observed) -> Option<Problem> {
    let ServicePlan::Adopted { labels, patch: _ } = &plan.service else { return None };
    let is_shared = |(name, other): &(&String, &DnsService)| {
        other.has_other_pods && would_join_another(dns, labels, name, &other.selector)
    };
    let shared = observed.dns_services.iter().filter(is_shared);
    let shared: Vec<String> = shared.map(|(name, _)| name.clone()).collect();
    if shared.is_empty() {
        return None;
    }
    let (namespace, own) = names::service(dns);
    problem(
        "PodsShared",
        format!(
            "pods of this ClusterDNS have the labels by which Service {namespace}/{own} selects, and these Services of the same \
             namespace select by them too: {}. So our pods answer their clients, beside pods of others that have another \
             configuration. Give each Service a label that only its own pods have, or set spec.service.adopt to false",
            named(shared)
        ),
    )
}
