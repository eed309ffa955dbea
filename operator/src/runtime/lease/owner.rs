//! The owner of the Lease: it belongs to the ServiceAccount that the operator runs as, so it is deleted with the
//! installation. A manifest of the chart could not do this: an operator that is about to end would create the Lease
//! again after Helm has deleted it, and the next installation would find a Lease of another owner.

use std::time::Instant;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::runtime::refusals::Refusals;

const KIND: &str = "ServiceAccount";

/// Our ServiceAccount in this namespace. None: a person with a kubeconfig runs the operator, or the API server is too old
/// to answer, or it refuses to for long. Every client may ask who it is, but an API server that starts refuses what it has not read
/// the rights of. Without an owner we could take a Lease that is about to be deleted, so the first refusals are errors.
///
/// # Errors
/// It is not known, and may be known soon.
pub(super) async fn owner(
    reviews: &Api<SelfSubjectReview>,
    namespace: &str,
    refusals: &mut Refusals,
    now: Instant,
) -> kube::Result<Option<OwnerReference>> {
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
    if !is_refused {
        refusals.end();
    }
    match answer {
        Ok(review) => Ok(service_account(review.status.and_then(|said| said.user_info), namespace)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(_) if is_refused && refusals.add(now) => Ok(None),
        Err(error) => Err(error),
    }
}

fn service_account(user: Option<UserInfo>, namespace: &str) -> Option<OwnerReference> {
    let user = user?;
    let name =
        user.username?.strip_prefix(&format!("system:serviceaccount:{namespace}:"))?.to_owned();
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: KIND.to_owned(),
        name,
        uid: user.uid?,
        ..OwnerReference::default()
    })
}

/// Whether it belongs to a ServiceAccount of the same name that was there before: the garbage collector is about to delete it.
pub(super) fn is_of_another_installation(lease: &ObjectMeta, owner: &OwnerReference) -> bool {
    let mut owners = lease.owner_references.iter().flatten();
    owners.any(|other| other.kind == KIND && other.name == owner.name && other.uid != owner.uid)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    fn user(name: &str, uid: &str) -> Option<UserInfo> {
        let user =
            UserInfo { username: Some(name.into()), uid: Some(uid.into()), ..UserInfo::default() };
        Some(user)
    }

    fn lease(owners: &[&OwnerReference]) -> ObjectMeta {
        let owner_references = Some(owners.iter().map(|owner| (*owner).clone()).collect());
        ObjectMeta { owner_references, ..ObjectMeta::default() }
    }

    #[test]
    fn only_a_service_account_of_the_namespace_can_own_the_lease() {
        let owner =
            service_account(user("system:serviceaccount:dns:operator", "u1"), "dns").unwrap();
        assert_eq!((owner.name.as_str(), owner.uid.as_str()), ("operator", "u1"));
        assert_eq!(
            service_account(user("system:serviceaccount:dns:operator", "u1"), "other"),
            None
        );
        assert_eq!(service_account(user("kubernetes-admin", ""), "dns"), None);
        assert_eq!(service_account(None, "dns"), None);
    }

    #[tokio::test]
    async fn o8_a_lease_without_an_owner_is_made_only_after_refusals_for_a_minute() {
        let reviews = |code| Api::all(api::client(move |_| Reply::status(code, "no")));
        let begin = Instant::now();
        let mut refusals = Refusals::default();
        let mut ask = async |code, at| {
            let now = begin + Duration::from_secs(at);
            owner(&reviews(code), "dns", &mut refusals, now).await.ok()
        };
        for (code, at) in
            [(403, 0), (403, 3), (403, 59), (503, 60), (403, 61), (403, 63), (403, 120)]
        {
            assert_eq!(ask(code, at).await, None, "it may be known soon: {code} {at}");
        }
        assert_eq!(ask(403, 121).await, Some(None));
        assert_eq!(ask(404, 122).await, Some(None), "the API server is too old to say it");
    }

    #[test]
    fn a_lease_of_the_installation_before_is_left_to_the_garbage_collector() {
        let now = service_account(user("system:serviceaccount:dns:operator", "u2"), "dns").unwrap();
        let before =
            service_account(user("system:serviceaccount:dns:operator", "u1"), "dns").unwrap();
        assert!(is_of_another_installation(&lease(&[&before]), &now));
        assert!(!is_of_another_installation(&lease(&[&now]), &now));
        assert!(!is_of_another_installation(&lease(&[]), &now));
    }
}
