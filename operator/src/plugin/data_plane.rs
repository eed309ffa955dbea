//! One data plane, and GET requests to its HTTP port: through a port-forward of the API server, or at an address. The
//! pages that show what DNS hides answer loopback only, and only where the request names it as its host.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Octets of a page: `/config` has the most, 1 MiB of configuration and 1,000 skipped objects.
const MAX_BYTES: usize = 16 << 20;
/// How long the API server gets to say why a forwarded port was closed.
const PATIENCE_FOR_REASON: Duration = Duration::from_secs(1);

/// A data plane, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct DataPlane {
    /// For people: an address, or namespace and name of its pod.
    pub(super) name: String,
    pub(super) target: Target,
    /// Longest time of one request.
    pub(super) patience: Duration,
}

/// How a data plane is reached.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Address(SocketAddr),
    Pod { pods: Box<Api<Pod>>, namespace: String, name: String, port: u16 },
}

/// An open connection to a data plane.
pub(super) struct Connection {
    name: String,
    sender: SendRequest<Empty<Bytes>>,
    patience: Duration,
    /// What the API server says if it closes the forwarded port.
    closed: Option<tokio::task::JoinHandle<Option<String>>>,
}

impl DataPlane {
    /// Opens a connection, to be asked one page after the other.
    pub(super) async fn open(&self) -> Result<Connection, String> {
        match timeout(self.patience, self.opened()).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("{}: no answer within {:?}", self.name, self.patience)),
        }
    }

    async fn opened(&self) -> Result<Connection, String> {
        match &self.target {
            Target::Address(address) => {
                let stream = tokio::net::TcpStream::connect(address).await;
                let stream = stream.map_err(|error| {
                    format!("{address}: {error}: is a data plane's HTTP port there?")
                })?;
                self.connected(stream, None).await
            }
            Target::Pod { pods, namespace, name, port } => {
                let forward = pods.portforward(name, &[*port]).await;
                let mut forward = forward.map_err(|error| refused(namespace, name, &error))?;
                let closed = forward.take_error(*port).map(tokio::spawn);
                let stream =
                    forward.take_stream(*port).ok_or("the port was forwarded without a stream")?;
                self.connected(stream, closed).await
            }
        }
    }

    async fn connected(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        closed: Option<tokio::task::JoinHandle<Option<String>>>,
    ) -> Result<Connection, String> {
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("{}: {error}", self.name))?;
        // The request in progress sees its end.
        tokio::spawn(connection);
        Ok(Connection { name: self.name.clone(), sender, patience: self.patience, closed })
    }
}

/// Why the API server forwards no port of a pod, and what to do.
fn refused(namespace: &str, name: &str, error: &kube::Error) -> String {
    let pod = format!("pod {namespace}/{name} cannot be reached");
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "{pod}: you need the rights to get and create pods/portforward in the namespace {namespace} \
             (docs/plugin.md has a Role): {}",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => format!("{pod}: it is gone: ask again"),
        kube::Error::Api(status) => {
            format!("{pod}: the API server cannot forward its port: {}", status.message)
        }
        other => format!("{pod}: the API server cannot forward its port: {other}"),
    }
}

impl Connection {
    /// Status and text of a page.
    pub(super) async fn get(
        &mut self,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, String), String> {
        let asked = timeout(self.patience, self.asked(method, path)).await;
        match asked {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => {
                let why = match self.closed.take() {
                    Some(closed) => timeout(PATIENCE_FOR_REASON, closed).await.ok(),
                    None => None,
                };
                let why = why.and_then(Result::ok).flatten();
                Err(format!("{}: {}", self.name, why.unwrap_or(error)))
            }
            Err(_) => Err(format!("{}: no answer within {:?}", self.name, self.patience)),
        }
    }

    async fn asked(&mut self, method: Method, path: &str) -> Result<(StatusCode, String), String> {
        self.sender.ready().await.map_err(|error| error.to_string())?;
        // Loopback: those pages refuse all other hosts, so that no web page can read them.
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(ACCEPT, "application/json");
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        let response =
            self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| format!("{path}: {error}"))?.to_bytes();
        let text = String::from_utf8(body.to_vec()).map_err(|_| format!("{path}: not UTF-8"))?;
        Ok((status, text))
    }

    /// The text of a page that must be there.
    pub(super) async fn page(&mut self, method: Method, path: &str) -> Result<String, String> {
        match self.get(method, path).await? {
            (status, text) if status.is_success() => Ok(text),
            (StatusCode::NOT_FOUND, _) => Err(format!(
                "{}: it has no page {path}: the data plane is older than this plugin",
                self.name
            )),
            (status, text) => Err(format!("{}: {}", self.name, said(status, &text))),
        }
    }
}

/// What an error page says, on one line.
pub(super) fn said(status: StatusCode, text: &str) -> String {
    match text.trim() {
        "" => status.to_string(),
        text => text.to_owned(),
    }
}

/// The page that explains a question of this client.
pub(super) fn explain(name: &str, qtype: &str, client: Option<IpAddr>) -> String {
    let client = client.map_or(String::new(), |it| format!("&client={}", escaped(&it.to_string())));
    format!("/explain?name={}&type={}{client}&format=json", escaped(name), escaped(qtype))
}

/// A value of a URL: everything but unreserved characters is escaped (RFC 3986 §2.3).
fn escaped(text: &str) -> String {
    let octet = |octet: u8| match octet {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(octet).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(octet).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_pod_that_cannot_be_reached_is_named_with_the_missing_right() {
        let error = |code: u16| {
            let status = Status { code, message: "no".into(), ..Status::default() };
            refused("kube-system", "dns-1", &kube::Error::Api(Box::new(status)))
        };
        assert!(error(403).contains("pod kube-system/dns-1"), "{}", error(403));
        assert!(
            error(403).contains("get and create pods/portforward in the namespace kube-system")
        );
        assert!(error(404).contains("it is gone"));
        assert!(error(500).ends_with("cannot forward its port: no"));
    }

    #[test]
    fn names_are_escaped_in_urls() {
        assert_eq!(escaped("_http._tcp.a"), "_http._tcp.a");
        assert_eq!(escaped("a b&c=ä"), "a%20b%26c%3D%C3%A4");
        let asked = explain("a.", "SRV", Some("fd00::1".parse().unwrap()));
        assert_eq!(asked, "/explain?name=a.&type=SRV&client=fd00%3A%3A1&format=json");
        assert_eq!(explain("a b", "A", None), "/explain?name=a%20b&type=A&format=json");
    }
}
