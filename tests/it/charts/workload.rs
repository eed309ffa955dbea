//! The pods of the chart: admitted by Pod Security `restricted` (S8), and rolled, drained and spread without a gap (D7).

use serde_json::{Value, json};

use super::{golden, object, objects};

/// The operator, with any name.
fn deployment(objects: &[Value]) -> &Value {
    objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment")
}

/// The pods that a rendered chart makes.
fn pods(objects: &[Value]) -> Vec<&Value> {
    let templates = objects.iter().filter(|object| object["kind"] == "Deployment");
    let specs = templates.map(|deployment| &deployment["spec"]["template"]["spec"]);
    let bare = objects.iter().filter(|object| object["kind"] == "Pod").map(|pod| &pod["spec"]);
    specs.chain(bare).collect()
}

#[test]
fn s8_every_pod_of_the_chart_is_restricted() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let pods = pods(&objects);
        assert_eq!(pods.len(), 2, "{case}");
        for pod in pods {
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{case}");
            assert_eq!(security["runAsUser"], 65532, "{case}");
            assert_eq!(security["seccompProfile"], json!({"type": "RuntimeDefault"}), "{case}");
            for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
                assert!(pod.get(field).is_none(), "{case}: {field}");
            }
            for container in pod["containers"].as_array().expect("containers") {
                let wanted = json!({
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                });
                assert_eq!(container["securityContext"], wanted, "{case}");
                assert!(container["resources"]["limits"]["memory"].is_string(), "{case}");
            }
        }
    }
}

#[test]
fn d7_the_operator_rolls_drains_and_spreads_without_a_gap() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let operator = &deployment(&objects)["spec"];
        assert!(operator["replicas"].as_u64() >= Some(2), "{case}");
        assert_eq!(
            operator["strategy"]["rollingUpdate"],
            json!({"maxUnavailable": 0, "maxSurge": 1}),
            "{case}"
        );
        let pod = &operator["template"]["spec"];
        // With ClusterFirst the operator would need the DNS that it makes.
        assert_eq!(pod["dnsPolicy"], "Default", "{case}");
        assert_eq!(pod["enableServiceLinks"], false, "{case}");
        for spread in pod["topologySpreadConstraints"].as_array().expect("it spreads") {
            assert_eq!(spread["whenUnsatisfiable"], "ScheduleAnyway", "{case}");
            assert_eq!(spread["labelSelector"], operator["selector"], "{case}");
        }
        let container = &pod["containers"][0];
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez", "{case}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz", "{case}");
        if case != "everything" {
            assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{case}");
            let budget = &object(&objects, "PodDisruptionBudget", "clusterdns-operator")["spec"];
            match case == "service-monitor" {
                true => assert_eq!(budget["minAvailable"], 1, "{case}"),
                false => assert_eq!(budget["maxUnavailable"], 1, "{case}"),
            }
            assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{case}");
            assert_eq!(budget["selector"], operator["selector"], "{case}");
        }
    }
}

#[test]
fn the_data_plane_runs_the_image_of_the_operator() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let operator = deployment(&objects);
        let container = &operator["spec"]["template"]["spec"]["containers"][0];
        let flag =
            json!(format!("--dataplane-image={}", container["image"].as_str().expect("an image")));
        assert!(container["args"].as_array().expect("args").contains(&flag), "{case}");
    }
}
