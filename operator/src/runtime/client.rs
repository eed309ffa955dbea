//! The client of the API server, and the name by which we are known there.

use std::path::Path;

use kube::Client;
use kube::config::{Config, KubeConfigOptions};
use process::bounded_file::{self, SYSTEM_FILE_OCTETS};
use process::kubeconfig::{self, FirstServer};

use super::renewal::renewing;
use crate::args::Cluster;

/// A client that reads its credentials again when they are refused. It sends no request twice: before a repeated write, leadership
/// would not be checked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    let (cluster, first) = (cluster.clone(), FirstServer::default());
    renewing(move || {
        let (cluster, first) = (cluster.clone(), first.clone());
        async move { connect(&cluster, &first).await }
    })
    .await
}

/// Only to the first API server: the lease of one cluster is no right to write to another one.
async fn connect(cluster: &Cluster, first: &FirstServer) -> anyhow::Result<Client> {
    let mut config = config(cluster).await?;
    first.check(&config).map_err(anyhow::Error::msg)?;
    config.default_retry = false;
    kubeconfig::client(config).map_err(anyhow::Error::msg)
}

/// Where the cluster of these flags is, and as whom it is asked.
///
/// # Errors
/// When nothing names a cluster.
pub async fn config(cluster: &Cluster) -> anyhow::Result<Config> {
    let options =
        KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    let Cluster { kubeconfig: file, context, .. } = cluster;
    let read = match file.is_some() || context.is_some() {
        true => kubeconfig::config(file.as_deref(), &options).await,
        false => kubeconfig::inferred().await.map_err(|error| {
            format!("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod with a service account: {error}")
        }),
    };
    read.map_err(anyhow::Error::msg)
}

/// Who we are, for the lease and Events.
pub fn own_name(given: Option<&str>) -> String {
    let set = |name: Option<String>| name.filter(|name| !name.is_empty());
    let file = Path::new("/proc/sys/kernel/hostname");
    let host = || bounded_file::read_text(file, SYSTEM_FILE_OCTETS).ok();
    set(given.map(str::to_owned))
        .or_else(|| set(std::env::var("POD_NAME").ok()))
        .or_else(|| set(host().map(|name| name.trim().to_owned())))
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::Router;
    use axum::http::{HeaderMap, StatusCode, header};
    use axum::routing::get;
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;
    use hyper::{Request, Response};
    use kube::client::Body;
    use process::http;
    use tokio::sync::Notify;

    use super::*;

    /// Longest wait for the second token, in steps.
    const MOST_REQUESTS: usize = 600;

    /// A kubeconfig and a file with a token. Its folder is deleted at the end.
    struct Files {
        folder: PathBuf,
        cluster: Cluster,
    }

    impl Files {
        fn new(name: &str) -> Files {
            let folder =
                std::env::temp_dir().join(format!("clusterdns-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let cluster = Cluster { kubeconfig: Some(folder.join("kubeconfig")), context: None };
            Files { folder, cluster }
        }

        fn name(&self, server: &str) {
            let token = self.folder.join("token");
            let text = format!(
                r#"{{"clusters": [{{"name": "c", "cluster": {{"server": "{server}"}}}}],
                    "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}],
                    "users": [{{"name": "u", "user": {{"tokenFile": "{}"}}}}], "current-context": "c"}}"#,
                token.display()
            );
            std::fs::write(self.folder.join("kubeconfig"), text).unwrap();
        }

        fn token(&self, token: &str) {
            std::fs::write(self.folder.join("token"), token).unwrap();
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    async fn serve(router: Router) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(http::serve(listener, router, 8));
        address
    }

    async fn ask(client: &Client, path: &str) -> Response<Body> {
        client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
    }

    /// kube would read the file again after most of a minute, or if the wall clock was set back, when that is over.
    #[tokio::test]
    async fn k10_a_refused_token_is_read_from_its_file_again_and_watches_that_run_stay() {
        let (old_ones, happens) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let counted = old_ones.clone();
        let answer = move |headers: HeaderMap| {
            let is_new = headers.get(header::AUTHORIZATION).is_some_and(|it| it == "Bearer new");
            counted.fetch_add(usize::from(!is_new), Ordering::Relaxed);
            async move { if is_new { StatusCode::OK } else { StatusCode::UNAUTHORIZED } }
        };
        let waits = happens.clone();
        let events = move || {
            let later = async move {
                waits.notified().await;
                "second"
            };
            let both = stream::once(async { "first" }).chain(stream::once(later));
            let body = axum::body::Body::from_stream(both.map(Ok::<_, std::convert::Infallible>));
            std::future::ready(body)
        };
        let address = serve(Router::new().route("/watch", get(events)).fallback(answer)).await;
        let files = Files::new("token");
        files.name(&format!("http://{address}"));
        files.token("old");
        let client = client(&files.cluster).await.unwrap();
        let mut watch = ask(&client, "/watch").await.into_body();
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        files.token("new");
        let mut statuses = Vec::new();
        while statuses.last() != Some(&StatusCode::OK) && statuses.len() < MOST_REQUESTS {
            statuses.push(ask(&client, "/version").await.status());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(statuses.last(), Some(&StatusCode::OK), "{} requests", statuses.len());
        assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
        assert_eq!(old_ones.load(Ordering::Relaxed), statuses.len() - 1);
        happens.notify_one();
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "second");
    }

    #[tokio::test]
    async fn o9_a_kubeconfig_that_names_another_cluster_later_is_not_followed() {
        let (files, first) = (Files::new("other"), FirstServer::default());
        files.token("t");
        for (server, is_used) in [
            ("http://127.0.0.1:1", true),
            ("http://127.0.0.1:2", false),
            ("http://127.0.0.1:1", true),
        ] {
            files.name(server);
            let why = connect(&files.cluster, &first).await.err().map(|it| it.to_string());
            assert_eq!(why.is_none(), is_used, "{server}: {why:?}");
            assert!(why.is_none_or(|why| why.contains("another API server")));
        }
    }
}
