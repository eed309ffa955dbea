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

/// A ingest whose configuration comes from a ConfigMap that was not read yet.
fn ingest() -> Ingest {
    let status = Arc::<Status>::default();
    let setup = setup(status.clone());
    let wanted =
        Wanted::ConfigMap { namespace: "dns".into(), name: "clusterdns".into(), mounted: None };
    let pace = Pace::with_spread(Duration::ZERO);
    let settling = Settling::new(wanted, Some("uid-1".into()), pace);
    Ingest::new(Writer::unconfigured(setup).unwrap(), status, settling)
}

fn setup(status: Arc<Status>) -> Setup {
    Setup {
        counters: Vec::new(),
        identity: crate::identity::of_this_process(None),
        resolv_conf: PathBuf::from("/nonexistent"),
        status,
    }
}

/// The ConfigMap has this configuration for every pod.
fn adopt(ingest: &mut Ingest, stable: &Value) {
    adopt_texts(ingest, json!({"stable.json": stable.to_string()}));
}

fn adopt_texts(ingest: &mut Ingest, texts: Value) {
    ingest.take_config_map(json!({"data": texts}).to_string().as_bytes());
    ingest.tick(Instant::now());
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

fn apply(ingest: &mut Ingest, resource: Resource, object: &Value) {
    ingest.apply(&Watched::Objects(resource), object.to_string().as_bytes());
}

/// A whole list of a resource.
fn list(ingest: &mut Ingest, resource: Resource, objects: &[Value]) {
    ingest.begin(&Watched::Objects(resource));
    objects.iter().for_each(|object| apply(ingest, resource, object));
    complete(ingest, resource);
}

fn complete(ingest: &mut Ingest, resource: Resource) {
    ingest.complete(&Watched::Objects(resource), "100");
}

/// Everything that every configuration needs, with the Service `cart`.
fn list_all(ingest: &mut Ingest) {
    list(ingest, Resource::Services, &[service("cart")]);
    list(ingest, Resource::EndpointSlices, &[]);
    list(ingest, Resource::Namespaces, &[]);
}

fn running(ingest: &Ingest) -> Config {
    ingest.writer.configs().borrow().as_ref().clone()
}

fn reported(ingest: &Ingest) -> Config {
    config(&ingest.status.read().running.document)
}

fn serves_cart(ingest: &Ingest) -> bool {
    let text = service("cart").to_string();
    let decoded = decode::object(Resource::Services, text.as_bytes()).unwrap();
    let state = ingest.writer.state();
    names::page(&state, &running(ingest), decoded.object.iter(), &[]).contains("10.96.0.1")
}

fn skipped_names(ingest: &mut Ingest) -> Vec<String> {
    ingest.report();
    ingest.status.read().skipped.iter().map(|skipped| skipped.name.clone()).collect()
}

#[test]
fn e5_a_configuration_that_comes_amid_the_first_list_hides_nothing() {
    let mut ingest = ingest();
    adopt(&mut ingest, &json!({"format": 1}));
    ingest.begin(&Watched::Objects(Resource::Services));
    apply(&mut ingest, Resource::Services, &service("cart"));
    adopt(&mut ingest, &selecting("front"));
    let relists = *ingest.relists.borrow();
    // What has nothing yet is whole; the list that goes on began too early.
    list(&mut ingest, Resource::EndpointSlices, &[]);
    list(&mut ingest, Resource::Namespaces, &[]);
    complete(&mut ingest, Resource::Services);
    assert!(serves_cart(&ingest), "E20: the list is complete");
    if relists != [0; KINDS] {
        list_all(&mut ingest);
    }
    assert_eq!(running(&ingest), config(&selecting("front")));
    assert!(serves_cart(&ingest));
}

#[test]
fn e5_what_leaves_verified_pod_records_keeps_the_pods_until_it_is_in_effect() {
    let mut ingest = ingest();
    adopt(&mut ingest, &json!({"format": 1, "podRecords": "Verified"}));
    list_all(&mut ingest);
    list(&mut ingest, Resource::Pods, &[]);
    assert_eq!(ingest.writer.source(Resource::Pods), DataSource::Live);
    assert!(*ingest.pods_wanted.borrow());

    adopt(&mut ingest, &selecting("front"));
    assert!(ingest.writer.is_renewing());
    assert!(*ingest.pods_wanted.borrow(), "answers rest on them");
    assert!(ingest.status.read().feeds[Resource::Pods as usize].is_wanted);

    // The new one reads no Pods, and is not held up by their list.
    list_all(&mut ingest);
    assert_eq!(running(&ingest).pod_records, PodRecords::Insecure);
    assert!(!*ingest.pods_wanted.borrow());
    ingest.forget(Resource::Pods);
    assert!(!ingest.status.read().feeds[Resource::Pods as usize].is_wanted);

    // And back, with another exposure: the old setting until the Pods are known (E43).
    let mut verified = selecting("back");
    verified["podRecords"] = "Verified".into();
    adopt(&mut ingest, &verified);
    assert!(*ingest.pods_wanted.borrow());
    list_all(&mut ingest);
    assert_eq!(running(&ingest).pod_records, PodRecords::Insecure);
    ingest.begin(&Watched::Objects(Resource::Pods));

    // Half a list of Pods is none for the index that takes over while it goes on.
    verified["endpointNames"] = "PodName".into();
    adopt(&mut ingest, &verified);
    list_all(&mut ingest);
    assert_eq!(reported(&ingest), config(&verified));
    complete(&mut ingest, Resource::Pods);
    assert_eq!(running(&ingest).pod_records, PodRecords::Insecure);
    list(&mut ingest, Resource::Pods, &[]);
    assert_eq!(running(&ingest), config(&verified));
}

#[test]
fn a_configuration_that_another_overtakes_while_it_waits_for_lists_never_runs() {
    let mut ingest = ingest();
    let plain = json!({"format": 1});
    adopt(&mut ingest, &plain);
    list_all(&mut ingest);
    adopt(&mut ingest, &selecting("overtaken"));
    assert!(ingest.writer.is_renewing());
    // Lists that began before do not count for it.
    OBJECTS.iter().for_each(|resource| ingest.begin(&Watched::Objects(*resource)));
    ingest.take_config_map(
        json!({"data": {"stable.json": selecting("front").to_string()}}).to_string().as_bytes(),
    );
    OBJECTS.iter().for_each(|resource| complete(&mut ingest, *resource));
    assert_eq!(running(&ingest), config(&plain), "what runs is what is told");
    assert_eq!(reported(&ingest), config(&plain));
    list_all(&mut ingest);
    assert_eq!(running(&ingest), config(&selecting("front")));
    assert_eq!(reported(&ingest), config(&selecting("front")), "in the same step");
}

#[test]
fn e46_a_canary_that_waited_for_lists_or_pods_is_not_what_a_restart_runs() {
    for canary in [selecting("front"), json!({"format": 1, "podRecords": "Verified"})] {
        let folder = Folder::new();
        let mut ingest = ingest();
        let stable = json!({"format": 1, "ttlSeconds": 9});
        adopt(&mut ingest, &stable);
        list_all(&mut ingest);
        ingest.state_dir = Some((folder.0.clone(), None));
        ingest.warm_start();
        let rollout = json!({"stable": "1", "canary": "2", "observeSeconds": 60,
            "canaryPod": {"name": "dns-1", "uid": "uid-1"}, "startedAt": "2026-01-01T00:00:00Z"});
        adopt_texts(
            &mut ingest,
            json!({"stable.json": stable.to_string(), "canary.json": canary.to_string(),
                "rollout.json": rollout.to_string()}),
        );
        list_all(&mut ingest);
        list(&mut ingest, Resource::Pods, &[]);
        assert_eq!(running(&ingest), config(&canary));

        let begin = Instant::now();
        while ingest.status.read().snapshot.writes == 0 {
            ingest.writer.step_snapshot();
            assert!(begin.elapsed() < PATIENCE, "{:?}", ingest.status.read().snapshot);
        }
        let stored = Stored::open(&folder.file()).unwrap().unwrap();
        assert_eq!(stored.configuration().unwrap(), config(&stable));
    }
}

#[test]
fn what_is_not_served_is_told_for_as_long_as_it_is_there() {
    let mut ingest = ingest();
    adopt(&mut ingest, &json!({"format": 1}));
    list_all(&mut ingest);
    let bad = [unreadable("bad-1"), unreadable("bad-2")];
    list(&mut ingest, Resource::Services, &bad);
    list(&mut ingest, Resource::EndpointSlices, &[slice_of_nothing("bad-3")]);
    assert_eq!(skipped_names(&mut ingest), ["bad-3", "bad-1", "bad-2"]);
    // One of them was deleted while nothing was heard; a list that breaks off takes nothing away.
    ingest.begin(&Watched::Objects(Resource::Services));
    assert_eq!(skipped_names(&mut ingest), ["bad-3", "bad-1", "bad-2"]);
    list(&mut ingest, Resource::Services, &bad[..1]);
    assert_eq!(skipped_names(&mut ingest), ["bad-3", "bad-1"]);
    list(&mut ingest, Resource::EndpointSlices, &[]);
    list(&mut ingest, Resource::Services, &[service("bad-1")]);
    assert_eq!(skipped_names(&mut ingest), [""; 0]);
}

/// A folder with a snapshot of the Service `cart` and this configuration.
fn kept(stable: &Value) -> Folder {
    let folder = Folder::new();
    let mut ingest = ingest();
    adopt(&mut ingest, stable);
    list_all(&mut ingest);
    ingest.state_dir = Some((folder.0.clone(), None));
    ingest.warm_start();
    let begin = Instant::now();
    while ingest.status.read().snapshot.writes == 0 {
        ingest.writer.step_snapshot();
        assert!(begin.elapsed() < PATIENCE, "{:?}", ingest.status.read().snapshot);
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
        let (_way, ingest) = runtime.block_on(open(options, setup(Arc::default()))).unwrap();
        let ingest = ingest.borrow();
        assert!(ingest.is_configured());
        assert_eq!(running(&ingest).ttl_seconds, ttl_s);
        assert!(serves_cart(&ingest));
        assert_eq!(ingest.status.read().source_answers, None, "nothing was asked yet");
    }
}

#[test]
fn k24_another_exposure_lists_services_and_namespaces_at_once_and_no_slices() {
    let mut ingest = ingest();
    // Lists that all pods begin at once would be an hour apart.
    ingest.settling.pace.spread = Duration::from_secs(3600);
    adopt(&mut ingest, &json!({"format": 1}));
    list_all(&mut ingest);
    adopt(&mut ingest, &selecting("back"));
    let asked = *ingest.relists.borrow();
    let kinds: Vec<Resource> =
        Resource::ALL.into_iter().filter(|kind| asked[*kind as usize] > 0).collect();
    assert_eq!(kinds, [Resource::Services, Resource::Namespaces]);
    list(&mut ingest, Resource::Services, &[service("cart")]);
    assert!(serves_cart(&ingest), "one of two lists");
    list(&mut ingest, Resource::Namespaces, &[]);
    assert_eq!(running(&ingest), config(&selecting("back")));
    assert!(!serves_cart(&ingest), "its tier is front");

    // That label is known now.
    adopt(&mut ingest, &selecting("front"));
    assert_eq!(running(&ingest), config(&selecting("front")));
    assert!(serves_cart(&ingest));
    assert_eq!(*ingest.relists.borrow(), asked);
}
