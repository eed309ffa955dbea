//! Applies the desired objects: server-side apply in order, prune last, and no request when nothing differs. A failure is
//! reported, and that object is tried again by a later reconcile. No object is deleted to be created again.

mod newest;
mod order;
mod ownership;
pub mod service;
pub mod outcome;
pub mod memory;
mod last_applied;
mod owned;
mod tries;
mod send;
mod foreign_entries;
mod restore;
mod held_back;
mod fingerprint;
pub mod contention;
mod urgent;

use std::sync::Arc;
use std::time::Duration;

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::json;

use crate::context::Context;
use crate::decide::adoption::{self, Standing};
use crate::decide::plan::{Plan, ServicePlan, Size};
use crate::desired::{Desired, Kind};
use crate::names;
use crate::observe::observed::{Child, Observed};
use crate::observe::stubs::is_stub;
use crate::runtime::resources;
use crate::runtime::time_limit::within;
use crate::runtime::write::WriteError;
use contention::Edit;
use memory::Why;
pub use newest::{Newest, Stopped};
use outcome::{Outcome, Written, described};
use ownership::Ownership;
pub use restore::{end_trial, restore};
use tries::Tries;

/// Applies, patches and prunes.
///
/// # Errors
/// When this process may not write any more, and when the API server has another spec than the one that was decided on.
pub async fn apply(
    ctx: &Context,
    newest: &mut Newest<'_>,
    desired: &Desired,
    (observed, now): (&Observed, Timestamp),
    plan: &Plan,
) -> Result<Outcome, Stopped> {
    let dns = newest.dns();
    let trial = plan.rollout.again_in.filter(|_| plan.rollout.canary.is_some());
    let mut tries = Tries::of(ctx, dns, trial);
    let hold = match plan.size {
        Size::Autoscaled { hold, .. } => hold,
        Size::Replicas(_) | Size::PerNode => None,
    };
    for (kind, object) in &desired.objects {
        // First of all, so that no other failed write delays it: clients ask this Service.
        let is_gone = *kind == Kind::Service
            && (observed.service.is_none() || adoption::emptied(dns, observed).is_some());
        let needs = if is_gone { &[] } else { order::needs(*kind) };
        let missing = needs.iter().find(|kind| tries.outcome.failed.contains(kind));
        let missing =
            missing.map(|kind| format!("waits for the {} before it", resources::name(*kind)));
        let waits_for =
            missing.or_else(|| order::waits_for_nodes(*kind, observed).map(str::to_owned));
        let is_new = || held_back::is_new(ctx, (*kind, object), observed, &plan.rollout);
        if let Some(waits_for) = waits_for.filter(|_| is_new()) {
            let it = held_back::HeldBack { kind: *kind, wanted: object };
            it.put_back(ctx, newest, (observed, now), (plan, waits_for), &mut tries).await?;
            continue;
        }
        let is_awaited = is_gone && had_addresses(dns);
        let means = Means { hold, is_awaited };
        write(ctx, newest, (*kind, object), (observed, means), &mut tries).await?;
        // A mistake in the spec, or a policy of others, must not make the edits of others permanent.
        if tries.outcome.has_failed(*kind) && is_new() {
            let it = held_back::HeldBack { kind: *kind, wanted: object };
            let how = (observed, now);
            it.put_back_meanwhile(ctx, newest, how, (plan, is_gone), &mut tries).await?;
        }
    }
    let waits = |kind| order::awaits_successor(kind, desired, observed);
    if waits(Kind::Deployment) || waits(Kind::DaemonSet) {
        restore::remember(ctx, dns);
    }
    for (kind, before) in ctx.memory.kept.of(dns).into_iter().filter(|(kind, _)| waits(*kind)) {
        let how = (observed, Means::default());
        write(ctx, newest, (kind, &before), how, &mut tries).await?;
    }
    if waits(Kind::HorizontalPodAutoscaler) {
        restore::ensure_pods(ctx, newest, observed, &mut tries).await?;
    }
    match &plan.service {
        ServicePlan::Adopted { patch: Some(patch), .. }
        | ServicePlan::Released { patch: Some(patch), .. } => {
            newest.ensure().await?;
            // Where another client took only the annotation away, the key is there.
            let has_key = adoption::standing(dns, observed.service.as_ref()) == Standing::Switched;
            let is_switched = !(patch.add && has_key);
            service::switch(ctx, dns, (patch, is_switched), &mut tries).await?;
        }
        ServicePlan::Recreated { manifest, labels: _ } => {
            newest.ensure().await?;
            service::create_adopted(ctx, dns, manifest, &mut tries).await?;
        }
        ServicePlan::Own
        | ServicePlan::Adopted { patch: None, .. }
        | ServicePlan::Released { patch: None, .. } => {}
    }
    prune(ctx, newest, (desired, observed), &mut tries).await?;
    // What may not be deleted yet still has its effect: an autoscaler beside a workload that waits.
    let failed = &tries.outcome.failed;
    let stays = |kind| desired.get(kind).is_some() || order::keeps(failed, kind) || waits(kind);
    ctx.memory.kept.retain(&dns.name_any(), stays);
    Ok(tries.outcome)
}

