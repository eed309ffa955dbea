//! Calls [`crate::reconcile`] for each ClusterDNS: when something that it depends on has changed, after a failure with
//! back-off, and every 30 s.

pub mod triggers;
pub mod backoff;
pub mod attempts;
pub mod failed;
pub mod crd;
pub mod large;
pub mod orphaned_services;
pub mod unreadable;

use std::convert::Infallible;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{self, ObjectRef};
use kube::{Client, ResourceExt};
use tokio::sync::watch;

use crate::apply::Stopped;
use crate::apply::memory::Memory;
use crate::ask_pods::canary_analysis::RoundPermits;
use crate::ask_pods::pod_reports::PodReports;
use crate::context::Context;
use crate::decide::admit;
use crate::desired::Kind;
use crate::lost_pods::PolicyStanding;
use crate::observe::caches::Caches;
use crate::observe::certificates::Certificates;
use crate::observe::last_documents::LastDocuments;
use crate::observe::lists::Lists;
use crate::observe::observed::Offers;
use crate::observe::offers;
use crate::observe::sample::Samples;
use crate::observe::spare_nodes::SeveralSince;
use crate::observe::stubs;
use crate::report::events::Events;
use crate::report::last_written::LastWritten;
use crate::report::{report, report_unread, status};
use crate::runtime::metrics::Metrics;
use crate::runtime::restored::Resets;
use crate::runtime::write::Writes;
use crate::settings::Settings;
use crate::{names, reconcile};
use attempts::Attempts;
use backoff::{Backoff, Failure};
use crd::Definition;
use failed::Why;
use triggers::Triggers;

/// ClusterDNS that are reconciled at a time: more than may ask canaries at once, which takes long.
const CONCURRENCY: u16 = 8;
/// Also when nothing has changed: pods are asked what they run, and that comes by no watch.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts to learn what the API server offers, at the start.
const OFFERS_RETRY: Duration = Duration::from_secs(2);

/// Reconciles until `stop`, and finishes the reconciles in progress.
///
/// # Errors
/// A watch ended by a defect of ours: what it keeps would stay as it is.
#[allow(clippy::too_many_arguments, reason = "each is a part of the process that main makes")]
pub async fn run(
    client: Client,
    settings: Settings,
    writes: Writes,
    events: Events,
    metrics: Arc<Metrics>,
    definition: Arc<Definition>,
    lost_pods: Arc<PolicyStanding>,
    resets: Resets,
    stop: impl Future<Output = ()> + Send + Sync + Clone + 'static,
) -> anyhow::Result<()> {
    let (resources, writer) = reflector::store();
    let triggers = Arc::new(Triggers::default());
    let (namespaces, lists) = (&settings.workload_namespaces, Arc::<Lists>::default());
    let caches = Caches::start(
        client.clone(),
        namespaces,
        resources.clone(),
        triggers.clone(),
        metrics.clone(),
        lists.clone(),
    );
    caches.keep_resources(writer, definition.clone());
    let ctx = Arc::new(Context {
        client,
        lists,
        settings,
        writes,
        caches,
        pod_reports: PodReports::default(),
        last_documents: LastDocuments::default(),
        samples: Samples::default(),
        certificates: Certificates::default(),
        rounds: RoundPermits::default(),
        memory: Memory::default(),
        last_written: LastWritten::default(),
        backoff: Backoff::default(),
        attempts: Attempts::default(),
        several_nodes: SeveralSince::default(),
        events,
        metrics,
        lost_pods,
        offers: RwLock::new(Offers::default()),
        large: large::Turns::default(),
    });
    let offers_again_in = tokio::select! {
        again_in = prepare(&ctx) => again_in,
        why = ctx.caches.critical.ended() => anyhow::bail!("{why}"),
        () = stop.clone() => return Ok(()),
    };
    tracing::info!("reconciling");
    let concerned = triggers.clone().stream().map(Ok::<ObjectRef<ClusterDNS>, Infallible>);
    let reconciling = applier(
        |dns, ctx| on_a_task(dns, ctx).boxed(),
        after_failure,
        ctx.clone(),
        resources,
        // Its end is the end of all that is not in progress.
        concerned.take_until(stop),
        Config::default().concurrency(CONCURRENCY),
    )
    .for_each(|outcome| async {
        // It was deleted meanwhile: nothing to do.
        if let Err(error) = outcome {
            tracing::debug!("{error}");
        }
    });
    tokio::select! {
        () = reconciling => {}
        () = orphaned_services::follow(&ctx, &triggers, &definition) => {}
        () = unreadable::follow(&ctx) => {}
        () = follow_offers(&ctx, &triggers, offers_again_in) => {}
        () = forget_versions(&ctx, resets.subscribe()) => {}
        () = say_when_they_begin(&ctx) => {}
        why = ctx.caches.critical.ended() => anyhow::bail!("{why}"),
    }
    Ok(())
}

