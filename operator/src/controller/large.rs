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
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use kube::runtime::controller::Action;
    use serde_json::{Value, json};

    use super::super::reconcile;
    use super::*;
    use crate::fixtures;
    use crate::observe::stubs::stub_of_resource;

    /// A cluster in which there is nothing but this ClusterDNS. Its writes are remembered, and so are reads of it.
    fn server(dns: &ClusterDNS, sent: &Arc<Mutex<Vec<String>>>) -> Client {
        let (text, sent) = (serde_json::to_string(dns).unwrap(), sent.clone());
        let server = tower::service_fn(move |request: Request<Body>| {
            let (text, sent) = (text.clone(), sent.clone());
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let is_watch = request.uri().query().is_some_and(|it| it.contains("watch"));
                let body = request.into_body().collect_bytes().await.unwrap();
                let reply = match method {
                    Method::GET if is_watch => pending().await,
                    Method::GET if path.ends_with("/default") => {
                        sent.lock().unwrap().push("read".to_owned());
                        text
                    }
                    Method::GET => {
                        json!({"metadata": {"resourceVersion": "7"}, "items": []}).to_string()
                    }
                    _ => {
                        sent.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
                        let reply: Value = serde_json::from_str(&text).unwrap();
                        json!({"metadata": reply["metadata"]}).to_string()
                    }
                };
                Ok::<_, Infallible>(Response::new(Body::from(reply.into_bytes())))
            }
        });
        Client::new(server, "default")
    }

    #[tokio::test]
    async fn k23_a_clusterdns_that_is_kept_as_a_stub_is_read_and_reconciled_one_at_a_time() {
        let sent = Arc::<Mutex<Vec<String>>>::default();
        let dns = fixtures::dns("{image: 'elsewhere.example/dns'}");
        let mut stub = dns.clone();
        stub_of_resource(&mut stub);
        assert_eq!(stub.spec.image, None);
        let ctx = Arc::new(fixtures::context(server(&dns, &sent), fixtures::settings()));
        ctx.caches.wait_until_read("kube-system").await;
        let stub = Arc::new(stub);
        let turn = ctx.large.begin().unwrap();
        let again = reconcile(stub.clone(), ctx.clone()).await;
        assert_eq!(again, Action::requeue(AGAIN_IN));
        assert!(sent.lock().unwrap().is_empty(), "another has its turn");
        drop(turn);
        reconcile(stub, ctx.clone()).await;
        let sent = sent.lock().unwrap();
        assert!(sent[0] == "read" && sent.len() > 1, "{sent:?}");
        assert!(sent[1].contains("ImageNotAllowed"), "by its whole spec: {}", sent[1]);
        assert!(ctx.large.begin().is_some(), "its turn is over");
    }
}
