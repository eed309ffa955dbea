//! Conditions as the Kubernetes API conventions have them: a transition is a change of the value, nothing else.

use crds::ClusterDNS;
use crds::bounds::MESSAGE;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::shortened::shortened;

/// The condition types that we write. Other types in a status are foreign and stay.
pub const CONDITIONS: [&str; 7] =
    ["Accepted", "Ready", "UpToDate", "Progressing", "Degraded", "Stalled", "Reconciling"];

/// The Service leads to the pods of another DNS server, or it leads to ours beside them, and it is to move.
pub const NOT_SWITCHED: &str = "NotSwitched";
/// The Service leads to our pods, and is given back to a server that has a ready pod.
pub const RELEASING: &str = "Releasing";
/// The spec is refused, and the Service leads to the pods of another DNS server.
pub const OTHERS_SERVE: &str = "OtherServerServes";
/// No ready pod is behind the Service: clients have no DNS.
pub const WITHOUT_PODS: &str = "ServiceWithoutPods";
/// The reasons of `Ready` with which it is false although clients of the Service have DNS: it does not come from where the spec says.
pub const SERVED_OTHERWISE: [&str; 3] = [NOT_SWITCHED, RELEASING, OTHERS_SERVE];

/// With this the message of `Degraded` begins where there are several problems: their reasons follow, without the first, which
/// is the reason of the condition.
pub const ALSO: &str = "also: ";

/// Status, reason and message of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionState {
    is_true: bool,
    reason: String,
    message: String,
}

impl ConditionState {
    pub(super) fn yes(reason: &str, message: &str) -> Self {
        Self { is_true: true, reason: reason.to_owned(), message: shortened(message, MESSAGE) }
    }

    /// The same reason and message for the opposite.
    pub(super) fn negated(self) -> Self {
        Self { is_true: !self.is_true, ..self }
    }

    pub(super) fn no(reason: &str, message: &str) -> Self {
        Self { is_true: false, ..Self::yes(reason, message) }
    }
}

/// The conditions of a status: those before, and those that take their place.
pub(super) struct Conditions<'a> {
    dns: &'a ClusterDNS,
    now: Timestamp,
    listed: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    pub(super) fn of(dns: &'a ClusterDNS, now: Timestamp) -> Self {
        Self { dns, now, listed: Vec::new() }
    }

    /// What an operator said. The default of the schema, that no operator has looked yet, has no generation: nothing follows
    /// from it, neither since when it is so nor that pods may have answered.
    pub(super) fn before(&self, kind: &str) -> Option<&Condition> {
        let mut conditions = self.dns.status.as_ref()?.conditions.iter();
        conditions.find(|it| it.type_ == kind && it.observed_generation.is_some())
    }

    /// Was it true, or nothing known of it?
    pub(super) fn was_not_false(&self, kind: &str) -> bool {
        self.before(kind).is_some_and(|condition| condition.status != "False")
    }

    pub(super) fn was_true(&self, kind: &str) -> bool {
        self.before(kind).is_some_and(|condition| condition.status == "True")
    }

    /// Was it true of this very spec?
    pub(super) fn was_true_of_this_spec(&self, kind: &str) -> bool {
        let generation = self.dns.metadata.generation;
        self.was_true(kind)
            && self.before(kind).is_some_and(|before| before.observed_generation == generation)
    }

    pub(super) fn set(&mut self, kind: &str, state: ConditionState) {
        let status = if state.is_true { "True" } else { "False" };
        self.push(kind, status, state);
    }

    /// Neither true nor false, for this reason.
    pub(super) fn set_unknown(&mut self, kind: &str, state: ConditionState) {
        self.push(kind, "Unknown", state);
    }

    fn push(&mut self, kind: &str, status: &str, state: ConditionState) {
        let ConditionState { is_true: _, reason, message } = state;
        let before = self.before(kind).filter(|condition| condition.status == status);
        let since =
            before.map_or(Time(self.now), |condition| condition.last_transition_time.clone());
        self.listed.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            observed_generation: self.dns.metadata.generation,
            last_transition_time: since,
        });
    }

    /// A condition that is there only while it is true.
    pub(super) fn set_if(&mut self, kind: &str, state: Option<ConditionState>) {
        if let Some(state) = state {
            self.set(kind, state);
        }
    }

    pub(super) fn listed(self) -> Vec<Condition> {
        self.listed
    }
}
