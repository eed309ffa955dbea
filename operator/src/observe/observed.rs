//! What the API server and the pods show: everything that decisions are made from. Data only; `observe` fills it.

mod known_clients;
mod misfit;

pub use known_clients::KnownClients;
pub use misfit::Misfit;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crds::ClusterDNS;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::decide::plan::Held;
use crate::desired::kind::Kind;
use crate::observe::ca_bundles::Bundle;
use crate::observe::named_services::NamedService;
use crate::observe::unlisted::Unlisted;

/// What was read of the cluster for one ClusterDNS.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Every other ClusterDNS, for conflicts.
    pub others: Vec<Arc<ClusterDNS>>,
    /// Names of ClusterDNS that exist and cannot be read.
    pub unreadable: BTreeSet<String>,
    /// The Services that those name, where they exist, by the name of the ClusterDNS.
    pub services_of_others: BTreeMap<String, NamedService>,
    /// The Service that the spec names, ours or not.
    pub service: Option<Service>,
    /// EndpointSlices with the label kubernetes.io/service-name of the Service.
    pub slices: Vec<EndpointSlice>,
    /// `clusterdns-<name>`.
    pub deployment: Option<Deployment>,
    /// ReplicaSets of that Deployment: which pod template is the current one.
    pub replica_sets: Vec<ReplicaSet>,
    /// `clusterdns-<name>`.
    pub daemon_set: Option<DaemonSet>,
    /// `clusterdns-<name>`.
    pub autoscaler: Option<HorizontalPodAutoscaler>,
    /// `clusterdns-<name>`: the configuration as it is written now. If it was deleted: what is remembered of it, without documents.
    pub config_map: Option<ConfigMap>,
    /// The document that pods must run, where the ConfigMap lost it: as the operator saw it last, or as ready pods run it.
    pub lost_document: Option<String>,
    /// The version of the Service for which the last patch of its selector was refused, because it had another one at that time.
    pub conflict: Option<String>,
    /// Other Services of its namespace that may select its pods by a label that the spec writes, by name: each selector once.
    pub selectors: BTreeMap<String, BTreeMap<String, String>>,
    /// Other Services of its namespace that serve DNS and would lead to its pods by the label of kube-dns, or of the one it adopts.
    pub dns_services: BTreeMap<String, DnsService>,
    /// What the Secrets are that its listeners name.
    pub certificates: BTreeMap<String, Certificate>,
    /// Those that could not be read now, and why: their last known state counts.
    pub unread_certificates: BTreeMap<String, String>,
    /// Pods of this ClusterDNS, by label.
    pub pods: Vec<Pod>,
    /// Pods of the other DNS server: those behind the Service, without our own key. Listed only when it goes back to them.
    pub foreign_pods: Vec<Pod>,
    /// Why they could not be listed although the Service is about to go back to them: none of them counts as ready.
    pub unread_foreign_pods: Option<String>,
    /// What our ready pods said when last asked, by pod uid.
    pub pod_reports: BTreeMap<String, PodReport>,
    /// The canary's and a stable pod's answers side by side, where they were asked in this reconcile, and both reported again.
    pub comparison: Option<Comparison>,
    /// For how long this process has watched the trial that is written, by its monotonic clock; none: there is no trial.
    pub watched: Option<Duration>,
    /// Some of the cluster's namespaces and Services, for what a canary is asked: read while one is on trial.
    pub sample: Sample,
    /// Who asks, for `access.clients`.
    pub known_clients: KnownClients,
    /// ConfigMaps with CA bundles that the spec names: (name, key) to the PEM text, or why there is none.
    pub ca_bundles: BTreeMap<(String, String), Bundle>,
    /// How big the cluster is.
    pub size: ClusterSize,
    /// Nodes on which `spec.placement` lets our pods run; virtual ones are none.
    pub nodes_that_fit: u32,
    /// What of `spec.placement` keeps our pods off every node; none: they may run on some node, or there is none.
    pub no_node_fits: Option<Misfit>,
    /// That is so, and pods of the DaemonSet that exists may run on no node either. Then no edit of the spec has caused it.
    pub no_node_fits_daemon_set: bool,
    /// Nodes with pods of ours on which they may not run by `spec.placement`, and why: a DaemonSet ends those pods at once.
    pub unfit_nodes: BTreeMap<String, Misfit>,
    /// No node takes a pod of a DaemonSet now, by `spec.placement`: one whose template changes ends its pods and makes no others.
    pub no_node_takes_pods: bool,
    /// Nodes that take a new pod of a Deployment now.
    pub nodes_for_new_pods: super::spare_nodes::SpareNodes,
    /// Nodes with pods of ours whose kubelet is not ready, or not heard of.
    pub dead_nodes: BTreeSet<String>,
    /// Nodes with pods of ours on which the DaemonSet wants none now, such as for a taint. Its status does not count them.
    pub uncounted_nodes: BTreeSet<String>,
    /// PodDisruptionBudgets of the namespace that may select its pods, each selector once of those with a number of pods as
    /// `minAvailable`, and once of the others; its own is not among them.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Kinds of which the operator does not keep some objects of its namespace whole: its caches are full.
    pub not_kept: BTreeSet<String>,
    /// Most of their room is taken by Nodes and by objects with our label, which are always kept.
    pub is_cache_mostly_needed: bool,
    /// Kinds whose watches are refused since a right was taken away: what is kept of them may be old.
    pub refused_watches: Option<Unlisted>,
    /// The operator does not manage its namespace, so it has read nothing at all.
    pub is_unwatched: bool,
    /// Everything labelled as this ClusterDNS's and owned by it, whether still wanted or not.
    pub children: Vec<Child>,
    /// Other namespaces in which pods of a deleted ClusterDNS of this name run, and have its rights.
    pub left_in: BTreeSet<String>,
    /// What this API server offers.
    pub offers: Offers,
    /// What happens to pods that no longer answer.
    pub lost_pods: LostPods,
}

