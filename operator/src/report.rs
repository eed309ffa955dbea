//! Writes the status of a ClusterDNS when it has changed.

pub mod status;
pub mod last_written;
pub mod changes;
pub mod events;
mod older_crd;

use std::fmt;
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::context::Context;
use crate::names;
use crate::report::status::CONDITIONS;
use crate::runtime::write::WriteError;

/// The status is not written now. It waits by itself: what clients depend on must not wait for it.
#[derive(Debug)]
pub struct Unreported {
    why: String,
    /// When it is tried again.
    pub again_in: Duration,
    /// The wait that the API server asked for (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Unreported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write its status: {}", self.why)
    }
}

impl std::error::Error for Unreported {}

/// Writes it unless it says what is there already.
///
/// # Errors
/// [`Unreported`] when it cannot be written; a ClusterDNS that is gone needs no status.
pub async fn report(
    ctx: &Context,
    dns: &ClusterDNS,
    status: ClusterDNSStatus,
) -> anyhow::Result<()> {
    let status = as_read_back(&status)?;
    ctx.metrics.reported(dns, &status);
    let lacking = ctx.last_written.lacking(Instant::now());
    let status = match lacking.is_empty() {
        true => status,
        // What an older CRD lacks cannot be read back either.
        false => {
            serde_json::from_value(older_crd::without(serde_json::to_value(&status)?, &lacking))?
        }
    };
    let before = dns.status.as_ref().map(ours);
    if before.as_ref() == Some(&status) {
        return Ok(());
    }
    let names_before = before.as_ref().map(|it| it.skipped_objects.as_slice());
    let has_new_names = names_before.unwrap_or_default() != status.skipped_objects.as_slice();
    // The next looks see them again.
    if before.is_some_and(|before| differs_only_in_names(before, &status))
        && !ctx.last_written.may_change_names(&dns.name_any(), Instant::now())
    {
        return Ok(());
    }
    let what = format!("the status of ClusterDNS {}", dns.name_any());
    if let Some((why, again_in)) = ctx.attempts.waits(&what, dns.metadata.generation) {
        return Err(Unreported { why, again_in, retry_after: None }.into());
    }
    let status = serde_json::to_value(&status)?;
    let mut written = write(ctx, dns, &status).await;
    let lacking =
        written.as_ref().err().map(|error| older_crd::lacking(&status, &error.to_string()));
    if let Some(lacking) = lacking.filter(|lacking| !lacking.is_empty()) {
        written = write(ctx, dns, &older_crd::without(status, &lacking)).await;
        ctx.last_written.lacks(lacking, Instant::now());
    }
    match written {
        Ok(written) => {
            ctx.attempts.succeeded(&what);
            if has_new_names {
                ctx.last_written.changed_names(&dns.name_any(), Instant::now());
            }
            // One that cannot be read has a status too.
            if let Ok(written) = written.try_parse::<ClusterDNS>() {
                ctx.last_written.remember(written);
            }
        }
        Err(error) if matches!(error.code(), Some(404 | 409)) => {
            tracing::debug!("no status: {error}");
        }
        Err(WriteError::NotLeading(lost)) => return Err(lost.into()),
        Err(error) => {
            tracing::warn!("the operator cannot write {what} and tries again: {error}");
            let (why, retry_after) = (error.to_string(), error.retry_after());
            let again_in = ctx.attempts.failed(&what, dns.metadata.generation, (&why, None));
            return Err(Unreported { why, again_in, retry_after }.into());
        }
    }
    Ok(())
}

