//! The states of docs/dns.md §9.11 in which the API server, or some of its objects, are missing: each row is a
//! test, asked of the shop of §9.1.

use std::time::Duration;

use dataplane::source::api::Options;
use dataplane_core::Resource;
use tests::client::Text;
use tests::fault_proxy::{Fault, FaultProxy, Link, Requests};
use tests::golden::Shop;
use tests::live::Live;
use tests::scripted_api::ScriptedApi;
use tests::snapshot_file;

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// Zone structure, Services, ExternalNames, Pods, reverse names: §9.3 to §9.7.
const OURS: (u32, u32) = (1, 85);

/// The shop on a scripted API server, behind a proxy.
struct Scene {
    shop: Shop,
    api: ScriptedApi,
    proxy: FaultProxy,
}

impl Scene {
    async fn new() -> Scene {
        let shop = Shop::open();
        let api = ScriptedApi::start(&shop.objects());
        let proxy = FaultProxy::before(api.kubeconfig()).await;
        Scene { shop, api, proxy }
    }

    fn options(&self) -> Options {
        self.shop.options(self.proxy.kubeconfig())
    }

    fn warm_options(&self) -> Options {
        Options { state_dir: Some(self.shop.state_dir()), ..self.options() }
    }

    fn live(&self) -> Live {
        Live::with(self.options()).expect("a data plane starts")
    }

    /// Lets a data plane write a snapshot, and ends it.
    fn write_snapshot(&self) {
        // The first snapshot may be written before the list of pods is complete: then another run follows.
        for _ in 0..10 {
            let live = Live::with(self.warm_options()).expect("a data plane starts");
            live.wait_until_ready();
            live.wait("a snapshot", || {
                live.metric("clusterdns_snapshot_writes_total") >= Some(1.0)
            });
            drop(live);
            self.proxy.link(Link::Cut);
            let is_complete = Live::with(self.warm_options())
                .expect("a data plane starts")
                .why_not_ready()
                .is_empty();
            self.proxy.heal();
            if is_complete {
                return;
            }
        }
        panic!("no snapshot held every list");
    }

    /// G148: the answers without data.
    fn check_without_data(&self, live: &Live) {
        for row in ["G12", "G72"] {
            let replies = self.shop.replies(live, row);
            assert!(replies.iter().all(is_not_ready), "{row} {replies:?}");
        }
        self.shop.check(live, &["G7"]);
        let text = self.shop.ask(live, "www.example.org. A").to_string();
        assert!(text.contains("192.0.2.80") && text.contains("forwarded to 10.0.0.2"), "{text}");
        assert!(!live.why_not_ready().is_empty());
    }
}

/// SERVFAIL, not aa, no SOA, EDE 14 (N9).
fn is_not_ready(text: &Text) -> bool {
    text.status.contains("SERVFAIL")
        && !text.status.contains(" aa")
        && text.records.iter().all(Vec::is_empty)
        && text.notes.iter().any(|note| note.starts_with("EDE: 14"))
}

#[tokio::test]
async fn g148_without_api_server_and_snapshot_the_rest_is_answered() {
    let scene = Scene::new().await;
    scene.proxy.link(Link::Cut);
    let live = scene.live();
    scene.check_without_data(&live);
    scene.proxy.heal();
    live.wait_until_ready();
    scene.shop.check(&live, &["G7", "G12", "G72"]);
}

#[tokio::test]
async fn g149_with_services_and_namespaces_only_what_they_decide_is_answered() {
    let scene = Scene::new().await;
    scene.proxy.fault(Requests::to(SLICES), Fault::status(403));
    let live = scene.live();
    for resource in [Resource::Services, Resource::Namespaces] {
        let objects = format!("clusterdns_objects{{resource=\"{}\"}}", resource.plural());
        live.wait("the others", || live.metric(&objects) > Some(0.0));
    }
    live.wait("the denial", || scene.shop.differences(&live, &["G10", "G12"]).is_empty());
    let replies = scene.shop.replies(&live, "G34");
    assert!(replies.iter().all(is_not_ready), "{replies:?}");
    assert!(!live.why_not_ready().is_empty());
}

#[tokio::test]
async fn g150_from_a_snapshot_90_s_old_everything_is_answered_and_says_so() {
    let scene = Scene::new().await;
    scene.write_snapshot();
    snapshot_file::grow_older(&scene.shop.state_dir(), Duration::from_secs(90));
    scene.proxy.link(Link::Cut);
    let live = Live::with(scene.warm_options()).expect("a data plane starts");
    assert_eq!(live.why_not_ready(), [""; 0]);
    let marked = |text: &mut Text| text.notes.insert(0, "EDE: 3".to_owned());
    let rows = ["G12", "G10", "G34", "G65", "G72"];
    let differences = scene.shop.differences_with(&live, &rows, marked);
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    scene.proxy.heal();
    live.wait("live data", || scene.shop.differences(&live, &rows).is_empty());
}

