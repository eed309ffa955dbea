//! reconcile(): observe (which asks the pods) -> check -> decide -> desired -> apply -> report. Assumes nothing about
//! why it was called.

use std::time::Duration;

use crds::v1alpha1::ManagementState;
use crds::{ClusterDNS, check_resource};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::apply::outcome::PutBack;
use crate::apply::{Newest, Stopped, apply, end_trial, restore};
use crate::context::Context;
use crate::decide::{admit, decide};
use crate::desired::{Desired, Kind, not_remembered};
use crate::names;
use crate::observe::observe;
use crate::observe::observed::Observed;
use crate::report::{Unreported, changes, report, status};

/// What one reconcile found and wrote.
#[derive(Clone, Copy, Debug)]
pub struct Reconciled {
    /// When to reconcile again although nothing changed.
    pub again: Option<Duration>,
    /// Everything that had to be written is written.
    pub is_complete: bool,
    /// A canary runs, and whether it answers must be seen soon, also while other stages fail.
    pub is_on_trial: bool,
    /// The `Retry-After` of the API server, if it sent one.
    pub retry_after: Option<Duration>,
}

/// One reconcile of one ClusterDNS, from observation to report. `is_newest`: it was read from the API server just now.
///
/// # Errors
/// When a read that decisions need fails. With [`Stopped::Outdated`](crate::apply::Stopped) when the API server has another spec.
pub async fn reconcile(
    dns: &ClusterDNS,
    ctx: &Context,
    is_newest: bool,
) -> anyhow::Result<Reconciled> {
    let mut newest = Newest::new(ctx, dns, is_newest);
    let observed = observe(ctx, dns).await?;
    let now = Timestamp::now();
    if dns.spec.management_state == ManagementState::Unmanaged {
        ctx.memory.let_go(&dns.name_any());
    }
    let config = match check_resource(dns) {
        Ok(config) => config,
        Err(violations) => {
            let put_back = match admit::is_free(dns, &observed, &ctx.settings) {
                Ok(()) => put_back(ctx, &mut newest, &observed, now).await?,
                Err(_) => PutBack::default(),
            };
            let status = status::rejected(dns, &violations, &observed, &put_back, now);
            let reported = report(ctx, dns, status).await;
            ctx.events.publish_changes(dns, &changes::of_put_back(dns, &put_back)).await;
            return with_status(reported, after(&put_back, None));
        }
    };
    let (config, plan) = match decide(dns, &config, &observed, &ctx.settings, now) {
        Ok(decided) => decided,
        Err(refusal) => {
            let put_back = match refusal.is_of_others() {
                true => PutBack::default(),
                false => put_back(ctx, &mut newest, &observed, now).await?,
            };
            let status = status::refused(dns, &refusal, &observed, &put_back, now);
            // Where the status cannot be written, an Event is all that says why nothing happens.
            let reported = report(ctx, dns, status).await;
            ctx.events.publish_changes(dns, &changes::of_put_back(dns, &put_back)).await;
            let is_managed = dns.spec.management_state == ManagementState::Managed;
            if is_managed && !refusal.is_passing {
                ctx.events.warn(dns, refusal.reason, &refusal.message).await;
            }
            return with_status(reported, after(&put_back, refusal.again_in));
        }
    };
    let outcome = match dns.spec.management_state {
        ManagementState::Managed => {
            let desired = Desired::build(dns, &config, &observed, &plan, &ctx.settings);
            apply(ctx, &mut newest, &desired, (&observed, now), &plan).await?
        }
        ManagementState::Unmanaged => end_trial(ctx, &mut newest, &observed, now).await?,
    };
    if !outcome.written.is_empty() || !outcome.pruned.is_empty() {
        let written: Vec<&str> = outcome.written.iter().map(|it| it.what.as_str()).collect();
        tracing::info!(name = dns.name_any(), ?written, pruned = ?outcome.pruned, "applied");
        let has_state = outcome.written.iter().any(|it| it.kind == Kind::ConfigMap);
        let left_out = observed.service.as_ref().filter(|_| has_state).and_then(not_remembered);
        if let Some(what) = left_out {
            let (namespace, service) = names::service(dns);
            tracing::warn!(
                "the Service {namespace}/{service} is so large that the operator does not remember {what}: if it is deleted, \
                 it is created again without that, or not at all. Delete what is not needed of it"
            );
        }
    }
    let status = status::of(dns, &config, &plan, &outcome.applied, &observed, now);
    let mut changes = changes::of(dns.status.as_ref(), &status, &outcome.written, outcome.switched);
    let (namespace, service) = names::service(dns);
    changes.extend(changes::of_addresses(dns.status.as_ref(), &status, (&namespace, &service)));
    changes.extend(changes::of_adopted_service(dns, &observed));
    let reported = report(ctx, dns, status).await;
    ctx.events.publish_changes(dns, &changes).await;
    // Events of a rollout are true only once its state is written; otherwise it is decided again, from the same questions.
    if !outcome.has_failed(Kind::ConfigMap) {
        ctx.rounds.written(&dns.name_any());
        ctx.events.publish(dns, &plan.rollout.notices).await;
    }
    let reconciled = Reconciled {
        again: plan.rollout.again_in.into_iter().chain(outcome.again_in).min(),
        is_complete: outcome.is_complete(),
        is_on_trial: plan.rollout.canary.is_some(),
        retry_after: outcome.retry_after,
    };
    with_status(reported, reconciled)
}

/// What is put back while the spec is refused.
async fn put_back(
    ctx: &Context,
    newest: &mut Newest<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Result<PutBack, Stopped> {
    match newest.dns().spec.management_state {
        ManagementState::Managed => restore(ctx, newest, observed, now).await,
        ManagementState::Unmanaged => {
            let outcome = end_trial(ctx, newest, observed, now).await?;
            Ok(PutBack { outcome, ..PutBack::default() })
        }
    }
}

/// What follows from what was put back while the spec is refused; `again_in`: when the refusal is looked at again.
fn after(put_back: &PutBack, again_in: Option<Duration>) -> Reconciled {
    let outcome = &put_back.outcome;
    Reconciled {
        again: again_in.into_iter().chain(outcome.again_in).min(),
        is_complete: outcome.is_complete(),
        is_on_trial: false,
        retry_after: outcome.retry_after,
    }
}

/// A status that cannot be written now is one more reason to look again.
fn with_status(reported: anyhow::Result<()>, reconciled: Reconciled) -> anyhow::Result<Reconciled> {
    let Err(error) = reported else { return Ok(reconciled) };
    let Unreported { again_in, retry_after, .. } = error.downcast()?;
    Ok(Reconciled {
        again: reconciled.again.into_iter().chain([again_in]).min(),
        is_complete: false,
        retry_after: reconciled.retry_after.max(retry_after),
        ..reconciled
    })
}

#[cfg(test)]
mod tests;
