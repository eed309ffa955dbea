//! Lists, events and configurations in every order, without an API server: what is in effect, what
//! is told of it, and what a restart would run.

use std::time::Duration;

use crds::Config;
use crds::config::PodRecords;
use dataplane_core::DataSource;
use serde_json::{Value, json};

use super::*;
use crate::names;
use crate::snapshot::tests::Folder;
use crate::source::api::{Credentials, Options, Pace, Wanted, open};
use crate::source::writer::Setup;

/// Generous: machines that build are slow at times.
const PATIENCE: Duration = Duration::from_secs(30);

/// What every configuration reads.
const OBJECTS: [Resource; 3] = [Resource::Services, Resource::EndpointSlices, Resource::Namespaces];

/// A desk whose configuration comes from a ConfigMap that was not read yet.
fn desk() -> Desk {
    let report = Arc::<Report>::default();
    let setup = setup(report.clone());
    let wanted =
        Wanted::ConfigMap { namespace: "dns".into(), name: "clusterdns".into(), mounted: None };
    let pace = Pace::with_spread(Duration::ZERO);
    let settling = Settling::new(wanted, Some("uid-1".into()), pace);
    Desk::new(Writer::unconfigured(setup).unwrap(), report, settling)
}

fn setup(report: Arc<Report>) -> Setup {
    Setup {
        counters: Vec::new(),
        identity: crate::identity::of_this_process(None),
        resolv_conf: PathBuf::from("/nonexistent"),
        report,
    }
}

/// The ConfigMap has this configuration for every pod.
fn adopt(desk: &mut Desk, stable: &Value) {
    adopt_texts(desk, json!({"stable.json": stable.to_string()}));
}

fn adopt_texts(desk: &mut Desk, texts: Value) {
    desk.take_config_map(json!({"data": texts}).to_string().as_bytes());
    desk.tick(Instant::now());
}

fn selecting(tier: &str) -> Value {
    json!({"format": 1, "exposure": {"serviceSelector": {"matchLabels": {"tier": tier}}}})
}

fn config(document: &Value) -> Config {
    Config::from_json(&document.to_string()).unwrap().0
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "shop", "labels": {"tier": "front"}})
}

fn service(name: &str) -> Value {
    json!({"metadata": metadata(name), "spec": {"clusterIP": "10.96.0.1"}})
}

fn unreadable(name: &str) -> Value {
    json!({"metadata": metadata(name), "spec": {"ports": "none"}})
}

/// A slice of what cannot be a Service.
fn slice_of_nothing(name: &str) -> Value {
    let labels = json!({"kubernetes.io/service-name": "not.a.Service"});
    let metadata = json!({"name": name, "namespace": "shop", "labels": labels});
    json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []})
}

fn apply(desk: &mut Desk, resource: Resource, object: &Value) {
    desk.apply(&Watched::Objects(resource), object.to_string().as_bytes());
}

/// A whole list of a resource.
fn list(desk: &mut Desk, resource: Resource, objects: &[Value]) {
    desk.begin(&Watched::Objects(resource));
    objects.iter().for_each(|object| apply(desk, resource, object));
    complete(desk, resource);
}

fn complete(desk: &mut Desk, resource: Resource) {
    desk.complete(&Watched::Objects(resource), "100");
}

/// Everything that every configuration needs, with the Service `cart`.
fn list_all(desk: &mut Desk) {
    list(desk, Resource::Services, &[service("cart")]);
    list(desk, Resource::EndpointSlices, &[]);
    list(desk, Resource::Namespaces, &[]);
}

fn running(desk: &Desk) -> Config {
    desk.writer.configs().borrow().as_ref().clone()
}

fn told(desk: &Desk) -> Config {
    config(&desk.report.read().running.document)
}

fn serves_cart(desk: &Desk) -> bool {
    let text = service("cart").to_string();
    let decoded = decode::object(Resource::Services, text.as_bytes()).unwrap();
    let state = desk.writer.state();
    names::page(&state, &running(desk), decoded.object.iter(), &[]).contains("10.96.0.1")
}

fn skipped_names(desk: &mut Desk) -> Vec<String> {
    desk.tell();
    desk.report.read().skipped.iter().map(|skipped| skipped.name.clone()).collect()
}

