//! One pod, asked once over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::page::{document, read};
use crate::observe::observed::Reported;
use crate::shortened::shortened;

/// The container port that is asked.
pub const PORT_NAME: &str = "metrics";
/// Where the container port is not named.
const PORT: u16 = 9153;
/// A pod that takes longer than this counts as silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest configuration has 1 MiB, written out with indentation.
const MAX_BYTES: usize = 8 << 20;
/// Octets of a page up to which pods are read side by side. Of larger ones few are held at a time: anyone who may create pods
/// in a watched namespace can have them answer with [`MAX_BYTES`].
const SMALL: usize = 256 << 10;
const LARGE_AT_A_TIME: usize = 4;
/// Octets of why a pod has no report: an error may quote what it answered.
const MAX_WHY: usize = 300;

/// The HTTP client that asks pods for `/config`.
#[derive(Debug)]
pub(super) struct Asker {
    client: Client<HttpConnector, Empty<Bytes>>,
    large: Semaphore,
}

impl Default for Asker {
    fn default() -> Asker {
        // Pods come and go: no connection is kept.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Asker { client, large: Semaphore::new(LARGE_AT_A_TIME) }
    }
}

impl Asker {
    /// The report of the pod at this address, or why there is none.
    pub(super) async fn ask(&self, address: Option<String>) -> Result<Reported, String> {
        self.page(address, read).await
    }

    /// The document that the pod at this address runs, as it was written; none where it does not say, or says another
    /// revision of it.
    pub(super) async fn document(&self, address: Option<String>) -> Option<String> {
        self.page(address, document).await.ok()?
    }

    async fn page<T>(
        &self,
        address: Option<String>,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        let address = address.ok_or("it has no address")?;
        match timeout(PATIENCE, self.get(&address, read)).await {
            Ok(reported) => reported.map_err(|why| shortened(&why, MAX_WHY)),
            Err(_) => Err(format!(
                "http://{address}/config did not answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }

    async fn get<T>(
        &self,
        address: &str,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        let url = format!("http://{address}/config");
        let at = |error: &dyn std::fmt::Display| format!("{url}: {error}");
        let request =
            self.client.get(url.parse().map_err(|error: hyper::http::uri::InvalidUri| at(&error))?);
        let response = request.await.map_err(|error| at(&error))?;
        if !response.status().is_success() {
            return Err(at(&response.status()));
        }
        let (mut body, mut text, mut turn) = (response.into_body(), Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| at(&error))?;
            let Some(chunk) = frame.data_ref() else { continue };
            let octets = text.len() + chunk.len();
            if octets > MAX_BYTES {
                return Err(at(&format_args!("it has more than {MAX_BYTES} octets")));
            }
            if octets > SMALL && turn.is_none() {
                // An error would mean that the semaphore is closed, which never happens.
                turn = Some(self.large.acquire().await);
            }
            text.extend_from_slice(chunk);
        }
        read(&text).map_err(|error| at(&error))
    }
}

/// Where a pod is asked over HTTP: address and port.
pub fn address(pod: &Pod) -> Option<String> {
    let ip: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    Some(std::net::SocketAddr::new(ip, port(pod)).to_string())
}

/// The container port named `http`; the default where there is none.
pub fn port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    named.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A pod whose page has this many octets.
    async fn pod_with(octets: usize) -> Option<String> {
        let page = json!({"revision": "r", "maxFormat": 1, "document": "x".repeat(octets)});
        let page = page.to_string();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 1_024];
            assert!(stream.read(&mut question).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
            // The operator may have gone: it waits a second.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(page.as_bytes()).await;
        });
        Some(address)
    }

    #[tokio::test]
    async fn k23_few_large_pages_are_read_at_a_time_and_small_ones_do_not_wait() {
        let asker = Asker::default();
        let taken = asker.large.acquire_many(LARGE_AT_A_TIME as u32).await.unwrap();
        let small = asker.ask(pod_with(SMALL / 2).await).await.unwrap();
        assert_eq!(small.revision, "r");
        let why = asker.ask(pod_with(SMALL * 2).await).await.unwrap_err();
        assert!(why.contains("did not answer within"), "others are read: {why}");
        drop(taken);
        assert_eq!(asker.ask(pod_with(SMALL * 2).await).await.unwrap().revision, "r");
        assert_eq!(asker.large.available_permits(), LARGE_AT_A_TIME, "given back");
    }

    #[test]
    fn the_port_is_the_one_that_the_pod_names() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "dns", "ports": [
            {"name": "dns", "containerPort": 53}, {"name": "metrics", "containerPort": 19153}]}]},
            "status": {"podIP": "fd00::1"}});
        assert_eq!(
            address(&serde_json::from_value(pod).unwrap()).as_deref(),
            Some("[fd00::1]:19153")
        );
    }
}
