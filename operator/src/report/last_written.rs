//! The ClusterDNS as the API server answered our last write of its status: a reconcile begins from it while the watch is
//! behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::ClusterDNS;
use kube::ResourceExt;

/// Statuses that are remembered.
const MAX_REMEMBERED: usize = 1_000;

/// The status that was written last. It is used while the watch is behind, because each status follows from the one
/// before.
#[derive(Debug, Default)]
pub struct LastWritten {
    last: Mutex<HashMap<String, ClusterDNS>>,
}

impl LastWritten {
    /// The newest known state of this ClusterDNS.
    pub fn newest(&self, kept: &Arc<ClusterDNS>) -> Arc<ClusterDNS> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.get(&kept.name_any()) {
            Some(last)
                if version(last) > version(kept) && last.metadata.uid == kept.metadata.uid =>
            {
                Arc::new(last.clone())
            }
            Some(_) | None => kept.clone(),
        }
    }

    /// This ClusterDNS was deleted: nothing is remembered of it.
    pub fn forget(&self, name: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Versions mean nothing any more: the API server shows an older state.
    pub fn forget_all(&self) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Remembers what the API server answered to the last write.
    pub(super) fn remember(&self, dns: ClusterDNS) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_REMEMBERED {
            last.clear();
        }
        last.insert(dns.name_any(), dns);
    }
}

fn version(dns: &ClusterDNS) -> Option<u128> {
    dns.metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crds::v1alpha1::ClusterDNSStatus;

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
        let last = LastWritten::default();
        let newest =
            |kept: ClusterDNS| last.newest(&Arc::new(kept)).status.clone().unwrap().domain.unwrap();
        assert_eq!(newest(dns("5", "u", "kept")), "kept");
        last.remember(dns("10", "u", "written"));
        assert_eq!(newest(dns("9", "u", "kept")), "written");
        assert_eq!(newest(dns("11", "u", "kept")), "kept");
        assert_eq!(newest(dns("9", "v", "kept")), "kept", "another of the same name");
    }
}
