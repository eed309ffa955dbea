//! While a spec is refused, nothing new is written, and what runs stays as it was: the mistake of one must not make the edits of
//! others permanent. A deleted Service comes back, the configuration ConfigMap says what pods run, and other objects are put back
//! as they were applied last. The trial of a configuration ends: nothing would judge it.

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;

use super::kept::KINDS;
use super::outcome::{PutBack, Restored};
use super::owned::owned;
use super::ownership::{Ownership, ownership};
use super::tries::Tries;
use super::{Means, Newest, Stopped, live, service, write};
use crate::context::Context;
use crate::decide::config_map::CANARY;
use crate::decide::{adoption, config_map, rollout};
use crate::desired::{Desired, Kind};
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
    let service = service_again(ctx, newest, observed).await?;
    let mut tries = Tries::of(ctx, dns, None);
    let how = (observed, Means::default());
    if let Some(map) = configuration(ctx, dns, observed, now) {
        write(ctx, newest, (Kind::ConfigMap, &map), how, &mut tries).await?;
    }
    remember(ctx, dns);
    for (kind, object) in ctx.memory.kept.of(dns) {
        // One that is gone comes back with its addresses, which this object does not have; another one is of others.
        if kind != Kind::Service || adoption::has_own(dns, observed) {
            write(ctx, newest, (kind, &object), how, &mut tries).await?;
        }
    }
    Ok(PutBack { service, outcome: tries.outcome })
}

/// What an operator before this one applied, as it is now: this one started while the spec is refused.
fn remember(ctx: &Context, dns: &ClusterDNS) {
    let (namespace, service) = names::service(dns);
    let child = names::child(&dns.name_any());
    for kind in KINDS {
        let name = if kind == Kind::Service { &service } else { &child };
        let namespace = if resources::CLUSTER.contains(&kind) { "" } else { &namespace };
        let live = ctx.caches.object(kind, namespace, name).filter(|it| !is_stub(it.as_ref()));
        let Some(live) = live.filter(|live| ownership(live, dns) == Ownership::Ours) else {
            continue;
        };
        // Without the rules that another client took over it would keep every client out, and without its selector it would
        // hold for all pods of the namespace.
        let is_whole = |ours: &DynamicObject| {
            let has = |field: &str| ours.data.pointer(field).is_some();
            kind != Kind::NetworkPolicy || has("/spec/ingress") && has("/spec/podSelector")
        };
        let ours = owned(kind, &live).filter(is_whole);
        if let Some(ours) = ours.filter(|ours| !ctx.memory.knows(kind, ours)) {
            ctx.memory.applied(kind, &ours, &live);
        }
    }
}

/// The configuration ConfigMap, where it may have to be written: it is not as it was, or this process wrote it and sees whether
/// another client has since.
fn configuration(
    ctx: &Context,
    dns: &ClusterDNS,
    observed: &Observed,
    now: Timestamp,
) -> Option<DynamicObject> {
    let rollout = rollout::while_refused(dns, observed, now)?;
    let map = observed.config_map.as_ref();
    let is_as_it_was = config_map::whole(map) == Some(rollout.stable.as_str())
        && config_map::text(map, CANARY).is_none();
    let wanted = Desired::configuration(dns, observed, rollout, &ctx.settings);
    (!is_as_it_was || ctx.memory.knows(Kind::ConfigMap, &wanted)).then_some(wanted)
}

/// Creates a deleted Service again: clients must not lose DNS because of a mistake in the spec.
async fn service_again(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
) -> Result<Restored, Stopped> {
    let dns = newest.dns();
    let Some(manifest) = adoption::restorable(observed) else { return Ok(Restored::Unneeded) };
    let (namespace, name) = names::service(dns);
    let exists = live(ctx, Kind::Service, &namespace, &name).await.is_ok_and(|live| live.is_some());
    if exists {
        return Ok(Restored::Unneeded);
    }
    newest.ensure().await?;
    let which = (namespace.as_str(), name.as_str());
    let created = if config_map::state(observed).service.is_ours {
        let uid = dns.metadata.uid.as_deref();
        service::apply_again(&ctx.client, &ctx.writes, which, uid, &manifest).await
    } else {
        service::create_again(&ctx.client, &ctx.writes, which, &manifest).await
    };
    match created {
        Ok(_) => {
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
