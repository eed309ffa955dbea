//! A Service that another ClusterDNS has, or one before this one of the same name. Pure.

use std::time::Duration;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::{annotation, selector, shown};
use crate::decide::plan::Refusal;
use crate::names::INSTANCE;
use crate::observe::observed::Observed;

/// When it is looked at again: the garbage collector is quick, unless it has much to do.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Finalizers that a message names.
const MOST_NAMED: usize = 3;

/// Another ClusterDNS may have it although no conflict shows: it is being deleted, or is gone. Which of those that exist has it
/// was decided before, by all that they show: here a selector and an annotation that differ would refuse both.
pub(super) fn is_not_of_others(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
) -> Result<(), Refusal> {
    let own = dns.metadata.name.as_deref().unwrap_or_default();
    let selector = selector(service);
    let in_selector = selector.get(INSTANCE).map(String::as_str);
    let owner =
        service.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "ClusterDNS");
    let exists = |name: &&str| {
        let mut others =
            observed.others.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
        others.any(|it| it.metadata.name.as_deref() == Some(*name))
    };
    let named = [in_selector, annotation(service)].into_iter().flatten();
    let claims = named.filter(|name| *name != own && !exists(name));
    let Some(other) = claims.chain(owner.map(|owner| owner.name.as_str())).next() else {
        return Ok(());
    };
    // The owner of this name is not this one.
    if other == own {
        return Err(of_previous(service));
    }
    Err(Refusal::new(
        "Conflict",
        "spec.service.name",
        format!(
            "{} belongs to ClusterDNS {other}: delete that one and wait until its Service is given back, or delete this one \
             and create it with another service.name",
            shown(service)
        ),
    ))
}

/// It is deleted with the ClusterDNS that owned it: this one was created under the same name before the garbage collector was done.
fn of_previous(service: &Service) -> Refusal {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    let named: Vec<&str> = finalizers.iter().take(MOST_NAMED).map(String::as_str).collect();
    let held = match named.as_slice() {
        [] => String::new(),
        named => format!(
            ". It has finalizers ({}): it goes when the programs that set them remove them",
            named.join(", ")
        ),
    };
    let message = format!(
        "{} belongs to the deleted ClusterDNS of this name, and Kubernetes deletes it soon: this ClusterDNS waits for that, \
         and changes nothing until then{held}",
        shown(service)
    );
    let refusal = Refusal::new("PreviousService", "spec.service.name", message);
    Refusal { again_in: Some(LOOK_AGAIN), is_passing: true, ..refusal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::adoption::plan;
    use crate::fixtures::{at, dns, kube_dns, own_service};
    use crate::names;

    /// As the operator makes it, for another ClusterDNS of this name.
    fn of_one_before() -> Service {
        let mut service = own_service();
        service.metadata.owner_references.as_mut().unwrap()[0].uid = "old".to_owned();
        service.spec.as_mut().unwrap().selector = Some(names::selector("default"));
        service
    }

    fn refused(service: Service) -> Refusal {
        let observed = Observed { service: Some(service), ..Observed::default() };
        plan(&dns("{}"), &observed, at(0)).unwrap_err()
    }

    #[test]
    fn o14_the_service_of_a_deleted_cluster_dns_of_this_name_is_waited_for() {
        let refusal = refused(of_one_before());
        assert_eq!((refusal.reason, refusal.is_passing), ("PreviousService", true));
        assert_eq!(refusal.again_in, Some(LOOK_AGAIN));
        assert!(refusal.is_of_others(), "it is not put back");
        assert!(!refusal.message.contains("delete that one"), "{}", refusal.message);
        assert!(!refusal.message.contains("finalizers"), "{}", refusal.message);

        let mut held = of_one_before();
        held.metadata.finalizers = Some(vec!["example.com/balancer".to_owned()]);
        let refusal = refused(held);
        assert!(refusal.message.contains("finalizers (example.com/balancer)"), "{refusal:?}");
    }

    #[test]
    fn o3_the_service_of_a_cluster_dns_of_another_name_is_a_conflict() {
        let mut other = of_one_before();
        other.metadata.owner_references.as_mut().unwrap()[0].name = "second".to_owned();
        let mut given = of_one_before();
        given.spec = kube_dns().spec;
        given.metadata.annotations =
            Some([(names::ADOPTED_BY.to_owned(), "second".to_owned())].into());
        for service in [other, given] {
            let refusal = refused(service);
            assert_eq!((refusal.reason, refusal.is_passing), ("Conflict", false), "{refusal:?}");
        }
    }
}
