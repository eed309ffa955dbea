//! A real control plane of a soak: etcd and kube-apiserver, which end, start and go back to older data, and two operators,
//! which write the configuration.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dataplane_core::{Key, Object, Resource};
use hyper::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::fit::{complete, fit, must_be_replaced, paths};
use super::operators::Operators;
use super::{Looked, State};
use crate::control_plane::{ControlPlane, Setup};
use crate::crd;
use crate::objects::wait_for;
use crate::scratch::Scratch;
use crate::soak::churn::Change;
use crate::soak::history::History;
use crate::soak::objects::{CONFIG_NAME, CONFIG_NAMESPACE, Configuration, INSTANCE, spec};
use crate::soak::schedule::{Fault, Kind};

/// Copies of etcd's data that are kept.
const SAVED: usize = 4;
/// How many versions a restored state must be older: more than are written before every watch was opened again, or a
/// watch could continue at a version that means something else.
const MIN_DEPTH: u64 = 150;
/// For one write, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_millis(100);
/// Room for the marks, and ServiceAccounts that Pods do not need.
const FLAGS: [&str; 2] = [
    "--service-cluster-ip-range=10.96.0.0/12,fd00:96::/112",
    "--disable-admission-plugins=ServiceAccount",
];
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub struct Real {
    pub(super) operators: Operators,
    client: Client,
    control_plane: ControlPlane,
    is_there: bool,
    saved: VecDeque<Saved>,
    files: Scratch,
    copies: u64,
    refused: u64,
    finds: Vec<String>,
}

/// A copy of etcd's data.
#[derive(Debug)]
struct Saved {
    folder: PathBuf,
    version: u64,
    state: State,
}

