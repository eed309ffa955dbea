//! Which namespaces and Services are visible (N40-N42).

use std::collections::BTreeMap;

use kube::core::{Message, Rule};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bounds;
use crate::defaults::is_default;

/// Which namespaces and Services are visible. The default shows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exposure {
    /// Only these namespaces; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only namespaces with such labels.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace_selector: LabelSelector,
    /// Only Services with such labels.
    #[serde(skip_serializing_if = "is_default")]
    pub service_selector: LabelSelector,
}

/// The label selector of Kubernetes: every part must match; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels that must have exactly this value, at most 32. Example: {team: shop}.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = bounds::SELECTOR_ENTRIES), transform = bounded_values)]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on one label each, at most 32; all must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = bounds::SELECTOR_ENTRIES))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [operator_has_its_values()]))]
pub struct LabelRequirement {
    /// The label. Example: dns.example.com/hidden.
    #[schemars(length(min = 1, max = bounds::LABEL_KEY))]
    pub key: String,
    /// What is asked of it: In, NotIn, Exists or DoesNotExist.
    pub operator: SelectorOperator,
    /// The values that In and NotIn compare with, 1-64; none for the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = bounds::SELECTOR_VALUES), inner(length(max = bounds::LABEL)))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The label is there and its value is in the list.
    In,
    /// The label is absent, or its value is not in the list.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Does it match everything, so that labels need not be read at all?
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Does it match an object with these labels?
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|value| self.values.contains(value)),
            SelectorOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// Bounds the values of `matchLabels`, for which schemars has no attribute.
fn bounded_values(schema: &mut Schema) {
    schema.insert(
        "additionalProperties".to_owned(),
        json!({"type": "string", "maxLength": bounds::LABEL}),
    );
}

fn operator_has_its_values() -> Rule {
    Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)")
        .message(Message::Message(
            "In and NotIn need values; Exists and DoesNotExist have none".to_owned(),
        ))
        .field_path(".values")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = serde_json::from_str(selector).expect(selector);
        selector.matches(
            &labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn n40_selectors_mean_what_kubernetes_means() {
        let not_in = r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#;
        let hidden = r#"{"matchExpressions":[{"key":"hidden","operator":"DoesNotExist"}]}"#;
        assert!(selects("{}", &[]));
        assert!(selects(r#"{"matchLabels":{"a":"1"}}"#, &[("a", "1"), ("b", "2")]));
        assert!(!selects(r#"{"matchLabels":{"a":"1"}}"#, &[("a", "2")]));
        assert!(selects(
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#,
            &[("a", "2")]
        ));
        assert!(!selects(
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1"]}]}"#,
            &[]
        ));
        assert!(selects(not_in, &[]), "an absent label is not in any list");
        assert!(!selects(not_in, &[("a", "1")]));
        assert!(selects(hidden, &[]) && !selects(hidden, &[("hidden", "")]));
        assert!(!selects(
            r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#,
            &[("b", "1")]
        ));
    }
}
