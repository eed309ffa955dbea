//! The pods' identity. Its token is mounted where the pod asks for it, so not in pods of others that name it.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::instance::Instance;

pub(super) fn service_account(of: &Instance<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: of.metadata(),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