impl Real {
    /// Nothing where its programs have not been built; this is printed.
    pub(super) async fn start(
        configuration: Configuration,
        upstreams: &[SocketAddr],
    ) -> Option<Real> {
        let setup = Setup {
            controllers: false,
            api_server_flags: FLAGS.map(String::from).to_vec(),
            ..Setup::default()
        };
        let control_plane = ControlPlane::start(setup).await?;
        let client = control_plane.client().await;
        crd::install(&client).await;
        let operators = Operators::start(control_plane.kubeconfig()).await;
        let mut real = Real {
            operators,
            client,
            control_plane,
            is_there: true,
            saved: VecDeque::new(),
            files: Scratch::new("soak-etcd").expect("a scratch directory"),
            copies: 0,
            refused: 0,
            finds: Vec::new(),
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": CONFIG_NAMESPACE}});
        real.send(Method::POST, "/api/v1/namespaces", None, &namespace).expect("a namespace");
        real.configure(configuration, upstreams);
        let map = format!("/api/v1/namespaces/{CONFIG_NAMESPACE}/configmaps/{CONFIG_NAME}");
        wait_for("the ConfigMap of an operator", async || {
            get(&real.client, &map).await.filter(|map| map["data"]["stable.json"].is_string())
        })
        .await;
        Some(real)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        self.control_plane.kubeconfig()
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    pub(super) fn put(&mut self, object: Object, history: &History) -> Vec<Change> {
        let beside = history.now();
        let object = fit(object, &beside);
        let (resource, key) = (object.resource(), object.key());
        let before = beside.get(&(resource, key.clone()));
        let is_replaced = before.is_some_and(|before| must_be_replaced(before, &object));
        let mut changes = Vec::new();
        if is_replaced {
            self.delete(resource, &key);
            changes.push(Change::Delete(resource, key));
        }
        match self.write(&object, before.is_some() && !is_replaced) {
            Ok(()) => changes.push(Change::Put(object)),
            Err(_) => self.refused += 1,
        }
        changes
    }

    /// Makes or changes an object.
    fn write(&self, object: &Object, exists: bool) -> Result<(), Refused> {
        let (all, one) = paths(object.resource(), &object.key());
        let manifest = complete(object);
        let is_pod = object.resource() == Resource::Pods;
        if !exists {
            match self.send(Method::POST, &all, None, &manifest) {
                // Its answer to an earlier try was lost.
                Err(Refused { code: 409, reason }) if reason == "AlreadyExists" => {}
                other => other.map(drop)?,
            }
        } else if !is_pod {
            self.send(Method::PATCH, &one, Some(MERGE), &manifest)?;
        }
        if is_pod {
            let status = json!({"status": manifest["status"]});
            self.send(Method::PATCH, &format!("{one}/status"), Some(MERGE), &status)?;
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, resource: Resource, key: &Key) {
        let (_, one) = paths(resource, key);
        let at_once = json!({"gracePeriodSeconds": 0});
        match self.send(Method::DELETE, &one, None, &at_once) {
            Ok(_) => {}
            Err(Refused { code: 404, .. }) => return,
            Err(refused) => self.finds.push(format!("deletion of {one}: {refused:?}")),
        }
        if resource == Resource::Namespaces {
            // No controller empties it, and it holds nothing.
            let empty = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": key.name}, "spec": {"finalizers": []}});
            let finalized = self.send(Method::PUT, &format!("{one}/finalize"), None, &empty);
            if let Err(refused) = finalized {
                self.finds.push(format!("end of {one}: {refused:?}"));
            }
        }
    }

    /// Edits the ClusterDNS.
    pub(super) fn configure(&mut self, configuration: Configuration, upstreams: &[SocketAddr]) {
        let object = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": INSTANCE}, "spec": spec(&configuration.document(upstreams))});
        let path = format!(
            "/apis/clusterdns.dev/v1alpha1/clusterdnses/{INSTANCE}?fieldManager=soak&force=true"
        );
        if let Err(refused) = self.send(Method::PATCH, &path, Some(APPLY), &object) {
            self.finds.push(format!("{object}: {refused:?}"));
        }
    }

    pub(super) fn save(&mut self, state: State) {
        let version = self.version();
        // Every second save would be too near to be of use.
        if self.saved.back().is_some_and(|last| last.version + MIN_DEPTH / 2 > version) {
            return;
        }
        self.copies += 1;
        let folder = self.files.path().join(format!("copy-{}", self.copies));
        self.control_plane.save_etcd(&folder);
        self.saved.push_back(Saved { folder, version, state });
        if self.saved.len() > SAVED {
            self.forget(0);
        }
    }

    fn forget(&mut self, place: usize) {
        if let Some(saved) = self.saved.remove(place) {
            // What cannot be removed now is removed with the scratch directory.
            let _ = std::fs::remove_dir_all(saved.folder);
        }
    }

    pub(super) fn restore(&mut self) -> Option<State> {
        let version = self.version();
        let is_old = |saved: &Saved| saved.version + MIN_DEPTH <= version;
        let place = self.saved.iter().rposition(is_old)?;
        // States that are newer than the truth are of another time.
        while self.saved.len() > place + 1 {
            self.forget(place + 1);
        }
        let saved = &self.saved[place];
        wait(self.control_plane.restore_etcd(&saved.folder));
        Some(saved.state.clone())
    }

    pub(super) fn begin(&mut self, fault: Fault) -> bool {
        match fault.kind {
            Kind::ServerRestarted => {
                self.is_there = false;
                self.control_plane.stop_api_server();
            }
            Kind::OperatorKilled => self.operators.kill(number_of(fault)),
            Kind::OperatorStopped => self.operators.pause(number_of(fault)),
            _ => return false,
        }
        true
    }

    pub(super) fn end(&mut self, fault: Fault) {
        match fault.kind {
            Kind::ServerRestarted => {
                wait(self.control_plane.start_api_server());
                self.is_there = true;
            }
            Kind::OperatorKilled => self.operators.start_one(number_of(fault)),
            Kind::OperatorStopped => self.operators.resume(number_of(fault)),
            _ => {}
        }
    }

    pub(super) fn look(&mut self) -> Looked {
        let mut finds = std::mem::take(&mut self.finds);
        finds.extend(self.operators.keep_running());
        Looked {
            refused: self.refused,
            operator_starts: self.operators.starts(),
            operator_mib: self.operators.most_mib(),
            finds,
        }
    }

    /// The version that the API server is at.
    fn version(&self) -> u64 {
        let listed = self.send(Method::GET, "/api/v1/namespaces?limit=1", None, &Value::Null);
        let listed = listed.expect("namespaces can be listed");
        let version = listed["metadata"]["resourceVersion"].as_str();
        version.and_then(|version| version.parse().ok()).expect("a version of etcd is a number")
    }

    /// Sends a request until the API server says yes or no.
    fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: &Value,
    ) -> Result<Value, Refused> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let content_type = content_type.unwrap_or("application/json");
            let request =
                Request::builder().method(&method).uri(path).header("content-type", content_type);
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let request = request.body(body).expect("a well-formed request");
            let error = match wait(self.client.request::<Value>(request)) {
                Ok(answer) => return Ok(answer),
                Err(kube::Error::Api(status))
                    if (400..500).contains(&status.code) && status.code != 429 =>
                {
                    return Err(Refused { code: status.code, reason: status.reason });
                }
                Err(error) => error,
            };
            assert!(Instant::now() < deadline, "{method} {path}: {error}");
            std::thread::sleep(AGAIN);
        }
    }
}

/// What the API server says no to, and why.
#[derive(Clone, Debug)]
struct Refused {
    code: u16,
    reason: String,
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    client.request(Request::get(path).body(Vec::new()).ok()?).await.ok()
}

/// The operator that a fault is on.
fn number_of(fault: Fault) -> usize {
    fault.on.trailing_zeros() as usize
}

/// Waits in a thread of the test's runtime.
fn wait<T>(of: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(of))
}
