//! Faults of an API server that no proxy before a real one can produce (K5, K7, E14, E25, E32), and
//! events that take hours elsewhere (E54, the end of a canary).

use std::time::Duration;

use dataplane::source::api::{Options, Pace};
use dataplane_core::Resource;
use process::items::MAX_OBJECT;
use serde_json::{Value, json};
use tests::fault_proxy::{Fault, FaultProxy, Link, Requests};
use tests::golden::Shop;
use tests::live::{Live, options};
use tests::scripted_api::ScriptedApi;

const SERVICES: &str = "/api/v1/services";

pub(super) fn cluster_ip(name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": name},
           "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
                    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

pub(super) fn shop() -> Vec<Value> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let services = (1..=9).map(|n| cluster_ip(&format!("s{n}"), &format!("10.96.0.{n}")));
    std::iter::once(namespace).chain(services).collect()
}

/// A data plane that knows all of a scripted API server's nine Services, `s1` to `s9`.
struct Scene {
    live: Live,
    api: ScriptedApi,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(|options| options)
    }

    fn with(change: impl FnOnce(Options) -> Options) -> Scene {
        let api = ScriptedApi::start(&shop());
        let live = Live::with(change(options(api.kubeconfig()))).expect("a data plane starts");
        live.wait_until_ready();
        let scene = Scene { live, api };
        scene.live.wait("the watch", || scene.api.watches("Service") == 1);
        scene
    }

    /// An event that comes after all others in the same stream: once it is visible, they were taken.
    fn mark(&self, name: &str) {
        self.api.put(cluster_ip(name, "10.96.9.9"));
        self.live.wait_for(&format!("{name}.shop"), &["10.96.9.9"]);
    }

    fn say(&self, kind: &str, object: &Value) {
        self.api.say("Service", &json!({"type": kind, "object": object}));
    }
}

fn all_are_served(live: &Live, services: impl IntoIterator<Item = u32>) {
    for number in services {
        let expected = Ok(vec![format!("10.96.0.{number}").parse().expect("an address")]);
        assert_eq!(live.a(&format!("s{number}.shop")), expected);
    }
}

#[tokio::test]
async fn k5_a_list_that_expires_between_two_pages_begins_again_and_denies_nothing() {
    let api = ScriptedApi::start(&shop());
    api.pages_of(4);
    let proxy = FaultProxy::before(api.kubeconfig()).await;
    let second_page = Requests::to(SERVICES).with("continue=");
    proxy.fault(second_page.clone(), Fault::Hang);
    let live = Live::start(proxy.kubeconfig());
    live.wait("half a list", || proxy.count(&second_page) == 1);
    assert_eq!(live.a("s1.shop"), Err("SERVFAIL".into()));
    api.compact();
    proxy.heal();
    live.wait_until_ready();
    all_are_served(&live, 1..=9);
    assert_eq!(api.lists("Service"), 2);

    // A later list, while an object is gone: only the end of a list may remove it.
    proxy.fault(second_page.clone(), Fault::Hang);
    let before = proxy.count(&second_page);
    proxy.link(Link::Cut);
    live.wait("the trouble", || live.trouble(Resource::Services).is_some());
    api.delete("Service", "shop", "s9");
    api.compact();
    proxy.link(Link::Up);
    live.wait("half a list", || proxy.count(&second_page) > before);
    api.compact();
    all_are_served(&live, 1..=9);
    proxy.heal();
    live.wait("the end of the list", || {
        all_are_served(&live, 1..=8);
        live.a("s9.shop") == Err("NXDOMAIN".into())
    });
}

#[tokio::test]
async fn e24_an_api_server_that_lets_requests_wait_ends_no_watch() {
    let api = ScriptedApi::start(&shop());
    let proxy = FaultProxy::before(api.kubeconfig()).await;
    let live = Live::start(proxy.kubeconfig());
    live.wait_until_ready();
    for kind in ["Service", "EndpointSlice", "Namespace"] {
        live.wait("the watch", || api.watches(kind) == 1);
    }
    let (watches, probes) = (Requests::all().watches(), Requests::to("/livez"));
    let (begun, asked) = (proxy.count(&watches), proxy.count(&probes));
    // As API Priority and Fairness does: every request waits but the probes, and streams that are open continue.
    proxy.fault(Requests::all().lists().except("/livez"), Fault::Hang);
    live.wait("four heartbeats", || proxy.count(&probes) >= asked + 4);
    assert_eq!(proxy.count(&watches), begun, "a watch began again");
    assert_eq!(live.trouble(Resource::Services), None);
    api.put(cluster_ip("later", "10.96.0.77"));
    live.wait_for("later.shop", &["10.96.0.77"]);
}

