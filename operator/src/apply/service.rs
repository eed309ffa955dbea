//! All writes to a foreign Service: a merge patch, with the resourceVersion that was read, adds our key to its selector or
//! removes it, with the annotation that names the ClusterDNS; and a deleted one is created again as it was.

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::decide::plan::SelectorPatch;
use crate::names;
use crate::runtime::write::{WriteError, Writes};

/// Sends it.
///
/// # Errors
/// A conflict when the Service has changed since it was read: reconcile again.
pub async fn patch_selector(
    client: &Client,
    writes: &Writes,
    (namespace, name): (&str, &str),
    instance: &str,
    patch: &SelectorPatch,
) -> Result<Service, WriteError> {
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = Patch::Merge(body(instance, patch));
    writes.send("Service", services.patch(name, &params, &body)).await
}

/// Creates an adopted Service again, as it was.
///
/// # Errors
/// The API server refuses it: another has one of its addresses, or it was created already.
pub async fn create_again(
    client: &Client,
    writes: &Writes,
    (namespace, manifest): (&str, &Value),
) -> Result<Service, WriteError> {
    let service: Service = serde_json::from_value(manifest.clone()).unwrap_or_default();
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    writes.send("Service", services.create(&params, &service)).await
}

fn body(instance: &str, patch: &SelectorPatch) -> Value {
    let value = match patch.add {
        true => json!(instance),
        false => Value::Null,
    };
    json!({
        "metadata": {"resourceVersion": patch.resource_version, "annotations": {names::ADOPTED_BY: value}},
        "spec": {"selector": {names::INSTANCE: value}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o15_key_and_annotation_come_and_go_together_and_name_the_version() {
        let add = SelectorPatch { resource_version: "7".into(), add: true };
        let expected = json!({"metadata": {"resourceVersion": "7", "annotations": {"clusterdns.dev/adopted-by": "a"}},
            "spec": {"selector": {"clusterdns.dev/instance": "a"}}});
        assert_eq!(body("a", &add), expected);
        let remove = SelectorPatch { add: false, ..add };
        assert_eq!(body("a", &remove)["spec"]["selector"]["clusterdns.dev/instance"], Value::Null);
        assert!(body("a", &remove)["metadata"]["annotations"].as_object().unwrap().len() == 1);
    }
}