#[test]
fn e5_a_configuration_that_comes_amid_the_first_list_hides_nothing() {
    let mut desk = desk();
    adopt(&mut desk, &json!({"format": 1}));
    desk.begin(&Watched::Objects(Resource::Services));
    apply(&mut desk, Resource::Services, &service("cart"));
    adopt(&mut desk, &selecting("front"));
    let relists = *desk.relists.borrow();
    // What has nothing yet is whole; the list that goes on began too early.
    list(&mut desk, Resource::EndpointSlices, &[]);
    list(&mut desk, Resource::Namespaces, &[]);
    complete(&mut desk, Resource::Services);
    assert!(serves_cart(&desk), "E20: the list is complete");
    if relists != [0; KINDS] {
        list_all(&mut desk);
    }
    assert_eq!(running(&desk), config(&selecting("front")));
    assert!(serves_cart(&desk));
}

#[test]
fn e5_what_leaves_verified_pod_records_keeps_the_pods_until_it_is_in_effect() {
    let mut desk = desk();
    adopt(&mut desk, &json!({"format": 1, "podRecords": "Verified"}));
    list_all(&mut desk);
    list(&mut desk, Resource::Pods, &[]);
    assert_eq!(desk.writer.source(Resource::Pods), DataSource::Live);
    assert!(*desk.pods_wanted.borrow());

    adopt(&mut desk, &selecting("front"));
    assert!(desk.writer.is_renewing());
    assert!(*desk.pods_wanted.borrow(), "answers rest on them");
    assert!(desk.report.read().feeds[Resource::Pods as usize].is_wanted);

    // The new one reads no Pods, and is not held up by their list.
    list_all(&mut desk);
    assert_eq!(running(&desk).pod_records, PodRecords::Insecure);
    assert!(!*desk.pods_wanted.borrow());
    desk.forget(Resource::Pods);
    assert!(!desk.report.read().feeds[Resource::Pods as usize].is_wanted);

    // And back, with another exposure: the old setting until the Pods are known (E43).
    let mut verified = selecting("back");
    verified["podRecords"] = "Verified".into();
    adopt(&mut desk, &verified);
    assert!(*desk.pods_wanted.borrow());
    list_all(&mut desk);
    assert_eq!(running(&desk).pod_records, PodRecords::Insecure);
    desk.begin(&Watched::Objects(Resource::Pods));

    // Half a list of Pods is none for the index that takes over while it goes on.
    verified["endpointNames"] = "PodName".into();
    adopt(&mut desk, &verified);
    list_all(&mut desk);
    assert_eq!(told(&desk), config(&verified));
    complete(&mut desk, Resource::Pods);
    assert_eq!(running(&desk).pod_records, PodRecords::Insecure);
    list(&mut desk, Resource::Pods, &[]);
    assert_eq!(running(&desk), config(&verified));
}

#[test]
fn a_configuration_that_another_overtakes_while_it_waits_for_lists_never_runs() {
    let mut desk = desk();
    let plain = json!({"format": 1});
    adopt(&mut desk, &plain);
    list_all(&mut desk);
    adopt(&mut desk, &selecting("overtaken"));
    assert!(desk.writer.is_renewing());
    // Lists that began before do not count for it.
    OBJECTS.iter().for_each(|resource| desk.begin(&Watched::Objects(*resource)));
    desk.take_config_map(
        json!({"data": {"stable.json": selecting("front").to_string()}}).to_string().as_bytes(),
    );
    OBJECTS.iter().for_each(|resource| complete(&mut desk, *resource));
    assert_eq!(running(&desk), config(&plain), "what runs is what is told");
    assert_eq!(told(&desk), config(&plain));
    list_all(&mut desk);
    assert_eq!(running(&desk), config(&selecting("front")));
    assert_eq!(told(&desk), config(&selecting("front")), "in the same step");
}

#[test]
fn e46_a_canary_that_waited_for_lists_or_pods_is_not_what_a_restart_runs() {
    for canary in [selecting("front"), json!({"format": 1, "podRecords": "Verified"})] {
        let folder = Folder::new();
        let mut desk = desk();
        let stable = json!({"format": 1, "ttlSeconds": 9});
        adopt(&mut desk, &stable);
        list_all(&mut desk);
        desk.state_dir = Some((folder.0.clone(), None));
        desk.warm_start();
        let rollout = json!({"stable": "1", "canary": "2", "observeSeconds": 60,
            "canaryPod": {"name": "dns-1", "uid": "uid-1"}, "startedAt": "2026-01-01T00:00:00Z"});
        adopt_texts(
            &mut desk,
            json!({"stable.json": stable.to_string(), "canary.json": canary.to_string(),
                "rollout.json": rollout.to_string()}),
        );
        list_all(&mut desk);
        list(&mut desk, Resource::Pods, &[]);
        assert_eq!(running(&desk), config(&canary));

        let begin = Instant::now();
        while desk.report.read().snapshot.writes == 0 {
            desk.writer.step_snapshot();
            assert!(begin.elapsed() < PATIENCE, "{:?}", desk.report.read().snapshot);
        }
        let stored = Stored::open(&folder.file()).unwrap().unwrap();
        assert_eq!(stored.configuration().unwrap(), config(&stable));
    }
}

