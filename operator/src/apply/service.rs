//! All writes to a foreign Service: a merge patch, with the resourceVersion that was read, adds our key to its selector or
//! removes it, with the annotation that names the ClusterDNS; and a deleted one is created again as it was, except for marks by
//! which it would be deleted again.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::contention::Key;
use super::memory::Why;
use super::outcome::{Written, described};
use super::tries::Tries;
use crate::context::Context;
use crate::decide::plan::SelectorPatch;
use crate::desired::{Kind, older_distribution};
use crate::names;
use crate::runtime::lease::NotLeading;
use crate::runtime::write::{WriteError, Writes};

/// The code of an API server for a value that it does not allow.
const INVALID: u16 = 422;
/// By these, k3s, RKE2 and Rancher find what they once applied and delete what they no longer apply.
const RANCHER_SET: &str = "objectset.rio.cattle.io/";
/// With the value `false` they leave it.
const RANCHER_PRUNE: &str = "objectset.rio.cattle.io/prune";
/// By these, Argo CD, kapp and `kubectl apply --prune` do the same. Argo CD can be set to track by labels; then it usually takes
/// that of the instance, which is no longer true of a Service that left it.
const PRUNERS: [&str; 7] = [
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/instance",
    "argocd.argoproj.io/tracking-id",
    "kapp.k14s.io/app",
    "kapp.k14s.io/association",
    "applyset.kubernetes.io/part-of",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Moves an adopted Service, once the rollout's state has remembered that. `is_switched`: clients are led elsewhere by it.
pub(super) async fn switch(
    ctx: &Context,
    dns: &ClusterDNS,
    (patch, is_switched): (&SelectorPatch, bool),
    tries: &mut Tries<'_>,
) -> Result<(), NotLeading> {
    let key = key(dns);
    if tries.is_undecided || tries.waits(&key) {
        return Ok(());
    }
    let which = (key.1.as_str(), key.2.as_str());
    let instance = dns.name_any();
    match patch_selector(&ctx.client, &ctx.writes, which, &instance, patch).await {
        Ok(_) => {
            tries.succeeded(&key);
            tries.outcome.switched = is_switched.then_some(patch.add);
        }
        Err(WriteError::NotLeading(lost)) => return Err(lost),
        Err(error) => {
            if error.code() == Some(409) {
                ctx.memory.conflicted(&key, &patch.resource_version);
            }
            tries.refused(&key, &error);
        }
    }
    Ok(())
}

/// Creates an adopted Service again, even if other writes failed: without it clients have no DNS.
pub(super) async fn create_adopted(
    ctx: &Context,
    dns: &ClusterDNS,
    manifest: &Value,
    tries: &mut Tries<'_>,
) -> Result<(), NotLeading> {
    let key = key(dns);
    let which = (key.1.as_str(), key.2.as_str());
    match create_again(&ctx.client, &ctx.writes, which, manifest).await {
        Ok(_) => {
            tries.succeeded(&key);
            tries.outcome.written.push(Written {
                kind: Kind::Service,
                what: described(&key),
                why: Why::Missing,
                editor: None,
            });
        }
        Err(WriteError::NotLeading(lost)) => return Err(lost),
        // Another client was faster, which the watch will show.
        Err(error) if error.code() == Some(409) => {}
        Err(error) => tries.refused(&key, &error),
    }
    Ok(())
}

/// The Service that this ClusterDNS names.
pub(super) fn key(dns: &ClusterDNS) -> Key {
    let (namespace, name) = names::service(dns);
    (Kind::Service, namespace, name)
}

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
    which: (&str, &str),
    manifest: &Value,
) -> Result<Service, WriteError> {
    let (namespace, _) = which;
    let service = as_it_may_be(which, manifest);
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let create =
        async |service: &Service| writes.send("Service", services.create(&params, service)).await;
    let created = create(&service).await;
    match created.as_ref().err().and_then(|error| in_older_words(&service, error)) {
        Some(older) => create(&older).await,
        None => created,
    }
}

