//! Clusters for tests, as small as they can be written.

pub(crate) mod api;
pub(crate) mod many;

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use crds::v1alpha1::ClusterDNSStatus;
use crds::without_effect::WithoutEffect;
use crds::{ClusterDNS, Config};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::Client;
use kube::runtime::reflector::{self, Store};
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;

use crate::ask_pods::canary_analysis::RoundPermits;
use crate::context::Context;
use crate::decide::plan::RolloutPlan;
use crate::observe::caches::Caches;
use crate::observe::lists::Lists;
use crate::observe::observed::{Check, CheckResult, Comparison, Observed, PodReport, Reported};
use crate::report::events::Events;
use crate::runtime::lease::Leadership;
use crate::runtime::metrics::Metrics;
use crate::runtime::write::Writes;
use crate::settings::{DataPlane, Settings};

/// Sockets of both transports at this address. A free port of one may be taken of the other: of port 0 several are tried.
pub(crate) fn on_one_port(address: (&str, u16)) -> (UdpSocket, TcpListener) {
    let bound = || {
        let tcp = TcpListener::bind(address)?;
        Ok::<_, std::io::Error>((UdpSocket::bind(tcp.local_addr()?)?, tcp))
    };
    let mut tries = (0..100).map(|_| bound());
    tries.find_map(Result::ok).expect("a port that is free of both transports")
}

/// The fields that are named, below `spec`.
pub(crate) fn fields(found: &[WithoutEffect]) -> Vec<&str> {
    found.iter().map(|it| it.field.trim_start_matches("spec.")).collect()
}

/// A ClusterDNS called `default` with this spec, as YAML.
pub(crate) fn dns(spec: &str) -> ClusterDNS {
    let spec: Value = serde_saphyr::from_str(spec).expect(spec);
    from(
        json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "spec": spec, "metadata": {
        "name": "default", "uid": "dns-uid", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}}),
    )
}

/// The status that an API server gives to a new ClusterDNS.
pub(crate) fn first_status() -> ClusterDNSStatus {
    let crd = serde_json::to_value(crds::v1alpha1::crd()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    from(schema["properties"]["status"]["default"].clone())
}

pub(crate) fn config(dns: &ClusterDNS) -> Config {
    crds::check_resource(dns).expect("a valid ClusterDNS")
}

/// Seconds after the beginning of the story.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).expect("a time")
}

/// An operator that may do everything in kube-system.
pub(crate) fn settings() -> Settings {
    Settings {
        dataplane: DataPlane { image: "clusterdns:test".to_owned(), ..DataPlane::default() },
        workload_namespaces: vec!["kube-system".to_owned()],
        ..Settings::default()
    }
}

/// What an operator works with that leads, and whose watches have shown nothing yet.
pub(crate) fn context(client: Client, settings: Settings) -> Context {
    let (resources, _) = reflector::store();
    context_with(client, settings, resources)
}

/// The same with these ClusterDNS.
pub(crate) fn context_with(
    client: Client,
    settings: Settings,
    resources: Store<ClusterDNS>,
) -> Context {
    let (metrics, lists) = (Arc::<Metrics>::default(), Arc::<Lists>::default());
    let leadership = Arc::new(Leadership::new(Instant::now));
    leadership.renewed(Instant::now());
    let writes = Writes::new(leadership, metrics.clone());
    let caches = Caches::start(
        client.clone(),
        &settings.workload_namespaces,
        resources,
        Arc::default(),
        metrics.clone(),
        lists.clone(),
    );
    Context {
        events: Events::new(client.clone(), "operator", writes.clone()),
        client,
        lists,
        settings,
        writes,
        caches,
        pod_reports: Default::default(),
        last_documents: Default::default(),
        samples: Default::default(),
        certificates: Default::default(),
        rounds: RoundPermits::default(),
        memory: Default::default(),
        last_written: Default::default(),
        backoff: Default::default(),
        attempts: Default::default(),
        several_nodes: Default::default(),
        metrics,
        lost_pods: Default::default(),
        offers: RwLock::default(),
        large: Default::default(),
    }
}

/// A ready pod of ours.
pub(crate) fn pod(name: &str, ready_since: i64, restarts: u32) -> Pod {
    let mut labels = crate::names::labels("default");
    labels.insert("k8s-app".to_owned(), "kube-dns".to_owned());
    labels.insert("pod-template-hash".to_owned(), "new".to_owned());
    from(json!({"metadata": {"name": name, "uid": format!("{name}-uid"), "labels": labels},
        "status": {"podIP": "10.244.0.9",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready_since).to_string()}],
            "containerStatuses": [{"name": "clusterdns", "ready": true, "restartCount": restarts, "image": "", "imageID": ""}]}}))
}

/// As a DaemonSet makes it for this node, in this second.
pub(crate) fn on_node(node: &str, mut pod: Pod, made: i64) -> Pod {
    let labels = pod.metadata.labels.as_mut().expect("labels");
    labels.remove("pod-template-hash");
    labels.insert("controller-revision-hash".to_owned(), "new".to_owned());
    pod.metadata.creation_timestamp = Some(from(json!(at(made).to_string())));
    pod.spec = Some(from(json!({"nodeName": node, "containers": []})));
    pod
}