/// What happens to pods that no longer answer, as on a node that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostPods {
    /// Kubernetes gives up their node after some 40 s: the operator was not started to do more.
    #[default]
    LeftAlone,
    /// The same, because the API server does not have the policy that narrows the right to do more.
    NoPolicy,
    /// The operator takes them out of the Service.
    TakenOut,
}

/// Another Service of the namespace that serves DNS: clients can ask port 53 of its clusterIP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsService {
    /// `spec.selector` of the Service.
    pub selector: BTreeMap<String, String>,
    /// It leads to pods that are not ours.
    pub has_other_pods: bool,
}

/// Something that exists and is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    pub kind: Kind,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    pub name: String,
    /// Its uid, the precondition of a delete.
    pub uid: String,
}

/// Nodes and their cores, virtual nodes (`type: virtual-kubelet`) not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterSize {
    /// All nodes, also those that take no new pods.
    pub nodes: u32,
    /// Nodes that take new pods.
    pub schedulable_nodes: u32,
    /// Allocatable cores of all nodes, rounded up as a sum.
    pub cores: u32,
    /// Allocatable cores of nodes that take new pods.
    pub schedulable_cores: u32,
}

/// The state of a Secret that a listener names as its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Of the right type, and marked for this use or named by the administrator.
    Usable,
    /// There is no Secret of that name.
    Missing,
    /// The same, and pods have it mounted: those that run keep the certificate that they read last.
    Gone,
    /// It is not of type `kubernetes.io/tls`.
    OtherType,
    /// It does not have the label that allows this use.
    NotMarked,
    /// The operator may not read it.
    NotReadable,
    /// The API server gave no answer, now or before: the Secret is not mounted.
    Unread,
}

/// What this API server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The API server serves PodMonitor.
    pub pod_monitor: bool,
    /// The API server serves PrometheusRule.
    pub prometheus_rule: bool,
    /// The metrics API has the queries per second of pods; `None` while that is not known.
    pub queries_per_second: Option<bool>,
    /// Minor version of Kubernetes 1.x: PreferSameZone and PreferSameNode are known from 34 on.
    pub minor: u32,
    /// Fields that this operator knows are missing from the served schema of ClusterDNS.
    pub crd_is_outdated: bool,
}

/// What a pod says at `/config`, or why it did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    /// Its report, or why there is none.
    pub reported: Result<Reported, String>,
    /// How long ago it was asked.
    pub age: Duration,
    /// What it said last, where it does not answer now and has not been silent, or not ready, for minutes.
    pub before: Option<Reported>,
    /// It has not answered for minutes.
    pub is_silent: bool,
}

impl PodReport {
    /// What it says, or said before: one missing reply ends no problem. A trial is judged by `reported` alone.
    pub fn known(&self) -> Option<&Reported> {
        self.reported.as_ref().ok().or(self.before.as_ref())
    }
}

/// `/config` of one pod, as far as the operator reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Which process said it: random, another after each restart. Empty: its version does not say.
    pub process: String,
    /// Content revision, as `/config` reports it.
    pub revision: String,
    /// The highest Config format that it reads.
    pub max_format: u32,
    /// `stable` or `canary`.
    pub role: String,
    /// Why it refuses its configuration, if it does.
    pub rejection: Option<String>,
    /// It was given no document, which it reports as a rejection: another client deleted it.
    pub has_no_document: bool,
    /// Fields of its document that its version does not know, so that it runs without them.
    pub ignored: Vec<String>,
    /// Why it cannot read its configuration now, if it cannot.
    pub cut_off: Option<CutOff>,
    /// Objects it could not serve: kind, namespace, name, reason.
    pub skipped: Arc<[crds::v1alpha1::SkippedObject]>,
    /// Upstreams that are down for at least 60 s.
    pub upstreams_down: Vec<DownServer>,
    /// Upstreams that have answered with errors only for at least 60 s.
    pub upstreams_failing: Vec<DownServer>,
    /// Upstreams that lead back to ClusterDNS, so that the pod does not ask them.
    pub upstreams_looping: Vec<DownServer>,
    /// Groups of upstreams in which the pod has no server to ask.
    pub upstreams_without_servers: Vec<EmptyGroup>,
    /// The certificates of its encrypted listeners.
    pub certificates: Vec<UsedCertificate>,
    /// Encrypted listeners whose ports it could not open.
    pub closed_listeners: Vec<ClosedListener>,
}

