//! Whether pods may be taken out of their Service: only where the operator was started so, and where a
//! ValidatingAdmissionPolicy of the chart narrows that write to the condition `Ready` of our own pods. Without it the right
//! to patch `pods/status` would be one over every pod of the namespace.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::observe::observed::LostPods;
use crate::runtime::refusals::{Refusals, is_refusal};
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

    /// What a look at the policy found, and how long it is until the next one. While the API server does not answer, what was seen
    /// before counts.
    fn note(&self, seen: anyhow::Result<bool>, refusals: &mut Refusals, now: Instant) -> Duration {
        let error = match seen {
            Ok(is_narrowed) => {
                refusals.end();
                self.set(is_narrowed);
                return EVERY;
            }
            Err(error) => error,
        };
        if !is_refusal(&error) {
            refusals.end();
        } else if refusals.add(now) || !self.may_act() {
            // An operator that may not read the policy has no right to write either.
            self.set(false);
            return EVERY;
        }
        tracing::debug!("cannot read the ValidatingAdmissionPolicy {NAME}: {error:#}");
        RETRY
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

/// Looks for the policy forever.
pub(super) async fn follow(client: &Client, standing: &PolicyStanding) {
    let mut refusals = Refusals::default();
    loop {
        let seen = read(client).await;
        tokio::time::sleep(standing.note(seen, &mut refusals, Instant::now())).await;
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
    let found = within(all.get_opt(NAME)).await.map_err(|error| error.context(kind.kind))?;
    Ok(found.map(|object| object.data))
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
    use crate::fixtures::api::{self, Reply};
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

    #[tokio::test]
    async fn o20_one_refusal_of_the_policy_ends_nothing_and_three_over_a_minute_do() {
        let client = api::client(|_| Reply::status(403, "RBAC: not read yet"));
        let (standing, begin) = (PolicyStanding::default(), Instant::now());
        let mut refusals = Refusals::default();
        let mut note = |seen: anyhow::Result<bool>, at| {
            let wait = standing.note(seen, &mut refusals, begin + Duration::from_secs(at));
            (standing.get(), wait)
        };
        let (taken, left) = (LostPods::TakenOut, LostPods::NoPolicy);
        let refused = async || read(&client).await;
        assert_eq!(note(refused().await, 0), (left, EVERY), "never read");
        assert_eq!(note(Ok(true), 10), (taken, EVERY));
        for at in [100, 105, 110, 159] {
            let noted = note(refused().await, at);
            assert_eq!(noted, (taken, RETRY), "{at}");
        }
        let fails = Err(anyhow::anyhow!("no answer"));
        assert_eq!(note(fails, 160), (taken, RETRY), "it ends the row");
        for at in [165, 200, 224] {
            let noted = note(refused().await, at);
            assert_eq!(noted, (taken, RETRY), "{at}");
        }
        assert_eq!(note(refused().await, 225), (left, EVERY));
        assert_eq!(note(Ok(true), 255), (taken, EVERY));
        assert_eq!(note(Ok(false), 285), (left, EVERY), "it is missing");
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
