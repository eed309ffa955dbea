//! The client of the API server. Tokens, certificates and authorities are replaced while we run
//! (K10), and the client with them. kube re-reads a pod's own token and CA file once a minute, and of
//! a kubeconfig nothing but a token file; here a refused request is reason enough to read all of it
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use kube::Client;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::connect::{Credentials, connect};

/// Least time between two reads of the credentials; some kinds start a program.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// Shared by the streams of one thread.
pub(super) struct ApiClient {
    credentials: Credentials,
    client: RefCell<Client>,
    doubted: Notify,
}

impl ApiClient {
    /// Creates the client; sends nothing.
    ///
    /// # Errors
    /// The credentials cannot be read, and which.
    pub(super) async fn open(credentials: Credentials) -> anyhow::Result<ApiClient> {
        let client = RefCell::new(connect(&credentials).await?);
        Ok(ApiClient { credentials, client, doubted: Notify::new() })
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

/// Reads the credentials again whenever they are in doubt; if they cannot be read, nothing changes.
pub(super) async fn renew(client: Rc<ApiClient>) {
    loop {
        client.doubted.notified().await;
        let credentials = client.credentials.clone();
        let runtime = tokio::runtime::Handle::current();
        // Off this thread: it may start a program, and events of other streams are read meanwhile.
        let connecting =
            tokio::task::spawn_blocking(move || runtime.block_on(connect(&credentials)));
        match connecting.await {
            Ok(Ok(renewed)) => drop(client.client.replace(renewed)),
            Ok(Err(error)) => {
                tracing::warn!(
                    "the credentials cannot be read again, the old ones stay: {error:#}"
                );
            }
            Err(error) => tracing::error!("reading the credentials ended: {error}"),
        }
        sleep(RENEW_INTERVAL).await;
    }
}
