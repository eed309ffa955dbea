//! O7: a trial that loses its pod or its operator is finished by the next one.

use super::*;

#[test]
fn o7_a_trial_outlives_its_pod_and_its_operator() {
    inside(async || {
        let Some(mut stage) = Stage::start().await else { return };
        let first = stable(&stage.scene).await;

        // The canary is killed: another one is named, and its time starts again.
        stage.apply("192.0.2.2", &stage.good, 20).await;
        let (canary, revision) = stage.until_tried_by(&[]).await;
        stage.until_run_by(&canary, &revision).await;
        let pods = stage.pods().await;
        let pod = pods.iter().find(|pod| pod.name_any() == canary).expect("the canary");
        let named = stage.state().await["canaryPod"]["process"].clone();
        assert_eq!(config_of(pod).expect("an answer")["instanceId"], named, "which process it is");
        stage.scene.kubelet.kill(NAMESPACE, &canary);
        let (second, same) = stage.until_tried_by(&[&canary]).await;
        assert_eq!(same, revision);
        assert_eq!(stage.state().await["losses"], 1);

        // The operator is killed: the next one continues with the same pod.
        stage
            .scene
            .until("an Event for each", async || {
                (stage.events("CanaryStarted").await.len() == 2).then_some(())
            })
            .await;
        stage.scene.operator.process().kill();
        free_the_lease(&stage.scene.client).await;
        stage.scene.start_operator();
        assert_eq!(stage.until_promoted(&first).await, revision);
        let tried = stage.watch.tried(&revision);
        assert!(tried.is_subset(&[canary, second].into()), "{tried:?}");
        let started = stage.events("CanaryStarted").await;
        assert_eq!(started.len(), 2, "named twice, not once more by the next leader: {started:#?}");

        // A newer edit takes the place of the one on trial, and an edit back to stable ends the trial.
        stage.apply("192.0.2.3", &stage.good, 300).await;
        let (_, older) = stage.until_tried_by(&[]).await;
        stage.apply("192.0.2.4", &stage.good, 300).await;
        stage
            .scene
            .until("the newer one", async || {
                stage.state().await["canary"].as_str().filter(|it| *it != older).map(drop)
            })
            .await;
        stage.apply("192.0.2.2", &stage.good, 300).await;
        stage
            .scene
            .until("the end of the trial", async || {
                stage.scene.document(NAME, "canary.json").await.is_none().then_some(())
            })
            .await;
        stage.all_run_stable().await;
        assert_eq!(stable(&stage.scene).await, revision);

        // Three pods are lost with one configuration, so that one is the cause, whether or not a kubelet has noticed.
        stage.apply("192.0.2.5", &stage.good, 300).await;
        let mut lost = Vec::new();
        for is_noticed in [true, false, true] {
            let before: Vec<&String> = lost.iter().collect();
            let (canary, fatal) = stage.until_tried_by(&before).await;
            stage.until_run_by(&canary, &fatal).await;
            match is_noticed {
                true => stage.scene.kubelet.kill(NAMESPACE, &canary),
                false => stage.scene.kubelet.restart_unnoticed(NAMESPACE, &canary),
            }
            lost = vec![canary];
        }
        let why = stage.scene.until_condition(NAME, "Degraded", "True", "CanaryFailed").await;
        assert!(why.contains("3 pods in a row failed"), "{why}");
        stage.all_run_stable().await;
        assert_eq!(stable(&stage.scene).await, revision);
        assert!(stage.watch.most_at_once() <= 1, "{:?}", stage.watch.tried);
    });
}

/// The lease of a killed operator lasts 15 s more; it is freed, because it is not what is tested.
async fn free_the_lease(client: &Client) {
    let leases =
        Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), NAMESPACE);
    let _ = leases.delete("clusterdns-operator", &Default::default()).await;
}
