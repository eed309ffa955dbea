//! Applies the desired objects: server-side apply in order, prune last, and no request when nothing differs. A failure is
//! reported and tried again by the next reconcile. No object is deleted to be created again.

mod newest;
mod order;
mod ownership;
pub mod service;
pub mod outcome;
pub mod memory;
mod fingerprint;
pub mod contention;

use std::sync::Arc;
use std::time::Duration;

use crds::ClusterDNS;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::context::Context;
use crate::decide::plan::{Plan, SelectorPatch, ServicePlan, Size};
use crate::decide::{adoption, config_map};
use crate::desired::{Desired, Kind};
use crate::names;
use crate::observe::observed::{Child, Observed};
use crate::observe::stubs::is_stub;
use crate::runtime::lease::NotLeading;
use crate::runtime::resources;
use crate::runtime::time_limit::within;
use crate::runtime::write::WriteError;
use contention::Edit;
use memory::Why;
pub use newest::{Newest, Stopped};
use outcome::{Outcome, Restored, Written, described};
use ownership::Ownership;

/// Applies, patches and prunes.
///
/// # Errors
/// When this process may not write any more, and when the API server has another spec than the one that was decided on.
pub async fn apply(
    ctx: &Context,
    newest: &mut Newest<'_>,
    desired: &Desired,
    observed: &Observed,
    plan: &Plan,
) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome::default();
    let dns = newest.dns();
    for (kind, object) in &desired.objects {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        // First of all, so that no other failed write delays it: clients ask this Service.
        let is_gone = *kind == Kind::Service && observed.service.is_none();
        let needs = if is_gone { &[] } else { order::needs(*kind) };
        if let Some(missing) = needs.iter().find(|kind| outcome.failed.contains(kind)) {
            let why = format!("waits for the {} before it", resources::name(*missing));
            outcome.failed(*kind, &namespace, &name, why);
            continue;
        }
        match apply_one(ctx, newest, (*kind, object), observed, plan).await {
            Ok(Made::Nothing) => {}
            Ok(Made::Waits(pause)) => {
                outcome.again_in = Some(outcome.again_in.map_or(pause, |again| again.min(pause)));
            }
            Ok(Made::Written(why, editor)) => {
                let what = described(*kind, &namespace, &name);
                outcome.written.push(Written { kind: *kind, what, why, editor });
            }
            Err(Failure::Stopped(stopped)) => return Err(stopped),
            Err(Failure::Refused(error)) => outcome.refused(*kind, &namespace, &name, &error),
            Err(Failure::Other(why)) => outcome.failed(*kind, &namespace, &name, why),
        }
        let what = described(*kind, &namespace, &name);
        let contested = ctx.memory.contention.of(&memory::key(*kind, object), &what);
        outcome.applied.contested.extend(contested);
    }
    match &plan.service {
        ServicePlan::Adopted { patch: Some(patch), .. }
        | ServicePlan::Released { patch: Some(patch), .. } => {
            newest.ensure().await?;
            switch(ctx, dns, patch, &mut outcome).await?;
        }
        ServicePlan::Recreated { manifest, labels: _ } => {
            newest.ensure().await?;
            create_again(ctx, dns, manifest, &mut outcome).await?;
        }
        ServicePlan::Own
        | ServicePlan::Adopted { patch: None, .. }
        | ServicePlan::Released { patch: None, .. } => {}
    }
    prune(ctx, newest, (desired, observed), &mut outcome).await?;
    Ok(outcome)
}

/// What became of one object.
enum Made {
    /// It is as it should be.
    Nothing,
    /// Another client edited it again and again: this one is put back after this time.
    Waits(Duration),
    /// It was written: why, and who had changed it before.
    Written(Why, Option<String>),
}

enum Failure {
    Stopped(Stopped),
    Refused(WriteError),
    Other(String),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        match error {
            WriteError::NotLeading(lost) => Failure::Stopped(lost.into()),
            WriteError::NoAnswer | WriteError::Refused(_) => Failure::Refused(error),
        }
    }
}

