//! The operator as a process beside the test, and what a test asks about its work.

mod scene;
mod running;
mod asking;
mod around;
mod sizes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use operator::desired::Kind;
use operator::names;
use operator::runtime::resources;
use serde_json::{Value, json};

pub use around::{MONITORING_KINDS, OLD_SERVICE, old_dns};
pub use asking::{Asking, Heard};
pub use running::{config_of, revisions_in};
pub use scene::{NAMESPACE, Scene};
pub use sizes::Sizes;

use crate::crd::{FIELD_MANAGER, install};
use crate::fault_proxy::{FaultProxy, Requests};
use crate::http;
use crate::kubelet::program;
use crate::objects::wait_for;
use crate::process::Process;
use crate::scratch::Scratch;

/// Time without a write that a settled operator keeps: a settled operator looks again every 30 s, an unsettled one every few.
const QUIET: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);

/// A running operator; killed when dropped.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    /// Of its HTTP port, once it was found in the log, which grows to megabytes.
    http: OnceLock<SocketAddr>,
    _scratch: Scratch,
}

impl Operator {
    /// Starts one that leads in `kube-system` and manages workloads in these namespaces.
    pub fn start(kubeconfig: &Path, namespaces: &str) -> Operator {
        Operator::start_in("kube-system", kubeconfig, namespaces)
    }

    /// Starts one that leads in this namespace.
    pub fn start_in(own: &str, kubeconfig: &Path, namespaces: &str) -> Operator {
        Operator::start_with(own, kubeconfig, namespaces, &[])
    }

    /// The same, with more flags.
    pub fn start_with(own: &str, kubeconfig: &Path, namespaces: &str, more: &[&str]) -> Operator {
        let scratch = Scratch::new("operator").expect("a scratch directory");
        let flags = [
            "run",
            "--kubeconfig",
            &kubeconfig.display().to_string(),
            "--namespace",
            own,
            "--http=127.0.0.1:0",
            "--log-level=debug",
            "--workload-namespaces",
            namespaces,
        ];
        let flags = [&flags[..], more].concat();
        let process = Process::start(&program("clusterdns-operator"), &flags, scratch.path());
        let process = process.expect("the operator starts");
        Operator { process, http: OnceLock::new(), _scratch: scratch }
    }

    /// The value of a series of its `/metrics`; 0 where it says nothing yet.
    ///
    /// # Panics
    /// It does not answer.
    pub fn metric(&self, series: &str) -> f64 {
        let address = self.http_address();
        let (_, page) = http::get(address, "/metrics")
            .unwrap_or_else(|error| panic!("{address}: {error:#}\n{}", self.log()));
        http::metric(&page, series).unwrap_or(0.0)
    }

    /// A page of its HTTP port; empty where it does not answer.
    pub fn page(&self, path: &str) -> String {
        http::get(self.http_address(), path).map(|(_, page)| page).unwrap_or_default()
    }

    /// How often it has looked at a ClusterDNS.
    pub fn reconciles(&self) -> f64 {
        self.metric("clusterdns_operator_reconcile_duration_seconds_count")
    }

    /// The address of its HTTP port, from its log; waits until it is there.
    fn http_address(&self) -> SocketAddr {
        *self.http.get_or_init(|| self.logged_address())
    }

    fn logged_address(&self) -> SocketAddr {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.process.printed();
            let line = log.lines().find(|line| line.contains("serving probes and metrics"));
            let rest = line.and_then(|line| line.split("127.0.0.1:").nth(1));
            let digits = rest.map(|rest| rest.chars().take_while(char::is_ascii_digit));
            if let Some(digits) = digits.map(Iterator::collect::<String>) {
                return SocketAddr::from(([127, 0, 0, 1], digits.parse().expect("a port")));
            }
            assert!(Instant::now() < deadline, "no address in the log\n{log}");
            std::thread::sleep(POLL);
        }
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The end of its log, for messages.
    pub fn log(&self) -> String {
        self.process.log_tail()
    }

    /// Asks it to end, and waits until it has ended in order: it gives its lease back.
    ///
    /// # Panics
    /// It ends with an error, or does not end.
    pub async fn stop(&mut self) {
        // Before it serves its pages it may not catch the signal yet, which then ends it at once.
        self.http_address();
        self.process.signal("TERM");
        assert_eq!(self.ended().await, Some(0), "{}", self.log());
    }

