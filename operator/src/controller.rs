//! reconcile(): observe -> check -> decide -> desire -> apply -> report. Assumes nothing about why it was called.

pub mod backoff;
pub mod definition;
pub mod departed;
pub mod triggers;

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crds::v1alpha1::ManagementState;
use crds::{ClusterDNS, check_resource};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::Notify;

use crate::answers::Answers;
use crate::apply::memory::Memory;
use crate::apply::{Outcome, apply, restore};
use crate::compare::Places;
use crate::context::Context;
use crate::decide::decide;
use crate::desired::{Desired, Kind};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::observe::caches::Caches;
use crate::observe::certificates::Certificates;
use crate::observe::sample::Samples;
use crate::observe::{observe, offers, persistence};
use crate::observed::Offers;
use crate::report::{Reported, report};
use crate::settings::Settings;
use crate::write::{WriteError, Writes};
use crate::{names, news, status};
use backoff::{Backoff, Failure};
use definition::{Definition, Soon};
use triggers::Triggers;

/// ClusterDNS that are looked at side by side: more than may ask canaries at once, which takes long.
const CONCURRENCY: u16 = 16;
/// Also when nothing has changed: pods are asked what they run, and that comes by no watch.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts to learn what the API server offers, at the start.
const OFFERS_RETRY: Duration = Duration::from_secs(2);

/// Reconciles until `stop`; what runs then is finished.
pub async fn run(
    client: Client,
    settings: Settings,
    writes: Writes,
    events: Events,
    metrics: Arc<Metrics>,
    definition: Arc<Definition>,
    stop: impl Future<Output = ()> + Send + Sync + Clone + 'static,
) {
    let controller = Controller::new(
        Api::<ClusterDNS>::all(client.clone()),
        watcher::Config::default().timeout(180),
    )
    .trigger_backoff(Soon::default());
    let triggers = Arc::new(Triggers::default());
    let namespaces = &settings.workload_namespaces;
    let caches = Caches::start(
        client.clone(),
        namespaces,
        controller.store(),
        triggers.clone(),
        metrics.clone(),
    );
    let ctx = Arc::new(Context {
        client,
        settings,
        writes,
        caches,
        answers: Answers::default(),
        samples: Samples::default(),
        certificates: Certificates::default(),
        places: Places::default(),
        memory: Memory::default(),
        reported: Reported::default(),
        backoff: Backoff::default(),
        events,
        metrics,
        offers: RwLock::new(Offers::default()),
    });
    let offers_again_in = tokio::select! {
        again_in = prepare(&ctx) => again_in,
        () = stop.clone() => return,
    };
    tracing::info!("reconciling");
    let version_lost = Notify::new();
    let reconciling = controller
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(triggers.clone().stream())
        .graceful_shutdown_on(stop)
        .run(reconcile, after_failure, ctx.clone())
        .for_each(|outcome| async {
            // Deleted in the meantime, or a watch that begins again: both come by themselves.
            match outcome {
                Ok(_) => definition.is_there(),
                Err(error) => {
                    tracing::debug!("{error}");
                    if let kube::runtime::controller::Error::QueueError(error) = &error {
                        definition.failed(error);
                        if persistence::is_version_lost(error) {
                            version_lost.notify_one();
                        }
                    }
                }
            }
        });
    tokio::select! {
        () = reconciling => {}
        // The controller's own watch cannot be begun again from outside: another process lists.
        () = version_lost.notified() => tracing::error!(
            "the API server does not know the version at which ClusterDNS are watched, as after etcd was restored: \
             this process ends, and reads everything when it is started again"
        ),
        () = departed::follow(&ctx, &triggers) => {}
        () = definition::follow(definition.clone(), ctx.client.clone()) => {}
        () = follow_offers(&ctx, &triggers, offers_again_in) => {}
    }
}

/// Everything that decisions need has been read once. Returns when to ask again what the API server offers.
async fn prepare(ctx: &Context) -> Duration {
    let again_in = loop {
        match read_offers(ctx).await {
            Ok((_, again_in)) => break again_in,
            Err(error) => tracing::warn!("cannot learn what the API server offers: {error:#}"),
        }
        tokio::time::sleep(OFFERS_RETRY).await;
    };
    ctx.caches.wait_until_ready().await;
    again_in
}

/// Whether it offers something else than before, and when to ask again.
async fn read_offers(ctx: &Context) -> anyhow::Result<(bool, Duration)> {
    let look = offers::read(&ctx.client, ctx.offers()).await?;
    for why in &look.unread {
        tracing::warn!("what the API server offers is not known in full: {why}");
    }
    ctx.caches.keep_monitoring(&offers::monitoring(&look.offers));
    Ok((ctx.offered(look.offers), look.again_in()))
}

async fn follow_offers(ctx: &Context, triggers: &Triggers, mut again_in: Duration) {
    loop {
        tokio::time::sleep(again_in).await;
        match read_offers(ctx).await {
            Ok((is_new, next)) => {
                again_in = next;
                if is_new {
                    let all = ctx.caches.resources.state();
                    triggers.wake(&all, all.iter().map(|dns| dns.name_any()));
                }
            }
            Err(error) => tracing::warn!("cannot learn what the API server offers: {error:#}"),
        }
    }
}