/// What the API server offers has been read once: each ClusterDNS waits for the lists that it needs by itself ([`say_unread`]).
/// Returns when to ask again.
async fn prepare(ctx: &Context) -> Duration {
    loop {
        match read_offers(ctx).await {
            Ok((_, again_in)) => return again_in,
            Err(error) => {
                tracing::warn!("cannot read what the API server offers, trying again: {error:#}")
            }
        }
        tokio::time::sleep(OFFERS_RETRY).await;
    }
}

/// Says that reconciles begin, which is when every ClusterDNS was listed: none can say in its status that this fails.
async fn say_when_they_begin(ctx: &Context) {
    // It fails only if the store is not fed any more, and then this process ends.
    if ctx.caches.resources.wait_until_ready().await.is_ok() {
        ctx.metrics.reconciles();
    }
    std::future::pending().await
}

/// Whether it offers something else than before, and when to ask again.
async fn read_offers(ctx: &Context) -> anyhow::Result<(bool, Duration)> {
    let read = offers::read(&ctx.client, ctx.offers()).await?;
    for why in &read.unread {
        tracing::warn!("cannot read all that the API server offers, trying again: {why}");
    }
    ctx.caches.keep_monitoring(&offers::monitoring(&read.offers));
    Ok((ctx.offered(read.offers), read.again_in()))
}

/// After a restore of etcd, what was written last has higher versions than what exists: it would be taken for newer (K22).
async fn forget_versions(ctx: &Context, mut resets: watch::Receiver<u64>) {
    while resets.changed().await.is_ok() {
        ctx.memory.forget_all();
        ctx.last_written.forget_all();
    }
}

async fn follow_offers(ctx: &Context, triggers: &Triggers, mut again_in: Duration) {
    loop {
        tokio::time::sleep(again_in).await;
        match read_offers(ctx).await {
            Ok((is_new, next)) => {
                again_in = next;
                if is_new {
                    let all = ctx.caches.resources.state();
                    triggers.enqueue(&all, all.iter().map(|dns| dns.name_any()));
                }
            }
            Err(error) => {
                tracing::warn!("cannot read what the API server offers, trying again: {error:#}")
            }
        }
    }
}

/// Failures are reported and waited for by [`reconcile`] itself.
fn after_failure(_: Arc<ClusterDNS>, never: &Infallible, _: Arc<Context>) -> Action {
    match *never {}
}

/// Whether its Service was there and is gone: clients have no DNS until it is back.
fn is_without_service(dns: &ClusterDNS, ctx: &Context) -> bool {
    let (namespace, name) = names::service(dns);
    let was_there = dns.status.as_ref().is_some_and(|status| !status.cluster_ips.is_empty());
    was_there
        && dns.spec.management_state == ManagementState::Managed
        && ctx.caches.object(Kind::Service, &namespace, &name).is_none()
        && !ctx.caches.is_incomplete(Kind::Service, &namespace)
}

/// Lists of its namespace, or of what has none, were never complete, so nothing is decided and nothing is written to its objects:
/// what is missing in a cache that was never filled may exist. Where they fail for long, its status and an Event say so.
async fn say_unread(dns: &ClusterDNS, ctx: &Context) {
    // Another operator says it of the others.
    if admit::is_managed(dns, &ctx.settings).is_err() {
        return;
    }
    let own = names::service(dns).0;
    let why = |namespace| Some((namespace, ctx.caches.why_unread(namespace)?));
    let Some((namespace, unlisted)) = why("").or_else(|| why(own.as_str())) else { return };
    let message = status::unread::message(namespace, &unlisted);
    if let Err(error) = report_unread(ctx, dns, (namespace, &message)).await {
        tracing::warn!("the ClusterDNS {} is not reconciled: {message}: {error:#}", dns.name_any());
    }
}

/// Its deletion waits for finalizers, such as those of others, and nothing of it is repaired meanwhile: what its status said before
/// is not true any more.
async fn say_leaving(dns: &ClusterDNS, ctx: &Context) -> Action {
    if admit::is_managed(dns, &ctx.settings).is_err() {
        return Action::await_change();
    }
    match report(ctx, dns, status::leaving::of(dns, Timestamp::now())).await {
        Ok(()) => Action::await_change(),
        Err(_) => Action::requeue(AGAIN),
    }
}

