//! A metrics API behind the API server, as metrics adapters bring one: custom.metrics.k8s.io, by HTTPS, for every client.
//! Most clusters have met one that is broken, so this one breaks when the test says so.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::control_plane::authority::Authority;
use crate::fault_proxy::status_object;

pub const GROUP_VERSION: &str = "custom.metrics.k8s.io/v1beta2";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It answers with metrics.
    #[default]
    Well,
    /// It answers 503 to every request.
    Unavailable,
    /// It takes requests and answers none.
    Silent,
}

#[derive(Debug, Default)]
struct Said {
    mood: Mood,
    /// The value of each pod, by name.
    values: Vec<(String, u32)>,
    asked: usize,
}

/// The running server, for as long as this lives and the runtime that it was started on.
#[derive(Debug)]
pub struct MetricsApi {
    address: SocketAddr,
    said: Arc<Mutex<Said>>,
    serving: JoinHandle<()>,
}

impl MetricsApi {
    pub async fn start() -> MetricsApi {
        let started = MetricsApi::try_start().await;
        started.unwrap_or_else(|error| panic!("the metrics API did not start: {error:#}"))
    }

    async fn try_start() -> Result<MetricsApi> {
        let tls = Authority::new("metrics API")?.acceptor(&["localhost"])?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let said = Arc::<Mutex<Said>>::default();
        let shared = said.clone();
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (tls, shared) = (tls.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, shared.clone()));
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(MetricsApi { address, said, serving })
    }

    /// What makes it part of an API server: a Service that leads here, and an APIService; as YAML.
    pub fn manifests(&self) -> String {
        let (group, version) = GROUP_VERSION.split_once('/').expect("a group and a version");
        let port = self.address.port();
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: metrics-adapter, namespace: default}}\n\
             spec: {{type: ExternalName, externalName: localhost, ports: [{{port: {port}}}]}}\n---\n\
             apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: {version}.{group}}}\n\
             spec:\n  group: {group}\n  version: {version}\n  groupPriorityMinimum: 100\n  versionPriority: 100\n  \
             insecureSkipTLSVerify: true\n  service: {{name: metrics-adapter, namespace: default, port: {port}}}\n"
        )
    }

    /// Changes how it answers, from the next request on.
    pub fn is(&self, mood: Mood) {
        self.said().mood = mood;
    }

    /// These pods have this value of every metric.
    pub fn values<'a>(&self, pods: impl IntoIterator<Item = &'a str>, value: u32) {
        self.said().values = pods.into_iter().map(|pod| (pod.to_owned(), value)).collect();
    }

    /// Number of requests so far.
    pub fn asked(&self) -> usize {
        self.said().asked
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("nothing panics while holding this lock")
    }
}

impl Drop for MetricsApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    said: Arc<Mutex<Said>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (mood, values) = {
        let mut said = said.lock().expect("nothing panics while holding this lock");
        said.asked += 1;
        (said.mood, said.values.clone())
    };
    let (status, body) = match mood {
        Mood::Well => well(request.uri().path(), &values),
        Mood::Unavailable => (503, status_object(503, "the metrics API is broken")),
        Mood::Silent => std::future::pending().await,
    };
    let body = Full::new(Bytes::from(body.to_string()));
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(body).expect("a well-formed response"))
}

/// The one resource of the group is a metric of pods; its name is the last part of a path to it.
fn well(path: &str, values: &[(String, u32)]) -> (u16, Value) {
    let Some(rest) = path.strip_prefix(&format!("/apis/{GROUP_VERSION}")) else {
        return (404, status_object(404, "there is nothing else"));
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    match parts[..] {
        [] => {
            let name = format!("pods/{}", operator::desired::QUERIES_PER_SECOND);
            let resource = json!({"name": name, "singularName": "", "namespaced": true,
                "kind": "MetricValueList", "verbs": ["get"]});
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": GROUP_VERSION, "resources": [resource]});
            (200, list)
        }
        ["namespaces", namespace, "pods", _, metric] => {
            let now = k8s_openapi::jiff::Timestamp::now();
            let items = values.iter().map(|(pod, value)| {
                json!({"describedObject": {"apiVersion": "/v1", "kind": "Pod", "namespace": namespace, "name": pod},
                    "metric": {"name": metric}, "timestamp": format!("{now:.0}"), "value": value.to_string()})
            });
            let list = json!({"kind": "MetricValueList", "apiVersion": GROUP_VERSION, "metadata": {},
                "items": items.collect::<Vec<_>>()});
            (200, list)
        }
        _ => (404, status_object(404, "there is no such metric")),
    }
}
