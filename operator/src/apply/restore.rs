//! While a spec is refused, nothing new is written, and what runs stays as it was: the mistake of one must not make the edits of
//! others permanent. A deleted Service comes back, the configuration ConfigMap says what pods run, and other objects are put back
//! as they were applied last. The trial of a configuration ends: nothing would judge it.

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::json;

use super::contention::Key;
use super::last_applied::KINDS;
use super::memory::Why;
use super::outcome::{Outcome, PutBack, Restored, Written};
use super::owned::{SELECTOR, is_whole, owned};
use super::ownership::{Ownership, ownership};
use super::tries::Tries;
use super::{Means, Newest, Stopped, hold_replicas, live, service, write};
use crate::context::Context;
use crate::decide::config_map::CANARY;
use crate::decide::plan::RolloutPlan;
use crate::decide::{adoption, config_map, rollout, scale};
use crate::desired::{Desired, Kind, with_addresses};
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::stubs::is_stub;
use crate::runtime::resources;
use crate::runtime::write::WriteError;

/// Puts back what another client edited or deleted.
///
/// # Errors
/// As of [`apply`](super::apply).
pub async fn restore(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Result<PutBack, Stopped> {
    let dns = newest.dns();
    let mut tries = Tries::of(ctx, dns, None);
    let service = service_again(ctx, newest, observed, &mut tries).await?;
    let how = (observed, Means::default());
    let rollout = rollout::nothing_new(dns, observed, now);
    if let Some(map) = rollout.and_then(|rollout| configuration(ctx, dns, observed, rollout)) {
        write(ctx, newest, (Kind::ConfigMap, &map), how, &mut tries).await?;
    }
    remember(ctx, dns);
    let emptied = adoption::emptied(dns, observed);
    for (kind, mut object) in ctx.memory.kept.of(dns) {
        if let Some(last) = emptied.as_ref().filter(|_| kind == Kind::Service) {
            object = with_addresses(object, &last.cluster_ips);
        }
        // One that is gone comes back with its addresses, which this object does not have; another one is of others.
        if kind != Kind::Service || adoption::has_own(dns, observed) {
            write(ctx, newest, (kind, &object), how, &mut tries).await?;
        }
    }
    ensure_pods(ctx, newest, observed, &mut tries).await?;
    Ok(PutBack { service, outcome: tries.outcome })
}

/// Ends the trial of a configuration where the operator acts on nothing more: nothing would judge it, and the pod on trial would
/// run it without end. Nothing else is written.
///
/// # Errors
/// As of [`apply`](super::apply).
pub async fn end_trial(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Result<Outcome, Stopped> {
    let dns = newest.dns();
    let mut tries = Tries::of(ctx, dns, None);
    let is_on_trial = config_map::text(observed.config_map.as_ref(), CANARY).is_some();
    let rollout = if is_on_trial { rollout::nothing_new(dns, observed, now) } else { None };
    if let Some(rollout) = rollout {
        let map = Desired::configuration(dns, observed, rollout, &ctx.settings);
        let how = (observed, Means::default());
        write(ctx, newest, (Kind::ConfigMap, &map), how, &mut tries).await?;
    }
    Ok(tries.outcome)
}

/// A Deployment with an autoscaler that was put back has its pods.
pub(super) async fn ensure_pods(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
    tries: &mut Tries<'_>,
) -> Result<(), Stopped> {
    let dns = newest.dns();
    let replicas = autoscaled(&ctx.memory.kept.of(dns), observed);
    if let Some(replicas) = replicas.filter(|_| !tries.outcome.has_failed(Kind::Deployment)) {
        let (namespace, name) = (names::service(dns).0, names::child(&dns.name_any()));
        let key = (Kind::Deployment, namespace, name);
        up_from_zero(ctx, newest, (observed, replicas), &key, tries).await?;
    }
    Ok(())
}

/// How many pods the autoscaler wanted last, within the bounds that were applied with it; none where no autoscaler says it.
pub(super) fn autoscaled(kept: &[(Kind, DynamicObject)], observed: &Observed) -> Option<u32> {
    let (_, autoscaler) = kept.iter().find(|(kind, _)| *kind == Kind::HorizontalPodAutoscaler)?;
    let bound = |field: &str| {
        let pods = autoscaler.data.pointer(field)?.as_u64()?;
        u32::try_from(pods).ok()
    };
    let (least, most) = (bound("/spec/minReplicas")?, bound("/spec/maxReplicas")?);
    Some(scale::autoscaled(observed).min(most).max(least))
}

/// Another client scaled to zero, and no autoscaler ends that; or it deleted the Deployment, and the API server gives a new one
/// without a number 1 pod. The number is held by a second manager until the autoscaler has
/// written its own: as one of our fields it would be put back against the autoscaler. `key`: what waits where this is refused.
pub(super) async fn up_from_zero(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (observed, replicas): (&Observed, u32),
    key: &Key,
    tries: &mut Tries<'_>,
) -> Result<(), Stopped> {
    let dns = newest.dns();
    let (namespace, name) = (names::service(dns).0, names::child(&dns.name_any()));
    let live = observed.deployment.as_ref().and_then(|it| it.spec.as_ref()?.replicas);
    let is_created = |it: &Written| (it.kind, it.why) == (Kind::Deployment, Why::Missing);
    let is_created = tries.outcome.written.iter().any(is_created);
    if !(live == Some(0) || is_created) || tries.waits(key) {
        return Ok(());
    }
    newest.ensure().await?;
    match hold_replicas(ctx, (&namespace, &name), replicas).await {
        Ok(()) => tries.succeeded(key),
        Err(WriteError::NotLeading(lost)) => return Err(lost.into()),
        Err(error) => tries.refused(key, &error),
    }
    Ok(())
}

/// What an operator before this one applied, as it is now: this one began while nothing new may be written.
pub(super) fn remember(ctx: &Context, dns: &ClusterDNS) {
    let (namespace, service) = names::service(dns);
    let child = names::child(&dns.name_any());
    for kind in KINDS {
        let name = if kind == Kind::Service { &service } else { &child };
        let namespace = if resources::CLUSTER.contains(&kind) { "" } else { &namespace };
        let live = ctx.caches.object(kind, namespace, name).filter(|it| !is_stub(it.as_ref()));
        let Some(live) = live.filter(|live| ownership(live, dns) == Ownership::Ours) else {
            continue;
        };
        let Some(mut ours) = owned(kind, &live).filter(|ours| !ctx.memory.knows(kind, ours)) else {
            continue;
        };
        // Another client took the selector over. That of our Service is always the same, so it is put back.
        let lost_selector = kind == Kind::Service && ours.data.pointer(SELECTOR).is_none();
        if lost_selector && ours.data["spec"].is_object() {
            ours.data["spec"]["selector"] = json!(names::selector(&dns.name_any()));
            ctx.memory.kept.applied(kind, &ours);
        } else if is_whole(kind, &ours) {
            ctx.memory.applied(kind, &ours, &live);
        }
    }
}

/// The configuration ConfigMap, where it may have to be written: it is not as it was, or this process wrote it and sees whether
/// another client has since.
pub(super) fn configuration(
    ctx: &Context,
    dns: &ClusterDNS,
    observed: &Observed,
    rollout: RolloutPlan,
) -> Option<DynamicObject> {
    let map = observed.config_map.as_ref();
    let state = config_map::state_in(map);
    let is_as_it_was = config_map::whole(map) == Some(rollout.stable.as_str())
        && config_map::text(map, CANARY).is_none()
        && (&state.switch, &state.service) == (&rollout.state.switch, &rollout.state.service);
    let wanted = Desired::configuration(dns, observed, rollout, &ctx.settings);
    (!is_as_it_was || ctx.memory.knows(Kind::ConfigMap, &wanted)).then_some(wanted)
}

/// Creates a deleted Service again: clients must not lose DNS because of a mistake in the spec.
async fn service_again(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
    tries: &mut Tries<'_>,
) -> Result<Restored, Stopped> {
    let dns = newest.dns();
    let Some(manifest) = adoption::restorable(observed) else { return Ok(Restored::Unneeded) };
    let key = service::key(dns);
    let (_, namespace, name) = &key;
    let exists = live(ctx, Kind::Service, namespace, name).await.is_ok_and(|live| live.is_some());
    if exists {
        return Ok(Restored::Unneeded);
    }
    newest.ensure().await?;
    let which = (namespace.as_str(), name.as_str());
    let created = if config_map::state(observed).service.is_ours {
        service::apply_again(&ctx.client, &ctx.writes, which, dns, &manifest).await
    } else {
        service::create_again(&ctx.client, &ctx.writes, which, &manifest).await
    };
    match created {
        Ok(_) => {
            tries.succeeded(&key);
            tracing::info!("the operator created the deleted Service {namespace}/{name} again");
            Ok(Restored::Created)
        }
        Err(WriteError::NotLeading(lost)) => Err(lost.into()),
        // Clients are without DNS, so each look tries it, and the next one comes soon.
        Err(error) => {
            tries.refused(&key, &error);
            Ok(Restored::Failed(error.to_string()))
        }
    }
}
