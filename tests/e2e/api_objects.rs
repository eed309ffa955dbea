//! Objects that change in a real cluster, and what is answered then (K13-K16, K18, K20, G151-G154, G157).

use dataplane_core::Resource;
use http_body_util::BodyExt;
use hyper::Request;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, TestNamespace};
use tests::live::Live;
use tests::objects::{create, create_any};

/// Creates a ClusterIP Service; returns its address.
pub(crate) async fn service(client: &Client, namespace: &str, name: &str) -> String {
    let spec = json!({"ports": [{"name": "http", "port": 80}]});
    let made: Service =
        create(client, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}))
            .await;
    made.spec.and_then(|spec| spec.cluster_ip).expect("a cluster IP")
}

pub(crate) async fn headless(client: &Client, namespace: &str, name: &str) {
    let spec = json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]});
    let _: Service =
        create(client, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}))
            .await;
}

pub(crate) fn slice(namespace: &str, service: &str, name: &str, endpoints: &[Value]) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

pub(crate) fn at(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}})
}

async fn patch_slice(client: &Client, namespace: &str, name: &str, endpoints: &[Value]) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"endpoints": endpoints}));
    slices.patch(name, &PatchParams::default(), &patch).await.expect("the API server takes it");
}

/// A namespace of the cluster that tests share, and a data plane that watches it.
pub(crate) struct Scene {
    pub(crate) namespace: TestNamespace,
    pub(crate) client: Client,
    pub(crate) live: Live,
}

impl Scene {
    pub(crate) async fn new(name: &str) -> Option<Scene> {
        let plane = ControlPlane::shared().await?;
        let namespace = plane.namespace(name).await;
        let live = Live::start(plane.kubeconfig());
        live.wait_until_ready();
        Some(Scene { namespace, client: plane.client().await, live })
    }

    fn name(&self, service: &str) -> String {
        format!("{service}.{}", self.namespace.name())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), self.namespace.name())
    }
}

#[tokio::test]
async fn g151_e53_a_name_that_was_denied_is_answered_once_its_service_is_created() {
    let Some(scene) = Scene::new("created").await else { return };
    assert_eq!(scene.live.a(&scene.name("nothere")), Err("NXDOMAIN".into()));

    let address = service(&scene.client, scene.namespace.name(), "nothere").await;

    scene.live.wait_for(&scene.name("nothere"), &[&address]);
    assert!(scene.live.metric("clusterdns_event_to_visible_seconds_count") >= Some(1.0));
    scene.services().delete("nothere", &DeleteParams::default()).await.expect("deleted");
    scene.live.wait_for_denial(&scene.name("nothere"), "NXDOMAIN");
}

#[tokio::test]
async fn k13_an_endpoint_that_moves_between_slices_is_never_there_twice() {
    let Some(scene) = Scene::new("moving").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    headless(client, namespace, "db").await;
    let (one, two) = ("10.244.7.1", "10.244.7.2");
    create_any(client, &slice(namespace, "db", "db-a", &[at(one), at(two)]))
        .await
        .expect("created");
    create_any(client, &slice(namespace, "db", "db-b", &[])).await.expect("created");
    let db = scene.name("db");
    scene.live.wait_for(&db, &[one, two]);

    // The address is in both slices: it is answered once.
    patch_slice(client, namespace, "db-b", &[at(two), at("10.244.7.3")]).await;
    scene.live.wait_for(&db, &[one, two, "10.244.7.3"]);
    patch_slice(client, namespace, "db-a", &[at(one)]).await;
    // A marker that comes later in the same watch: when it is visible, the event before it was applied.
    patch_slice(client, namespace, "db-b", &[at(two), at("10.244.7.4")]).await;
    scene.live.wait_for(&db, &[one, two, "10.244.7.4"]);
    // The address is in no slice.
    patch_slice(client, namespace, "db-b", &[]).await;
    scene.live.wait_for(&db, &[one]);
    patch_slice(client, namespace, "db-a", &[at(one), at(two)]).await;
    scene.live.wait_for(&db, &[one, two]);
}

/// The API server writes `<` as six octets of JSON: this slice takes 1.4 MiB in etcd, and 8.4 MiB in a list or an event.
#[tokio::test]
async fn l18_the_longest_object_that_etcd_takes_is_read_and_so_is_what_comes_after_it() {
    let Some(scene) = Scene::new("longest").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    headless(client, namespace, "long").await;
    headless(client, namespace, "other").await;
    let mut endpoint = at("10.244.7.1");
    endpoint["zone"] = "<".repeat(1_400 << 10).into();
    let relists = scene.live.relists(Resource::EndpointSlices);
    create_any(client, &slice(namespace, "long", "long-a", &[endpoint])).await.expect("created");
    create_any(client, &slice(namespace, "other", "other-a", &[at("10.244.7.2")]))
        .await
        .expect("created");
    scene.live.wait_for(&scene.name("other"), &["10.244.7.2"]);
    scene.live.wait_for(&scene.name("long"), &["10.244.7.1"]);
    assert_eq!(scene.live.relists(Resource::EndpointSlices), relists);
    assert_eq!(scene.live.trouble(Resource::EndpointSlices), None);
}

