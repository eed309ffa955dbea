//! New content of an object waits while something that it needs cannot be written, such as a right, while it would end every pod,
//! or while the API server does not take it. What is there needs nothing new, so it stays as it was applied last: what another client edits or deletes of it is
//! put back meanwhile.

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::json;

use super::contention::Key;
use super::memory::Why;
use super::outcome::{Written, described};
use super::restore::{self, autoscaled, remember, up_from_zero};
use super::tries::{Tries, as_it_was};
use super::{Failure, Made, Means, Newest, Stopped, apply_one, live, memory, write};
use crate::context::Context;
use crate::decide::plan::{Plan, RolloutPlan, Size};
use crate::decide::{config_map, rollout};
use crate::desired::{Kind, with_addresses};
use crate::observe::observed::Observed;

const REPLICAS: &str = "/spec/replicas";

/// One object whose new content waits.
pub(super) struct HeldBack<'a> {
    pub(super) kind: Kind,
    pub(super) wanted: &'a DynamicObject,
}

/// Whether pods or clients would get something by it that they do not have. What was sent once is put back, and a trial that
/// ends is written: neither needs a new right.
pub(super) fn is_new(
    ctx: &Context,
    (kind, wanted): (Kind, &DynamicObject),
    observed: &Observed,
    rollout: &RolloutPlan,
) -> bool {
    let is_known = kind == Kind::ConfigMap && !config_map::has_new_document(rollout, observed);
    !is_known && !ctx.memory.was_sent(kind, wanted)
}

impl HeldBack<'_> {
    /// Keeps the object as it was, and reports for what the new content waits.
    pub(super) async fn put_back(
        self,
        ctx: &Context,
        newest: &mut Newest<'_>,
        (observed, now): (&Observed, Timestamp),
        (plan, waits_for): (&Plan, String),
        tries: &mut Tries<'_>,
    ) -> Result<(), Stopped> {
        let before = self.before(ctx, newest.dns(), (observed, now), plan, tries);
        let is_sized = before.as_ref().is_some_and(has_size);
        if let Some(before) = before {
            let how = (observed, Means::default());
            write(ctx, newest, (self.kind, &before), how, tries).await?;
        }
        let key = memory::key(self.kind, self.wanted);
        if !is_sized && !tries.outcome.has_failed(self.kind) {
            self.ensure_pods(ctx, newest, (observed, plan), &key, tries).await?;
        }
        // An operator before this one applied it just so: nothing is new, and nothing waits.
        let is_new = !ctx.memory.was_sent(self.kind, self.wanted);
        if is_new && !tries.outcome.has_failed(self.kind) {
            tries.depends(&key, waits_for);
        }
        Ok(())
    }

    /// The same where the API server has refused the new content: the report of that stays, and the pause until it is tried again.
    pub(super) async fn put_back_meanwhile(
        self,
        ctx: &Context,
        newest: &mut Newest<'_>,
        (observed, now): (&Observed, Timestamp),
        (plan, is_gone): (&Plan, bool),
        tries: &mut Tries<'_>,
    ) -> Result<(), Stopped> {
        let before = self.before(ctx, newest.dns(), (observed, now), plan, tries);
        // One that is gone comes back with its addresses, which this object may not have.
        let before = before.map(|before| match is_gone {
            true => with_addresses(before, &plan.rollout.state.service.cluster_ips),
            false => before,
        });
        let key = as_it_was(&memory::key(self.kind, self.wanted));
        let may_be_at_zero = match before {
            Some(before) => {
                let which = (self.kind, &before);
                write_meanwhile(ctx, newest, which, (observed, is_gone), (&key, tries)).await?
            }
            None => true,
        };
        match may_be_at_zero {
            true => self.ensure_pods(ctx, newest, (observed, plan), &key, tries).await,
            false => Ok(()),
        }
    }

    /// The object as it should be meanwhile; none where nothing is known of it, or nothing must be written.
    fn before(
        &self,
        ctx: &Context,
        dns: &ClusterDNS,
        (observed, now): (&Observed, Timestamp),
        plan: &Plan,
        tries: &mut Tries<'_>,
    ) -> Option<DynamicObject> {
        match self.kind {
            Kind::ConfigMap => {
                let rollout = rollout_before(dns, (observed, now), plan);
                // rollout.json must name what was done to the Service before that is done.
                tries.is_undecided |= rollout.is_none();
                let wanted = restore::configuration(ctx, dns, observed, rollout?);
                // It is so already.
                tries.is_undecided &= wanted.is_some();
                wanted
            }
            _ => self.as_applied(ctx, dns, observed),
        }
    }

    /// A Deployment whose number of pods is not among our fields is not left at zero.
    async fn ensure_pods(
        &self,
        ctx: &Context,
        newest: &mut Newest<'_>,
        (observed, plan): (&Observed, &Plan),
        key: &Key,
        tries: &mut Tries<'_>,
    ) -> Result<(), Stopped> {
        if self.kind != Kind::Deployment {
            return Ok(());
        }
        let replicas = match plan.size {
            Size::Autoscaled { hold: Some(replicas), .. } => Some(replicas),
            // The autoscaler of the spec before is still there.
            Size::Autoscaled { hold: None, .. } | Size::Replicas(_) | Size::PerNode => {
                autoscaled(&ctx.memory.kept.of(newest.dns()), observed)
            }
        };
        match replicas {
            Some(replicas) => up_from_zero(ctx, newest, (observed, replicas), key, tries).await,
            None => Ok(()),
        }
    }

    /// As it was applied last, by this process or by one before it.
    fn as_applied(
        &self,
        ctx: &Context,
        dns: &ClusterDNS,
        observed: &Observed,
    ) -> Option<DynamicObject> {
        remember(ctx, dns);
        let kept = ctx.memory.kept.of(dns);
        let is_autoscaled = kept.iter().any(|(kind, _)| *kind == Kind::HorizontalPodAutoscaler);
        let (_, mut before) = kept.into_iter().find(|(kind, _)| *kind == self.kind)?;
        // Another client took the number over before this process began, so it is not among our fields.
        let wanted = self.wanted.data.pointer(REPLICAS).and_then(|it| it.as_i64());
        let live = observed.deployment.as_ref().and_then(|it| it.spec.as_ref()?.replicas);
        let has_number = is_autoscaled || has_size(&before);
        if let (false, Some(wanted), Some(live)) = (has_number, wanted, live)
            && i64::from(live) < wanted
        {
            before.data["spec"]["replicas"] = json!(wanted);
        }
        Some(before)
    }
}

