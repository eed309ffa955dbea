//! A reconcile failed. One that fails again and again must not look as if all were well: the status, an Event and the metrics say
//! so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::task::{JoinError, JoinSet};

use super::backoff::{Failure, Row};
use crate::context::Context;
use crate::decide::admit;
use crate::names;
use crate::observe::refusal;
use crate::observe::stubs::is_stub;
use crate::report::report_unreconciled;
use crate::report::status::{failing, unread};
use crate::runtime::patience::asked_of_cause;
use crate::shortened::shortened;

/// Reconciles of a ClusterDNS in a row that failed before it is reported, which is after about a minute: an API server that has
/// just started refuses what it has not read the rights of.
const FAILED_BEFORE: u32 = 6;
/// It is reported after fewer, and at least two, where they took as long: the API server may ask for minutes between them.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// Octets of why a reconcile failed: others may say anything.
const MAX_WHY: usize = 300;

/// Why a reconcile failed.
#[derive(Debug)]
pub enum Why {
    /// It met an error.
    Error(anyhow::Error),
    /// It panicked with this: a defect of ours.
    Defect(String),
}

/// Does this work on a task of its own; it ends with what waits for it.
///
/// # Errors
/// What it panicked with.
pub(super) async fn caught<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(done)) => Ok(done),
        Some(Err(defect)) => Err(words(defect)),
        None => Err("it did not run".to_owned()),
    }
}

/// Without the number of the task: with it each status would differ from the one before, and be written.
fn words(defect: JoinError) -> String {
    let payload = match defect.try_into_panic() {
        Ok(payload) => payload,
        Err(other) => return other.to_string(),
    };
    match payload.downcast::<String>() {
        Ok(words) => *words,
        Err(payload) => match payload.downcast_ref::<&str>() {
            Some(words) => (*words).to_owned(),
            None => "it panicked".to_owned(),
        },
    }
}

/// A reconcile that began then failed: how long to wait, and in which row of failures it is.
pub(super) fn count(
    dns: &ClusterDNS,
    ctx: &Context,
    (began, why): (Instant, &Why),
) -> (Duration, Row) {
    let asked = match why {
        Why::Error(error) => asked_of_cause(error),
        Why::Defect(_) => None,
    };
    let (name, failure) = (dns.name_any(), Failure { asked, at_most: None });
    let now = Instant::now();
    let again = ctx.backoff.failed(&name, dns.metadata.generation, now, failure);
    ctx.metrics.reconciled("failed", began.elapsed());
    (again, ctx.backoff.errored(&name, now))
}

/// It was counted: says so where many in a row failed. What the status said before must not stay as if it were still so.
pub async fn say(dns: &Arc<ClusterDNS>, ctx: &Context, row: Row, why: &Why) {
    let is_many = row.errors > FAILED_BEFORE || row.errors > 1 && row.lasts >= FAILED_FOR;
    // Another operator says it of the others.
    let is_ours = admit::is_managed(dns, &ctx.settings).is_ok();
    if !is_many || !is_ours || dns.metadata.deletion_timestamp.is_some() {
        return;
    }
    let is_stub = is_stub(dns.as_ref());
    let (reason, message, event) = match why {
        // Of a stub only the ClusterDNS itself was read.
        Why::Error(error) => match refusal(error).filter(|_| !is_stub) {
            Some(refused) => {
                let namespace = names::service(dns).0;
                (unread::REASON, unread::refused(dns, &refused), unread::event(&namespace))
            }
            None => {
                let why = shortened(&format!("{error:#}"), MAX_WHY);
                (failing::REASON, failing::of_error(&why), failing::EVENT.to_owned())
            }
        },
        Why::Defect(defect) => {
            let why = shortened(defect, MAX_WHY);
            (failing::REASON, failing::of_defect(&why), failing::EVENT.to_owned())
        }
    };
    if is_stub {
        // Its whole status is not known, and what a write leaves out would be removed.
        ctx.metrics.reported(dns, &unread::of(dns, reason, &message, Timestamp::now()));
        ctx.events.warn(dns, reason, &event).await;
        return;
    }
    let newest = ctx.last_written.newest(dns);
    let said = report_unreconciled(ctx, &newest, &message, (reason, &event)).await;
    if let Err(error) = said {
        tracing::warn!("nothing says that {} is not reconciled: {error:#}", dns.name_any());
    }
}

#[cfg(test)]
mod tests;
