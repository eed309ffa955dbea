//! A Service that another ClusterDNS has, or one before this one of the same name. Pure.

use std::time::Duration;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{adopted_by, annotation, cluster_ips, selector, shown};
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
    let owners = service.metadata.owner_references.iter().flatten();
    let owners: Vec<_> = owners.filter(|owner| owner.kind == "ClusterDNS").collect();
    let (gone, there): (Vec<_>, Vec<_>) =
        owners.into_iter().partition(|owner| is_gone(owner, observed));
    if let (Some(owner), true) = (gone.first(), there.is_empty()) {
        return Err(of_previous(service, &owner.name));
    }
    let is = |other: &ClusterDNS, name: &str| other.metadata.name.as_deref() == Some(name);
    let stays = |name: &str| {
        let mut others =
            observed.others.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
        others.any(|it| is(it, name))
    };
    let named = [in_selector, annotation(service)].into_iter().flatten();
    let claims = named.filter(|name| *name != own && !stays(name));
    let Some(other) = claims.chain(there.first().map(|owner| owner.name.as_str())).next() else {
        return Ok(());
    };
    let exists =
        observed.others.iter().any(|it| is(it, other)) || observed.unreadable.contains(other);
    if !exists {
        return Err(of_none(service, other, in_selector == Some(own)));
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

/// Its ClusterDNS was deleted. This one, if it has this name, has another uid.
fn is_gone(owner: &OwnerReference, observed: &Observed) -> bool {
    let is_it = |uid: Option<&String>| uid == Some(&owner.uid);
    !observed.others.iter().any(|other| is_it(other.metadata.uid.as_ref()))
        && !observed.unreadable.contains(&owner.name)
}

/// No ClusterDNS owns it, and the one that it names does not exist. `is_ours`: its selector leads to pods of this one, which serve.
fn of_none(service: &Service, other: &str, is_ours: bool) -> Refusal {
    if adopted_by(service).as_deref() == Some(other) {
        let message = format!(
            "{} was adopted by the deleted ClusterDNS {other}, and the operator gives it back soon: this ClusterDNS waits for \
             that, and changes nothing until then",
            shown(service)
        );
        return Refusal { is_passing: !is_ours, ..passing(message) };
    }
    let addresses: Vec<String> = cluster_ips(service).map(|ip| ip.to_string()).collect();
    let message = format!(
        "{} leads to pods of ClusterDNS {other}, which does not exist: it was deleted without its objects. Create ClusterDNS \
         {other} again. Or delete the Service, and write its addresses ({}) as spec.service.clusterIPs with adopt: false: its \
         clients have no DNS until the new one is there. Or delete this ClusterDNS and create it with another service.name",
        shown(service),
        addresses.join(", ")
    );
    Refusal::new("Conflict", "spec.service.name", message)
}

/// It is deleted with the ClusterDNS that owned it: this one was created before the garbage collector was done, under the same
/// name, or under another one.
fn of_previous(service: &Service, owner: &str) -> Refusal {
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
        "{} belongs to the deleted ClusterDNS {owner}, and Kubernetes deletes it soon: this ClusterDNS waits for that, \
         and changes nothing until then{held}",
        shown(service)
    );
    passing(message)
}

fn passing(message: String) -> Refusal {
    let refusal = Refusal::new("PreviousService", "spec.service.name", message);
    Refusal { again_in: Some(LOOK_AGAIN), is_passing: true, ..refusal }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decide::adoption::plan;
    use crate::fixtures::{at, dns, from, kube_dns, own_service};
    use crate::names;
    use serde_json::json;

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

    fn second() -> ClusterDNS {
        let mut second = dns("{}");
        (second.metadata.name, second.metadata.uid) =
            (Some("second".to_owned()), Some("old".to_owned()));
        second.metadata.deletion_timestamp = Some(from(json!("2026-01-03T00:00:00Z")));
        second
    }

    /// Owned by the ClusterDNS `second`, and adopted by it.
    fn of_second() -> [Service; 2] {
        let mut owned = of_one_before();
        owned.metadata.owner_references.as_mut().unwrap()[0].name = "second".to_owned();
        owned.spec.as_mut().unwrap().selector = Some(names::selector("second"));
        let mut adopted = of_one_before();
        adopted.metadata.owner_references = None;
        adopted.spec = kube_dns().spec;
        adopted.metadata.annotations =
            Some([(names::ADOPTED_BY.to_owned(), "second".to_owned())].into());
        [owned, adopted]
    }

    #[test]
    fn o3_the_service_of_a_cluster_dns_of_another_name_is_a_conflict() {
        for service in of_second() {
            let others = vec![Arc::new(second())];
            let leaving = Observed { others, ..Observed::default() };
            let unreadable = ["second".to_owned()].into();
            let unreadable = Observed { unreadable, ..Observed::default() };
            for observed in [leaving, unreadable] {
                let observed = Observed { service: Some(service.clone()), ..observed };
                let refusal = plan(&dns("{}"), &observed, at(0)).unwrap_err();
                assert_eq!(
                    (refusal.reason, refusal.is_passing),
                    ("Conflict", false),
                    "{refusal:?}"
                );
                assert!(refusal.message.contains("delete that one"), "{refusal:?}");
            }
        }
    }

    #[test]
    fn o3_the_service_of_a_deleted_cluster_dns_of_another_name_is_waited_for() {
        for service in of_second() {
            let refusal = refused(service);
            assert_eq!((refusal.reason, refusal.is_passing), ("PreviousService", true));
            assert_eq!(refusal.again_in, Some(LOOK_AGAIN));
            assert!(refusal.message.contains("the deleted ClusterDNS second"), "{refusal:?}");
        }
        let [_, mut adopted] = of_second();
        adopted.spec.as_mut().unwrap().selector = Some(names::selector("default"));
        assert!(!refused(adopted).is_passing, "our pods serve behind it");
        // Created again under its name, before the garbage collector was done.
        let [owned, _] = of_second();
        let mut again = second();
        (again.metadata.uid, again.metadata.deletion_timestamp) = (Some("new".to_owned()), None);
        let observed =
            Observed { service: Some(owned), others: vec![Arc::new(again)], ..Observed::default() };
        assert_eq!(plan(&dns("{}"), &observed, at(0)).unwrap_err().reason, "PreviousService");
    }

    #[test]
    fn o3_what_a_cluster_dns_left_behind_is_no_advice_to_delete_it() {
        let [mut left, _] = of_second();
        left.metadata.owner_references = None;
        let refusal = refused(left);
        assert_eq!((refusal.reason, refusal.is_passing), ("Conflict", false));
        let message = &refusal.message;
        assert!(message.contains("Create ClusterDNS second again"), "{message}");
        assert!(message.contains("(10.96.0.10)") && !message.contains("delete that"), "{message}");
    }
}
