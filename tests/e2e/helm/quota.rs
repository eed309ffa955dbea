//! A cluster such as those of GKE: pods with a priority class of the system are let into a namespace only where a quota
//! names their class.

use tests::objects::wait_for;
use tests::scratch::Scratch;

use super::{NAMESPACE, Site};

const ADMISSION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
";

#[tokio::test]
async fn the_operator_has_pods_where_its_priority_class_needs_a_quota() {
    let folder = Scratch::new("admission").expect("a folder");
    let file = folder.write("admission.yaml", ADMISSION).expect("the folder is ours");
    let flag = format!("--admission-control-config-file={}", file.display());
    let Some(site) = Site::start_with(&[flag]).await else { return };
    let get = |what: &[&str]| {
        let arguments = ["get", "--namespace", NAMESPACE];
        site.kubectl(&[&arguments[..], what].concat())
    };

    site.helm("install", &["--set", "priorityClassQuota=false"]);
    wait_for("pods that are refused", async || {
        let status = get(&["deployment", "clusterdns-operator", "--output=jsonpath={.status}"]);
        status.contains("insufficient quota to match these scopes").then_some(())
    })
    .await;
    assert_eq!(get(&["pods", "--output=name"]), "");

    site.helm("upgrade", &["--set", "priorityClassQuota=true"]);
    let counted = ["resourcequota", "clusterdns-operator", "--output=jsonpath={.status.hard.pods}"];
    wait_for("the quota", async || (!get(&counted).is_empty()).then_some(())).await;
    // What was refused often is tried again after minutes; another number of pods at once.
    let scale =
        ["scale", "deployment/clusterdns-operator", "--replicas=3", "--namespace", NAMESPACE];
    site.kubectl(&scale);
    wait_for("three pods of the operator", async || {
        (get(&["pods", "--output=name"]).lines().count() == 3).then_some(())
    })
    .await;
}
