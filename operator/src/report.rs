//! Writes the status of a ClusterDNS when it has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::names;
use crate::status::CONDITIONS;
use crate::write::WriteError;

/// Statuses that are remembered.
const MAX_REMEMBERED: usize = 1_000;

/// What was written last, for as long as the watch is behind: status follows from the one before.
#[derive(Debug, Default)]
pub struct Reported {
    last: Mutex<HashMap<String, ClusterDNS>>,
}

impl Reported {
    /// The newest that is known of it.
    pub fn newest(&self, kept: &Arc<ClusterDNS>) -> Arc<ClusterDNS> {
        let last = self.last.lock().expect("nothing panics while holding this lock");
        match last.get(&kept.name_any()) {
            Some(last)
                if version(last) > version(kept) && last.metadata.uid == kept.metadata.uid =>
            {
                Arc::new(last.clone())
            }
            Some(_) | None => kept.clone(),
        }
    }

    /// It is gone.
    pub fn forget(&self, name: &str) {
        self.last.lock().expect("nothing panics while holding this lock").remove(name);
    }

    fn remember(&self, dns: ClusterDNS) {
        let mut last = self.last.lock().expect("nothing panics while holding this lock");
        if last.len() >= MAX_REMEMBERED {
            last.clear();
        }
        last.insert(dns.name_any(), dns);
    }
}

fn version(dns: &ClusterDNS) -> Option<u128> {
    dns.metadata.resource_version.as_deref()?.parse().ok()
}

/// Writes it unless it says what is there already.
///
/// # Errors
/// When it cannot be written; a ClusterDNS that is gone needs no status.
pub async fn report(
    ctx: &Context,
    dns: &ClusterDNS,
    status: ClusterDNSStatus,
) -> anyhow::Result<()> {
    let status = as_read_back(&status)?;
    ctx.metrics.reported(dns, &status);
    if dns.status.as_ref().map(ours).as_ref() == Some(&status) {
        return Ok(());
    }
    let body = json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::v1alpha1::VERSION),
        "kind": "ClusterDNS",
        // Not one of the same name that was created since, nor over what another leader has said: a conflict is with
        // something newer, which the watch brings.
        "metadata": {"name": dns.name_any(), "uid": dns.metadata.uid,
            "resourceVersion": dns.metadata.resource_version},
        "status": status,
    });
    let resources = Api::<ClusterDNS>::all(ctx.client.clone());
    let (name, params) = (dns.name_any(), PatchParams::apply(names::FIELD_MANAGER).force());
    let patch = Patch::Apply(&body);
    match ctx
        .writes
        .send_versioned("ClusterDNS", resources.patch_status(&name, &params, &patch))
        .await
    {
        Ok(written) => ctx.reported.remember(written),
        Err(error) if matches!(error.code(), Some(404 | 409)) => {
            tracing::debug!("no status: {error}")
        }
        Err(WriteError::NotLeading(lost)) => return Err(lost.into()),
        Err(error) => return Err(anyhow::Error::new(error).context("cannot write its status")),
    }
    Ok(())
}

/// Without the conditions of others, which do not go by our writing again.
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

    fn dns(version: &str, uid: &str, domain: &str) -> ClusterDNS {
        let mut dns = ClusterDNS::default();
        dns.metadata.name = Some("a".into());
        dns.metadata.uid = Some(uid.into());
        dns.metadata.resource_version = Some(version.into());
        dns.status =
            Some(ClusterDNSStatus { domain: Some(domain.into()), ..ClusterDNSStatus::default() });
        dns
    }

    #[test]
    fn status_follows_from_the_one_written_last_while_the_watch_is_behind() {
        let reported = Reported::default();
        let newest = |kept: ClusterDNS| {
            reported.newest(&Arc::new(kept)).status.clone().unwrap().domain.unwrap()
        };
        assert_eq!(newest(dns("5", "u", "kept")), "kept");
        reported.remember(dns("10", "u", "written"));
        assert_eq!(newest(dns("9", "u", "kept")), "written");
        assert_eq!(newest(dns("11", "u", "kept")), "kept");
        assert_eq!(newest(dns("9", "v", "kept")), "kept", "another of the same name");
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