fn has_size(object: &DynamicObject) -> bool {
    object.data.pointer(REPLICAS).is_some()
}

/// Writes the object as it was, where it is not so. Only a refusal of this too is reported, with a pause of its own: the new content
/// may be refused for good, and clients depend on this one. Returns whether a Deployment may still have no pods after it.
async fn write_meanwhile(
    ctx: &Context,
    newest: &mut Newest<'_>,
    (kind, before): (Kind, &DynamicObject),
    (observed, is_awaited): (&Observed, bool),
    (key, tries): (&Key, &mut Tries<'_>),
) -> Result<bool, Stopped> {
    let (namespace, name) = (before.namespace().unwrap_or_default(), before.name_any());
    // Where it cannot be read, the new content failed for that.
    let Ok(live) = live(ctx, kind, &namespace, &name).await else { return Ok(true) };
    let is_configuration = kind == Kind::ConfigMap;
    match ctx.memory.why(kind, before, live.as_deref()) {
        Some(Why::Missing | Why::Edited | Why::Wanted) => {}
        // A process before this one wrote it. It is not as it was, and it is written only over the version that was read.
        Some(Why::FirstTime) if is_configuration && !ctx.memory.knows(kind, before) => {}
        // The new content may have been written, without an answer.
        Some(Why::FirstTime) => return Ok(true),
        None => {
            tries.is_undecided &= !is_configuration;
            return Ok(true);
        }
    }
    if !is_awaited && tries.waits(key) {
        return Ok(false);
    }
    match apply_one(ctx, newest, (kind, before), observed, None).await {
        Ok(Made::Nothing) => {
            tries.is_undecided &= !is_configuration;
            Ok(true)
        }
        Ok(Made::Waits(pause)) => {
            tries.outcome.again_within(pause);
            Ok(true)
        }
        Ok(Made::Written(why, editor)) => {
            tries.succeeded(key);
            // It says what was decided besides the new document.
            tries.is_undecided &= !is_configuration;
            let what = described(&memory::key(kind, before));
            tries.outcome.written.push(Written { kind, what, why, editor });
            Ok(!has_size(before))
        }
        Err(Failure::Stopped(stopped)) => Err(stopped),
        Err(Failure::Refused(error)) => {
            tries.refused(key, &error);
            Ok(false)
        }
        // The new content failed for the same.
        Err(Failure::Other(_)) => Ok(true),
    }
}

/// What the ConfigMap holds while the new document waits: the documents of before, and what was decided besides them.
fn rollout_before(
    dns: &ClusterDNS,
    (observed, now): (&Observed, Timestamp),
    plan: &Plan,
) -> Option<RolloutPlan> {
    let mut before = rollout::nothing_new(dns, observed, now)?;
    // A document that waits for a right is on trial as far as this is concerned: it must not look as if it had waited for pods.
    if plan.rollout.canary.is_none() {
        before.state.waits_since = config_map::state(observed).waits_since;
    }
    before.state.switch = plan.rollout.state.switch.clone();
    before.state.service = plan.rollout.state.service.clone();
    before.state.account = plan.rollout.state.account.clone();
    Some(before)
}
