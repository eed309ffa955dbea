//! What was decided from what was observed: everything that the desired objects need besides spec and Config. Data only;
//! `scale`, `rollout`, `adoption` and `admit` fill it.

mod held;

use std::collections::BTreeMap;
use std::time::Duration;

pub use crds::between_planes::CanaryPod;
pub use held::{Held, HeldBy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All decisions of one reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whose the Service is, and what happens to its selector.
    pub service: ServicePlan,
    /// How many pods run, and who says so.
    pub size: Size,
    /// Which revision which pod runs.
    pub rollout: RolloutPlan,
    /// Whether a PodDisruptionBudget of ours is wanted: not while another selects our pods.
    pub budget: bool,
}

/// Who writes the Service: us, another DNS server, or both while it is switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicePlan {
    /// Ours: created and applied by us.
    Own,
    /// Foreign. Its spec is never applied; our pods carry the labels of its selector.
    Adopted {
        /// Labels of its present selector without our own key: what our pods carry besides ours.
        labels: BTreeMap<String, String>,
        /// One merge patch, with the resourceVersion that was read.
        patch: Option<SelectorPatch>,
    },
    /// Foreign, adopted, and deleted: created again as it was, without an owner, so that it stays foreign.
    Recreated {
        /// Labels of its selector without our own key: what our pods carry besides ours.
        labels: BTreeMap<String, String>,
        /// The deleted Service, as it is created again.
        manifest: Value,
    },
    /// `adopt: false` on a Service that is not ours: our key goes from its selector, then the labels from our pods.
    Released {
        /// Labels that our pods still carry: until the selector has lost our key.
        labels: BTreeMap<String, String>,
        /// One merge patch, with the resourceVersion that was read.
        patch: Option<SelectorPatch>,
    },
}

/// A change of an adopted Service's selector and annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorPatch {
    /// The resourceVersion that was read; the API server refuses the patch on any other.
    pub resource_version: String,
    /// Adds our key (true) or removes it.
    pub add: bool,
}

/// How many pods run, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A Deployment with this many.
    Replicas(u32),
    /// A Deployment whose `replicas` an autoscaler owns.
    Autoscaled {
        /// `minReplicas` of the autoscaler.
        min: u32,
        /// `maxReplicas` of the autoscaler.
        max: u32,
        /// Average CPU in thousandths of a core.
        cpu_millicores: u32,
        /// Average queries per second, where the metrics API has that metric.
        queries_per_second: Option<u32>,
        /// What runs now and must be held under a second field manager before ours lets go; for a Deployment that does not
        /// exist yet, or that another client scaled to 0: what ours writes, to be handed over by the next reconcile.
        hold: Option<u32>,
    },
    /// A DaemonSet: one pod on each node.
    PerNode,
}

/// What the configuration ConfigMap should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// `stable.json`: what every pod runs.
    pub stable: String,
    /// `canary.json`: what one pod tries.
    pub canary: Option<String>,
    /// `rollout.json`.
    pub state: RolloutState,
    /// Revision that the spec asks for.
    pub desired_revision: String,
    /// Whether RBAC must be wide enough for both documents: pods are watched by either.
    pub needs_pods: bool,
    /// When to reconcile again although nothing changed.
    pub again_in: Option<Duration>,
    /// Why nothing can be decided: a problem of the operator, not of the canary.
    pub held: Option<Held>,
    /// Events to publish now, once each.
    pub notices: Vec<Notice>,
}

