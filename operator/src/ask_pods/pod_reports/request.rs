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
use tokio::time::{Instant, timeout, timeout_at};

use super::page::{document, read};
use crate::observe::observed::Reported;
use crate::observe::pods;
use crate::shortened::shortened;

/// The container port that is asked.
pub const PORT_NAME: &str = "metrics";
/// Where the container port is not named.
const PORT: u16 = 9153;
/// A pod that takes longer than this counts as silent. A large page of ours has the same time once more, from its turn on.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a large page of ours waits for its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The largest configuration has 1 MiB, written out with indentation.
const MAX_BYTES: usize = 8 << 20;
/// Octets of a page up to which pods are read side by side. Of larger ones few are held at a time: anyone who may create pods
/// in a watched namespace can have them answer with [`MAX_BYTES`].
const SMALL: usize = 256 << 10;
/// Larger pages of our pods that are held at a time, and those of others with our labels: these can begin a large page and
/// stop in the middle of it, and must not keep ours waiting.
const LARGE_OF_OURS: usize = 3;
const LARGE_OF_OTHERS: usize = 1;
/// Octets of why a pod has no report: an error may quote what it answered.
const MAX_WHY: usize = 300;

/// Whose pod is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Our workload made it, or it is the canary.
    Ours,
    /// It has our labels.
    Others,
}

/// The HTTP client that asks pods for `/config`.
#[derive(Debug)]
pub(super) struct Asker {
    client: Client<HttpConnector, Empty<Bytes>>,
    large_of_ours: Semaphore,
    large_of_others: Semaphore,
}

impl Default for Asker {
    fn default() -> Asker {
        // Pods come and go: no connection is kept.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Asker {
            client,
            large_of_ours: Semaphore::new(LARGE_OF_OURS),
            large_of_others: Semaphore::new(LARGE_OF_OTHERS),
        }
    }
}

impl Asker {
    /// The report of the pod at this address, or why there is none.
    pub(super) async fn ask(
        &self,
        address: Option<String>,
        whose: Whose,
    ) -> Result<Reported, String> {
        self.page(address, whose, read).await
    }

    /// The document that the pod at this address runs, as it was written; none where it does not say, or says another
    /// revision of it.
    pub(super) async fn document(&self, address: Option<String>, whose: Whose) -> Option<String> {
        self.page(address, whose, document).await.ok()?
    }

    async fn page<T>(
        &self,
        address: Option<String>,
        whose: Whose,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        let address = address.ok_or("it has no address")?;
        let reported = self.get(&address, whose, read).await;
        reported.map_err(|why| shortened(&why, MAX_WHY))
    }

    async fn get<T>(
        &self,
        address: &str,
        whose: Whose,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        let url = format!("http://{address}/config");
        let at = |error: &dyn std::fmt::Display| format!("{url}: {error}");
        let late = |_| format!("{url} did not answer within {} s", PATIENCE.as_secs());
        let mut until = Instant::now() + PATIENCE;
        let request =
            self.client.get(url.parse().map_err(|error: hyper::http::uri::InvalidUri| at(&error))?);
        let response = timeout_at(until, request).await.map_err(late)?;
        let response = response.map_err(|error| at(&error))?;
        if !response.status().is_success() {
            return Err(at(&response.status()));
        }
        let (mut body, mut text, mut turn) = (response.into_body(), Vec::new(), None);
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|error| at(&error))?;
            let Some(chunk) = frame.data_ref() else { continue };
            let octets = text.len() + chunk.len();
            if octets > MAX_BYTES {
                return Err(at(&format_args!("it has more than {MAX_BYTES} octets")));
            }
            if octets > SMALL && turn.is_none() {
                let large = match whose {
                    Whose::Ours => timeout(LONGEST_WAIT, self.large_of_ours.acquire()).await,
                    Whose::Others => timeout_at(until, self.large_of_others.acquire()).await,
                };
                let no_turn = |_| at(&"other large pages are read, and it got no turn");
                // An error inside would mean that the semaphore is closed, which never happens.
                turn = Some(large.map_err(no_turn)?);
                if whose == Whose::Ours {
                    // The wait was not the pod's.
                    until = Instant::now() + PATIENCE;
                }
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

/// The container port named [`PORT_NAME`]; the default where there is none.
pub fn port(pod: &Pod) -> u16 {
    pods::port(pod, PORT_NAME).unwrap_or(PORT)
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
    async fn k23_large_pages_of_others_do_not_keep_those_of_our_pods_waiting() {
        let asker = Asker::default();
        let taken = asker.large_of_others.acquire_many(LARGE_OF_OTHERS as u32).await.unwrap();
        let small = asker.ask(pod_with(SMALL / 2).await, Whose::Others).await.unwrap();
        assert_eq!(small.revision, "r");
        let why = asker.ask(pod_with(SMALL * 2).await, Whose::Others).await.unwrap_err();
        assert!(why.contains("no turn"), "others are read: {why}");
        let ours = asker.ask(pod_with(SMALL * 2).await, Whose::Ours).await;
        assert_eq!(ours.map(|it| it.revision), Ok("r".to_owned()));
        drop(taken);
        let others = asker.ask(pod_with(SMALL * 2).await, Whose::Others).await.unwrap();
        assert_eq!(others.revision, "r");
        let left = (&asker.large_of_ours, &asker.large_of_others);
        let left = (left.0.available_permits(), left.1.available_permits());
        assert_eq!(left, (LARGE_OF_OURS, LARGE_OF_OTHERS), "given back");
    }

    #[tokio::test]
    async fn k23_a_large_page_of_our_pod_is_read_after_a_wait_for_its_turn() {
        let asker = Asker::default();
        let taken = asker.large_of_ours.acquire_many(LARGE_OF_OURS as u32).await.unwrap();
        let pod = pod_with(SMALL * 2).await;
        let freed = async {
            tokio::time::sleep(PATIENCE * 5 / 4).await;
            drop(taken);
        };
        let (read, ()) = tokio::join!(asker.ask(pod, Whose::Ours), freed);
        assert_eq!(read.map(|it| it.revision), Ok("r".to_owned()), "the wait does not count");
    }

    #[tokio::test]
    async fn k23_a_pod_that_stops_in_the_middle_of_a_large_page_gives_its_turn_back() {
        let asker = Asker::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stalls = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 1_024];
            assert!(stream.read(&mut question).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {MAX_BYTES}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![b' '; SMALL + 1]).await.unwrap();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = asker.ask(Some(address), Whose::Ours) => answer,
            () = stalls => unreachable!("it stays open"),
        };
        assert!(answer.is_err_and(|why| why.contains("did not answer within")));
        assert_eq!(asker.large_of_ours.available_permits(), LARGE_OF_OURS);
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