async fn apply_one(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (kind, wanted): (Kind, &DynamicObject),
    observed: &Observed,
    plan: &Plan,
) -> Result<Made, Failure> {
    let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let live = live(ctx, kind, &namespace, &name)
        .await
        .map_err(|why| Failure::Other(format!("{why:#}")))?;
    match live.as_ref().map(|live| ownership::ownership(live, newest.dns())) {
        None | Some(Ownership::Ours) => {}
        Some(Ownership::Previous) => {
            let why = "it belongs to a deleted ClusterDNS of the same name and will be deleted soon; this is tried again";
            return Err(Failure::Other(why.to_owned()));
        }
        Some(Ownership::Theirs) => {
            let why = "it exists and is not ours: rename it, delete it, or give this ClusterDNS another name";
            return Err(Failure::Other(why.to_owned()));
        }
    }
    // It was deleted after it was read: to apply the decision would create one with other addresses (O16). The event
    // of its deletion starts another reconcile.
    let seen = observed.service.as_ref().filter(|_| kind == Kind::Service);
    if seen.is_some() && live.is_none() {
        return Ok(Made::Nothing);
    }
    let Some(why) = ctx.memory.why(kind, wanted, live.as_deref()) else { return Ok(Made::Nothing) };
    let editor = live.as_deref().and_then(editor);
    let edit = live.as_deref().filter(|_| why == Why::Edited);
    let edit = edit.map(|live| Edit::of(kind, (wanted, live), editor.clone()));
    let pause = |edit| ctx.memory.contention.pause(&memory::key(kind, wanted), edit);
    // A change of the spec is written at once.
    let may_wait = ctx.memory.was_sent(kind, wanted);
    if let Some(pause) = edit.as_ref().and_then(pause).filter(|_| may_wait) {
        return Ok(Made::Waits(pause));
    }
    newest.ensure().await.map_err(Failure::Stopped)?;
    tracing::debug!(?why, "applying {}", described(kind, &namespace, &name));
    if kind == Kind::Deployment && live.is_some() {
        let held = hold_replicas(ctx, (&namespace, &name), plan).await;
        // The Deployment has another version by now, even if what follows fails.
        if !matches!(held, Ok(false)) {
            ctx.memory.unanswered(kind, wanted, live.as_deref());
        }
        held?;
    }
    let mut sent = wanted.clone();
    // The uid keeps the API server from creating it, if it was deleted (and perhaps created again) after it was read.
    sent.metadata.uid = match seen {
        Some(seen) => seen.uid(),
        None => live.as_ref().and_then(|live| live.uid()),
    };
    // O9: a decision is written only over the version that it was made from.
    sent.metadata.resource_version = match kind {
        Kind::ConfigMap => observed.config_map.as_ref().and_then(ResourceExt::resource_version),
        Kind::Service => observed.service.as_ref().and_then(ResourceExt::resource_version),
        _ => None,
    };
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let objects = resources::api(&ctx.client, kind, &namespace);
    let body = Patch::Apply(&sent);
    let made = ctx.writes.send(resources::name(kind), objects.patch(&name, &params, &body)).await;
    let made = made.inspect_err(|error| {
        if error.may_have_written() {
            ctx.memory.unanswered(kind, wanted, live.as_deref());
        }
    })?;
    ctx.memory.applied(kind, wanted, &made);
    if let Some(edit) = edit {
        ctx.memory.contention.put_back(memory::key(kind, wanted), &edit);
    }
    Ok(Made::Written(why, editor))
}

/// Who wrote an object last, besides us and besides controllers that write its status.
fn editor(live: &DynamicObject) -> Option<String> {
    let others = live.managed_fields().iter().filter(|entry| {
        entry.manager.as_deref() != Some(names::FIELD_MANAGER)
            && entry.subresource.as_deref() != Some("status")
    });
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}