/// Anyone who may edit one object can make its events as long as etcd takes them.
#[tokio::test]
async fn l18_events_that_are_too_long_keep_no_event_of_others_away() {
    let api = ScriptedApi::start(&shop());
    let proxy = FaultProxy::before(api.kubeconfig()).await;
    let live = Live::start(proxy.kubeconfig());
    live.wait_until_ready();
    live.wait("the watch", || api.watches("Service") == 1);
    let (lists, watches) = (api.lists("Service"), proxy.count(&Requests::to(SERVICES).watches()));
    for number in 0..3 {
        let mut long = cluster_ip("long", "10.96.7.7");
        long["metadata"]["annotations"] =
            json!({"edit": number, "a": "x".repeat(MAX_OBJECT + 2_048)});
        api.put(long);
        let name = format!("later-{number}");
        api.put(cluster_ip(&name, "10.96.0.77"));
        live.wait_for(&format!("{name}.shop"), &["10.96.0.77"]);
    }
    assert_eq!(api.lists("Service"), lists, "all was listed again");
    assert_eq!(proxy.count(&Requests::to(SERVICES).watches()), watches, "the watch began again");
    let skipped = r#"clusterdns_decode_failures_total{resource="services"}"#;
    assert_eq!(live.metric(skipped), Some(3.0));
}

#[test]
fn k7_events_that_come_twice_late_or_about_nothing_change_nothing() {
    let scene = Scene::new();
    let old = scene.api.get("Service", "shop", "s1");
    let mut new = old.clone();
    for field in ["clusterIP", "clusterIPs"] {
        let address = json!("10.96.0.101");
        new["spec"][field] = if field == "clusterIP" { address } else { json!([address]) };
    }
    scene.api.put(new);
    scene.live.wait_for("s1.shop", &["10.96.0.101"]);
    let newest = scene.api.get("Service", "shop", "s1");

    scene.say("MODIFIED", &newest);
    scene.say("MODIFIED", &old);
    scene.say("ADDED", &old);
    scene.say("DELETED", &old);
    let mut unknown = cluster_ip("unknown", "10.96.0.200");
    unknown["metadata"]["uid"] = "00000000-0000-4000-8000-0000000000ff".into();
    unknown["metadata"]["resourceVersion"] = newest["metadata"]["resourceVersion"].clone();
    scene.say("DELETED", &unknown);
    scene.mark("marker-1");
    scene.live.wait_for("s1.shop", &["10.96.0.101"]);
    all_are_served(&scene.live, 2..=9);
    assert_eq!(scene.live.a("unknown.shop"), Err("NXDOMAIN".into()));

    // An old event of a deleted object does not bring it back.
    scene.api.delete("Service", "shop", "s1");
    scene.live.wait_for_denial("s1.shop", "NXDOMAIN");
    scene.say("MODIFIED", &newest);
    scene.mark("marker-2");
    assert_eq!(scene.live.a("s1.shop"), Err("NXDOMAIN".into()));
    assert_eq!(scene.live.relists(Resource::Services), 0);
}

#[test]
fn k7_an_object_made_again_under_the_same_name_wins_over_late_events() {
    let scene = Scene::new();
    let old = scene.api.get("Service", "shop", "s1");
    scene.api.delete("Service", "shop", "s1");
    scene.api.put(cluster_ip("s1", "10.96.0.77"));
    scene.live.wait_for("s1.shop", &["10.96.0.77"]);
    scene.say("DELETED", &old);
    scene.mark("marker");
    scene.live.wait_for("s1.shop", &["10.96.0.77"]);
}

/// An API server refuses most of these; objects from other sources are bounded too.
#[test]
fn k20_hostile_objects_are_served_as_far_as_they_can_be_and_harm_no_other() {
    let scene = Scene::new();
    let mut big = cluster_ip("big", "10.96.0.60");
    big["metadata"]["annotations"] = json!({"example.com/big": "x".repeat(1 << 20)});
    big["metadata"]["labels"] =
        json!({"example.com/long": "y".repeat(256 << 10), "ключ": "\u{202e}"});
    let mut twice = cluster_ip("twice", "10.96.0.61");
    let port = |number: u16| json!({"name": "http", "port": number, "protocol": "TCP"});
    twice["spec"]["ports"] = json!([port(80), port(81)]);
    let longest = "a".repeat(63);
    let too_long = "b".repeat(64);
    let objects =
        [big, twice, cluster_ip(&longest, "10.96.0.62"), cluster_ip(&too_long, "10.96.0.63")];
    for object in objects {
        scene.api.put(object);
    }
    let mut nonsense = cluster_ip("nonsense", "not an address");
    nonsense["spec"]["ports"] = json!("not ports");
    scene.api.put(nonsense);
    scene.mark("marker");
    scene.live.wait_for("big.shop", &["10.96.0.60"]);
    scene.live.wait_for("twice.shop", &["10.96.0.61"]);
    scene.live.wait_for(&format!("{longest}.shop"), &["10.96.0.62"]);
    assert_eq!(scene.live.a("nonsense.shop"), Err("NXDOMAIN".into()));
    scene.live.wait("what is not served", || {
        let report = scene.live.status().read();
        let is_skipped = |name: &str| report.skipped.iter().any(|skipped| skipped.name == name);
        is_skipped("nonsense") && is_skipped(&too_long)
    });
    all_are_served(&scene.live, 1..=9);
    assert_eq!(scene.live.relists(Resource::Services), 0);
}

