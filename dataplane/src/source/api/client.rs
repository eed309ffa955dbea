//! The client of the API server. Tokens, certificates and authorities are replaced while we run
//! (K10), and the client with them. kube re-reads a pod's own token and CA file once a minute, and of
//! a kubeconfig nothing but a token file; here a refused request is reason enough to read all of it
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use kube::Client;
use process::credentials::opened;
use process::kubeconfig::FirstServer;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::connect::{Credentials, connect};
use super::pace::chance;

/// Least time between two reads of the credentials; some kinds start a program.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// The client is renewed after this time, or at random up to twice as long, also without a doubt: connections stay where they
/// are for as long as both sides live, so an API server that was restarted would get none of them back.
const RENEW_AFTER: Duration = Duration::from_secs(3_600);

/// Shared by the streams of one thread.
pub(super) struct ApiClient {
    credentials: Credentials,
    first: FirstServer,
    client: RefCell<Client>,
    doubted: Notify,
}

impl ApiClient {
    /// Creates the client; sends nothing.
    ///
    /// # Errors
    /// The credentials cannot be read, and which.
    pub(super) async fn open(credentials: Credentials) -> anyhow::Result<ApiClient> {
        let first = FirstServer::default();
        let client = RefCell::new(connect(&credentials, &first).await?);
        Ok(ApiClient { credentials, first, client, doubted: Notify::new() })
    }

    /// One that is there already.
    #[cfg(test)]
    pub(super) fn of(client: Client) -> ApiClient {
        let (credentials, first) = (Credentials::InCluster, FirstServer::default());
        ApiClient { credentials, first, client: RefCell::new(client), doubted: Notify::new() }
    }

    /// For one request. Connections of earlier clients stay open until they end.
    pub(super) fn client(&self) -> Client {
        self.client.borrow().clone()
    }

    /// A request got no answer, or the API server did not accept its credentials.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }
}

/// Reads the credentials again whenever they are in doubt, and every hour or two, so that later requests have new connections.
/// If they cannot be read, nothing changes. Watches that run are not touched.
pub(super) async fn renew(client: Rc<ApiClient>) {
    loop {
        tokio::select! {
            () = client.doubted.notified() => {}
            () = sleep(RENEW_AFTER.mul_f64(1.0 + chance())) => {}
        }
        let (credentials, first) = (client.credentials.clone(), client.first.clone());
        match opened(async move || connect(&credentials, &first).await).await {
            Ok(renewed) => drop(client.client.replace(renewed)),
            Err(error) => {
                tracing::warn!(
                    "the credentials cannot be read again, the old ones stay: {error:#}"
                );
            }
        }
        sleep(RENEW_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(port: u16, namespace: &str) -> String {
        format!(
            r#"{{"clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:{port}"}}}}],
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u", "namespace": "{namespace}"}}}}],
                "users": [{{"name": "u", "user": {{"token": "t"}}}}], "current-context": "c"}}"#
        )
    }

    /// The namespaces of the kubeconfig that a client has at first and after an hour or two, where another one was written that
    /// names a server at this port.
    async fn namespaces(port: u16) -> (String, String) {
        let folder =
            std::env::temp_dir().join(format!("clusterdns-client-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("kubeconfig");
        std::fs::write(&file, kubeconfig(1, "old")).unwrap();
        let credentials = Credentials::Kubeconfig { file: Some(file.clone()), context: None };
        let client = Rc::new(ApiClient::open(credentials).await.unwrap());
        std::fs::write(&file, kubeconfig(port, "new")).unwrap();
        let namespaces = async {
            sleep(RENEW_AFTER - RENEW_INTERVAL).await;
            let before = client.client().default_namespace().to_owned();
            sleep(RENEW_AFTER + 2 * RENEW_INTERVAL).await;
            (before, client.client().default_namespace().to_owned())
        };
        let seen = tokio::select! {
            () = renew(client.clone()) => None,
            seen = namespaces => Some(seen),
        };
        std::fs::remove_dir_all(&folder).unwrap();
        seen.expect("it is renewed for as long as it lives")
    }

    #[tokio::test(start_paused = true)]
    async fn later_requests_have_new_connections_after_an_hour_or_two() {
        assert_eq!(namespaces(1).await, ("old".to_owned(), "new".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubeconfig_that_names_another_cluster_later_is_not_followed() {
        assert_eq!(namespaces(2).await, ("old".to_owned(), "old".to_owned()));
    }
}