/// `rollout.json`: all state of a rollout, so that a new leader can continue. Data planes read the first five fields
/// ([`crds::between_planes::Rollout`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutState {
    /// Revision of `stable.json`.
    pub stable: String,
    /// Revision of `canary.json`; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub canary: String,
    /// The pod that tries the canary document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_pod: Option<CanaryPod>,
    /// When the observation began, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub started_at: String,
    /// How long it is observed.
    #[serde(skip_serializing_if = "is_zero")]
    pub observe_seconds: u32,
    /// Canary pods lost or restarted while on trial; the third fails the revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub losses: u32,
    /// Restarts of the canary's container when it was named, to notice another.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Revision that failed: tried again after a while, or when the spec changes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failed: String,
    /// Why it failed, for status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// Generation of the spec that failed: a later one is tried again, for any change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_generation: Option<i64>,
    /// Failed trials of this revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Not tried again before, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub retry_at: String,
    /// The operator could not judge it, so it failed of nothing: it was taken back and is tried again.
    #[serde(skip_serializing_if = "is_false")]
    pub is_unjudged: bool,
    /// The reason of the condition that says why it could not: see [`HeldBy::reason`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unjudged_by: String,
    /// Revisions that failed before that one, the newest last: none of them goes out untried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_earlier: Vec<FailedEarlier>,
    /// uid of the pod that tried a revision last that failed: the next trial begins with another one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failed_pod: String,
    /// Since when the operator has not been able to judge the canary, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub held_since: String,
    /// The annotation [`crate::names::RETRY`] when it failed: another value has it tried again at once.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub retried: String,
    /// Since when rounds of questions found nothing worse, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub good_since: String,
    /// Checks that were worse in one round and wait for a second round to confirm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worse: Vec<String>,
    /// When that was found first, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worse_since: String,
    /// Warning from the trial; kept for 10 minutes after the rollout, or for a day.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub warning: String,
    /// The warning is of servers that reply only with errors, which pods do not report: it is kept for a day.
    #[serde(skip_serializing_if = "is_false")]
    pub has_errors_only: bool,
    /// When every pod got it, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub warned_at: String,
    /// Since when a configuration waits for a second pod to be ready, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits_since: String,
    /// When another client changed `stable.json`, RFC 3339; kept for 10 minutes after that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub edited_at: String,
    /// Pods run what that client wrote, because the document before is not known.
    #[serde(skip_serializing_if = "is_false")]
    pub is_edit_kept: bool,
    /// Some pod may run a document that needs pods, so RBAC stays wide.
    #[serde(skip_serializing_if = "is_false")]
    pub needs_pods: bool,
    /// What must be remembered of an adopted Service. It is in here because it must outlive a leader, and others may replace
    /// the Service with every annotation on it.
    #[serde(skip_serializing_if = "Switch::is_untouched")]
    pub switch: Switch,
    /// The Service as it was last seen: clients know its addresses, so it never gets others.
    #[serde(skip_serializing_if = "LastService::is_unknown")]
    pub service: LastService,
    /// The ServiceAccount of the pods as it was last seen, so that another one is noticed.
    #[serde(skip_serializing_if = "Account::is_unknown")]
    pub account: Account,
}

/// A revision that failed its trial before the spec asked for another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedEarlier {
    pub revision: String,
    /// Why it failed, for status.
    pub failure: String,
}

/// The ServiceAccount of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Account {
    pub uid: String,
    /// It is not the one that was seen first: pods carry its uid, so that they are replaced when it changes.
    #[serde(skip_serializing_if = "is_false")]
    pub is_replaced: bool,
}

impl Account {
    /// True if none has been seen yet.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Everything needed to create the deleted Service again with the same addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastService {
    /// `spec.clusterIPs` of the Service.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// It is ours and was deleted: these addresses are asked for from then on.
    #[serde(skip_serializing_if = "is_false")]
    pub is_pinned: bool,
    /// It is ours, and not adopted.
    #[serde(skip_serializing_if = "is_false")]
    pub is_ours: bool,
    /// It was adopted, and is of the other DNS server again, or that was decided on: while it does not exist, none of ours takes its name.
    #[serde(skip_serializing_if = "is_false")]
    pub is_given_back: bool,
    /// Its uid: by it the same object is known again, after another client replaced all that shows whose it is, or took an
    /// address away.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Value>,
}

impl LastService {
    /// True if no Service has been seen yet.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// What was done to the selector of an adopted Service, so that a reset is noticed and never fought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Switch {
    /// Our key was seen in the selector, or a patch that adds it was decided on.
    #[serde(skip_serializing_if = "is_false")]
    pub is_made: bool,
    /// The resourceVersion of the Service that the last patch was for: if it is still that, the patch was never applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub patched_version: String,
    /// How often in a row another client removed our key.
    #[serde(skip_serializing_if = "is_zero")]
    pub resets: u32,
    /// When the last of these was noticed, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reset_at: String,
}

impl Switch {
    /// Is there nothing to remember?
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }
}

/// A Kubernetes Event that a decision asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A warning, rather than news.
    pub is_warning: bool,
    /// Reason in CamelCase, as the API conventions demand.
    pub reason: &'static str,
    /// What happened and what to do.
    pub message: String,
}

/// Why a valid spec is not acted on: `Accepted=False`. What runs is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The condition's reason: Conflict, NamespaceNotManaged, NameNotManaged, ServicePortsUnserved, ServiceExists,
    /// PerNodeTooLarge, CABundleMissing, UpstreamIsOwnService, ...
    pub reason: &'static str,
    /// The field to change, such as `spec.service.adopt`.
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
    /// When to reconcile again, where no watch shows that the reason has gone.
    pub again_in: Option<Duration>,
    /// Kubernetes is about to end it: people have nothing to change.
    pub is_passing: bool,
}

impl Refusal {
    /// A refusal because of this field of the spec.
    pub fn new(reason: &'static str, field: &str, message: String) -> Refusal {
        Refusal { reason, field: field.to_owned(), message, again_in: None, is_passing: false }
    }

    /// The Service is another ClusterDNS's, or one's before it, or another operator's: a deleted one is not ours to create again.
    pub fn is_of_others(&self) -> bool {
        self.is_passing
            || ["Conflict", "NamespaceNotManaged", "NameNotManaged"].contains(&self.reason)
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