/// Reconciles on a task of its own, so that both threads are used; it ends with what waits for it. A defect of ours that one
/// ClusterDNS meets costs it its reconcile, and the others nothing.
async fn on_a_task(dns: Arc<ClusterDNS>, ctx: Arc<Context>) -> Result<Action, Infallible> {
    let (name, began) = (dns.name_any(), Instant::now());
    let defect = match failed::caught(reconcile(dns.clone(), ctx.clone())).await {
        Ok(again) => return Ok(again),
        Err(defect) => defect,
    };
    tracing::error!(
        "a defect of the operator ended the reconcile of the ClusterDNS {name}, which is tried again: {defect}"
    );
    let why = Why::Defect(defect);
    let (again, row) = failed::count(&dns, &ctx, (began, &why));
    // What says so may meet a defect too.
    let said = failed::caught(async move { failed::say(&dns, &ctx, row, &why).await });
    if let Err(defect) = said.await {
        tracing::error!("a defect of the operator keeps the status of {name} as it was: {defect}");
    }
    Ok(Action::requeue(again))
}

async fn reconcile(dns: Arc<ClusterDNS>, ctx: Arc<Context>) -> Action {
    let (name, generation, began) = (dns.name_any(), dns.metadata.generation, Instant::now());
    // It is held until this reconcile ends. Those that are kept whole wait for none of the others.
    let turn = match stubs::is_stub(dns.as_ref()).then(|| ctx.large.begin()) {
        None => None,
        Some(Some(turn)) => Some(turn),
        Some(None) => return Action::requeue(large::AGAIN_IN),
    };
    if let Err(wait) = ctx.backoff.begin(&name, generation, is_without_service(&dns, &ctx), began) {
        return Action::requeue(wait);
    }
    // It is being deleted, and its objects with it: a write would create some of them again.
    if dns.metadata.deletion_timestamp.is_some() {
        return match turn {
            None => say_leaving(&ctx.last_written.newest(&dns), &ctx).await,
            Some(_) => Action::await_change(),
        };
    }
    let dns = match turn {
        None => ctx.last_written.newest(&dns),
        Some(_) => match large::whole(&name, &ctx.client).await {
            Ok(Some(whole)) => Arc::new(whole),
            // Its watch shows that it is gone, or going.
            Ok(None) => return Action::await_change(),
            Err(error) => {
                tracing::warn!("the operator cannot read the ClusterDNS {name}: {error:#}");
                let why = Why::Error(error);
                let (again, row) = failed::count(&dns, &ctx, (began, &why));
                failed::say(&dns, &ctx, row, &why).await;
                return Action::requeue(again);
            }
        },
    };
    if ctx.caches.is_unread(&names::service(&dns).0) || ctx.caches.is_unread("") {
        say_unread(&dns, &ctx).await;
        // Nothing failed: what fails later is the first in a row.
        ctx.backoff.ran(&name);
        // It is woken when these lists are complete.
        return Action::requeue(AGAIN);
    }
    let mut reconciled = reconcile::reconcile(&dns, &ctx, false).await;
    // Its watch is behind, and the API server has said what it would show. Once, so that edits that never end stop nothing.
    if let Err(Some(Stopped::Outdated(newest))) =
        reconciled.as_ref().map_err(|it| it.downcast_ref())
    {
        tracing::info!(name, "the ClusterDNS has changed, and its watch has not shown it yet");
        let newest = newest.clone().filter(|newest| newest.metadata.deletion_timestamp.is_none());
        let Some(newest) = newest else { return Action::requeue(AGAIN) };
        reconciled = reconcile::reconcile(&newest, &ctx, true).await;
    }
    let (outcome, again) = match reconciled {
        // The API server asks for patience: all that is written waits, not only what it refused.
        Ok(reconcile::Reconciled { again, retry_after: asked @ Some(_), is_on_trial, .. }) => {
            let failure = Failure { asked, at_most: again.filter(|_| is_on_trial) };
            ctx.backoff.ran(&name);
            ("incomplete", ctx.backoff.failed(&name, generation, Instant::now(), failure))
        }
        // What failed waits by itself, and is among the reasons to look again.
        Ok(reconcile::Reconciled { again, is_complete, .. }) => {
            ctx.backoff.succeeded(&name);
            let outcome = if is_complete { "done" } else { "incomplete" };
            (outcome, again.unwrap_or(AGAIN).min(AGAIN))
        }
        Err(error) => {
            tracing::warn!(
                "the operator cannot reconcile the ClusterDNS {name} and tries again: {error:#}"
            );
            let why = Why::Error(error);
            let (again, row) = failed::count(&dns, &ctx, (began, &why));
            failed::say(&dns, &ctx, row, &why).await;
            return Action::requeue(again);
        }
    };
    ctx.metrics.reconciled(outcome, began.elapsed());
    Action::requeue(again)
}

#[cfg(test)]
mod tests;
