//! The rows of docs/dns.md §9.11 in which something changes: an object of the shop of §9.1, or its configuration.

use dataplane::source::api::Options;
use serde_json::{Value, json};
use tests::client::Text;
use tests::golden::Shop;
use tests::live::Live;
use tests::scripted_api::ScriptedApi;

const EXTERNAL_NAME: &str = "mail.example.com";

/// The shop on a scripted API server, and a data plane that knows all of it.
struct Scene {
    shop: Shop,
    api: ScriptedApi,
    live: Live,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(Shop::open())
    }

    fn of(shop: Shop) -> Scene {
        let api = ScriptedApi::start(&shop.objects());
        let live = Live::with(shop.options(api.kubeconfig())).expect("a data plane starts");
        live.wait_until_ready();
        Scene { shop, api, live }
    }

    /// The same with the configuration in a ConfigMap.
    fn with_config_map() -> Scene {
        let shop = Shop::open();
        let api = ScriptedApi::start(&shop.objects());
        api.put(shop.config_map(&shop.config(&json!({}))));
        let live = Live::with(warm(&shop, &api)).expect("a data plane starts");
        live.wait_until_ready();
        Scene { shop, api, live }
    }

    fn change(&self, kind: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.api.get(kind, namespace, name);
        change(&mut object);
        self.api.put(object);
    }

    fn check(&self, rows: &[&str]) {
        self.shop.check(&self.live, rows);
    }

    /// The replies to a row, as one text.
    fn text(&self, row: &str) -> String {
        self.shop.replies(&self.live, row).iter().map(Text::to_string).collect()
    }
}

fn warm(shop: &Shop, api: &ScriptedApi) -> Options {
    let options = shop.options_with_config_map(api.kubeconfig());
    Options { state_dir: Some(shop.state_dir()), ..options }
}

