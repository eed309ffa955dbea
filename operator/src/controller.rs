//! Calls [`crate::reconcile`] for each ClusterDNS: when something that it depends on has changed, after a failure with
//! back-off, and every 30 s.

pub mod triggers;
pub mod backoff;
pub mod crd;
pub mod orphaned_services;

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use crds::v1alpha1::ManagementState;
use futures::StreamExt;
use kube::api::Api;
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::{Notify, watch};

use crate::apply::memory::Memory;
use crate::context::Context;
use crate::desired::Kind;
use crate::lost_pods::PolicyStanding;
use crate::observe::caches::Caches;
use crate::observe::certificates::Certificates;
use crate::observe::last_documents::LastDocuments;
use crate::observe::lists::Lists;
use crate::observe::observed::Offers;
use crate::observe::sample::Samples;
use crate::observe::{offers, relist};
use crate::probe::compare::RoundPermits;
use crate::probe::pod_reports::PodReports;
use crate::report::events::Events;
use crate::report::last_written::LastWritten;
use crate::runtime::metrics::Metrics;
use crate::runtime::restored::Resets;
use crate::runtime::write::{WriteError, Writes};
use crate::settings::Settings;
use crate::{names, reconcile};
use backoff::{Backoff, Failure};
use crd::{Definition, Soon};
use triggers::Triggers;

/// ClusterDNS that are reconciled at a time: more than may ask canaries at once, which takes long.
const CONCURRENCY: u16 = 8;
/// ClusterDNS in a page of their list, which is held whole.
const PAGE: u32 = 20;
/// Also when nothing has changed: pods are asked what they run, and that comes by no watch.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts to learn what the API server offers, at the start.
const OFFERS_RETRY: Duration = Duration::from_secs(2);

/// Reconciles until `stop`, and finishes the reconciles in progress.
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
) {
    let controller = Controller::new(
        Api::<ClusterDNS>::all(client.clone()),
        watcher::Config::default().timeout(180).page_size(PAGE),
    )
    .trigger_backoff(Soon::default());
    let triggers = Arc::new(Triggers::default());
    let (namespaces, lists) = (&settings.workload_namespaces, Arc::<Lists>::default());
    let caches = Caches::start(
        client.clone(),
        namespaces,
        controller.store(),
        triggers.clone(),
        metrics.clone(),
        lists.clone(),
    );
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
        events,
        metrics,
        lost_pods,
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
            // It was deleted meanwhile, or a watch begins again: nothing to do.
            match outcome {
                Ok(_) => definition.is_there(),
                Err(error) => {
                    tracing::debug!("{error}");
                    if let kube::runtime::controller::Error::QueueError(error) = &error {
                        definition.failed(error);
                        if relist::is_version_lost(error) {
                            version_lost.notify_one();
                        }
                    }
                }
            }
        });
    tokio::select! {
        () = reconciling => {}
        // The controller's own watch cannot be restarted from outside, so the process ends, and the next one lists.
        () = version_lost.notified() => tracing::error!(
            "the API server does not know the version from which this process watches ClusterDNS, as after a restore of etcd: \
             the process ends, and reads everything when it starts again"
        ),
        () = orphaned_services::follow(&ctx, &triggers) => {}
        () = crd::follow(definition.clone(), ctx.client.clone()) => {}
        () = follow_offers(&ctx, &triggers, offers_again_in) => {}
        () = forget_versions(&ctx, resets.subscribe()) => {}
    }
}

/// Everything that decisions need has been read once. Returns when to ask again what the API server offers.
async fn prepare(ctx: &Context) -> Duration {
    let again_in = loop {
        match read_offers(ctx).await {
            Ok((_, again_in)) => break again_in,
            Err(error) => {
                tracing::warn!("cannot read what the API server offers, trying again: {error:#}")
            }
        }
        tokio::time::sleep(OFFERS_RETRY).await;
    };
    ctx.caches.wait_until_ready().await;
    again_in
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
        && !ctx.caches.is_incomplete(Kind::Service, &namespace)
}

async fn reconcile(dns: Arc<ClusterDNS>, ctx: Arc<Context>) -> Result<Action, Never> {
    let (name, generation, began) = (dns.name_any(), dns.metadata.generation, Instant::now());
    if let Err(wait) = ctx.backoff.begin(&name, generation, is_without_service(&dns, &ctx), began) {
        return Ok(Action::requeue(wait));
    }
    // It is being deleted, and its objects with it: a write would create some of them again.
    if dns.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let dns = ctx.last_written.newest(&dns);
    let (outcome, again) = match reconcile::reconcile(&dns, &ctx).await {
        Ok(reconcile::Reconciled { again, is_complete: true, .. }) => {
            ctx.backoff.succeeded(&name);
            ("done", again.unwrap_or(AGAIN).min(AGAIN))
        }
        Ok(reconcile::Reconciled { again, is_complete: false, is_on_trial, retry_after }) => {
            let failure = Failure { asked: retry_after, at_most: again.filter(|_| is_on_trial) };
            ("incomplete", ctx.backoff.failed(&name, generation, Instant::now(), failure))
        }
        Err(error) => {
            tracing::warn!(
                "the operator cannot reconcile the ClusterDNS {name} and tries again: {error:#}"
            );
            let asked = error.downcast_ref().and_then(WriteError::retry_after);
            let failure = Failure { asked, at_most: None };
            ("failed", ctx.backoff.failed(&name, generation, Instant::now(), failure))
        }
    };
    ctx.metrics.reconciled(outcome, began.elapsed());
    Ok(Action::requeue(again))
}
