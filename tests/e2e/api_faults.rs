//! A data plane behind a fault proxy: with every fault of the API server and of the connection to it, answers for known
//! objects stay, and what changed meanwhile is there afterwards (K3-K9, K11, G155, G156, G162).

use std::time::Duration;

use dataplane_core::Resource;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tests::client::{Question, ask_tcp};
use tests::control_plane::{ControlPlane, Setup, TestNamespace};
use tests::fault_proxy::{Fault, FaultProxy, Link, Requests};
use tests::live::Live;
use tests::objects::create_any;

use super::api_objects::{at, headless, service, slice};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

struct Scene {
    namespace: TestNamespace,
    client: Client,
    proxy: FaultProxy,
    live: Live,
    /// The address of the Service `cart`, which exists from the start.
    address: String,
}

impl Scene {
    async fn new(name: &str) -> Option<Scene> {
        let plane = ControlPlane::shared().await?;
        let namespace = plane.namespace(name).await;
        let client = plane.client().await;
        let proxy = FaultProxy::start(plane).await;
        let address = service(&client, namespace.name(), "cart").await;
        let live = Live::start(proxy.kubeconfig());
        live.wait_until_ready();
        let scene = Scene { namespace, client, proxy, live, address };
        scene.cart_is_served();
        Some(scene)
    }

    fn name(&self, service: &str) -> String {
        format!("{service}.{}", self.namespace.name())
    }

    fn cart_is_served(&self) {
        let expected = Ok(vec![self.address.parse().expect("an address")]);
        assert_eq!(self.live.a(&self.name("cart")), expected);
        assert!(self.live.why_not_ready().is_empty(), "never un-ready again (D5)");
    }

    async fn create(&self, name: &str) -> String {
        service(&self.client, self.namespace.name(), name).await
    }

    async fn delete(&self, name: &str) {
        let services: Api<Service> = Api::namespaced(self.client.clone(), self.namespace.name());
        services.delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    fn lists(&self, path: &str) -> usize {
        self.proxy.count(&Requests::to(path).lists())
    }
}

#[tokio::test]
async fn k3_answers_stay_when_the_api_server_dies_and_show_their_age() {
    let Some(scene) = Scene::new("dies").await else { return };
    let age = || scene.live.metric("clusterdns_watch_age_seconds{resource=\"services\"}");

    scene.proxy.link(Link::Cut);

    scene.live.wait("the trouble", || scene.live.trouble(Resource::Services).is_some());
    scene.live.wait("the age to grow", || age() >= Some(3.0));
    scene.cart_is_served();
    let text = scene.live.ask(&format!("{}.svc.cluster.local. A", scene.name("cart")));
    assert!(!text.to_string().contains("EDE"), "E30: {text}");
    scene.proxy.heal();
    scene.live.wait("contact", || age() < Some(3.0));
}

#[tokio::test]
async fn k4_a_watch_that_ends_or_breaks_continues_at_its_version() {
    let Some(scene) = Scene::new("breaks").await else { return };
    let lists = scene.lists(SERVICES);
    for (number, fault) in [Fault::End, Fault::Reset, Fault::Truncate].into_iter().enumerate() {
        let watches = scene.proxy.count(&Requests::to(SERVICES).watches());
        scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), fault.clone());
        // Truncate needs a chunk to cut in half: this event comes half, then again in full.
        let name = format!("cut-{number}");
        let address = scene.create(&name).await;
        scene.live.wait_for(&scene.name(&name), &[&address]);
        scene.live.wait("another watch", || {
            scene.proxy.count(&Requests::to(SERVICES).watches()) > watches
        });
        scene.cart_is_served();
    }
    assert_eq!(scene.lists(SERVICES), lists, "no list was needed");
}

#[tokio::test]
async fn k4_a_hanging_link_is_noticed_and_left() {
    let Some(scene) = Scene::new("hangs").await else { return };
    scene.proxy.link(Link::Hung);
    let address = scene.create("meanwhile").await;

    scene.live.wait("the hang to be noticed", || {
        scene.live.trouble(Resource::Services).is_some_and(|text| text.contains("nothing came"))
    });
    scene.cart_is_served();

    scene.proxy.heal();
    scene.live.wait_for(&scene.name("meanwhile"), &[&address]);
}

#[tokio::test]
async fn k5_a_version_that_is_too_old_leads_to_one_list_without_a_wrong_denial() {
    let Some(scene) = Scene::new("expired").await else { return };
    let (lists, relists) = (scene.lists(SERVICES), scene.live.relists(Resource::Services));

    scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), Fault::expired());

    scene.live.wait("a list", || scene.live.relists(Resource::Services) > relists);
    scene.cart_is_served();
    assert!(scene.lists(SERVICES) > lists);
    assert_eq!(scene.live.relists(Resource::EndpointSlices), 0, "the other watches continued");
}

