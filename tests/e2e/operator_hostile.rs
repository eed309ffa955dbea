//! What anyone who may edit an object can write into it, and what of that keeps the operator from its work (K23). The API server
//! is the real one: it decides what it takes.

use hyper::{Method, Request};
use kube::Client;
use operator::runtime::decode::lenient;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::objects::{create_any, wait_for};
use tests::operator::{Operator, apply, prepare, wait_until_accepted};

const NAMESPACE: &str = "dns";
const MAPS: &str = "/api/v1/namespaces/dns/configmaps";
const RESOURCES: &str = "/apis/clusterdns.dev/v1alpha1/clusterdnses";

/// Written by the tenant: the last hour of the year 9999, west of Greenwich.
const WRITTEN: &str = "9999-12-31T23:59:59-01:00";
/// What the API server shows of it, which is no time of RFC 3339.
const SHOWN: &str = "10000-01-01T00:59:59Z";

fn map(name: &str, fields: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": name, "namespace": NAMESPACE, "managedFields": [
            {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": WRITTEN,
                "fieldsV1": fields}]}})
}

/// Fields in fields in fields.
fn deep(levels: usize) -> Value {
    (0..levels).fold(json!({}), |below, _| json!({"f:data": below}))
}

/// Writes an object as a tenant would; the reply as text.
async fn send(client: &Client, method: Method, path: &str, object: &Value) -> String {
    try_to_send(client, method, path, object).await.expect("the API server takes it")
}