pub(crate) fn unready(mut pod: Pod) -> Pod {
    let conditions =
        pod.status.as_mut().and_then(|status| status.conditions.as_mut()).expect("conditions");
    conditions[0].status = "False".to_owned();
    pod
}

/// A Deployment that is fully rolled out with this many pods, which carry the label of kube-dns.
pub(crate) fn deploy(observed: &mut Observed, count: u32) {
    let labels = pod("x", 0, 0).metadata.labels;
    observed.deployment = Some(from(
        json!({"metadata": {"name": "clusterdns-default", "generation": 1},
        "spec": {"replicas": count, "selector": {}, "template": {"metadata": {"labels": labels}}},
        "status": {"observedGeneration": 1, "replicas": count, "updatedReplicas": count, "readyReplicas": count,
            "availableReplicas": count}}),
    ));
    observed.pods = (0..count).map(|n| pod(&format!("dns-{n}"), n.into(), 0)).collect();
}

/// The Service of our own.
pub(crate) fn own_service() -> Service {
    let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default", "uid": "dns-uid"});
    from(
        json!({"metadata": {"name": "kube-dns", "namespace": "kube-system", "ownerReferences": [owner]},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"]}}),
    )
}

/// The kube-dns Service of another DNS server.
pub(crate) fn kube_dns() -> Service {
    from(
        json!({"metadata": {"name": "kube-dns", "namespace": "kube-system", "resourceVersion": "100",
            "managedFields": [{"manager": "kubeadm", "operation": "Update", "time": at(0).to_string(),
                "fieldsV1": {"f:spec": {"f:selector": {}}}}]},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "selector": {"k8s-app": "kube-dns"},
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153}]}}),
    )
}

/// A ready pod of that server.
pub(crate) fn foreign_pod() -> Pod {
    let mut pod = pod("coredns-1", 0, 0);
    pod.metadata.labels = Some([("k8s-app".to_owned(), "kube-dns".to_owned())].into());
    pod
}

/// Puts our pods behind the Service, as the controller of EndpointSlices does.
pub(crate) fn expose(observed: &mut Observed) {
    let endpoint = |pod: &Pod| {
        json!({"addresses": ["10.244.0.9"], "conditions": {"ready": crate::observe::pods::is_ready(pod)},
            "targetRef": {"kind": "Pod", "uid": crate::observe::pods::uid(pod)}})
    };
    let endpoints: Vec<Value> = observed.pods.iter().map(endpoint).collect();
    observed.slices = vec![from(json!({"addressType": "IPv4", "endpoints": endpoints}))];
}

/// Writes what was planned, as the operator does.
pub(crate) fn write(observed: &mut Observed, plan: &RolloutPlan) {
    let mut data = json!({"rollout.json": serde_json::to_string(&plan.state).expect("JSON")});
    if !plan.stable.is_empty() {
        data["stable.json"] = json!(plan.stable);
    }
    if let Some(canary) = &plan.canary {
        data["canary.json"] = json!(canary);
    }
    observed.config_map = Some(from::<ConfigMap>(json!({"data": data})));
}

/// What pods say when they run this revision.
pub(crate) fn says(observed: &mut Observed, pod: &str, revision: &str) {
    let reported = Reported {
        process: format!("{pod}-process"),
        revision: revision.to_owned(),
        max_format: 1,
        role: "stable".to_owned(),
        ..Reported::default()
    };
    let (reported, age) = (Ok(reported), std::time::Duration::ZERO);
    let answer = PodReport { reported, age, before: None, is_silent: false };
    observed.pod_reports.insert(format!("{pod}-uid"), answer);
}

/// A report of this pod, changed by `change`.
pub(crate) fn reported<'a>(observed: &'a mut Observed, pod: &str) -> &'a mut Reported {
    let answer = observed.pod_reports.get_mut(&format!("{pod}-uid")).expect("an answer");
    answer.reported.as_mut().expect("it said something")
}

/// One round with one check, which the canary and the stable pod pass or do not.
pub(crate) fn compared(pod: &str, revision: &str, canary: bool, stable: bool) -> Comparison {
    let outcome = match (canary, stable) {
        (true, _) => CheckResult::Good,
        (false, true) => {
            CheckResult::Worse("SERVFAIL, while a stable pod answers rightly".to_owned())
        }
        (false, false) => CheckResult::Open,
    };
    Comparison {
        canary_uid: format!("{pod}-uid"),
        revision: revision.to_owned(),
        checks: vec![Check { what: "example.com. A".to_owned(), outcome }],
        is_postponed: false,
        unasked: (0, 0),
        unreachable: None,
    }
}

/// Reads an object from JSON.
pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// What is logged on one thread.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Of this thread, until the guard is dropped.
    pub(crate) fn of_this_thread() -> (Lines, DefaultGuard) {
        let lines = Lines::default();
        let logged = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || logged.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no thread panicked")).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panicked").write(octets)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
