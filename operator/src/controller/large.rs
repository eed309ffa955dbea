//! Reads a ClusterDNS of which only a stub is kept, because all together are too large (K23). It is reconciled as any other, but
//! only one such at a time: each may be as large as etcd takes.

use std::time::Duration;

use crds::ClusterDNS;
use kube::Client;
use kube::api::Api;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::runtime::time_limit::within;

/// Such ClusterDNS that are reconciled at a time.
const LARGE_AT_A_TIME: usize = 1;
/// When one that finds another at it looks again.
pub(super) const AGAIN_IN: Duration = Duration::from_secs(1);

/// Who may be reconciled of those that must be read.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Semaphore::new(LARGE_AT_A_TIME))
    }
}

impl Turns {
    /// None: another has its turn. A reconcile that waited would keep those waiting that are kept whole.
    pub(super) fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }
}

/// As the API server has it; none: it is gone, or is being deleted.
///
/// # Errors
/// It cannot be read.
pub(super) async fn whole(name: &str, client: &Client) -> anyhow::Result<Option<ClusterDNS>> {
    let read = within(Api::<ClusterDNS>::all(client.clone()).get_opt(name)).await?;
    Ok(read.filter(|dns| dns.metadata.deletion_timestamp.is_none()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::runtime::controller::Action;

    use super::super::reconcile;
    use super::*;
    use crate::fixtures::{self, api};
    use crate::observe::stubs::stub_of_resource;

    #[tokio::test]
    async fn k23_a_clusterdns_that_is_kept_as_a_stub_is_read_and_reconciled_one_at_a_time() {
        let dns = fixtures::dns("{image: 'elsewhere.example/dns'}");
        let mut stub = dns.clone();
        stub_of_resource(&mut stub);
        assert_eq!(stub.spec.image, None);
        // A cluster in which there is nothing but this ClusterDNS.
        let (client, log) = api::logged(move |asked| match asked.path.ends_with("/default") {
            true if !asked.is_write() => api::Reply::ok(&dns),
            _ => api::empty(asked),
        });
        let reads_and_writes = || {
            let mut all = log.all();
            all.retain(|it| it.is_write() || it.path.ends_with("/default"));
            all
        };
        let ctx = Arc::new(fixtures::context(client, fixtures::settings()));
        ctx.caches.wait_until_read("kube-system").await;
        let stub = Arc::new(stub);
        let turn = ctx.large.begin().unwrap();
        let again = reconcile(stub.clone(), ctx.clone()).await;
        assert_eq!(again, Action::requeue(AGAIN_IN));
        assert!(reads_and_writes().is_empty(), "another has its turn");
        drop(turn);
        reconcile(stub, ctx.clone()).await;
        let sent = reads_and_writes();
        assert!(!sent[0].is_write() && sent.len() > 1, "{sent:?}");
        let written = sent[1].body.to_string();
        assert!(written.contains("ImageNotAllowed"), "by its whole spec: {written}");
        assert!(ctx.large.begin().is_some(), "its turn is over");
    }
}
