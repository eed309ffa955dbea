//! O4: another client deletes the configuration ConfigMap. What pods run is written again, and what failed reaches no pod
//! untried.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;

use super::*;

async fn delete(client: &Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let name = format!("clusterdns-{NAME}");
    maps.delete(&name, &DeleteParams::default()).await.expect("it may be deleted");
}

#[test]
fn o4_a_deleted_configuration_comes_back_and_what_failed_reaches_no_pod_untried() {
    inside(async || {
        let Some(mut stage) = Stage::start().await else { return };
        let first = stable(&stage.scene).await;
        stage.apply("192.0.2.2", &stage.bad, 60).await;
        stage.scene.until_condition(NAME, "Degraded", "True", "CanaryFailed").await;
        let bad = stage.state().await["failed"].as_str().expect("what failed").to_owned();
        stage.all_run_stable().await;
        let canary = stage.ever_ran(&bad).await;

        // This operator knows what it wrote.
        delete(&stage.scene.client).await;
        stage
            .scene
            .until("what was there", async || {
                (stage.state().await["failed"] == bad.as_str()).then_some(())
            })
            .await;
        assert_eq!(stable(&stage.scene).await, first);
        stage.all_run_stable().await;
        assert_eq!(stage.ever_ran(&bad).await, canary, "nor is it tried before its time");

        // One that starts later does not: pods say what they run, and one pod tries the configuration again.
        stage.scene.stop_operator().await;
        delete(&stage.scene.client).await;
        stage
            .scene
            .until("pods that report the loss", async || {
                let says_so =
                    |pod: &Pod| config_of(pod).is_ok_and(|it| it["rejection"].is_object());
                stage.pods().await.iter().all(says_so).then_some(())
            })
            .await;
        stage.scene.start_operator();
        stage
            .scene
            .until("the failure once more", async || {
                (stage.state().await["failed"] == bad.as_str()).then_some(())
            })
            .await;
        stage.all_run_stable().await;
        assert_eq!(stable(&stage.scene).await, first);
        assert!(stage.watch.most_at_once() <= 1, "{:?}", stage.watch.tried);
        for reason in ["ConfigurationChanged", "ConfigurationUntried"] {
            assert_eq!(stage.events(reason).await, [""; 0], "{reason}");
        }
    });
}