#[test]
fn what_is_not_served_is_told_for_as_long_as_it_is_there() {
    let mut desk = desk();
    adopt(&mut desk, &json!({"format": 1}));
    list_all(&mut desk);
    let bad = [unreadable("bad-1"), unreadable("bad-2")];
    list(&mut desk, Resource::Services, &bad);
    list(&mut desk, Resource::EndpointSlices, &[slice_of_nothing("bad-3")]);
    assert_eq!(skipped_names(&mut desk), ["bad-3", "bad-1", "bad-2"]);
    // One of them was deleted while nothing was heard; a list that breaks off takes nothing away.
    desk.begin(&Watched::Objects(Resource::Services));
    assert_eq!(skipped_names(&mut desk), ["bad-3", "bad-1", "bad-2"]);
    list(&mut desk, Resource::Services, &bad[..1]);
    assert_eq!(skipped_names(&mut desk), ["bad-3", "bad-1"]);
    list(&mut desk, Resource::EndpointSlices, &[]);
    list(&mut desk, Resource::Services, &[service("bad-1")]);
    assert_eq!(skipped_names(&mut desk), [""; 0]);
}

/// A folder with a snapshot of the Service `cart` and this configuration.
fn kept(stable: &Value) -> Folder {
    let folder = Folder::new();
    let mut desk = desk();
    adopt(&mut desk, stable);
    list_all(&mut desk);
    desk.state_dir = Some((folder.0.clone(), None));
    desk.warm_start();
    let begin = Instant::now();
    while desk.report.read().snapshot.writes == 0 {
        desk.writer.step_snapshot();
        assert!(begin.elapsed() < PATIENCE, "{:?}", desk.report.read().snapshot);
    }
    folder
}

#[test]
fn d4_what_is_kept_is_served_before_any_request_is_sent() {
    let folder = kept(&json!({"format": 1, "ttlSeconds": 9}));
    // Nothing listens there, and nothing is asked.
    let kubeconfig = folder.0.join("kubeconfig");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let mounted = folder.0.join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    for (document, ttl_s) in [(None, 9), (Some(json!({"format": 1, "ttlSeconds": 7})), 7)] {
        if let Some(document) = document {
            std::fs::write(mounted.join("stable.json"), document.to_string()).unwrap();
        }
        let options = Options {
            credentials: Credentials::Kubeconfig { file: Some(kubeconfig.clone()), context: None },
            wanted: Wanted::ConfigMap {
                namespace: "dns".into(),
                name: "clusterdns".into(),
                mounted: Some(mounted.clone()),
            },
            pod_uid: None,
            state_dir: Some(folder.0.clone()),
            pace: Pace::with_spread(Duration::ZERO),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_way, desk) = runtime.block_on(open(options, setup(Arc::default()))).unwrap();
        let desk = desk.borrow();
        assert!(desk.is_configured());
        assert_eq!(running(&desk).ttl_seconds, ttl_s);
        assert!(serves_cart(&desk));
        assert_eq!(desk.report.read().source_answers, None, "nothing was asked yet");
    }
}

#[test]
fn k24_another_exposure_lists_services_and_namespaces_at_once_and_no_slices() {
    let mut desk = desk();
    // Lists that all pods begin at once would be an hour apart.
    desk.settling.pace.spread = Duration::from_secs(3600);
    adopt(&mut desk, &json!({"format": 1}));
    list_all(&mut desk);
    adopt(&mut desk, &selecting("back"));
    let asked = *desk.relists.borrow();
    let kinds: Vec<Resource> =
        Resource::ALL.into_iter().filter(|kind| asked[*kind as usize] > 0).collect();
    assert_eq!(kinds, [Resource::Services, Resource::Namespaces]);
    list(&mut desk, Resource::Services, &[service("cart")]);
    assert!(serves_cart(&desk), "one of two lists");
    list(&mut desk, Resource::Namespaces, &[]);
    assert_eq!(running(&desk), config(&selecting("back")));
    assert!(!serves_cart(&desk), "its tier is front");

    // That label is known now.
    adopt(&mut desk, &selecting("front"));
    assert_eq!(running(&desk), config(&selecting("front")));
    assert!(serves_cart(&desk));
    assert_eq!(*desk.relists.borrow(), asked);
}