#[tokio::test]
async fn k5_a_watch_that_cannot_start_at_its_version_lists_again() {
    // HTTP statuses this time, not events: each with a data plane of its own, which does not yet wait after failures.
    for status in [410, 400, 422] {
        let Some(scene) = Scene::new("refused").await else { return };
        let relists = scene.live.relists(Resource::Services);
        let watches = Requests::to(SERVICES).watches();
        scene.proxy.fault_times(1, watches.clone(), Fault::End);
        scene.proxy.fault_times(1, watches, Fault::status(status));
        scene.live.wait("a list", || scene.live.relists(Resource::Services) > relists);
        scene.cart_is_served();
    }
    // Five answers that say nothing about the version.
    let Some(scene) = Scene::new("refused").await else { return };
    let relists = scene.live.relists(Resource::Services);
    scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), Fault::End);
    scene.proxy.fault_times(5, Requests::to(SERVICES).watches(), Fault::status(500));
    scene.live.wait("a list", || scene.live.relists(Resource::Services) > relists);
    let address = scene.create("after").await;
    scene.live.wait_for(&scene.name("after"), &[&address]);
}

#[tokio::test]
async fn k8_e32_objects_deleted_while_disconnected_are_removed_by_the_next_list() {
    let Some(scene) = Scene::new("deleted").await else { return };
    let idle = scene.create("idle").await;
    scene.live.wait_for(&scene.name("idle"), &[&idle]);

    scene.proxy.link(Link::Cut);
    scene.live.wait("the trouble", || scene.live.trouble(Resource::Services).is_some());
    scene.delete("idle").await;
    let new = scene.create("new").await;
    assert_eq!(scene.live.a(&scene.name("idle")), Ok(vec![idle.parse().expect("an address")]));

    // The server has forgotten the version that the data plane holds (G156).
    scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), Fault::status(410));
    scene.proxy.link(Link::Up);
    scene.live.wait_for_denial(&scene.name("idle"), "NXDOMAIN");
    scene.live.wait_for(&scene.name("new"), &[&new]);
    scene.cart_is_served();
}

#[tokio::test]
async fn k9_a_server_that_asks_for_patience_gets_it() {
    let Some(scene) = Scene::new("patience").await else { return };
    let watches = Requests::to(SERVICES).watches();
    scene.proxy.fault(watches.clone(), Fault::Overload { status: 429, retry_after_s: 3 });
    scene.proxy.fault_times(1, watches.clone(), Fault::End);
    scene.live.wait("the refusal", || {
        scene.live.trouble(Resource::Services).is_some_and(|text| text.contains("429"))
    });
    let before = scene.proxy.count(&watches);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(scene.proxy.count(&watches) <= before + 1, "asked again within Retry-After");
    assert_eq!(scene.live.relists(Resource::Services), 0, "429 is no reason to list");

    scene.proxy.heal();
    let address = scene.create("after").await;
    scene.live.wait_for(&scene.name("after"), &[&address]);
}

/// E33: the loss of one watch.
#[tokio::test]
async fn k11_e33_one_resource_without_permission_does_not_stop_the_others() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("forbidden").await;
    let (client, name) = (plane.client().await, namespace.name());
    let proxy = FaultProxy::start(plane).await;
    let address = service(&client, name, "cart").await;
    headless(&client, name, "db").await;
    create_any(&client, &slice(name, "db", "db-a", &[at("10.244.5.1")])).await.expect("created");
    proxy.fault(Requests::to(SLICES), Fault::status(403));

    let live = Live::start(proxy.kubeconfig());

    live.wait_for(&format!("cart.{name}"), &[&address]);
    live.wait("the refusal", || live.trouble(Resource::EndpointSlices).is_some());
    // Only names that need slices are not answered, and none is denied (§4.4, G149).
    assert_eq!(live.a(&format!("db.{name}")), Err("SERVFAIL".into()));
    let reasons = live.why_not_ready().join("\n");
    assert!(reasons.contains("no permission to list and watch endpointslices"), "{reasons}");
    live.wait("namespaces", || live.a("a.nowhere") == Err("NXDOMAIN".into()));

    proxy.heal();
    live.wait_for(&format!("db.{name}"), &["10.244.5.1"]);
    live.wait_until_ready();

    // From now on it keeps what it knows.
    proxy.fault(Requests::to(SLICES), Fault::status(403));
    proxy.fault_times(1, Requests::to(SLICES).watches(), Fault::End);
    live.wait("the refusal", || live.trouble(Resource::EndpointSlices).is_some());
    assert_eq!(live.a(&format!("db.{name}")), Ok(vec!["10.244.5.1".parse().expect("an address")]));
    assert!(
        live.metric("clusterdns_watch_failures_total{resource=\"endpointslices\"}") >= Some(1.0)
    );
}