/// Applies a Service that is ours again, so that its fields stay ours for the next reconcile that applies the spec.
///
/// # Errors
/// The API server refuses it: another has one of its addresses.
pub(super) async fn apply_again(
    client: &Client,
    writes: &Writes,
    which: (&str, &str),
    dns: &ClusterDNS,
    manifest: &Value,
) -> Result<Service, WriteError> {
    let (namespace, name) = which;
    let service = of_ours(which, dns, manifest);
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let apply = async |service: &Service| {
        writes.send("Service", services.patch(name, &params, &Patch::Apply(service))).await
    };
    let applied = apply(&service).await;
    match applied.as_ref().err().and_then(|error| in_older_words(&service, error)) {
        Some(older) => apply(&older).await,
        None => applied,
    }
}

/// The Service with a word that this API server knows, if it was refused for one that it does not know.
pub(super) fn in_older_words<S>(service: &S, error: &WriteError) -> Option<S>
where
    S: Serialize + DeserializeOwned,
{
    error.code().filter(|code| *code == INVALID)?;
    let mut older = serde_json::to_value(service).ok()?;
    let written = older.pointer_mut("/spec/trafficDistribution")?;
    *written = older_distribution(written.as_str(), &error.to_string())?.into();
    serde_json::from_value(older).ok()
}

/// The Service that is created again. The remembered Service is in a ConfigMap that others may edit. So its name is
/// fixed here, it takes no external addresses, and it is no ExternalName.
fn as_it_may_be((namespace, name): (&str, &str), manifest: &Value) -> Service {
    let mut service: Service = serde_json::from_value(manifest.clone()).unwrap_or_default();
    service.metadata.namespace = Some(namespace.to_owned());
    service.metadata.name = Some(name.to_owned());
    service.metadata.owner_references = None;
    service.metadata.finalizers = None;
    forget_pruners(&mut service.metadata);
    let spec = service.spec.get_or_insert_default();
    (spec.external_ips, spec.external_name) = (None, None);
    if spec.type_.as_deref() == Some("ExternalName") {
        spec.type_ = None;
    }
    service
}

/// Takes out by what another controller knows that the object is of a set of its own. If that controller deleted it because it is
/// no longer in the set, as k3s does with `--disable=coredns`, it would delete the new one too, at each start. Labels and
/// annotations of Helm, Flux and others stay: these delete by a list of names, once.
fn forget_pruners(metadata: &mut ObjectMeta) {
    let is_of_pruner = |key: &str| {
        // This one says that it is not deleted.
        (key.starts_with(RANCHER_SET) && key != RANCHER_PRUNE) || PRUNERS.contains(&key)
    };
    for marks in [&mut metadata.labels, &mut metadata.annotations].into_iter().flatten() {
        marks.retain(|key, _| !is_of_pruner(key));
    }
}

