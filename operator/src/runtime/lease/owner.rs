//! The owner of the Lease: it belongs to the ServiceAccount that the operator runs as, so it is deleted with the
//! installation. A manifest of the chart could not do this: an operator that is about to end would create the Lease
//! again after Helm has deleted it, and the next installation would find a Lease of another owner.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ObjectMeta, PostParams};

const KIND: &str = "ServiceAccount";

/// Our ServiceAccount in this namespace. None: a person with a kubeconfig runs the operator, or the API server is too old
/// to answer. Every client may ask who it is.
pub(super) async fn owner(
    reviews: &Api<SelfSubjectReview>,
    namespace: &str,
) -> kube::Result<Option<OwnerReference>> {
    match reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => Ok(service_account(review.status.and_then(|said| said.user_info), namespace)),
        Err(kube::Error::Api(refusal)) if [403, 404].contains(&refusal.code) => Ok(None),
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
    use super::*;

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