/// The test does not wait 30 minutes: the answers do not depend on the time, and the age is seen to grow.
#[tokio::test]
async fn g155_answers_stay_as_they_are_while_the_api_server_is_gone() {
    let scene = Scene::new().await;
    let live = scene.live();
    live.wait_until_ready();
    let rows = scene.shop.rows(OURS.0, OURS.1);
    scene.shop.check(&live, &rows);

    scene.proxy.link(Link::Cut);

    let age = || live.metric("clusterdns_watch_age_seconds{resource=\"services\"}");
    live.wait("the trouble", || live.trouble(Resource::Services).is_some());
    live.wait("the age to grow", || age() >= Some(5.0));
    scene.shop.check(&live, &rows);
    assert_eq!(live.why_not_ready(), [""; 0]);
}

#[tokio::test]
async fn g156_objects_deleted_during_an_outage_are_served_until_the_new_list_is_complete() {
    let scene = Scene::new().await;
    let live = scene.live();
    live.wait_until_ready();
    let mut rows = scene.shop.rows(12, 53);
    scene.shop.check(&live, &rows);

    scene.proxy.link(Link::Cut);
    live.wait("the trouble", || live.trouble(Resource::Services).is_some());
    scene.api.delete("Service", "shop", "idle");
    // 410 for every client that was connected before.
    scene.api.compact();
    scene.api.pages_of(5);
    let second_page = Requests::to(SERVICES).with("continue=");
    scene.proxy.fault(second_page.clone(), Fault::Hang);
    scene.proxy.link(Link::Up);
    live.wait("half a list", || scene.proxy.count(&second_page) >= 1);
    scene.shop.check(&live, &rows);

    scene.proxy.heal();
    live.wait("the end of the list", || live.a("idle.shop") == Err("NXDOMAIN".into()));
    rows.retain(|row| row != "G17");
    scene.shop.check(&live, &rows);
}

#[tokio::test]
async fn g162_k6_a_list_that_fails_on_its_second_page_shows_nothing_and_removes_nothing() {
    let scene = Scene::new().await;
    scene.api.pages_of(5);
    let second_page = Requests::to(SERVICES).with("continue=");
    scene.proxy.fault(second_page.clone(), Fault::status(500));
    let live = scene.live();
    live.wait("a failed list", || scene.proxy.count(&second_page) >= 2);
    let replies = scene.shop.replies(&live, "G12");
    assert!(replies.iter().all(is_not_ready), "{replies:?}");
    scene.proxy.heal();
    live.wait_until_ready();
    let rows = scene.shop.rows(12, 33);
    scene.shop.check(&live, &rows);

    for fault in [Fault::status(500), Fault::Truncate] {
        let before = scene.proxy.count(&second_page);
        scene.proxy.fault(second_page.clone(), fault);
        let watches = Requests::to(SERVICES).watches();
        scene.proxy.fault_times(1, watches, Fault::expired());
        live.wait("a failed list", || scene.proxy.count(&second_page) >= before + 2);
        scene.shop.check(&live, &rows);
        let relists = live.relists(Resource::Services);
        scene.proxy.heal();
        live.wait("a whole list", || live.relists(Resource::Services) > relists);
        scene.shop.check(&live, &rows);
    }
}

#[tokio::test]
async fn g163_a_snapshot_that_is_damaged_of_another_domain_or_too_old_is_not_used() {
    let scene = Scene::new().await;
    scene.write_snapshot();
    let folder = scene.shop.state_dir();
    let good = std::fs::read(snapshot_file::in_folder(&folder)).expect("a snapshot");
    scene.proxy.link(Link::Cut);
    let of_another_domain = || {
        snapshot_file::change_head(&folder, |head| head["clusterDomain"] = "corp.test".into());
    };
    let too_old = || snapshot_file::grow_older(&folder, Duration::from_secs(25 * 3600));
    let damaged = || snapshot_file::damage(&folder);
    let spoils: [(&str, &dyn Fn()); 3] =
        [("damaged", &damaged), ("domain", &of_another_domain), ("old", &too_old)];
    for (what, spoil) in spoils {
        std::fs::write(snapshot_file::in_folder(&folder), &good).expect("the folder is ours");
        spoil();
        let live = Live::with(scene.warm_options()).expect("a data plane starts");
        scene.check_without_data(&live);
        assert!(live.status().read().snapshot.refused.is_some(), "{what}");
    }
    // The same file as before, so that it is not refused for something else.
    std::fs::write(snapshot_file::in_folder(&folder), &good).expect("the folder is ours");
    let live = Live::with(scene.warm_options()).expect("a data plane starts");
    assert_eq!(live.why_not_ready(), [""; 0]);
}