async fn try_to_send(
    client: &Client,
    method: Method,
    path: &str,
    object: &Value,
) -> kube::Result<String> {
    let form =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", form);
    let request = request.body(object.to_string().into_bytes()).expect("a request");
    client.request_text(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn k23_times_and_fields_that_no_client_reads_do_not_stop_the_operator() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    for name in ["late", "deep"] {
        let plain = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": name, "namespace": NAMESPACE}});
        create_any(&client, &plain).await.expect("it is created");
    }
    let shown = send(&client, Method::PUT, &format!("{MAPS}/late"), &map("late", &deep(1))).await;
    assert!(shown.contains(SHOWN), "{shown}");
    let shown = send(&client, Method::PUT, &format!("{MAPS}/deep"), &map("deep", &deep(150))).await;
    assert!(shown.matches("f:data").count() >= 150, "{shown}");

    apply(&client, "default", json!({"service": {"name": "own", "namespace": NAMESPACE}})).await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    wait_until_accepted(&client, "default").await;

    // The same while it watches: what comes after it is noticed.
    send(&client, Method::POST, MAPS, &map("new", &deep(150))).await;
    let own = format!("{MAPS}/clusterdns-default");
    let uid = async || {
        let request = Request::get(&own).body(Vec::new()).expect("a request");
        let map = client.request::<Value>(request).await.ok()?;
        Some(map["metadata"]["uid"].clone())
    };
    let before = wait_for("its ConfigMap", uid).await;
    let request = Request::delete(&own).body(Vec::new()).expect("a request");
    client.request_text(request).await.expect("it is deleted");
    wait_for("its ConfigMap is there again", async || uid().await.filter(|it| *it != before)).await;
    drop(operator);
}

/// What the API server cannot patch itself: it shows the time, and cannot read what it shows.
#[tokio::test(flavor = "multi_thread")]
async fn k23_a_time_that_the_api_server_cannot_read_keeps_no_object_of_ours_as_it_is() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    let tenant = plane.client().await;
    let client = lenient(tenant.clone());
    prepare(&client, NAMESPACE).await;
    let spec = |traffic: &str| json!({"service": {"name": "own", "namespace": NAMESPACE, "trafficDistribution": traffic}});
    apply(&client, "default", spec("PreferSameNode")).await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    wait_until_accepted(&client, "default").await;

    let service = "/api/v1/namespaces/dns/services/own";
    for path in [service, &format!("{MAPS}/clusterdns-default")] {
        let shown = wait_for("a tenant writes into it", async || {
            let mut object = read(&client, path).await?;
            object["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}, "time": WRITTEN}]);
            // The operator may have written meanwhile.
            try_to_send(&tenant, Method::PUT, path, &object).await.ok()
        })
        .await;
        assert!(shown.contains(SHOWN), "{shown}");
        let patch = json!({"metadata": {"labels": {"b": "c"}}});
        let refused = try_to_send(&tenant, Method::PATCH, path, &patch).await;
        refused.expect_err("no other client can patch it");
    }
    apply(&client, "default", spec("PreferSameZone")).await;
    wait_for("the Service is as the ClusterDNS says", async || {
        let service = read(&client, service).await?;
        (service["spec"]["trafficDistribution"] == "PreferSameZone").then_some(())
    })
    .await;
    drop(operator);
}

/// An object as it is, read by a client that takes what this is about.
async fn read(client: &Client, path: &str) -> Option<Value> {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await.ok()
}

/// Puts fields in fields into the managed fields of an object that exists.
async fn spoil(client: &Client, path: &str) {
    let shown = wait_for("its managed fields", async || {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        let mut object: Value = client.request(request).await.ok()?;
        let fields = (0..150).fold(json!({}), |below, _| json!({"f:annotations": below}));
        object["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update",
            "apiVersion": object["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields}}]);
        // The operator may have written meanwhile.
        try_to_send(client, Method::PUT, path, &object).await.ok()
    })
    .await;
    assert!(shown.matches("f:annotations").count() >= 150, "{shown}");
}

/// Puts a time into the status of a ClusterDNS that its schema takes and no type holds.
async fn make_unreadable(client: &Client, name: &str) {
    let path = format!("{RESOURCES}/{name}");
    let object = read(client, &path).await.expect("it exists");
    let mut conditions = object["status"]["conditions"].clone();
    conditions[0]["lastTransitionTime"] = json!(WRITTEN);
    let status = json!({"status": {"conditions": conditions}});
    let shown = send(client, Method::PATCH, &format!("{path}/status"), &status).await;
    assert!(shown.contains(WRITTEN), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn k23_a_writer_of_one_clusterdns_keeps_the_operator_from_no_other() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    // What writes sees what the API server shows, what reads takes it.
    let tenant = plane.client().await;
    let client = lenient(tenant.clone());
    prepare(&client, NAMESPACE).await;
    let spec = |name: &str| json!({"service": {"name": name, "namespace": NAMESPACE}});
    for name in ["good", "spoiled", "unreadable"] {
        apply(&client, name, spec(name)).await;
    }
    spoil(&tenant, &format!("{RESOURCES}/spoiled")).await;
    make_unreadable(&client, "unreadable").await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    for name in ["good", "spoiled"] {
        wait_until_accepted(&client, name).await;
    }
    let counted = "clusterdns_operator_objects_not_kept_total{resource=\"clusterdnses\"}";
    let listed = operator.metric(counted);
    assert!(listed > 0.0, "it is counted: {}", operator.log());
    // The operator takes that condition out.
    wait_until_accepted(&client, "unreadable").await;

    // The same while it watches.
    spoil(&tenant, &format!("{RESOURCES}/good")).await;
    make_unreadable(&client, "spoiled").await;
    wait_for("it is counted", async || (operator.metric(counted) > listed).then_some(())).await;
    wait_for("it can be read again", async || {
        let shown = read(&client, &format!("{RESOURCES}/spoiled")).await?;
        let conditions = shown["status"]["conditions"].to_string();
        (conditions.contains("\"Accepted\"") && !conditions.contains(WRITTEN)).then_some(())
    })
    .await;
    apply(&client, "later", spec("later")).await;
    wait_until_accepted(&client, "later").await;
    drop(operator);
}

/// Makes the API server take a value of a field that this version does not know, as the definition of a newer one does.
async fn make_newer(client: &Client) {
    const DEFINITION: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterdnses.clusterdns.dev";
    let mut definition = read(client, DEFINITION).await.expect("it exists");
    let values = definition.pointer_mut(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/podRecords/enum",
    );
    values.and_then(Value::as_array_mut).expect("a list of values").push(json!("Future"));
    send(client, Method::PUT, DEFINITION, &definition).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k23_a_clusterdns_of_a_newer_version_is_named_and_not_taken_for_well() {
    let Some(plane) = ControlPlane::start(Setup { controllers: false, ..Setup::default() }).await
    else {
        return;
    };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    apply(&client, "a", json!({"service": {"name": "own", "namespace": NAMESPACE}})).await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    wait_until_accepted(&client, "a").await;
    let path = format!("{RESOURCES}/a");
    let before = wait_for("its address", async || {
        read(&client, &path).await.filter(|it| it["status"]["clusterIPs"].is_array())
    })
    .await;

    make_newer(&client).await;
    let pod_records = |value: &str| json!({"spec": {"podRecords": value}});
    wait_for("the API server takes the new value", async || {
        try_to_send(&client, Method::PATCH, &path, &pod_records("Future")).await.ok()
    })
    .await;
    let shown = wait_for("its status says so", async || {
        let shown = read(&client, &path).await?;
        let conditions = shown["status"]["conditions"].as_array()?;
        let is = |kind: &str, value: &str| {
            conditions.iter().any(|it| {
                it["type"] == kind && it["status"] == value && it["reason"] == "Unreadable"
            })
        };
        (is("Accepted", "False") && is("Ready", "Unknown") && is("Degraded", "True"))
            .then_some(shown)
    })
    .await;
    assert!(shown["status"].to_string().contains("unknown variant `Future`"), "{shown}");
    assert_eq!(shown["status"]["clusterIPs"], before["status"]["clusterIPs"]);
    // No alert may lose what it looks at.
    for (kind, expected) in [("Accepted", 0.0), ("Ready", 0.5), ("Degraded", 1.0)] {
        let series = format!("clusterdns_operator_condition{{name=\"a\",condition=\"{kind}\"}}");
        let page = operator.page("/metrics");
        assert!(page.contains(&series), "{kind} is shown: {page}");
        assert_eq!(operator.metric(&series), expected, "{kind}");
    }
    // Once for each version of it.
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(version(&read(&client, &path).await.expect("it exists")), version(&shown));

    send(&client, Method::PATCH, &path, &pod_records("Insecure")).await;
    wait_until_accepted(&client, "a").await;
}
