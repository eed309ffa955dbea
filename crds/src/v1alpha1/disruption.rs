//! How many pods a drain may take at once.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Message, Rule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::defaults::flag;

/// A share of the pods.
const SHARE_PATTERN: &str = "^(100|[1-9]?[0-9])%$";

/// The PodDisruptionBudget of the pods: at most one of maxUnavailable and minAvailable.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [one_of_both()]))]
pub struct PodDisruptionBudget {
    /// Creates one, unless another one selects the pods. Default true.
    #[serde(default = "flag::<true>")]
    pub enabled: bool,

    /// Pods that may be away at once: a number, 0-1000, or a share such as 25%. It has no effect with scaling.perNode.
    /// Default 1, unless minAvailable is given.
    // Without the default, `schema_with` makes the field required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_share")]
    pub max_unavailable: Option<IntOrString>,

    /// Pods that must stay: a number, 0-1000, or a share such as 50%. A share has no effect with scaling.perNode. Default:
    /// none is named.
    // Without the default, `schema_with` makes the field required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_share")]
    pub min_available: Option<IntOrString>,
}

impl Default for PodDisruptionBudget {
    fn default() -> Self {
        Self { enabled: true, max_unavailable: None, min_available: None }
    }
}

/// Is it a number of pods, or a share of them?
pub(crate) fn is_number_or_share(written: &IntOrString) -> bool {
    match written {
        IntOrString::Int(number) => {
            u32::try_from(*number).is_ok_and(|number| number <= bounds::REPLICAS)
        }
        IntOrString::String(text) => {
            let digits = text.strip_suffix('%').filter(|digits| {
                digits.bytes().all(|octet| octet.is_ascii_digit())
                    && (*digits == "0" || !digits.starts_with('0'))
            });
            digits.and_then(|digits| digits.parse().ok()).is_some_and(|share: u32| share <= 100)
        }
    }
}

fn number_or_share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": SHARE_PATTERN,
        "minimum": 0,
        "maximum": bounds::REPLICAS,
        "maxLength": 4,
    })
}

fn one_of_both() -> Rule {
    Rule::new("!(has(self.maxUnavailable) && has(self.minAvailable))").message(Message::Message(
        "maxUnavailable and minAvailable exclude each other: leave one of them out".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_number_or_a_share() {
        for number in [0, 1, 1_000] {
            assert!(is_number_or_share(&IntOrString::Int(number)), "{number}");
        }
        for number in [-1, 1_001] {
            assert!(!is_number_or_share(&IntOrString::Int(number)), "{number}");
        }
        for text in ["0%", "5%", "50%", "100%"] {
            assert!(is_number_or_share(&IntOrString::String(text.to_owned())), "{text}");
        }
        for text in ["", "%", "1", "101%", "05%", "-1%", "5 %", "a%"] {
            assert!(!is_number_or_share(&IntOrString::String(text.to_owned())), "{text}");
        }
    }
}