/// Only so that the controller's types are satisfied: failures are reported and waited for by [`reconcile`] itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Never(String);

fn after_failure(_: Arc<ClusterDNS>, _: &Never, _: Arc<Context>) -> Action {
    Action::requeue(AGAIN)
}

/// Whether its Service was there and is gone: clients have no DNS until it is back.
fn is_without_service(dns: &ClusterDNS, ctx: &Context) -> bool {
    let (namespace, name) = names::service(dns);
    let was_there = dns.status.as_ref().is_some_and(|status| !status.cluster_ips.is_empty());
    was_there
        && dns.spec.management_state == ManagementState::Managed
        && ctx.caches.object(Kind::Service, &namespace, &name).is_none()
}

async fn reconcile(dns: Arc<ClusterDNS>, ctx: Arc<Context>) -> Result<Action, Never> {
    let (name, generation, began) = (dns.name_any(), dns.metadata.generation, Instant::now());
    if let Err(wait) = ctx.backoff.begin(&name, generation, is_without_service(&dns, &ctx), began) {
        return Ok(Action::requeue(wait));
    }
    // On its way out: what is ours goes with it, and writing would bring some of it back.
    if dns.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let dns = ctx.reported.newest(&dns);
    let (outcome, again) = match reconcile_now(&dns, &ctx).await {
        Ok(Reconciled { again, is_complete: true, .. }) => {
            ctx.backoff.succeeded(&name);
            ("done", again.unwrap_or(AGAIN).min(AGAIN))
        }
        Ok(Reconciled { again, is_complete: false, is_on_trial, retry_after }) => {
            let failure = Failure { asked: retry_after, at_most: again.filter(|_| is_on_trial) };
            ("incomplete", ctx.backoff.failed(&name, generation, Instant::now(), failure))
        }
        Err(error) => {
            tracing::warn!("the ClusterDNS {name} could not be reconciled: {error:#}");
            let asked = error.downcast_ref().and_then(WriteError::retry_after);
            let failure = Failure { asked, at_most: None };
            ("failed", ctx.backoff.failed(&name, generation, Instant::now(), failure))
        }
    };
    ctx.metrics.reconciled(outcome, began.elapsed());
    Ok(Action::requeue(again))
}

/// What came of it.
struct Reconciled {
    again: Option<Duration>,
    is_complete: bool,
    /// A canary runs, and whether it answers must be seen soon, whatever else fails.
    is_on_trial: bool,
    retry_after: Option<Duration>,
}

async fn reconcile_now(dns: &ClusterDNS, ctx: &Context) -> anyhow::Result<Reconciled> {
    let observed = observe(ctx, dns).await?;
    let now = Timestamp::now();
    let settled =
        Reconciled { again: None, is_complete: true, is_on_trial: false, retry_after: None };
    let config = match check_resource(dns) {
        Ok(config) => config,
        Err(violations) => {
            if dns.spec.management_state == ManagementState::Managed {
                restore(ctx, dns, &observed).await?;
            }
            report(ctx, dns, status::rejected(dns, &violations, &observed, now)).await?;
            return Ok(settled);
        }
    };
    let (config, plan) = match decide(dns, &config, &observed, &ctx.settings, now) {
        Ok(decided) => decided,
        Err(refusal) => {
            let is_managed = dns.spec.management_state == ManagementState::Managed;
            if is_managed && !refusal.is_of_others() {
                restore(ctx, dns, &observed).await?;
            }
            report(ctx, dns, status::refused(dns, &refusal, &observed, now)).await?;
            if is_managed {
                ctx.events.warn(dns, refusal.reason, &refusal.message).await;
            }
            return Ok(Reconciled { again: refusal.again_in, ..settled });
        }
    };
    let outcome = match dns.spec.management_state {
        ManagementState::Managed => {
            let desired = Desired::build(dns, &config, &observed, &plan, &ctx.settings);
            apply(ctx, dns, &desired, &observed, &plan).await?
        }
        ManagementState::Unmanaged => Outcome::default(),
    };
    if !outcome.written.is_empty() || !outcome.pruned.is_empty() {
        let written: Vec<&str> = outcome.written.iter().map(|it| it.what.as_str()).collect();
        tracing::info!(name = dns.name_any(), ?written, pruned = ?outcome.pruned, "applied");
    }
    let status = status::of(dns, &config, &plan, &outcome.applied, &observed, now);
    let mut news = news::of(dns.status.as_ref(), &status, &outcome.written, outcome.switched);
    let (namespace, service) = names::service(dns);
    news.extend(news::of_addresses(dns.status.as_ref(), &status, (&namespace, &service)));
    report(ctx, dns, status).await?;
    ctx.events.news(dns, &news).await;
    // What a rollout says holds only if it was written; what was not is decided again.
    if !outcome.has_failed(Kind::ConfigMap) {
        ctx.events.publish(dns, &plan.rollout.notices).await;
    }
    Ok(Reconciled {
        again: plan.rollout.again_in,
        is_complete: outcome.is_complete(),
        is_on_trial: plan.rollout.canary.is_some(),
        retry_after: outcome.retry_after,
    })
}