/// The object as a watch keeps it. Before an object is created, and for a stub, it is read from the API server.
async fn live(
    ctx: &Context,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<Arc<DynamicObject>>> {
    let kept = ctx.caches.object(kind, namespace, name);
    if let Some(kept) = kept.filter(|kept| !is_stub(kept.as_ref())) {
        return Ok(Some(kept));
    }
    let objects = resources::api(&ctx.client, kind, namespace);
    Ok(within(objects.get_opt(name)).await?.map(Arc::new))
}

/// A field whose only owner lets go falls back to its default, which is 1 pod: a second manager holds what runs until
/// the autoscaler has written its own number. Returns whether it was written.
async fn hold_replicas(
    ctx: &Context,
    (namespace, name): (&str, &str),
    plan: &Plan,
) -> Result<bool, Failure> {
    let Size::Autoscaled { hold: Some(replicas), .. } = plan.size else { return Ok(false) };
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": replicas}});
    let params = PatchParams::apply(names::HANDOVER_MANAGER).force();
    let deployments = resources::api(&ctx.client, Kind::Deployment, namespace);
    ctx.writes.send("Deployment", deployments.patch(name, &params, &Patch::Apply(&body))).await?;
    Ok(true)
}

/// Moves an adopted Service. The rollout's state has remembered it by now.
async fn switch(
    ctx: &Context,
    dns: &ClusterDNS,
    patch: &SelectorPatch,
    outcome: &mut Outcome,
) -> Result<(), NotLeading> {
    if outcome.failed.contains(&Kind::ConfigMap) {
        return Ok(());
    }
    let (namespace, name) = names::service(dns);
    let patched = service::patch_selector(
        &ctx.client,
        &ctx.writes,
        (&namespace, &name),
        &dns.name_any(),
        patch,
    )
    .await;
    match patched {
        Ok(_) => outcome.switched = Some(patch.add),
        Err(WriteError::NotLeading(lost)) => return Err(lost),
        Err(error) => outcome.refused(Kind::Service, &namespace, &name, &error),
    }
    Ok(())
}

/// Creates an adopted Service again, even if other writes failed: without it clients have no DNS.
async fn create_again(
    ctx: &Context,
    dns: &ClusterDNS,
    manifest: &Value,
    outcome: &mut Outcome,
) -> Result<(), NotLeading> {
    let (namespace, name) = names::service(dns);
    match service::create_again(&ctx.client, &ctx.writes, (&namespace, &name), manifest).await {
        Ok(_) => outcome.written.push(Written {
            kind: Kind::Service,
            what: described(Kind::Service, &namespace, &name),
            why: Why::Missing,
            editor: None,
        }),
        Err(WriteError::NotLeading(lost)) => return Err(lost),
        // Another client was faster, which the watch will show.
        Err(error) if error.code() == Some(409) => {}
        Err(error) => outcome.refused(Kind::Service, &namespace, &name, &error),
    }
    Ok(())
}

/// Creates a deleted Service again while the spec is refused: clients must not lose DNS because of a mistake in the
/// spec.
///
/// # Errors
/// As of [`apply`].
pub async fn restore(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
) -> Result<Restored, Stopped> {
    let dns = newest.dns();
    let Some(manifest) = adoption::restorable(observed) else { return Ok(Restored::Unneeded) };
    let (namespace, name) = names::service(dns);
    let services = resources::api(&ctx.client, Kind::Service, &namespace);
    let exists = live(ctx, Kind::Service, &namespace, &name).await.is_ok_and(|live| live.is_some());
    if exists {
        return Ok(Restored::Unneeded);
    }
    newest.ensure().await?;
    let created = if config_map::state(observed).service.is_ours {
        // Applied as usual, so that the fields stay ours for the next reconcile that applies the spec.
        let params = PatchParams::apply(names::FIELD_MANAGER).force();
        let which = (namespace.as_str(), name.as_str());
        let service = service::of_ours(which, dns.metadata.uid.as_deref(), &manifest);
        let apply = Patch::Apply(&service);
        ctx.writes.send("Service", services.patch(&name, &params, &apply)).await.map(drop)
    } else {
        let which = (namespace.as_str(), name.as_str());
        service::create_again(&ctx.client, &ctx.writes, which, &manifest).await.map(drop)
    };
    match created {
        Ok(()) => {
            tracing::info!("the operator created the deleted Service {namespace}/{name} again");
            Ok(Restored::Created)
        }
        Err(WriteError::NotLeading(lost)) => Err(lost.into()),
        Err(error) => {
            tracing::warn!(
                "the operator cannot create the Service {namespace}/{name} again: {error}"
            );
            Ok(Restored::Failed(error.to_string()))
        }
    }
}

/// Only after everything that it depends on is as it should be.
async fn prune(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (desired, observed): (&Desired, &Observed),
    outcome: &mut Outcome,
) -> Result<(), Stopped> {
    for child in order::superfluous(desired, observed) {
        if order::keeps(&outcome.failed, child.kind) {
            continue;
        }
        let Child { kind, namespace, name, uid } = &child;
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        newest.ensure().await?;
        let objects = resources::api(&ctx.client, *kind, namespace);
        match ctx.writes.send(resources::name(*kind), objects.delete(name, &params)).await {
            Err(WriteError::NotLeading(lost)) => return Err(lost.into()),
            // Gone already, or another of the same name by now.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {}
            Err(error) => outcome.refused(*kind, namespace, name, &error),
            Ok(_) => {
                ctx.memory.forget(*kind, namespace, name);
                outcome.pruned.push(child);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