fn cluster_ip(namespace: &str, name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
           "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
                    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

#[test]
fn g151_no_earlier_denial_is_remembered() {
    let scene = Scene::new();
    scene.check(&["G10"]);
    scene.api.put(cluster_ip("shop", "nothere", "10.96.10.8"));
    scene.live.wait_for("nothere.shop", &["10.96.10.8"]);
}

#[test]
fn g152_without_exposure_a_service_does_not_wait_for_its_namespace() {
    let scene = Scene::of(Shop::with(&json!({"exposure": null})));
    scene.api.put(cluster_ip("new", "a", "10.96.10.9"));
    scene.live.wait_for("a.new", &["10.96.10.9"]);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
    scene.api.put(namespace);
    scene.api.put(cluster_ip("new", "b", "10.96.10.10"));
    scene.live.wait_for("b.new", &["10.96.10.10"]);
    scene.live.wait_for("a.new", &["10.96.10.9"]);
}

#[test]
fn g153_a_service_that_becomes_an_alias_is_never_both() {
    let scene = Scene::new();
    scene.check(&["G15", "G73"]);
    scene.change("Service", "shop", "api", |service| {
        service["spec"] = json!({"type": "ExternalName", "externalName": EXTERNAL_NAME});
    });
    scene.live.wait("the alias", || {
        let text = scene.text("G15");
        let is_alias = text.contains(&format!("CNAME {EXTERNAL_NAME}."));
        for own in ["10.96.10.2", "fd00:96::102"] {
            let replies = scene.shop.replies(&scene.live, "G15");
            let is_both =
                |text: &Text| text.to_string().contains("CNAME") && text.to_string().contains(own);
            assert!(!replies.iter().any(is_both), "{replies:?}");
        }
        is_alias
    });
    assert!(scene.text("G73").contains("NXDOMAIN"));
}

#[test]
fn g154_an_endpoint_that_moves_between_slices_is_there_once_or_for_a_moment_not() {
    let scene = Scene::new();
    scene.check(&["G41", "G42"]);
    let moving = "10.244.2.32";
    let times = || scene.text("G41").matches(&format!(" A {moving}")).count();
    let endpoint = scene.api.get("EndpointSlice", "data", "cache-2")["endpoints"][0].clone();
    scene.change("EndpointSlice", "data", "cache-2", |slice| slice["endpoints"] = json!([]));
    scene.live.wait("the first event", || times() == 0);
    scene.change("EndpointSlice", "data", "cache-1", |slice| {
        slice["endpoints"].as_array_mut().expect("endpoints").push(endpoint);
    });
    scene.live.wait("the second event", || {
        let count = times();
        assert!(count <= 1);
        count == 1
    });
    scene.check(&["G41"]);
    let ports = |text: &mut Text| {
        for record in text.records.iter_mut().flatten() {
            *record = record.replace("6380", "6379");
        }
    };
    let differences = scene.shop.differences_with(&scene.live, &["G42"], ports);
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn g157_a_namespace_that_is_hidden_takes_every_name_with_it_in_one_step() {
    let scene = Scene::new();
    let rows = scene.shop.rows(34, 53);
    scene.shop.check(&scene.live, &rows);
    scene.change("Namespace", "", "data", |namespace| {
        namespace["metadata"]["labels"]["dns.example.com/hidden"] = "true".into();
    });
    scene.live.wait("the first name to go", || scene.text("G34").contains("NXDOMAIN"));
    for row in &rows {
        let replies = scene.shop.replies(&scene.live, row);
        assert!(replies.iter().all(|text| text.status.contains("NXDOMAIN")), "{row} {replies:?}");
    }
    for row in ["G74", "G78"] {
        assert!(!scene.text(row).contains("data.svc"), "{row}");
    }
    scene.check(&["G12", "G72"]);
}

#[test]
fn g158_a_new_stub_domain_leads_the_next_question_elsewhere_and_nothing_else() {
    let scene = Scene::with_config_map();
    let asked = |name: &str| scene.shop.ask(&scene.live, name).to_string();
    assert!(asked("www.example.org. A").contains("forwarded to 10.0.0.2"));
    let stub = json!({"domain": "example.org", "servers": [scene.shop.twin("10.20.0.53")]});
    let config = scene.shop.config(&json!({"stubDomains": [stub]}));
    scene.api.put(scene.shop.config_map(&config));
    scene.live.wait("the other servers", || {
        scene.check(&["G12"]);
        asked("www.example.org. A").contains("forwarded to 10.20.0.53")
    });
    assert!(asked("mail.example.com. A").contains("forwarded to 10.0.0.2"));
    assert_eq!(scene.api.lists("Service"), 1, "E5: no relist");
}

#[test]
fn g159_a_stub_domain_inside_the_cluster_domain_is_refused_also_after_a_restart() {
    let scene = Scene::with_config_map();
    let last_good = scene.live.status().read().running.revision.clone();
    let live = &scene.live;
    live.wait("a snapshot", || live.metric("clusterdns_snapshot_writes_total") >= Some(1.0));
    scene.change("ConfigMap", "dns", "clusterdns", |map| {
        let text = map["data"]["stable.json"].as_str().expect("a document");
        let mut config: Value = serde_json::from_str(text).expect("JSON");
        config["stubDomains"][0]["domain"] = "svc.cluster.local".into();
        config["ttlSeconds"] = 77.into();
        map["data"]["stable.json"] = config.to_string().into();
    });
    scene.live.wait("the refusal", || scene.live.status().read().rejection.is_some());
    scene.check(&["G12"]);

    let Scene { shop, api, live } = scene;
    drop(live);
    let live = Live::with(warm(&shop, &api)).expect("a data plane starts");
    live.wait_until_ready();
    live.wait("live data", || shop.differences(&live, &["G12"]).is_empty());
    let report = live.status().read();
    assert_eq!(report.running.revision, last_good, "E46");
    let rejection = report.rejection.as_ref().expect("the refusal is reported after a restart too");
    let fields: Vec<&str> = rejection.violations.iter().map(|v| v.field.as_str()).collect();
    assert_eq!(fields, ["spec.stubDomains[0].domain"]);
}

/// Each with the field that is named.
fn refused_specs() -> [(&'static str, Value); 8] {
    let host = |name: &str| json!({"hosts": [{"name": name, "addresses": ["192.0.2.9"]}]});
    let wildcard =
        |name: &str| json!({"records": [{"name": name, "type": "A", "addresses": ["192.0.2.9"]}]});
    let server = |address: &str| json!({"upstreams": {"servers": [{"address": address}]}});
    let both = json!({"records": [
        {"name": "both.corp.example", "type": "CNAME", "target": "www.example.org"},
        {"name": "both.corp.example", "type": "TXT", "strings": ["x"]}]});
    let stub =
        json!({"stubDomains": [{"domain": "cluster.local", "servers": [{"address": "10.0.0.9"}]}]});
    [
        ("spec.hosts[0]", host("a.shop.svc.cluster.local")),
        ("spec.records[0]", wildcard("*.shop.svc.cluster.local")),
        ("spec.records[0]", wildcard("*.com")),
        ("spec.records[1]", both),
        ("spec.hosts[0]", host("x.localhost")),
        ("spec.stubDomains[0]", stub),
        ("spec.upstreams.servers[0]", server("10.96.0.10")),
        ("spec.upstreams.servers[0]", server("dns.corp")),
    ]
}

#[test]
fn g160_each_refused_spec_names_the_field_and_leaves_what_runs() {
    // The file is read every few seconds: several data planes at once.
    let specs = refused_specs();
    std::thread::scope(|threads| {
        for specs in specs.chunks(2) {
            threads.spawn(|| each_is_refused(specs));
        }
    });
}

fn each_is_refused(specs: &[(&str, Value)]) {
    let scene = Scene::new();
    let revision = || scene.live.status().read().running.revision.clone();
    let last_good = revision();
    for (number, (field, spec)) in specs.iter().enumerate() {
        scene.shop.file_with(spec);
        scene.live.wait(&format!("refusal {number} of {spec}"), || {
            let report = scene.live.status().read();
            let violations = report.rejection.iter().flat_map(|rejection| &rejection.violations);
            let names = |text: &str| text.contains(field);
            report.rejections > number as u64
                && violations.into_iter().any(|v| names(&v.field) || names(&v.message))
        });
        assert_eq!(revision(), last_good);
        scene.check(&["G12", "G94"]);
    }
}

#[test]
fn g161_a_deleted_pod_and_a_slice_of_another_service_take_their_names_along() {
    let scene = Scene::new();
    scene.check(&["G34", "G65"]);
    scene.api.delete("Pod", "shop", "cart-a");
    scene.live.wait("the Pod's name to go", || {
        let replies = scene.shop.replies(&scene.live, "G65");
        replies.iter().all(|text| text.status.contains("NXDOMAIN"))
    });
    scene.change("EndpointSlice", "data", "db-1", |slice| {
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = "db-rw".into();
    });
    scene.live.wait_for("db-0.db-rw.data", &["10.244.1.21"]);
    let replies = scene.shop.replies(&scene.live, "G34");
    assert!(replies.iter().all(|text| text.status.contains("NOERROR")), "only IPv6 is left");
    assert!(replies.iter().all(|text| text.records[0].is_empty()), "{replies:?}");
    scene.check(&["G35"]);
}
