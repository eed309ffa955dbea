//! The ClusterDNS resource in a real cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};

use crate::objects::wait_for;

/// The name under which the tests apply.
pub const FIELD_MANAGER: &str = "clusterdns-tests";

/// Applies the CustomResourceDefinition; returns when ClusterDNS can be created.
pub async fn install(client: &Client) {
    let crd = crds::v1alpha1::crd();
    let name = crd.name_any();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let applied =
        crds.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&crd)).await;
    applied.expect("the API server takes the CustomResourceDefinition");
    wait_for("an established CustomResourceDefinition", async || {
        let status = crds.get(&name).await.ok()?.status?;
        let established = |condition: &_| is_true(condition, "Established");
        status.conditions?.iter().any(established).then_some(())
    })
    .await;
}

fn is_true(
    condition: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition,
    kind: &str,
) -> bool {
    condition.type_ == kind && condition.status == "True"
}
