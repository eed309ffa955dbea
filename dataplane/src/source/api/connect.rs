//! How the API server is reached: credentials, and a connection on which a dead peer is noticed within
//! 30 s (E24). kube's own defaults have no keepalive, and retry inside a request for minutes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ConfigExt};
use kube::config::{Config, KubeConfigOptions};
use process::kubeconfig::{self, FirstServer};
use tower::{BoxError, ServiceBuilder};

/// A connection is made within this time, or another is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time after which TCP asks whether the peer is there: 15 + 3 * 5 = 30 s (E24).
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// Time without an acknowledgement after which the connection ends.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Where a pod finds its token.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The API server, and our credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A file as `kubectl` reads it.
    Kubeconfig {
        /// The file; `None` is what `KUBECONFIG` names, else `~/.kube/config`.
        file: Option<PathBuf>,
        /// The context; `None` is the file's current one.
        context: Option<String>,
    },
    /// Those of the pod we run in.
    InCluster,
}

impl Credentials {
    /// Whether this process runs in a pod with a service account.
    pub fn are_in_cluster() -> bool {
        std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(SERVICE_ACCOUNT).exists()
    }
}

/// A client that has not connected yet.
///
/// # Errors
/// The credentials cannot be read, and which; or they are for another API server than the first one.
pub(super) async fn connect(
    credentials: &Credentials,
    first: &FirstServer,
) -> anyhow::Result<Client> {
    let mut config = config(credentials).await?;
    first.check(&config).map_err(anyhow::Error::msg)?;
    config.default_retry = false;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .context("the certificates of the kubeconfig cannot be used")?;
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .build::<_, Body>(connector);
    let credentials = config.auth_layer();
    let credentials = credentials.map_err(|error| anyhow::Error::msg(kubeconfig::reason(&error)));
    let service = ServiceBuilder::new()
        .map_err(kubeconfig::of_request)
        .layer(config.base_uri_layer())
        .option_layer(credentials.context("the credentials cannot be used")?)
        .layer(config.extra_headers_layer().context("the kubeconfig's impersonation")?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}

async fn config(credentials: &Credentials) -> anyhow::Result<Config> {
    let Credentials::Kubeconfig { file, context } = credentials else {
        return Config::incluster().context("the pod's service account cannot be used");
    };
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    kubeconfig::config(file.as_deref(), &options).await.map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;
    use crate::source::api::watch::chain;

    /// What a request fails with is in the log and on the pages of a data plane.
    #[tokio::test]
    async fn a_renewal_of_a_token_that_fails_shows_no_secrets() {
        let folder =
            std::env::temp_dir().join(format!("clusterdns-renewal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("kubeconfig");
        // The plugin works for as long as this file is there.
        let credentials = folder.join("credentials");
        let of_past = "{status: {token: hunter2, expirationTimestamp: '2000-01-01T00:00:00Z'}}";
        std::fs::write(&credentials, of_past).unwrap();
        let script = format!("cat {} || {{ echo $TOKEN; exit 3; }}", credentials.display());
        let text = format!(
            r#"{{"clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:1", "insecure-skip-tls-verify": true}}}}],
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}], "current-context": "c",
                "users": [{{"name": "u", "user": {{"exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
                    "args": ["-c", "{script}"], "env": [{{"name": "TOKEN", "value": "hunter2"}}],
                    "interactiveMode": "Never"}}}}}}]}}"#
        );
        std::fs::write(&file, text).unwrap();
        let named = Credentials::Kubeconfig { file: Some(file), context: None };
        let client = connect(&named, &FirstServer::default()).await;
        std::fs::remove_dir_all(&folder).unwrap();
        let request = Request::get("/api").body(Body::empty()).unwrap();
        let failed = client.unwrap().send(request).await.unwrap_err();
        let why = format!("{} {failed:?}", chain(&failed));
        assert!(why.contains("credential plugin") && why.contains("exit status: 3"), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
}
