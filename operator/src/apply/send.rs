//! Sends one object by server-side apply, and sends it again where the API server refuses it for a reason that is not in it: an
//! older API, or fields that another client put beside ours.

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;

use super::{foreign_entries, service};
use crate::context::Context;
use crate::desired::Kind;
use crate::desired::pod_monitor::for_older_schema;
use crate::names;
use crate::runtime::resources;
use crate::runtime::write::WriteError;

/// Applies it; `live`: the object that it is applied to.
///
/// # Errors
/// Why the API server does not take it, nor what is sent in its place.
pub(super) async fn send(
    ctx: &Context,
    (kind, namespace): (Kind, &str),
    mut sent: DynamicObject,
    live: Option<&DynamicObject>,
) -> Result<DynamicObject, WriteError> {
    let objects = resources::api(&ctx.client, kind, namespace);
    let mut made = apply(ctx, (kind, &objects), &sent).await;
    if let Err(error) = &made
        && let Some(older) = for_older(kind, &sent, error)
    {
        sent = older;
        made = apply(ctx, (kind, &objects), &sent).await;
    }
    if let (Err(error), Some(live)) = (&made, live)
        && let Some(patch) = foreign_entries::taken_over(kind, &sent, live, error)
    {
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let request = objects.patch(name(&sent), &params, &patch);
        let taken_over = ctx.writes.send(resources::name(kind), request).await?;
        // Where it names the version that was decided on, that is now the one of this patch.
        sent.metadata.resource_version =
            sent.resource_version().and_then(|_| taken_over.resource_version());
        made = apply(ctx, (kind, &objects), &sent).await;
    }
    made
}

async fn apply(
    ctx: &Context,
    (kind, objects): (Kind, &Api<DynamicObject>),
    object: &DynamicObject,
) -> Result<DynamicObject, WriteError> {
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let body = Patch::Apply(object);
    ctx.writes.send(resources::name(kind), objects.patch(name(object), &params, &body)).await
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The object without what this API server does not know, if it was refused for that.
fn for_older(kind: Kind, sent: &DynamicObject, error: &WriteError) -> Option<DynamicObject> {
    match kind {
        Kind::PodMonitor => for_older_schema(sent, &error.to_string()),
        Kind::Service => service::in_older_words(sent, error),
        Kind::ServiceAccount
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ConfigMap
        | Kind::Deployment
        | Kind::DaemonSet
        | Kind::PodDisruptionBudget
        | Kind::NetworkPolicy
        | Kind::HorizontalPodAutoscaler
        | Kind::PrometheusRule => None,
    }
}
