//! Why the operator can judge nothing about a configuration on trial. Each cause has its own reason of a condition, because
//! each one needs something else from a person.

/// The way out of most of them, for the Event and for the condition.
macro_rules! without_a_trial {
    () => {
        "spec.rollout.canary: false gives the configuration to every pod without a trial"
    };
}

/// A problem of the operator itself: nothing is decided about a configuration until it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The kind of problem.
    pub by: HeldBy,
    /// What was seen, for people.
    pub why: String,
}

/// The kinds of problems of the operator that delay a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldBy {
    /// No question reaches the pod, no reply comes back, or no pod says at its metrics port what it runs: a NetworkPolicy, a
    /// route, a permission.
    #[default]
    Network,
    /// `access.clients` does not have the operator's own address.
    RefusedOperator,
    /// The API server did not give the names that are asked.
    ApiServer,
    /// The operator has too many other trials.
    Busy,
    /// No other pod runs the configuration before.
    NoOtherPod,
    /// The pod that tries the configuration cannot read it from the API server.
    CutOff,
    /// Another client deletes or edits what clients depend on again and again, and each time the questions end early.
    Interrupted,
}

impl HeldBy {
    pub(crate) const ALL: [HeldBy; 7] = [
        HeldBy::Network,
        HeldBy::RefusedOperator,
        HeldBy::ApiServer,
        HeldBy::Busy,
        HeldBy::NoOtherPod,
        HeldBy::CutOff,
        HeldBy::Interrupted,
    ];

    /// How pods get the configuration although it is not tried; none where they cannot read it.
    pub fn without_a_trial(self) -> Option<&'static str> {
        (self != HeldBy::CutOff).then_some(without_a_trial!())
    }

    /// What the Event says that a person can do.
    pub fn advice(self) -> &'static str {
        match self.without_a_trial() {
            Some(_) => concat!("Degraded says what to do. ", without_a_trial!()),
            None => "Degraded says what to do",
        }
    }

    /// The reason of the condition and of the Event: one CamelCase word.
    pub fn reason(self) -> &'static str {
        match self {
            HeldBy::Network => "CanaryUnreachable",
            HeldBy::RefusedOperator => "OperatorRefused",
            HeldBy::ApiServer => "NamesUnread",
            HeldBy::Busy => "OperatorBusy",
            HeldBy::NoOtherPod => "NoPodToCompare",
            HeldBy::CutOff => "CanaryCutOff",
            HeldBy::Interrupted => "TrialInterrupted",
        }
    }

    /// The cause with this reason. An unknown text, written by another version, counts as a problem of the network.
    pub fn of_reason(reason: &str) -> HeldBy {
        HeldBy::ALL.into_iter().find(|by| by.reason() == reason).unwrap_or_default()
    }

    /// With these words.
    pub fn because(self, why: impl Into<String>) -> Held {
        Held { by: self, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o17_each_trouble_of_the_operator_is_found_again_by_its_reason() {
        for by in HeldBy::ALL {
            assert_eq!(HeldBy::of_reason(by.reason()), by);
        }
        assert_eq!(HeldBy::of_reason("FromTheFuture"), HeldBy::Network);
    }
}