/// One request to write a status.
async fn write(
    ctx: &Context,
    dns: &ClusterDNS,
    status: &Value,
) -> Result<DynamicObject, WriteError> {
    let body = json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::v1alpha1::VERSION),
        "kind": "ClusterDNS",
        // uid and resourceVersion: never write the status of a new object of the same name, nor over
        // another leader's: a conflict is with
        // something newer, which the watch brings.
        "metadata": {"name": dns.name_any(), "uid": dns.metadata.uid,
            "resourceVersion": dns.metadata.resource_version},
        "status": status,
    });
    let (resources, name) = (resources(ctx), dns.name_any());
    let (params, patch) = (PatchParams::apply(names::FIELD_MANAGER).force(), Patch::Apply(&body));
    let patched = resources.patch_status(&name, &params, &patch);
    ctx.writes.send_versioned("ClusterDNS", patched).await
}

/// Says in its status and by an Event that its namespace cannot be read, or with an empty one what has none.
///
/// # Errors
/// As of [`report`].
pub async fn report_unread(
    ctx: &Context,
    dns: &ClusterDNS,
    (namespace, message): (&str, &str),
) -> anyhow::Result<()> {
    let event = status::unread::event(namespace);
    report_unreconciled(ctx, dns, message, (status::unread::REASON, &event)).await
}

/// Says in its status, and by an Event of this reason and text, that it is not reconciled.
///
/// # Errors
/// As of [`report`].
pub async fn report_unreconciled(
    ctx: &Context,
    dns: &ClusterDNS,
    message: &str,
    (reason, event): (&str, &str),
) -> anyhow::Result<()> {
    let status = status::unread::of(dns, reason, message, Timestamp::now());
    let reported = report(ctx, dns, status).await;
    ctx.events.warn(dns, reason, event).await;
    reported
}

/// Takes out of a status what no type holds, so that the ClusterDNS can be read again.
///
/// # Errors
/// When it cannot be written.
pub async fn mend(ctx: &Context, name: &str, patch: &Value) -> anyhow::Result<()> {
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let (resources, patch) = (resources(ctx), Patch::Merge(patch));
    let mended = resources.patch_status(name, &params, &patch);
    ctx.writes.send_versioned("ClusterDNS", mended).await?;
    Ok(())
}

/// Untyped: the answer to a write of the status may be one that cannot be read.
fn resources(ctx: &Context) -> Api<DynamicObject> {
    Api::all_with(ctx.client.clone(), &ApiResource::erase::<ClusterDNS>(&()))
}

/// Is the rest of this status the same?
fn differs_only_in_names(mut before: ClusterDNSStatus, status: &ClusterDNSStatus) -> bool {
    before.skipped_objects = status.skipped_objects.clone();
    before == *status
}

/// Without the conditions of others: our writes do not remove them.
fn ours(status: &ClusterDNSStatus) -> ClusterDNSStatus {
    let mut status = status.clone();
    status.conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
    status
}

/// Times lose their fractions of a second on the way, and empty lists go: compared as it will be read.
fn as_read_back(status: &ClusterDNSStatus) -> serde_json::Result<ClusterDNSStatus> {
    serde_json::from_value(serde_json::to_value(status)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e15_a_status_that_differs_in_more_than_names_is_written_at_once() {
        let skipped = |name: &str| crds::v1alpha1::SkippedObject {
            kind: "Service".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            reason: "r".to_owned(),
        };
        let status = |name: &str, domain: &str| ClusterDNSStatus {
            domain: Some(domain.to_owned()),
            skipped_objects: vec![skipped(name)],
            ..ClusterDNSStatus::default()
        };
        let before = status("a", "cluster.local");
        assert!(differs_only_in_names(before.clone(), &status("b", "cluster.local")));
        assert!(!differs_only_in_names(before, &status("b", "c.example")));
    }

    #[test]
    fn times_are_compared_as_they_are_read_back() {
        let condition = serde_json::json!({"type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00.123456Z"});
        let status = ClusterDNSStatus {
            conditions: vec![serde_json::from_value(condition).unwrap()],
            ..ClusterDNSStatus::default()
        };
        let read = as_read_back(&status).unwrap();
        assert_eq!(as_read_back(&read).unwrap(), read);
    }
}
