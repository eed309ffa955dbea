//! What the operator itself lacks: rights, a newer definition, room. Pure.

use crds::ClusterDNS;

use super::problem::{Problem, problem};
use crate::names;
use crate::observe::observed::Observed;

/// Watches that began well and are refused now. What is kept of these kinds stays as it was, so no other part of the status would
/// say that something of them is gone.
pub(super) fn watches(dns: &ClusterDNS, observed: &Observed) -> Option<Problem> {
    let refused = observed.refused_watches.as_ref()?;
    let more = match refused.others {
        0 => String::new(),
        others => format!(" and {others} more kinds"),
    };
    let message = format!(
        "the API server does not let the operator watch {}{more} any more. The operator does not see what others delete or edit \
         of these, and does not put it back: {}. Create its Role in namespace {} and its ClusterRole again (helm upgrade)",
        refused.kind,
        refused.why,
        names::service(dns).0
    );
    Some(Problem { reason: "WatchRefused", message, needs_a_person: true })
}

/// The definition is older than the operator.
pub(super) fn fields(observed: &Observed) -> Option<Problem> {
    if !observed.offers.crd_is_outdated {
        return None;
    }
    problem(
        "CRDOutdated",
        "fields that this operator knows are missing from the CustomResourceDefinition, so the API server drops them: apply the \
         clusterdns.yaml of this version with kubectl apply --server-side --force-conflicts"
            .to_owned(),
    )
}

/// There are more objects than the cache holds. The operator reads those that it needs, each time. Kinds only: other words would
/// let those who write the objects change the status all the time.
pub(super) fn room(observed: &Observed) -> Option<Problem> {
    let not_kept = &observed.not_kept;
    if not_kept.is_empty() {
        return None;
    }
    let kinds: Vec<&str> = not_kept.iter().map(String::as_str).collect();
    let advice = match observed.is_cache_mostly_needed {
        false => "Delete what is not needed, or move it to another namespace".to_owned(),
        true => format!(
            "Nodes and objects with the label {} take most of it, and are always kept. If all of them are needed, the cluster is \
             larger than this cache, and nothing has to be done: DNS is not affected",
            names::INSTANCE
        ),
    };
    problem(
        "CacheFull",
        format!(
            "the cache of the operator is full, so it reads some objects of this namespace ({}) each time it needs them. Its log \
             names them and their size. {advice}",
            kinds.join(", ")
        ),
    )
}
