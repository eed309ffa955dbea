//! The CustomResourceDefinition may be deleted while the operator runs, and every ClusterDNS with it. The operator
//! logs that once and `/readyz` says it; a new definition is noticed within 5 s.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crds::ClusterDNS;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher;
use kube::{Api, Resource};
use tokio::time::Instant;

use crate::runtime::time_limit::within;

/// What to do about it.
pub const ADVICE: &str = "the CustomResourceDefinition clusterdnses.clusterdns.dev does not exist, so no ClusterDNS is \
                          reconciled: apply clusterdns.yaml of this version with kubectl apply --server-side \
                          --force-conflicts";

/// A definition that is back is noticed within this time, if the API server answers.
pub const NOTICED_WITHIN: Duration = Duration::from_secs(5);
/// Between two attempts to list ClusterDNS, on average: a quarter more or less, so never more than 3 s.
pub const LOOKED_FOR_EVERY: Duration = Duration::from_millis(2_400);
/// A definition that was missing for this long is no API server that has just started, or a person who replaces it.
const GONE_AFTER: Duration = Duration::from_secs(30);

/// Whether the definition is known to be missing.
#[derive(Debug, Default)]
pub struct Definition {
    missing_since: Mutex<Option<Instant>>,
}

impl Definition {
    /// Is it known to be missing?
    pub fn is_missing(&self) -> bool {
        self.lock().is_some()
    }

    /// Was it missing for longer than an interruption lasts? Then every ClusterDNS has gone with it.
    pub fn is_gone(&self) -> bool {
        self.lock().is_some_and(|since| since.elapsed() >= GONE_AFTER)
    }

    /// Listing or watching ClusterDNS failed in this way.
    pub fn failed(&self, error: &watcher::Error) {
        let mut missing_since = self.lock();
        if is_not_found(error) && missing_since.is_none() {
            *missing_since = Some(Instant::now());
            tracing::error!("{ADVICE}");
        }
    }

    /// A list of ClusterDNS is complete, also one without any; or a watch of them was accepted.
    pub fn is_there(&self) {
        if self.lock().take().is_some() {
            tracing::info!("the CustomResourceDefinition is back");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.missing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the API server has the definition, by its own word.
///
/// # Errors
/// It does not say.
pub async fn exists(client: &kube::Client) -> anyhow::Result<bool> {
    let name = format!("{}.{}", ClusterDNS::plural(&()), crds::GROUP);
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    Ok(within(all.get_metadata_opt(&name)).await?.is_some())
}

/// The API server does not know the resource.
pub fn is_not_found(error: &watcher::Error) -> bool {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::runtime::reflector;
    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Reply};
    use crate::observe::caches::Caches;

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

    const NOT_FOUND: fn() -> Reply = Reply::not_found;

    /// An API server that replies in this order, and with lists after that; and when it was asked. It has no other kinds.
    fn api_server(replies: &[fn() -> Reply]) -> (kube::Client, Arc<Mutex<Vec<Instant>>>) {
        let asked = Arc::<Mutex<Vec<Instant>>>::default();
        let (times, replies) = (Arc::clone(&asked), replies.to_vec());
        let client = api::client(move |it| {
            if it.last() != "clusterdnses" {
                return Reply::silence();
            }
            let mut times = times.lock().unwrap();
            times.push(Instant::now());
            match replies.get(times.len() - 1) {
                Some(reply) => reply(),
                None => Reply::list(json!([])),
            }
        });
        (client, asked)
    }

    fn longest_wait(began: Instant, asked: &Mutex<Vec<Instant>>) -> Duration {
        let times = asked.lock().unwrap();
        let before = std::iter::once(began).chain(times.iter().copied());
        before.zip(times.iter()).map(|(before, at)| *at - before).max().unwrap()
    }

    async fn becomes(definition: &Definition, is_missing: bool) {
        let seen = async {
            while definition.is_missing() != is_missing {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("it is noticed");
    }

    #[tokio::test(start_paused = true)]
    async fn o14_a_watch_that_continues_shows_that_the_definition_is_back() {
        let open = || Reply::stream(futures::stream::pending());
        // A person replaces it: the watch ends, and begins at the version that it has reached.
        let replies: [fn() -> Reply; 4] = [|| Reply::list(json!([])), NOT_FOUND, NOT_FOUND, open];
        let (client, asked) = api_server(&replies);
        let (resources, writer) = reflector::store();
        let definition = Arc::new(Definition::default());
        let (triggers, metrics, lists) = (Arc::default(), Arc::default(), Arc::default());
        let caches = Caches::start(client, &[], resources.clone(), triggers, metrics, lists);
        caches.keep_resources(writer, definition.clone());
        becomes(&definition, true).await;
        becomes(&definition, false).await;
        assert_eq!(asked.lock().unwrap().len(), replies.len(), "nothing was listed again");
    }

    #[tokio::test(start_paused = true)]
    async fn o14_the_watch_of_a_missing_definition_begins_again_at_least_every_5_s() {
        let replies = [NOT_FOUND; 20];
        let (client, asked) = api_server(&replies);
        let (resources, writer) = reflector::store();
        let definition = Arc::new(Definition::default());
        let (triggers, metrics, lists) = (Arc::default(), Arc::default(), Arc::default());
        let caches = Caches::start(client, &[], resources.clone(), triggers, metrics, lists);
        let began = Instant::now();
        caches.keep_resources(writer, definition.clone());
        becomes(&definition, true).await;
        resources.wait_until_ready().await.unwrap();
        assert!(!definition.is_missing(), "an empty list shows it too");
        assert!(asked.lock().unwrap().len() > replies.len());
        let longest = longest_wait(began, &asked);
        assert!(longest <= NOTICED_WITHIN, "{longest:?}");
    }
}