#[tokio::test]
async fn k6_a_list_that_fails_halfway_shows_nothing_and_removes_nothing() {
    // A namespace of its own, with more slices than a page has, which the other tests need not read.
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let namespace = plane.namespace("pages").await;
    let (client, name) = (plane.client().await, namespace.name());
    headless(&client, name, "db").await;
    for number in 0..130 {
        let address = format!("10.244.{}.{}", number / 100, number % 100 + 1);
        let made = slice(name, "db", &format!("db-{number}"), &[at(&address)]);
        create_any(&client, &made).await.expect("created");
    }
    let proxy = FaultProxy::start(&plane).await;
    let second_page = Requests::to(SLICES).with("continue=");
    proxy.fault(second_page.clone(), Fault::status(500));
    let live = Live::start(proxy.kubeconfig());
    let db = format!("db.{name}");
    let count = || {
        let question = Question::parse(&format!("{db}.svc.cluster.local. A")).unwrap();
        let reply = ask_tcp(live.address(), &question.packet).unwrap().expect("a reply");
        u16::from_be_bytes([reply[6], reply[7]])
    };

    live.wait("a failed list", || proxy.count(&second_page) >= 2);
    assert_eq!(live.a(&db), Err("SERVFAIL".into()), "G162");
    proxy.heal();
    live.wait_until_ready();
    let known = live.metric("clusterdns_objects{resource=\"endpointslices\"}");
    assert_eq!((known, count()), (Some(130.0), 130));

    // A later list fails too: objects on its second page stay.
    proxy.fault(second_page.clone(), Fault::status(500));
    let before = proxy.count(&second_page);
    proxy.fault_times(1, Requests::to(SLICES).watches(), Fault::expired());
    live.wait("a failed list", || proxy.count(&second_page) >= before + 2);
    assert_eq!(live.metric("clusterdns_objects{resource=\"endpointslices\"}"), known);
    assert_eq!(count(), 130, "of both pages");
    assert_eq!(live.relists(Resource::EndpointSlices), 0);
    proxy.heal();
    live.wait("the whole list", || live.relists(Resource::EndpointSlices) == 1);
    assert_eq!(live.metric("clusterdns_objects{resource=\"endpointslices\"}"), known);

    // One page is refused: that page is asked for again, and not the whole list.
    let lists = || {
        let seen = proxy.seen(&Requests::to(SLICES).lists());
        seen.iter().filter(|it| !it.is_look() && it.parameter("continue").is_none()).count()
    };
    let before = lists();
    let refusals = [Fault::Answer { status: 429, retry_after_s: Some(1) }, Fault::status(503)];
    for (refusal, done) in refusals.into_iter().zip(1..) {
        proxy.fault_times(1, second_page.clone(), refusal);
        proxy.fault_times(1, Requests::to(SLICES).watches(), Fault::expired());
        live.wait("the whole list", || live.relists(Resource::EndpointSlices) == 1 + done);
        assert_eq!(lists(), before + done as usize);
        assert_eq!(live.metric("clusterdns_objects{resource=\"endpointslices\"}"), known);
    }
}

#[tokio::test]
async fn k9_a_slow_server_is_waited_for() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("slow").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    proxy.fault(Requests::to(SERVICES), Fault::Throttle { bytes_per_s: 100_000 });
    proxy.fault_times(2, Requests::to(SLICES), Fault::status(503));
    let live = Live::start(proxy.kubeconfig());
    live.wait_for(&format!("cart.{}", namespace.name()), &[&address]);
    live.wait_until_ready();
}

#[tokio::test]
async fn k7_an_event_from_the_past_changes_nothing() {
    let Some(scene) = Scene::new("past").await else { return };
    let name = scene.namespace.name();
    let old = |kind: &str, version: &str, address: &str| {
        Fault::Event(json!({"type": kind, "object": {
            "metadata": {"name": "cart", "namespace": name, "resourceVersion": version},
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80}]}}}))
    };
    for fault in [old("MODIFIED", "1", "10.96.99.99"), old("DELETED", "2", "10.96.99.99")] {
        scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), fault);
        // A marker that comes after it in the same stream.
        let marker = scene.create(&format!("marker-{}", rand_suffix())).await;
        assert!(!marker.is_empty());
        scene.live.wait("the marker", || {
            scene.live.metric("clusterdns_watch_events_total{resource=\"services\"}") >= Some(1.0)
        });
        scene.cart_is_served();
    }
    // An unreadable object is named and skipped; the stream continues.
    let broken = Fault::Event(json!({"type": "ADDED", "object": {
        "metadata": {"name": "broken", "namespace": name}, "spec": {"ports": 7}}}));
    scene.proxy.fault_times(1, Requests::to(SERVICES).watches(), broken);
    scene.live.wait("the count", || {
        scene.live.metric("clusterdns_decode_failures_total{resource=\"services\"}") == Some(1.0)
    });
    scene.live.wait("its name", || {
        scene.live.status().read().skipped.iter().any(|skipped| skipped.name == "broken")
    });
    let address = scene.create("after").await;
    scene.live.wait_for(&scene.name("after"), &[&address]);
    assert_eq!(scene.live.relists(Resource::Services), 0);
}

/// A number that no other marker of this process has.
fn rand_suffix() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
