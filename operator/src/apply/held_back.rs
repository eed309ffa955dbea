//! New content of an object waits while something that it needs cannot be written, such as a right. What is there needs nothing
//! new, so it stays as it was applied last: what another client edits or deletes of it is put back meanwhile.

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::json;

use super::restore::{self, remember, up_from_zero};
use super::tries::Tries;
use super::{Means, Newest, Stopped, memory, write};
use crate::context::Context;
use crate::decide::plan::{Plan, RolloutPlan, Size};
use crate::decide::{config_map, rollout};
use crate::desired::Kind;
use crate::observe::observed::Observed;
use crate::runtime::resources;

const REPLICAS: &str = "/spec/replicas";

/// One object whose new content waits.
pub(super) struct HeldBack<'a> {
    pub(super) kind: Kind,
    pub(super) wanted: &'a DynamicObject,
    /// What could not be written before it.
    pub(super) missing: Kind,
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
        plan: &Plan,
        tries: &mut Tries<'_>,
    ) -> Result<(), Stopped> {
        let dns = newest.dns();
        let before = match self.kind {
            Kind::ConfigMap => {
                let rollout = rollout_before(dns, (observed, now), plan);
                // rollout.json must name what was done to the Service before that is done.
                tries.is_undecided |= rollout.is_none();
                rollout.and_then(|rollout| restore::configuration(ctx, dns, observed, rollout))
            }
            _ => self.as_applied(ctx, dns, observed),
        };
        if let Some(before) = before {
            let how = (observed, Means::default());
            write(ctx, newest, (self.kind, &before), how, tries).await?;
        }
        if let (Kind::Deployment, Size::Autoscaled { hold: Some(replicas), .. }) =
            (self.kind, plan.size)
        {
            up_from_zero(ctx, newest, (observed, replicas), tries).await?;
        }
        if !tries.outcome.has_failed(self.kind) {
            let why = format!("waits for the {} before it", resources::name(self.missing));
            tries.depends(&memory::key(self.kind, self.wanted), why);
        }
        Ok(())
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
        let has_number = is_autoscaled || before.data.pointer(REPLICAS).is_some();
        if let (false, Some(wanted), Some(live)) = (has_number, wanted, live)
            && i64::from(live) < wanted
        {
            before.data["spec"]["replicas"] = json!(wanted);
        }
        Some(before)
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