/// The API server takes any octets as names of managed fields, and shows them as they are.
#[tokio::test]
async fn l18_octets_in_managed_fields_that_are_no_text_keep_no_event_of_others_away() {
    let Some(scene) = Scene::new("octets").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    for name in ["evil", "other"] {
        headless(client, namespace, name).await;
    }
    create_any(client, &slice(namespace, "evil", "evil-a", &[at("10.244.7.1")]))
        .await
        .expect("created");
    scene.live.wait_for(&scene.name("evil"), &["10.244.7.1"]);
    let relists = scene.live.relists(Resource::EndpointSlices);

    let mut edited = slice(namespace, "evil", "evil-a", &[at("10.244.7.3")]);
    edited["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update",
        "apiVersion": "discovery.k8s.io/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:OCTET": {}}}}}]);
    let text = edited.to_string();
    let (before, after) = text.split_once("OCTET").expect("it is there");
    let body = [before.as_bytes(), &[0xff], after.as_bytes()].concat();
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/evil-a");
    let request = Request::put(path).header("content-type", "application/json");
    let reply = client.send(request.body(body.into()).expect("a request")).await.expect("a reply");
    let status = reply.status();
    let shown = reply.into_body().collect().await.expect("a body").to_bytes();
    assert!(status.is_success() && shown.contains(&0xff), "{status} {}", shown.escape_ascii());

    create_any(client, &slice(namespace, "other", "other-a", &[at("10.244.7.2")]))
        .await
        .expect("created");
    scene.live.wait_for(&scene.name("other"), &["10.244.7.2"]);
    scene.live.wait_for(&scene.name("evil"), &["10.244.7.3"]);
    assert_eq!(scene.live.relists(Resource::EndpointSlices), relists);
    assert_eq!(scene.live.trouble(Resource::EndpointSlices), None);
}

#[tokio::test]
async fn k15_which_endpoints_are_published() {
    let Some(scene) = Scene::new("ready").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    headless(client, namespace, "db").await;
    let with = |address: &str, conditions: Value| json!({"addresses": [address], "conditions": conditions});
    let endpoints = [
        at("10.244.8.1"),
        with("10.244.8.2", json!({"ready": false, "serving": true, "terminating": true})),
        with("10.244.8.3", json!({"ready": false})),
        with("10.244.8.4", json!({})),
    ];
    create_any(client, &slice(namespace, "db", "db-a", &endpoints)).await.expect("created");
    scene.live.wait_for(&scene.name("db"), &["10.244.8.1", "10.244.8.4"]);
}

#[tokio::test]
async fn k16_a_service_that_changes_its_kind_leaves_nothing_of_the_old_one() {
    let Some(scene) = Scene::new("flips").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    let address = service(client, namespace, "api").await;
    let api = scene.name("api");
    scene.live.wait_for(&api, &[&address]);

    let patch = json!({"spec": {"type": "ExternalName", "externalName": "localhost",
        "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}});
    scene
        .services()
        .patch("api", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("patched");
    let question = format!("{api}.svc.cluster.local. A");
    let is_alias = || scene.live.ask(&question).to_string().contains("CNAME localhost.");
    scene.live.wait("the alias", is_alias);
    assert!(!scene.live.ask(&question).to_string().contains(&address));

    // Deleted and created again at once, as headless.
    create_any(client, &slice(namespace, "api", "api-a", &[at("10.244.6.1")]))
        .await
        .expect("created");
    scene.services().delete("api", &DeleteParams::default()).await.expect("deleted");
    headless(client, namespace, "api").await;
    scene.live.wait_for(&api, &["10.244.6.1"]);
    assert!(!scene.live.ask(&question).to_string().contains("CNAME"));
}

#[tokio::test]
async fn k18_names_go_with_their_namespace() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let live = Live::start(plane.kubeconfig());
    live.wait_until_ready();
    let namespace = plane.namespace("leaving").await;
    let client = plane.client().await;
    let address = service(&client, namespace.name(), "cart").await;
    let cart = format!("cart.{}", namespace.name());
    live.wait_for(&cart, &[&address]);

    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(namespace.name(), &DeleteParams::default()).await.expect("deleted");

    live.wait_for_denial(&cart, "NXDOMAIN");
    let apex = format!("{}.svc.cluster.local. A", namespace.name());
    live.wait("the namespace's own name", || live.ask(&apex).status.contains("NXDOMAIN"));
}

#[tokio::test]
async fn k20_what_is_not_needed_of_large_objects_is_passed_over() {
    let Some(scene) = Scene::new("hostile").await else { return };
    let (client, namespace) = (&scene.client, scene.namespace.name());
    let longest = "a".repeat(63);
    // Annotations may have 256 KiB in all.
    let annotations = json!({"example.com/big": "x".repeat(200 << 10), "example.com/odd": "\u{202e}\u{0}".replace('\0', "ü")});
    let spec = json!({"ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
    let metadata = json!({"name": longest, "namespace": namespace, "annotations": annotations});
    let made: Service = create(client, json!({"metadata": metadata, "spec": spec})).await;
    let address = made.spec.and_then(|spec| spec.cluster_ip).expect("a cluster IP");
    scene.live.wait_for(&scene.name(&longest), &[&address]);
    let srv =
        scene.live.ask(&format!("_http._tcp.{}.svc.cluster.local. SRV", scene.name(&longest)));
    assert!(srv.status.contains("NOERROR"), "{srv}");
}
