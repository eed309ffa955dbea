//! API servers of other versions and with other credentials, and slices of every form (K10, K12, K14, K15).

use dataplane_core::Resource;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tests::control_plane::{ControlPlane, Setup, client};
use tests::live::Live;
use tests::objects::{create, create_any};

use super::api_objects::{Scene, at, headless, service, slice};

/// An API server that does not stream lists, as those before 1.32.
#[tokio::test]
async fn k12_an_api_server_without_streaming_lists_is_as_good() {
    let flag = "--feature-gates=WatchList=false".to_owned();
    let setup = Setup { controllers: false, api_server_flags: vec![flag], ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let namespace = plane.namespace("old").await;
    let (client, name) = (plane.client().await, namespace.name());
    let before = service(&client, name, "before").await;
    let live = Live::start(plane.kubeconfig());
    live.wait_until_ready();
    live.wait_for(&format!("before.{name}"), &[&before]);
    let after = service(&client, name, "after").await;
    live.wait_for(&format!("after.{name}"), &[&after]);
    assert_eq!(live.relists(Resource::Services), 0);
}

#[tokio::test]
async fn k10_new_certificates_authorities_and_tokens_are_taken_without_a_restart() {
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(mut plane) = ControlPlane::start(setup).await else { return };
    let namespace = plane.namespace("renewed").await.name().to_owned();
    let before = service(&plane.client().await, &namespace, "before").await;
    let kubeconfig = plane.kubeconfig_with_token_file();
    let live = Live::start(&kubeconfig);
    live.wait_until_ready();
    live.wait_for(&format!("before.{namespace}"), &[&before]);
    let old = plane.kubeconfig_with_token("replaced-token-0");

    plane.renew_credentials().await;

    // Its credentials are no longer valid.
    let refused = client(&old).await.apiserver_version().await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401));
    let after = service(&plane.client().await, &namespace, "after").await;
    live.wait_for(&format!("after.{namespace}"), &[&after]);
    live.wait_for(&format!("before.{namespace}"), &[&before]);
    for resource in [Resource::Services, Resource::EndpointSlices, Resource::Namespaces] {
        live.wait("every watch", || live.trouble(resource).is_none());
    }
}

#[tokio::test]
async fn k14_an_address_in_two_slices_is_one_record_and_families_are_apart() {
    let Some(scene) = Scene::new("families").await else { return };
    let (client, name) = (&scene.client, scene.namespace.name());
    headless(client, name, "db").await;
    let (one, two, six) = ("10.244.3.1", "10.244.3.2", "fd00:244::31");
    let mut of_names = slice(name, "db", "db-names", &[at("www.example.org")]);
    of_names["addressType"] = "FQDN".into();
    let mut of_six = slice(name, "db", "db-six", &[at(six)]);
    of_six["addressType"] = "IPv6".into();
    let slices = [
        of_names,
        of_six,
        slice(name, "db", "db-a", &[at(one), at(two)]),
        slice(name, "db", "db-b", &[at(two)]),
    ];
    for slice in &slices {
        create_any(client, slice).await.expect("created");
    }
    let db = format!("db.{name}");
    scene.live.wait_for(&db, &[one, two]);
    let text = |qtype: &str| scene.live.ask(&format!("{db}.svc.cluster.local. {qtype}"));
    scene.live.wait("the IPv6 slice", || text("AAAA").to_string().contains(six));
    assert_eq!(text("AAAA").records[0].len(), 1);
    let ports = text("SRV").to_string();
    assert_eq!(ports.matches(" SRV ").count(), 3, "{ports}");
    assert!(!text("CNAME").to_string().contains("example.org"));
    scene.live.wait("four slices", || {
        let slices = "clusterdns_objects{resource=\"endpointslices\"}";
        scene.live.metric(slices) >= Some(3.0)
    });
    scene.live.wait_for(&db, &[one, two]);
}

#[tokio::test]
async fn k15_a_service_may_publish_what_is_not_ready() {
    let Some(scene) = Scene::new("publish").await else { return };
    let (client, name) = (&scene.client, scene.namespace.name());
    let spec = json!({"clusterIP": "None", "publishNotReadyAddresses": true,
                      "ports": [{"name": "http", "port": 80}]});
    let metadata = json!({"name": "gossip", "namespace": name});
    let _: Service = create(client, json!({"metadata": metadata, "spec": spec})).await;
    // As the controller writes the slices of such a Service: ready, also if the Pod is not.
    let terminating = json!({"addresses": ["10.244.4.2"],
                             "conditions": {"ready": true, "serving": true, "terminating": true}});
    let starting = json!({"addresses": ["10.244.4.3"],
                          "conditions": {"ready": true, "serving": false, "terminating": false}});
    let unready = json!({"addresses": ["10.244.4.4"], "conditions": {"ready": false}});
    let endpoints = [at("10.244.4.1"), terminating, starting, unready];
    create_any(client, &slice(name, "gossip", "gossip-a", &endpoints)).await.expect("created");
    scene.live.wait_for(&format!("gossip.{name}"), &["10.244.4.1", "10.244.4.2", "10.244.4.3"]);
}
