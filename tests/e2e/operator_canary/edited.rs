//! O4: another client writes into the configuration while a pod tries a change: that does not bypass the trial.

use super::*;

/// A document that pods take at once.
const FOREIGN: &str = r#"{"format":1,"ttlSeconds":99}"#;

async fn edit(client: &Client) {
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"data": {"stable.json": FOREIGN}}));
    let name = format!("clusterdns-{NAME}");
    maps.patch(&name, &PatchParams::default(), &patch).await.expect("it may be edited");
}

#[test]
fn o4_an_edit_of_the_configuration_during_a_trial_is_undone_or_judged() {
    inside(async || {
        let Some(mut stage) = Stage::start().await else { return };
        let before = stage.scene.document(NAME, "stable.json").await.expect("a document");
        let first = stable(&stage.scene).await;

        // The edit is undone at once, and the trial continues.
        stage.apply("192.0.2.2", &stage.good, 300).await;
        let (canary, revision) = stage.until_tried_by(&[]).await;
        stage.until_run_by(&canary, &revision).await;
        edit(&stage.scene.client).await;
        let said =
            stage.scene.until_condition(NAME, "Degraded", "True", "ConfigurationEdited").await;
        assert!(said.contains("The operator wrote the right one back"), "{said}");
        let written = stage.scene.document(NAME, "stable.json").await;
        assert_eq!(written, Some(before));
        assert_eq!(stable(&stage.scene).await, first);
        stage.all_run_stable_but(&canary).await;
        let state = stage.state().await;
        assert_eq!(
            (&state["canary"], &state["canaryPod"]["name"]),
            (&json!(revision), &json!(canary))
        );
        stage.scene.until("an Event", async || stage.events("ForeignEditUndone").await.pop()).await;
        assert_eq!(stage.events("ConfigurationUntried").await, [""; 0]);
        assert_eq!(stage.ever_ran(&revision).await, [canary].into());
        stage.apply("192.0.2.3", &stage.good, 5).await;
        stage.until_promoted(&first).await;

        // An operator that starts later does not know what was there: the change is tried beside what pods run.
        stage.apply("192.0.2.4", &stage.good, 300).await;
        stage.until_tried_by(&[]).await;
        stage.scene.stop_operator().await;
        edit(&stage.scene.client).await;
        let ttl = async |pod: &Pod| Some(config_of(pod).ok()?["document"]["ttlSeconds"] == 99);
        stage
            .scene
            .until("pods that run it", async || {
                let mut count = 0;
                for pod in stage.pods().await {
                    count += usize::from(ttl(&pod).await?);
                }
                (count >= 2).then_some(())
            })
            .await;
        stage.scene.start_operator();
        // Degraded still speaks of the first edit before that.
        stage
            .scene
            .until("what is tried beside the edit", async || {
                let (_, _, said) = stage.scene.condition(NAME, "Degraded").await?;
                said.contains("passes its trial beside it").then_some(())
            })
            .await;
        stage.apply("192.0.2.5", &stage.good, 5).await;
        stage.until_promoted(&crds::config::revision_of(FOREIGN)).await;
        let written = stage.scene.document(NAME, "stable.json").await.expect("a document");
        assert_eq!(written["hosts"][0]["addresses"], json!(["192.0.2.5"]));
        assert_eq!(stage.events("ConfigurationUntried").await, [""; 0]);
    });
}

impl Stage {
    /// Waits until every pod but this one says that it runs what is stable.
    async fn all_run_stable_but(&self, canary: &str) {
        self.scene
            .until("the others run what is stable", async || {
                let stable = stable(&self.scene).await;
                let pods = self.pods().await;
                let mut others = pods.iter().filter(|pod| pod.name_any() != canary);
                let is_run = |pod: &Pod| {
                    config_of(pod).is_ok_and(|said| said["revision"] == stable.as_str())
                };
                others.all(is_run).then_some(())
            })
            .await;
    }
}
