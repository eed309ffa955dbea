//! The CustomResourceDefinition may be deleted while the operator runs, and every ClusterDNS with it. The operator
//! logs that once and `/readyz` says it; a new definition is noticed within 5 s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher;

/// What to do about it.
pub const ADVICE: &str = "the CustomResourceDefinition clusterdnses.clusterdns.dev does not exist, so no ClusterDNS is \
                          reconciled: apply clusterdns.yaml of this version with kubectl apply --server-side";

/// Between the first two attempts to list ClusterDNS again.
const FIRST: Duration = Duration::from_millis(500);
/// Longest wait, so that a definition that is back is noticed within 5 s.
const LONGEST: Duration = Duration::from_secs(3);

/// Whether the definition is known to be missing.
#[derive(Debug, Default)]
pub struct Definition {
    is_missing: AtomicBool,
}

impl Definition {
    /// Is it known to be missing?
    pub fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    /// Listing or watching ClusterDNS failed in this way.
    pub fn failed(&self, error: &watcher::Error) {
        if is_not_found(error) && !self.is_missing.swap(true, Ordering::Relaxed) {
            tracing::error!("{ADVICE}");
        }
    }

    /// A ClusterDNS was listed or watched.
    pub fn is_there(&self) {
        if self.is_missing.swap(false, Ordering::Relaxed) {
            tracing::info!("the CustomResourceDefinition is back");
        }
    }
}

/// The API server does not know the resource.
fn is_not_found(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code,
        watcher::Error::WatchError(status) => status.code,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => return false,
    };
    code == 404
}

/// How long to wait between two attempts to list ClusterDNS: doubled up to [`LONGEST`].
#[derive(Debug, Default)]
pub struct Soon {
    last: Option<Duration>,
}

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let next = self.last.map_or(FIRST, |last| last * 2).min(LONGEST);
        self.last = Some(next);
        self.last
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {
        self.last = None;
    }
}

/// Asks, while it is missing, whether it is back: a list without a ClusterDNS gives no event that would say so.
pub async fn follow(definition: Arc<Definition>, client: kube::Client) {
    let resources = kube::Api::<crds::ClusterDNS>::all(client);
    let one = kube::api::ListParams::default().limit(1);
    loop {
        tokio::time::sleep(LONGEST).await;
        if definition.is_missing()
            && crate::runtime::time_limit::within(resources.list_metadata(&one)).await.is_ok()
        {
            definition.is_there();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16) -> watcher::Error {
        let status =
            serde_json::json!({"status": "Failure", "message": "m", "reason": "r", "code": code});
        watcher::Error::WatchError(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn only_a_resource_that_is_not_known_is_a_missing_definition() {
        let definition = Definition::default();
        definition.failed(&failure(410));
        definition.failed(&failure(503));
        assert!(!definition.is_missing());
        definition.failed(&failure(404));
        assert!(definition.is_missing());
        definition.is_there();
        assert!(!definition.is_missing());
    }

    #[test]
    fn attempts_are_never_more_than_3_s_apart() {
        let mut waits = Soon::default();
        let first: Vec<u128> = waits.by_ref().take(5).map(|wait| wait.as_millis()).collect();
        assert_eq!(first, [500, 1000, 2000, 3000, 3000]);
        waits.reset();
        assert_eq!(waits.next(), Some(FIRST));
    }
}
