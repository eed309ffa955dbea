//! One pod, asked once over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use crds::config;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tokio::time::timeout;

use crate::observe::observed::{DownServer, EmptyGroup, Reported, UsedCertificate};
use crate::shortened::shortened;

/// The container port that is asked.
pub const PORT_NAME: &str = "metrics";
/// Where the container port is not named.
const PORT: u16 = 9153;
/// A pod that takes longer than this counts as silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest configuration has 1 MiB, written out with indentation.
const MAX_BYTES: usize = 8 << 20;
/// Skipped objects that are kept of one pod: the first ones, as many as status shows of all pods.
const MAX_SKIPPED: usize = crds::bounds::REPORTED;
/// Octets of the text that says why a pod refuses its configuration: status has room for less.
const MAX_REJECTION: usize = 4_096;
/// Time after which an upstream counts as down: a moment without answers is nothing to report.
const DOWN_S: u64 = 60;
/// Longest remedy for an upstream, in characters.
const MAX_REMEDY: usize = 200;
/// Certificates that are kept of one pod: one for each encrypted listener.
const MAX_CERTIFICATES: usize = 3;
/// Octets of the text that says why a certificate is not in use.
const MAX_TROUBLE: usize = 200;

/// The HTTP client that asks pods for `/config`.
#[derive(Debug)]
pub(super) struct Asker {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Default for Asker {
    fn default() -> Asker {
        // Pods come and go: no connection is kept.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Asker { client }
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
            Ok(reported) => reported,
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
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| at(&error))?.to_bytes();
        read(&body).map_err(|error| at(&error))
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

/// `/config`, as far as it is read. Data planes of other versions may say more, or less.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(default)]
    instance_id: String,
    revision: String,
    max_format: u32,
    #[serde(default)]
    role: String,
    rejection: Option<Rejection>,
    #[serde(default)]
    skipped_objects: Vec<crds::v1alpha1::SkippedObject>,
    #[serde(default)]
    upstreams_down: Vec<Down>,
    #[serde(default)]
    upstreams_looping: Vec<Down>,
    #[serde(default)]
    upstreams_without_servers: Vec<WithoutServers>,
    #[serde(default)]
    certificates: Vec<Mounted>,
}

#[derive(Deserialize)]
struct Rejection {
    #[serde(default)]
    violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    field: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Down {
    group: String,
    server: String,
    /// Empty: its version does not say.
    #[serde(default)]
    transport: String,
    #[serde(default)]
    server_name: String,
    /// Servers of the group; 0: its version does not say.
    #[serde(default)]
    group_servers: usize,
    seconds: u64,
    /// What a person should do.
    #[serde(default)]
    remedy: Option<String>,
}

/// A group of upstreams.
#[derive(Deserialize)]
struct WithoutServers {
    group: String,
    why: String,
}

/// The certificate of a listener.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mounted {
    secret: String,
    #[serde(default)]
    not_before_seconds: Option<i64>,
    #[serde(default)]
    not_after_seconds: Option<i64>,
    #[serde(default)]
    trouble: Option<String>,
}

impl Mounted {
    fn used(self) -> UsedCertificate {
        let Mounted { secret, not_before_seconds, not_after_seconds, trouble } = self;
        let time = |seconds: Option<i64>| Timestamp::from_second(seconds?).ok();
        UsedCertificate {
            secret,
            validity: time(not_before_seconds).zip(time(not_after_seconds)),
            trouble: trouble.map(|text| shortened(&text, MAX_TROUBLE)),
        }
    }
}

impl Down {
    fn read(self) -> DownServer {
        let Down { group, server, transport, server_name, group_servers, seconds: _, remedy } =
            self;
        let remedy = remedy.map(|text| text.chars().take(MAX_REMEDY).collect());
        DownServer { group, server, transport, server_name, group_servers, remedy }
    }
}

impl WithoutServers {
    fn read(self) -> EmptyGroup {
        EmptyGroup { group: self.group, why: self.why.chars().take(MAX_REMEDY).collect() }
    }
}

fn read(body: &[u8]) -> serde_json::Result<Reported> {
    let Shown {
        instance_id,
        revision,
        max_format,
        role,
        rejection,
        mut skipped_objects,
        upstreams_down,
        upstreams_looping,
        upstreams_without_servers,
        certificates,
    } = serde_json::from_slice(body)?;
    skipped_objects
        .sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
    skipped_objects.truncate(MAX_SKIPPED);
    let violations = |rejection: Rejection| {
        let each = rejection.violations.into_iter().map(|v| format!("{}: {}", v.field, v.message));
        each.collect::<Vec<_>>().join("; ")
    };
    let down = upstreams_down.into_iter().filter(|down| down.seconds >= DOWN_S);
    Ok(Reported {
        process: instance_id,
        revision,
        max_format,
        role,
        rejection: rejection.map(violations).map(|text| shortened(&text, MAX_REJECTION)),
        skipped: skipped_objects.into(),
        upstreams_down: down.map(Down::read).collect(),
        upstreams_looping: upstreams_looping.into_iter().map(Down::read).collect(),
        upstreams_without_servers: upstreams_without_servers
            .into_iter()
            .map(WithoutServers::read)
            .collect(),
        certificates: certificates.into_iter().take(MAX_CERTIFICATES).map(Mounted::used).collect(),
    })
}

/// A document whose revision is not the reported one is not the one that was written.
fn document(body: &[u8]) -> serde_json::Result<Option<String>> {
    #[derive(Deserialize)]
    struct Running {
        revision: String,
        #[serde(default)]
        document: serde_json::Value,
    }
    let Running { revision, document } = serde_json::from_slice(body)?;
    let text = config::canonical(&document);
    Ok(Some(text).filter(|text| config::revision_of(text) == revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn o4_a_document_is_taken_from_a_pod_only_with_its_own_revision() {
        let written = crds::Config::default().to_json();
        let shown = |revision: &str| {
            let document: serde_json::Value = serde_json::from_str(&written).unwrap();
            let page = json!({"revision": revision, "maxFormat": 1, "document": document});
            document_of(&serde_json::to_string_pretty(&page).unwrap())
        };
        fn document_of(page: &str) -> Option<String> {
            document(page.as_bytes()).unwrap()
        }
        assert_eq!(shown(&config::revision_of(&written)).as_deref(), Some(written.as_str()));
        assert_eq!(shown("0123456789ab"), None);
        assert_eq!(document_of(r#"{"revision": "0123456789ab"}"#), None, "it does not say");
    }

    #[test]
    fn what_a_data_plane_shows_is_read() {
        let shown = json!({"revision": "0123456789ab", "format": 1, "maxFormat": 2, "role": "stable", "document": {},
            "rejection": {"origin": "stable.json", "violations": [
                {"field": "spec.domain", "reason": "Invalid", "message": "no"}]},
            "skippedObjects": [{"kind": "Service", "namespace": "n", "name": "s", "reason": "r"}],
            "upstreamsDown": [{"group": "upstreams", "server": "192.0.2.1", "seconds": 61},
                {"group": "upstreams", "server": "192.0.2.2", "seconds": 59},
                {"group": "upstreams", "server": "192.0.2.3", "transport": "TLS", "serverName": "dns.example",
                    "groupServers": 3, "seconds": 99, "remedy": "renew it"}],
            "upstreamsLooping": [{"group": "upstreams", "server": "192.0.2.4", "groupServers": 3, "seconds": 1,
                "remedy": "point it elsewhere"}],
            "upstreamsWithoutServers": [{"group": "corp.example", "why": "correct tls"}],
            "certificates": [{"secret": "dns-tls", "notBeforeSeconds": 5, "notAfterSeconds": 7, "trouble": null},
                {"secret": "doh", "notBeforeSeconds": null, "notAfterSeconds": null, "trouble": "not PEM"}]});
        let reported = read(shown.to_string().as_bytes()).unwrap();
        assert_eq!(reported.process, "", "as of a version that does not say");
        let mut newer = shown.clone();
        newer["instanceId"] = json!("5e11");
        newer["fromTheFuture"] = json!({});
        assert_eq!(read(newer.to_string().as_bytes()).unwrap().process, "5e11");
        assert_eq!(
            (reported.revision.as_str(), reported.max_format, reported.role.as_str()),
            ("0123456789ab", 2, "stable")
        );
        assert_eq!(reported.rejection.as_deref(), Some("spec.domain: no"));
        assert_eq!(reported.skipped[0].name, "s");
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let [good, bad] = &reported.certificates[..] else { panic!("two certificates") };
        assert_eq!((good.secret.as_str(), good.validity), ("dns-tls", Some((at(5), at(7)))));
        assert_eq!((bad.validity, bad.trouble.as_deref()), (None, Some("not PEM")));
        let down =
            |server: &str, transport: &str, group_servers, remedy: Option<&str>| DownServer {
                group: "upstreams".to_owned(),
                server: server.to_owned(),
                transport: transport.to_owned(),
                group_servers,
                remedy: remedy.map(str::to_owned),
                ..DownServer::default()
            };
        let mut over_tls = down("192.0.2.3", "TLS", 3, Some("renew it"));
        over_tls.server_name = "dns.example".to_owned();
        let expected = [down("192.0.2.1", "", 0, None), over_tls];
        assert_eq!(reported.upstreams_down, expected);
        let looping = down("192.0.2.4", "", 3, Some("point it elsewhere"));
        assert_eq!(reported.upstreams_looping, [looping], "at once: a probe has shown it");
        let empty = EmptyGroup { group: "corp.example".to_owned(), why: "correct tls".to_owned() };
        assert_eq!(reported.upstreams_without_servers, [empty]);
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