#[tokio::test]
async fn k8_a_problem_ends_with_an_object_that_is_deleted_while_disconnected() {
    let api = ScriptedApi::start(&shop());
    for name in ["stays", "goes"] {
        let mut unreadable = cluster_ip(name, "10.96.0.20");
        unreadable["spec"]["ports"] = json!("not ports");
        api.put(unreadable);
    }
    let proxy = FaultProxy::before(api.kubeconfig()).await;
    let live = Live::start(proxy.kubeconfig());
    live.wait_until_ready();
    let skipped = || -> Vec<String> {
        live.status().read().skipped.iter().map(|skipped| skipped.name.clone()).collect()
    };
    live.wait("both", || skipped() == ["goes", "stays"]);
    proxy.link(Link::Cut);
    live.wait("the trouble", || live.trouble(Resource::Services).is_some());
    api.delete("Service", "shop", "goes");
    api.compact();
    proxy.link(Link::Up);
    live.wait("one less", || skipped() == ["stays"]);
}

#[test]
fn e25_e54_an_event_that_was_lost_is_found_by_comparison_and_counted() {
    let pace = Pace { compare_after: Duration::from_secs(1), ..Pace::with_spread(Duration::ZERO) };
    let scene = Scene::with(|options| Options { pace, ..options });
    let differences = |resource: Resource| {
        let plural = resource.plural();
        scene.live.metric(&format!("clusterdns_relist_differences_total{{resource=\"{plural}\"}}"))
    };
    assert_eq!(differences(Resource::Services), Some(0.0));
    scene.api.put_in_secret(cluster_ip("s1", "10.96.0.99"));
    scene.live.wait_for("s1.shop", &["10.96.0.99"]);
    scene.live.wait("the count", || differences(Resource::Services) == Some(1.0));
    scene.live.wait("a comparison of the others", || scene.live.relists(Resource::Namespaces) > 1);
    assert_eq!(differences(Resource::Namespaces), Some(0.0));
    all_are_served(&scene.live, 2..=9);
}

#[test]
fn a_canary_that_is_not_promoted_returns_to_stable_by_itself() {
    let shop = Shop::open();
    let api = ScriptedApi::start(&shop.objects());
    let host = |address: &str| {
        let hosts = json!([{"name": "which.corp.example", "addresses": [address]}]);
        shop.config(&json!({ "hosts": hosts })).to_json()
    };
    let rollout = |started: &str| {
        json!({"stable": "1", "canary": "2", "canaryPod": {"name": "dns-1", "uid": "uid-1"},
               "startedAt": started, "observeSeconds": 3})
        .to_string()
    };
    let mut map = shop.config_map(&shop.config(&json!({})));
    map["data"]["stable.json"] = host("192.0.2.1").into();
    map["data"]["canary.json"] = host("192.0.2.2").into();
    map["data"]["rollout.json"] = rollout("2026-01-01T00:00:00Z").into();
    api.put(map.clone());
    let pace = Pace { canary_grace: Duration::ZERO, ..Pace::with_spread(Duration::ZERO) };
    let options = Options {
        pace,
        pod_uid: Some("uid-1".into()),
        ..shop.options_with_config_map(api.kubeconfig())
    };
    let live = Live::with(options).expect("a data plane starts");
    let serves = |address: &str| live.ask("which.corp.example. A").to_string().contains(address);
    let role = || live.status().read().role.clone();
    live.wait("the canary", || role() == "canary" && serves("192.0.2.2"));
    live.wait("its end", || role().starts_with("stable: ") && serves("192.0.2.1"));
    assert!(role().contains("neither promoted nor renewed"), "{}", role());

    // Tried once more.
    map["data"]["rollout.json"] = rollout("2026-01-01T01:00:00Z").into();
    api.put(map);
    live.wait("the canary", || role() == "canary" && serves("192.0.2.2"));
    live.wait("its end", || role().starts_with("stable: ") && serves("192.0.2.1"));
}
