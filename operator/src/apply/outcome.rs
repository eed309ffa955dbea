//! The result of an apply: what was written and deleted, and what failed and why.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::apply::contention::{Contested, Key};
use crate::apply::memory::Why;
use crate::desired::Kind;
use crate::observe::observed::Child;
use crate::runtime::resources;
use crate::runtime::write::WriteError;

/// What became of a deleted Service while the spec is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restored {
    /// It exists, or nothing is known of one.
    #[default]
    Unneeded,
    /// It was created again.
    Created,
    /// It cannot be created again: why.
    Failed(String),
}

/// What was done while the spec is refused, so that what runs stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    pub service: Restored,
    /// What was written of the other objects.
    pub outcome: Outcome,
}

/// What one apply wrote, deleted and could not write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the status reports.
    pub applied: Applied,
    /// Objects that were written, in order.
    pub written: Vec<Written>,
    /// The selector of an adopted Service got our key (true) or lost it (false).
    pub switched: Option<bool>,
    /// Kind and name of each deleted object, for Events.
    pub pruned: Vec<Child>,
    /// After this time an edit of another client is put back, or what failed is tried again.
    pub again_in: Option<Duration>,
    /// The wait that the API server asked for (`Retry-After`).
    pub retry_after: Option<Duration>,
    pub(super) failed: BTreeSet<Kind>,
}

/// One object that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub kind: Kind,
    /// Kind, namespace and name, for people.
    pub what: String,
    pub why: Why,
    /// The field manager that changed it last, if not we.
    pub editor: Option<String>,
}

impl Outcome {
    /// Whether everything is as it should be.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    /// Whether one of this kind could not be written.
    pub fn has_failed(&self, kind: Kind) -> bool {
        self.failed.contains(&kind)
    }

    pub(super) fn failed(&mut self, kind: Kind, what: String, why: String) {
        self.failed.insert(kind);
        self.applied.failures.push((what, why));
    }

    /// Something must be looked at again after this time.
    pub(super) fn again_within(&mut self, time: Duration) {
        self.again_in = Some(self.again_in.map_or(time, |again| again.min(time)));
    }
}

/// What the API server took and what it refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Objects that could not be written, such as `Deployment kube-system/clusterdns-default`, and why.
    pub failures: Vec<(String, String)>,
    /// Objects that another client edits again and again.
    pub contested: Vec<Contested>,
}

impl Applied {
    /// Whether one of this kind could not be written.
    pub fn has_failed(&self, kind: Kind) -> bool {
        let of_kind =
            |(what, _): &(String, _)| what.split(' ').next() == Some(resources::name(kind));
        self.failures.iter().any(of_kind)
    }
}

/// Kind, namespace and name, for people.
pub(super) fn described((kind, namespace, name): &Key) -> String {
    match namespace.as_str() {
        "" => format!("{} {name}", resources::name(*kind)),
        namespace => format!("{} {namespace}/{name}", resources::name(*kind)),
    }
}

/// What the API server said, and what to do where that is not plain.
pub(super) fn explained(kind: Kind, error: &WriteError) -> String {
    match error.code() {
        Some(403) if kind == Kind::Service && error.to_string().contains(OWNS_UNDELETABLE) => {
            format!(
                "{error}. The operator has no right to delete a Service, so an administrator must write the owner with kubectl: \
                 docs/switching.md (OpenShift)"
            )
        }
        Some(422) if error.to_string().contains("immutable") => format!(
            "{error}. It is left as it is and never replaced by itself: undo the change, or delete the object when an \
             interruption suits you"
        ),
        Some(403) if lacks_a_right(&error.to_string()) => {
            format!("{error}. The operator's role does not have this right: upgrade the chart")
        }
        Some(_) | None => error.to_string(),
    }
}

/// What the API server says where rights are missing. A quota, a namespace that is being deleted and webhooks of others answer 403
/// too, and no chart changes that.
const LACKS_A_RIGHT: [&str; 7] = [
    "cannot create resource",
    "cannot patch resource",
    "cannot update resource",
    "cannot delete resource",
    "attempting to grant RBAC permissions",
    "cannot set blockOwnerDeletion",
    OWNS_UNDELETABLE,
];

/// What OwnerReferencesPermissionEnforcement answers to who changes the owners of an object that it may not delete.
const OWNS_UNDELETABLE: &str = "cannot set an ownerRef on a resource you can't delete";

fn lacks_a_right(message: &str) -> bool {
    LACKS_A_RIGHT.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use kube::Error;
    use kube::core::Status;

    use super::*;

    fn forbidden(message: &str) -> WriteError {
        let status = Status { code: 403, message: message.to_owned(), ..Status::default() };
        WriteError::Refused(Box::new(Error::Api(Box::new(status))))
    }

    #[test]
    fn o10_who_must_write_the_owner_of_an_object_is_said() {
        let error = forbidden(
            "services \"kube-dns\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>",
        );
        let of_service = explained(Kind::Service, &error);
        assert!(of_service.contains("switching.md (OpenShift)"), "{of_service}");
        assert!(!of_service.contains("upgrade the chart"), "no chart gives it: {of_service}");
        let of_role = explained(Kind::Role, &error);
        assert!(of_role.contains("upgrade the chart"), "{of_role}");
    }

    #[test]
    fn o13_only_where_a_right_is_missing_the_advice_is_a_newer_chart() {
        let user = "User \"system:serviceaccount:clusterdns-system:clusterdns-operator\"";
        let deployment = "deployments.apps \"clusterdns-default\" is forbidden:";
        for (message, is_advised) in [
            (format!("{deployment} {user} cannot patch resource \"deployments\" in API group \"apps\""), true),
            (format!("{deployment} {user} cannot create resource \"deployments\" in API group \"apps\""), true),
            (format!("{deployment} {user} cannot delete resource \"deployments\" in API group \"apps\""), true),
            ("clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: user \"y\" is attempting to grant RBAC permissions \
              not currently held".to_owned(), true),
            (format!("{deployment} cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
                      finalizers on"), true),
            ("services \"kube-dns\" is forbidden: exceeded quota: few, requested: services=1, used: services=5, limited: \
              services=5".to_owned(), false),
            ("configmaps \"clusterdns-default\" is forbidden: unable to create new content in namespace dns because it is \
              being terminated".to_owned(), false),
            ("admission webhook \"validation.gatekeeper.sh\" denied the request: [probes] no readinessProbe".to_owned(), false),
            (format!("{deployment} ValidatingAdmissionPolicy 'images' with binding 'all' denied request: only our registry"), false),
        ] {
            let said = explained(Kind::Deployment, &forbidden(&message));
            assert!(said.starts_with(&message), "{said}");
            assert_eq!(said.contains("upgrade the chart"), is_advised, "{said}");
        }
    }
}
