//! Whether pods may be taken out of their Service: only where the operator was started so, and where a
//! ValidatingAdmissionPolicy of the chart narrows that write to the condition `Ready` of our own pods. Without it the right
//! to patch `pods/status` would be one over every pod of the namespace.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::observe::observed::LostPods;
use crate::runtime::time_limit::within;

/// Name of the policy and of its binding, in the chart.
const NAME: &str = "clusterdns-operator-pods";
/// Between two looks at the policy.
const EVERY: Duration = Duration::from_secs(30);
/// The same, while the API server does not answer.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct PolicyStanding(Mutex<LostPods>);

impl PolicyStanding {
    pub fn get(&self) -> LostPods {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn may_act(&self) -> bool {
        self.get() == LostPods::TakenOut
    }

    fn set(&self, is_narrowed: bool) {
        let now = if is_narrowed { LostPods::TakenOut } else { LostPods::NoPolicy };
        let before =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), now);
        if before == now {
            return;
        }
        if is_narrowed {
            tracing::info!("lost pods are taken out of their Service from now on");
        } else {
            tracing::warn!(
                "lost pods stay in their Service: the ValidatingAdmissionPolicy {NAME} or its binding is missing or does not refuse"
            );
        }
    }
}

/// Looks for the policy forever. While the API server does not answer, what was seen before counts.
pub(super) async fn follow(client: &Client, standing: &PolicyStanding) {
    loop {
        let wait = match read(client).await {
            Ok(is_narrowed) => {
                standing.set(is_narrowed);
                EVERY
            }
            Err(error) => {
                tracing::debug!("cannot read the ValidatingAdmissionPolicy {NAME}: {error:#}");
                RETRY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

async fn read(client: &Client) -> anyhow::Result<bool> {
    let policy = get(client, "ValidatingAdmissionPolicy").await?;
    let binding = get(client, "ValidatingAdmissionPolicyBinding").await?;
    Ok(match (policy, binding) {
        (Some(policy), Some(binding)) => narrows(&policy, &binding),
        (None, _) | (_, None) => false,
    })
}

async fn get(client: &Client, kind: &str) -> anyhow::Result<Option<Value>> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    // A kind that the API server does not have is not found either.
    match within(all.get_opt(NAME)).await {
        Ok(found) => Ok(found.map(|object| object.data)),
        // An operator that may not read the policy has no right to write either.
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => Err(error.context(kind.kind)),
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 403)
}

/// Does this policy deny requests for pods in our namespaces? The chart defines what it allows; here it only matters
/// that it was not switched off.
fn narrows(policy: &Value, binding: &Value) -> bool {
    let lists = |value: &Value, wanted: &str| {
        value.as_array().is_some_and(|all| all.iter().any(|it| it == wanted))
    };
    let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array();
    let is_of_pods = rules.is_some_and(|rules| {
        rules.iter().any(|rule| {
            lists(&rule["resources"], "pods/status") && lists(&rule["operations"], "UPDATE")
        })
    });
    let refuses = policy["spec"]["validations"].as_array().is_some_and(|all| !all.is_empty());
    is_of_pods
        && refuses
        && policy["spec"]["failurePolicy"] != "Ignore"
        && binding["spec"]["policyName"] == NAME
        && binding["spec"]["matchResources"].is_null()
        && lists(&binding["spec"]["validationActions"], "Deny")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Lines;
    use serde_json::json;

    #[test]
    fn o20_a_policy_that_does_not_refuse_narrows_nothing() {
        let policy = json!({"spec": {"failurePolicy": "Fail", "validations": [{"expression": "false"}],
            "matchConstraints": {"resourceRules": [{"resources": ["pods/status"], "operations": ["UPDATE"]}]}}});
        let binding = json!({"spec": {"policyName": NAME, "validationActions": ["Deny"]}});
        assert!(narrows(&policy, &binding));
        type Edit = fn(&mut Value, &mut Value);
        let weaker: [(&str, Edit); 6] = [
            ("failures are ignored", |it, _| it["spec"]["failurePolicy"] = json!("Ignore")),
            ("no rules", |it, _| it["spec"]["validations"] = json!([])),
            ("of something else", |it, _| {
                it["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["pods"])
            }),
            ("it only warns", |_, it| it["spec"]["validationActions"] = json!(["Warn", "Audit"])),
            ("bound to another", |_, it| it["spec"]["policyName"] = json!("other")),
            ("not everywhere", |_, it| it["spec"]["matchResources"] = json!({})),
        ];
        for (what, edit) in weaker {
            let (mut policy, mut binding) = (policy.clone(), binding.clone());
            edit(&mut policy, &mut binding);
            assert!(!narrows(&policy, &binding), "{what}");
        }
    }

    #[test]
    fn o20_the_log_says_what_happens_to_lost_pods_and_why() {
        let (lines, _guard) = Lines::of_this_thread();
        let standing = PolicyStanding::default();
        standing.set(true);
        let text = lines.text();
        assert!(text.contains("lost pods are taken out of their Service from now on"), "{text}");
        standing.set(false);
        standing.set(false);
        let text = lines.text().split_off(text.len());
        assert!(text.contains("WARN") && text.contains("does not refuse"), "{text}");
        assert_eq!(text.lines().count(), 1, "said once: {text}");
    }
}