    /// Waits until it ends by itself; returns the exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.exited() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the operator did not end\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Frees the lease of an operator that was killed, which lasts 15 s more.
pub async fn free_the_lease(client: &Client) {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    let _ = leases.delete(operator::runtime::lease::NAME, &DeleteParams::default()).await;
}

/// Requests that change something in the cluster; renewing the lease does not count, nor asking which user we are.
pub fn writes() -> Requests {
    let writes = Requests::all().writes();
    writes.except("/apis/coordination.k8s.io").except("/apis/authentication.k8s.io")
}

/// Makes a cluster ready for the operator: the resource, and a namespace for pods besides `kube-system`.
pub async fn prepare(client: &Client, namespace: &str) {
    install(client).await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    crate::objects::create_any(client, &object).await.expect("a namespace");
}

pub async fn apply(client: &Client, name: &str, spec: Value) -> ClusterDNS {
    let object = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "metadata": {"name": name}, "spec": spec});
    let all = Api::<ClusterDNS>::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = all.patch(name, &params, &Patch::Apply(&object)).await;
    applied.unwrap_or_else(|error| panic!("the API server takes {object}: {error}"))
}

/// The status and reason of a condition about the present spec.
pub async fn condition(client: &Client, name: &str, kind: &str) -> Option<(String, String)> {
    let dns = Api::<ClusterDNS>::all(client.clone()).get(name).await.ok()?;
    let status =
        dns.status.filter(|status| status.observed_generation == dns.metadata.generation)?;
    let condition = status.conditions.into_iter().find(|condition| condition.type_ == kind)?;
    Some((condition.status, condition.reason))
}

/// Waits until the present spec was accepted and acted on.
pub async fn wait_until_accepted(client: &Client, name: &str) {
    wait_for("Accepted", async || {
        condition(client, name, "Accepted").await.filter(|(status, _)| status == "True")
    })
    .await;
}

/// Every child of a ClusterDNS, by label: kind and name to the object.
pub async fn children(
    client: &Client,
    namespace: &str,
    name: &str,
) -> BTreeMap<(Kind, String), Value> {
    selected(client, namespace, &format!("{}={name}", names::INSTANCE)).await
}

/// The children of every ClusterDNS, by its name: one list for each kind.
pub async fn all_children(
    client: &Client,
    namespace: &str,
) -> BTreeMap<String, BTreeMap<(Kind, String), Value>> {
    let mut by_owner: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (key, object) in selected(client, namespace, names::INSTANCE).await {
        let owner = object["metadata"]["labels"][names::INSTANCE].as_str().unwrap_or_default();
        by_owner.entry(owner.to_owned()).or_default().insert(key, object);
    }
    by_owner
}

/// The objects of all kinds of children that a label selector selects.
async fn selected(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> BTreeMap<(Kind, String), Value> {
    let mut found = BTreeMap::new();
    let namespaced = resources::NAMESPACED.map(|kind| (kind, namespace));
    let cluster = resources::CLUSTER.map(|kind| (kind, ""));
    let params = ListParams::default().labels(selector);
    for (kind, namespace) in namespaced.into_iter().chain(cluster) {
        let listed = resources::api(client, kind, namespace).list(&params).await;
        for object in listed.unwrap_or_else(|error| panic!("{kind:?} can be listed: {error}")) {
            let key = (kind, object.name_any());
            found.insert(key, serde_json::to_value(object).expect("an object is JSON"));
        }
    }
    found
}

/// What changes when one of these objects is edited: its `generation` where the API server counts one, otherwise its
/// resourceVersion. The controllers write the status of a Deployment whenever they come to it, and that moves its
/// resourceVersion.
pub fn versions(children: &BTreeMap<(Kind, String), Value>) -> BTreeMap<String, String> {
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        metadata.get("generation").unwrap_or(&metadata["resourceVersion"]).to_string()
    };
    children
        .iter()
        .map(|((kind, name), object)| (format!("{kind:?} {name}"), version(object)))
        .collect()
}

/// Waits until nothing was written for a while; returns how many writes there were in all.
pub async fn quiet(proxy: &FaultProxy) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let (mut count, mut since) = (proxy.count(&writes()), Instant::now());
    while since.elapsed() < QUIET {
        if Instant::now() >= deadline {
            let all = proxy.seen(&writes());
            panic!("writes do not end: {:#?}", all.iter().rev().take(20).collect::<Vec<_>>());
        }
        tokio::time::sleep(POLL).await;
        let now = proxy.count(&writes());
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    count
}