/// The Service that is ours and is applied again: as [`as_it_may_be`], and it belongs to this ClusterDNS as before. One of our own
/// labels is among those by which Argo CD deletes, and here it is true.
fn of_ours(which: (&str, &str), dns: &ClusterDNS, manifest: &Value) -> Service {
    let mut service = as_it_may_be(which, manifest);
    let labels = service.metadata.labels.get_or_insert_default();
    labels.extend(names::labels(&dns.name_any()));
    let uid = dns.metadata.uid.as_deref();
    let owners = manifest.pointer("/metadata/ownerReferences").cloned().unwrap_or_default();
    let mut owners: Vec<OwnerReference> = serde_json::from_value(owners).unwrap_or_default();
    owners.retain(|owner| Some(owner.uid.as_str()) == uid);
    service.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
    service
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
    use crate::fixtures::{self, api};

    #[tokio::test]
    async fn o15_a_patch_that_conflicts_with_an_edit_is_remembered_as_not_made() {
        let client = api::client(|_| api::Reply::status(409, "the object has been modified"));
        let ctx = fixtures::context(client, fixtures::settings());
        let dns = fixtures::dns("{service: {adopt: true}}");
        let mut tries = Tries::of(&ctx, &dns, None);
        let patch = SelectorPatch { resource_version: "7".to_owned(), add: true };
        assert_eq!(ctx.memory.conflict("kube-system", "kube-dns"), None);
        switch(&ctx, &dns, (&patch, true), &mut tries).await.unwrap();
        assert_eq!(ctx.memory.conflict("kube-system", "kube-dns").as_deref(), Some("7"));
        assert!(tries.outcome.again_in.is_some() && tries.outcome.switched.is_none());
    }

    #[test]
    fn o16_a_remembered_service_that_others_edited_takes_no_other_name_or_address() {
        let forged = json!({"metadata": {"name": "other", "namespace": "elsewhere", "labels": {"a": "b"}},
            "spec": {"type": "ExternalName", "externalName": "evil.example", "externalIPs": ["192.0.2.1"],
                "clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"}}});
        let service = as_it_may_be(("kube-system", "kube-dns"), &forged);
        let expected = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"a": "b"}},
            "spec": {"clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"}}});
        assert_eq!(serde_json::to_value(service).unwrap(), expected);
    }

    #[test]
    fn o16_a_service_that_is_created_again_has_no_mark_by_which_it_is_deleted_again() {
        let kept = json!({"k8s-app": "kube-dns", "app.kubernetes.io/managed-by": "Helm",
            "objectset.rio.cattle.io/prune": "false", "kustomize.toolkit.fluxcd.io/name": "dns"});
        let notes =
            json!({"meta.helm.sh/release-name": "coredns", "helm.sh/resource-policy": "keep"});
        let mut manifest = json!({"metadata": {"labels": kept, "annotations": notes}});
        for (field, marks) in [
            (
                "labels",
                vec![
                    "objectset.rio.cattle.io/hash",
                    "applyset.kubernetes.io/part-of",
                    "app.kubernetes.io/instance",
                    "argocd.argoproj.io/instance",
                    "kapp.k14s.io/app",
                ],
            ),
            (
                "annotations",
                vec![
                    "objectset.rio.cattle.io/id",
                    "objectset.rio.cattle.io/applied",
                    "argocd.argoproj.io/tracking-id",
                    "kubectl.kubernetes.io/last-applied-configuration",
                ],
            ),
        ] {
            for mark in marks {
                manifest["metadata"][field][mark] = json!("x");
            }
        }
        let service = as_it_may_be(("kube-system", "kube-dns"), &manifest);
        let metadata = serde_json::to_value(service.metadata).unwrap();
        assert_eq!((&metadata["labels"], &metadata["annotations"]), (&kept, &notes));
    }

    #[test]
    fn o16_a_service_of_ours_that_is_applied_again_has_its_labels_and_its_owner_only() {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid});
        let ours = names::labels("default");
        assert!(ours.keys().any(|label| PRUNERS.contains(&label.as_str())), "{ours:?}");
        let mut labels = ours.clone();
        labels.insert("argocd.argoproj.io/instance".to_owned(), "dns".to_owned());
        let forged = json!({"metadata": {"name": "other", "namespace": "elsewhere", "labels": labels,
                "ownerReferences": [owner("dns-uid"), owner("another")], "finalizers": ["a/b"]},
            "spec": {"externalIPs": ["192.0.2.1"], "clusterIP": "10.96.0.10"}});
        let mut dns = fixtures::dns("{}");
        dns.metadata.uid = Some("dns-uid".to_owned());
        let service = of_ours(("kube-system", "kube-dns"), &dns, &forged);
        let expected = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": ours, "ownerReferences": [owner("dns-uid")]},
            "spec": {"clusterIP": "10.96.0.10"}});
        assert_eq!(serde_json::to_value(service).unwrap(), expected);
    }

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