/// The watch of the configuration ConfigMap fails in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutOff {
    /// The kind of failure, without what differs from one time to the next.
    pub why: String,
    /// For how long, when the pod was asked.
    pub seconds: u64,
}

impl Reported {
    /// Why it refuses the document that it was given. One that was given none refuses nothing.
    pub fn refusal(&self) -> Option<&str> {
        self.rejection.as_deref().filter(|_| !self.has_no_document)
    }

    /// Does it run its document without fields that it does not know? One that refuses its document runs another one, of which the
    /// fields are. One that tries a document, or did a moment ago, is about to go back.
    pub fn ignores_fields(&self) -> bool {
        self.ignored_as_canary().is_none() && self.refusal().is_none() && !self.ignored.is_empty()
    }

    /// Does it run the configuration of this revision, as far as its version knows the fields? Without some of them it reports the
    /// revision of what it knows. Where all pods are older than the document, as after a rollback, an edit that takes the
    /// fields out is tried by one of them.
    pub fn runs(&self, stable: &str) -> bool {
        (self.revision == stable && self.refusal().is_none()) || self.ignores_fields()
    }

    /// Fields that it does not know of the document that it tries, for people.
    pub fn ignored_as_canary(&self) -> Option<String> {
        (self.role == "canary" && !self.ignored.is_empty()).then(|| self.ignored.join(", "))
    }
}

/// An encrypted listener that a pod could not open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClosedListener {
    /// `TLS`, `HTTPS` or `QUIC`.
    pub listener: String,
    pub port: u16,
    /// What the system said.
    pub why: String,
}

/// A group of upstreams without a server that can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EmptyGroup {
    /// `upstreams`, or a stub domain.
    pub group: String,
    /// What is wrong, and what a person should do.
    pub why: String,
}

/// An upstream that is unusable for a pod: it is down, answers with errors only, or leads back to ClusterDNS.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DownServer {
    /// `upstreams`, or a stub domain.
    pub group: String,
    /// Its address.
    pub server: String,
    /// How it is asked; empty: not known. An address may be there with several transports.
    pub transport: String,
    /// The name that it must prove to have; empty: none, or not known. An address may be there with several names.
    pub server_name: String,
    /// Servers of the group; 0: not known.
    pub group_servers: usize,
    /// What a person should do; none where time may mend it.
    pub remedy: Option<String>,
}

/// What a pod says of the certificate of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedCertificate {
    /// The Secret that is mounted.
    pub secret: String,
    /// From when to when the one in use is valid; `None` where there is none, or it does not say.
    pub validity: Option<(Timestamp, Timestamp)>,
    /// Why what is mounted now is not in use.
    pub trouble: Option<String>,
}

/// Some of the cluster's namespaces and Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Labels by namespace.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Namespaces that the configuration on trial names and that do not exist.
    pub missing: BTreeSet<String>,
    /// A few Services of several namespaces.
    pub services: Vec<SampledService>,
    /// Whether the `serviceSelector` of the configuration on trial selects any Service of the cluster. None: it has no
    /// such selector, or the API server was not asked.
    pub selects: Option<bool>,
    /// Why nothing could be read.
    pub unread: Option<String>,
}

/// A Service, as far as it matters for a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledService {
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The first of `spec.clusterIPs`.
    pub address: Option<IpAddr>,
    /// Changes with how its name is answered: its own version, and those of its namespace and of its EndpointSlices.
    pub version: String,
}

/// One check: the same question to the canary and to a stable pod at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was asked, for people.
    pub what: String,
    /// The result for the canary.
    pub outcome: CheckResult,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// Clients get what they need.
    Good,
    /// Clients would lose what stable pods give them, or do not get what the spec says: how.
    Worse(String),
    /// Nothing is known: a stable pod gives no better answer, or the replies do not show it.
    Open,
    /// Clients lose nothing, but people should know.
    Warning(String),
    /// As [`CheckResult::Warning`], for servers that reply only with errors: nothing else reports this later.
    ErrorsOnly(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// uid of the canary pod that was asked.
    pub canary_uid: String,
    /// Revision that was on trial.
    pub revision: String,
    pub checks: Vec<Check>,
    /// It was not asked this time, because the operator asks others.
    pub is_postponed: bool,
    /// Changed hosts and groups that no round has asked yet, of how many.
    pub unasked: (usize, usize),
    /// Why the operator cannot judge the canary: a problem of its own, not of the canary.
    pub unreachable: Option<Held>,
}