/// Whether clients have asked its Service.
fn had_addresses(dns: &ClusterDNS) -> bool {
    dns.status.as_ref().is_some_and(|status| !status.cluster_ips.is_empty())
}

/// What else the write of an object needs to know.
#[derive(Clone, Copy, Default)]
struct Means {
    /// What runs, where the number of pods is handed over to an autoscaler.
    hold: Option<u32>,
    /// Clients are without DNS until it is written, so it is tried each time.
    is_awaited: bool,
}

/// Writes an object if it must be written now, and remembers what came of it.
async fn write(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (kind, object): (Kind, &DynamicObject),
    (observed, means): (&Observed, Means),
    tries: &mut Tries<'_>,
) -> Result<(), Stopped> {
    let key = memory::key(kind, object);
    if means.is_awaited || !tries.waits(&key) {
        match apply_one(ctx, newest, (kind, object), observed, means.hold).await {
            Ok(Made::Nothing) => {
                tries.succeeded(&key);
                ctx.memory.kept.is_as_applied(kind, object);
            }
            Ok(Made::Waits(pause)) => tries.outcome.again_within(pause),
            Ok(Made::Written(why, editor)) => {
                tries.succeeded(&key);
                let what = described(&key);
                tries.outcome.written.push(Written { kind, what, why, editor });
            }
            Err(Failure::Stopped(stopped)) => return Err(stopped),
            Err(Failure::Refused(error)) => tries.refused(&key, &error),
            Err(Failure::Other(why)) => tries.failed(&key, &why),
        }
    }
    tries.outcome.applied.contested.extend(ctx.memory.contention.of(&key, &described(&key)));
    Ok(())
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
    hold: Option<u32>,
) -> Result<Made, Failure> {
    let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let live = live(ctx, kind, &namespace, &name)
        .await
        .map_err(|why| Failure::Other(format!("{why:#}")))?;
    match live.as_ref().map(|live| ownership::ownership(live, newest.dns())) {
        None | Some(Ownership::Ours) => {}
        // Another client took away from our Service what shows whose it is.
        Some(Ownership::Theirs)
            if kind == Kind::Service
                && observed.service.as_ref().is_some_and(|it| adoption::is_same(observed, it)) => {}
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
    let edit = match (why, live.as_deref()) {
        (Why::Edited, Some(live)) => Some(Edit::of(kind, (wanted, live), editor.clone())),
        // What this process deleted itself, it does not know any more. What was sent for a ClusterDNS of the same name had another
        // owner, and went with that.
        (Why::Missing, None) if ctx.memory.was_sent(kind, wanted) => Some(Edit::deletion(kind)),
        (Why::Edited | Why::Missing | Why::FirstTime | Why::Wanted, _) => None,
    };
    let pause = |edit| ctx.memory.contention.pause(&memory::key(kind, wanted), edit);
    // A change of the spec is written at once.
    let may_wait = ctx.memory.was_sent(kind, wanted);
    if let Some(pause) = edit.as_ref().and_then(pause).filter(|_| may_wait) {
        return Ok(Made::Waits(pause));
    }
    newest.ensure().await.map_err(Failure::Stopped)?;
    tracing::debug!(?why, "applying {}", described(&memory::key(kind, wanted)));
    if let Some(replicas) = hold.filter(|_| kind == Kind::Deployment && live.is_some()) {
        let held = hold_replicas(ctx, (&namespace, &name), replicas).await;
        // The Deployment has another version by now, even if what follows fails.
        ctx.memory.unanswered(kind, wanted, live.as_deref());
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
    let made = send::send(ctx, (kind, &namespace), sent, live.as_deref()).await;
    let made = made.inspect_err(|error| {
        if error.may_have_written() {
            ctx.memory.unanswered(kind, wanted, live.as_deref());
        }
    })?;
    ctx.memory.applied(kind, wanted, &made);
    if kind == Kind::ConfigMap {
        ctx.last_documents.written(newest.dns(), wanted);
    }
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
/// the autoscaler has written its own number.
async fn hold_replicas(
    ctx: &Context,
    (namespace, name): (&str, &str),
    replicas: u32,
) -> Result<(), WriteError> {
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": replicas}});
    let params = PatchParams::apply(names::HANDOVER_MANAGER).force();
    let deployments = resources::api(&ctx.client, Kind::Deployment, namespace);
    let patch = Patch::Apply(&body);
    ctx.writes.send("Deployment", deployments.patch(name, &params, &patch)).await.map(drop)
}

/// Only after everything that it depends on is as it should be.
async fn prune(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (desired, observed): (&Desired, &Observed),
    tries: &mut Tries<'_>,
) -> Result<(), Stopped> {
    for child in order::superfluous(desired, observed) {
        let Child { kind, namespace, name, uid } = &child;
        let key = (*kind, namespace.clone(), name.clone());
        if order::keeps(&tries.outcome.failed, *kind) || tries.waits(&key) {
            continue;
        }
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
            Err(error) => tries.refused(&key, &error),
            Ok(_) => {
                ctx.memory.forget(*kind, namespace, name);
                tries.succeeded(&key);
                tries.outcome.pruned.push(child);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
