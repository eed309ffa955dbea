//! Lists, events and configurations in every order, without an API server: what is in effect, what
//! is reported of it, and what a restart would run.

mod pods;
mod refused;
mod relists;
mod resolv_conf;
mod namespace_turns;

use std::sync::Arc;
use std::time::Duration;

use crds::Config;
use crds::config::{EndpointNames, PodRecords};
use dataplane_core::{DataSource, Source};
use serde_json::{Value, json};

use super::*;
use crate::names;
use crate::snapshot::Stored;
use crate::snapshot::tests::Folder;
use crate::source::api::rollout::Own;
use crate::source::api::status::StreamStatus;
use crate::source::api::{Credentials, Options, Pace, Wanted, decode, open};
use crate::source::objects::convert;
use crate::source::writer::{Setup, Writer};

/// Generous: machines that build are slow at times.
const PATIENCE: Duration = Duration::from_secs(30);

const OBJECTS: [Resource; 3] = [Resource::Services, Resource::EndpointSlices, Resource::Namespaces];

/// A sink whose configuration comes from a ConfigMap that was not read yet.
pub(in crate::source::api) fn sink() -> Sink {
    sink_with(Setup::reporting_to(Arc::default()))
}

fn sink_with(setup: Setup) -> Sink {
    let status = Arc::clone(&setup.status);
    let wanted =
        Wanted::ConfigMap { namespace: "dns".into(), name: "clusterdns".into(), mounted: None };
    let pace = Pace::with_spread(Duration::ZERO);
    let own = Own { pod_uid: Some("uid-1".into()), ..Own::default() };
    let configuration = Configuration::new(wanted, own, pace);
    let writer = Writer::unconfigured(setup).unwrap();
    Sink::new(Ingest::new(writer, StreamStatus::new(status)), configuration)
}

/// The ConfigMap has this configuration for every pod.
pub(in crate::source::api) fn adopt(sink: &mut Sink, stable: &Value) {
    adopt_texts(sink, json!({"stable.json": stable.to_string()}));
}

fn adopt_texts(sink: &mut Sink, texts: Value) {
    take(sink, texts);
    sink.tick(Instant::now());
}

/// The ConfigMap has these texts.
fn take(sink: &mut Sink, texts: Value) {
    let text = json!({"data": texts}).to_string();
    sink.configuration.take_config_map(&mut sink.ingest, text.as_bytes());
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

#[test]
fn the_thread_that_owns_the_index_says_which_objects_an_answer_came_from() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    let service = json!({
        "metadata": {
            "name": "cart",
            "namespace": "shop",
            "uid": "00000000-0000-4000-8000-0000000000aa",
            "resourceVersion": "4711",
        },
        "spec": {"clusterIP": "10.96.0.1"},
    });
    apply(&mut sink, Resource::Services, &service);
    let inspections = Arc::clone(&sink.ingest.writer.state().inspections);
    let named = |name: &str| Source::Service { namespace: "shop".into(), name: name.into() };
    let mut asked = inspections.ask(vec![named("nothere"), named("cart")]).unwrap();
    assert!(asked.try_recv().is_err(), "between two events, not before");
    sink.tick(Instant::now());
    let answer = asked.try_recv().unwrap();
    assert_eq!(answer[0], None);
    let found = answer[1].as_ref().unwrap();
    assert_eq!((found.uid, found.version), (0x4000_8000_0000_0000_00aa, 4711));
}

/// A slice of what cannot be a Service.
fn slice_of_nothing(name: &str) -> Value {
    let labels = json!({"kubernetes.io/service-name": "not.a.Service"});
    let metadata = json!({"name": name, "namespace": "shop", "labels": labels});
    json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []})
}

fn apply(sink: &mut Sink, resource: Resource, object: &Value) {
    sink.apply_of_list(&Watched::Objects(resource), object.to_string().as_bytes());
}

/// A whole list of a resource.
fn list(sink: &mut Sink, resource: Resource, objects: &[Value]) {
    sink.begin(&Watched::Objects(resource));
    objects.iter().for_each(|object| apply(sink, resource, object));
    complete(sink, resource);
}

fn complete(sink: &mut Sink, resource: Resource) {
    sink.complete(&Watched::Objects(resource), "100");
}

/// Everything that every configuration needs, with the Service `cart`.
fn list_all(sink: &mut Sink) {
    list(sink, Resource::Services, &[service("cart")]);
    list(sink, Resource::EndpointSlices, &[]);
    list(sink, Resource::Namespaces, &[]);
}

fn running(sink: &Sink) -> Config {
    sink.ingest.writer.configs().borrow().as_ref().clone()
}

fn reported(sink: &Sink) -> Config {
    config(&sink.ingest.status.shared.read().running.document)
}

fn serves_cart(sink: &Sink) -> bool {
    let text = service("cart").to_string();
    let decoded = decode::object(Resource::Services, text.as_bytes()).unwrap();
    let state = sink.ingest.writer.state();
    names::page(&state, &running(sink), decoded.object.iter().cloned(), &[], None)
        .contains("10.96.0.1")
}

fn skipped_names(sink: &mut Sink) -> Vec<String> {
    sink.report();
    sink.ingest.status.shared.read().skipped.iter().map(|skipped| skipped.name.clone()).collect()
}

#[test]
fn e5_a_configuration_that_comes_amid_the_first_list_hides_nothing() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    sink.begin(&Watched::Objects(Resource::Services));
    apply(&mut sink, Resource::Services, &service("cart"));
    adopt(&mut sink, &selecting("front"));
    let relists = *sink.ingest.relists.borrow();
    // Kinds without objects are listed whole. The list of Services began before the change, so it does not count.
    list(&mut sink, Resource::EndpointSlices, &[]);
    list(&mut sink, Resource::Namespaces, &[]);
    complete(&mut sink, Resource::Services);
    assert!(serves_cart(&sink), "E20: the list is complete");
    if relists != [0; KINDS] {
        list_all(&mut sink);
    }
    assert_eq!(running(&sink), config(&selecting("front")));
    assert!(serves_cart(&sink));
}

#[test]
fn e5_what_leaves_verified_pod_records_keeps_the_pods_until_it_is_in_effect() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1, "podRecords": "Verified"}));
    list_all(&mut sink);
    list(&mut sink, Resource::Pods, &[]);
    assert_eq!(sink.ingest.writer.source(Resource::Pods), DataSource::Live);
    assert!(*sink.configuration.pods_wanted.borrow());

    adopt(&mut sink, &selecting("front"));
    assert!(sink.ingest.writer.is_renewing());
    assert!(*sink.configuration.pods_wanted.borrow(), "answers rest on them");
    assert!(sink.ingest.status.shared.read().feeds[Resource::Pods as usize].is_wanted);

    // The new one reads no Pods, and does not wait for their list.
    list_all(&mut sink);
    assert_eq!(running(&sink).pod_records, PodRecords::Insecure);
    assert!(!*sink.configuration.pods_wanted.borrow());
    sink.forget(Resource::Pods);
    // E50: no metric says that what is not needed is old, neither now nor when it is needed again.
    let pods = sink.ingest.status.shared.read().feeds[Resource::Pods as usize].clone();
    assert!(!pods.is_wanted && pods.age().is_none());

    // Back to Verified, with another exposure: the old setting stays until the Pods are known (E43).
    let mut verified = selecting("back");
    verified["podRecords"] = "Verified".into();
    adopt(&mut sink, &verified);
    assert!(*sink.configuration.pods_wanted.borrow());
    list_all(&mut sink);
    assert_eq!(running(&sink).pod_records, PodRecords::Insecure);
    sink.begin(&Watched::Objects(Resource::Pods));

    // A list of Pods that is not complete does not count for the index that takes over meanwhile.
    verified["endpointNames"] = "PodName".into();
    adopt(&mut sink, &verified);
    list_all(&mut sink);
    assert_eq!(running(&sink).endpoint_names, EndpointNames::PodName);
    complete(&mut sink, Resource::Pods);
    assert_eq!(running(&sink).pod_records, PodRecords::Insecure);
    assert_eq!(reported(&sink), config(&selecting("front")), "not without the Pods");
    list(&mut sink, Resource::Pods, &[]);
    assert_eq!(running(&sink), config(&verified));
    assert_eq!(reported(&sink), config(&verified));
}

#[test]
fn a_configuration_that_another_overtakes_while_it_waits_for_lists_never_runs() {
    let mut sink = sink();
    let plain = json!({"format": 1});
    adopt(&mut sink, &plain);
    list_all(&mut sink);
    adopt(&mut sink, &selecting("overtaken"));
    assert!(sink.ingest.writer.is_renewing());
    // Lists that began before do not count for it.
    OBJECTS.iter().for_each(|resource| sink.begin(&Watched::Objects(*resource)));
    take(&mut sink, json!({"stable.json": selecting("front").to_string()}));
    OBJECTS.iter().for_each(|resource| complete(&mut sink, *resource));
    assert_eq!(running(&sink), config(&plain), "what runs is what is reported");
    assert_eq!(reported(&sink), config(&plain));
    list_all(&mut sink);
    assert_eq!(running(&sink), config(&selecting("front")));
    assert_eq!(reported(&sink), config(&selecting("front")), "in the same step");
}

#[test]
fn e46_a_canary_that_waited_for_lists_or_pods_is_not_what_a_restart_runs() {
    for canary in [selecting("front"), json!({"format": 1, "podRecords": "Verified"})] {
        let folder = Folder::new();
        let mut sink = sink();
        let stable = json!({"format": 1, "ttlSeconds": 9});
        adopt(&mut sink, &stable);
        list_all(&mut sink);
        sink.configuration.state_dir = Some((folder.0.clone(), None));
        sink.warm_start();
        let rollout = json!({"stable": "1", "canary": "2", "observeSeconds": 60,
            "canaryPod": {"name": "dns-1", "uid": "uid-1"}, "startedAt": "2026-01-01T00:00:00Z"});
        adopt_texts(
            &mut sink,
            json!({"stable.json": stable.to_string(), "canary.json": canary.to_string(),
                "rollout.json": rollout.to_string()}),
        );
        list_all(&mut sink);
        list(&mut sink, Resource::Pods, &[]);
        assert_eq!(running(&sink), config(&canary));

        let begin = Instant::now();
        while sink.ingest.status.shared.read().snapshot.writes == 0 {
            sink.ingest.writer.step_snapshot(false);
            assert!(begin.elapsed() < PATIENCE, "{:?}", sink.ingest.status.shared.read().snapshot);
        }
        let stored = Stored::open(&folder.file()).unwrap().unwrap();
        assert_eq!(stored.configuration().unwrap(), config(&stable));
    }
}

#[test]
fn what_is_not_served_is_reported_for_as_long_as_it_is_there() {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    let bad = [unreadable("bad-1"), unreadable("bad-2")];
    list(&mut sink, Resource::Services, &bad);
    list(&mut sink, Resource::EndpointSlices, &[slice_of_nothing("bad-3")]);
    assert_eq!(skipped_names(&mut sink), ["bad-3", "bad-1", "bad-2"]);
    // One of them was deleted while nothing was heard; a list that breaks off takes nothing away.
    sink.begin(&Watched::Objects(Resource::Services));
    assert_eq!(skipped_names(&mut sink), ["bad-3", "bad-1", "bad-2"]);
    list(&mut sink, Resource::Services, &bad[..1]);
    assert_eq!(skipped_names(&mut sink), ["bad-3", "bad-1"]);
    list(&mut sink, Resource::EndpointSlices, &[]);
    list(&mut sink, Resource::Services, &[service("bad-1")]);
    assert_eq!(skipped_names(&mut sink), [""; 0]);
}

/// A folder with a snapshot of the Service `cart` and this configuration.
fn kept(stable: &Value) -> Folder {
    let folder = Folder::new();
    let mut sink = sink();
    adopt(&mut sink, stable);
    list_all(&mut sink);
    sink.configuration.state_dir = Some((folder.0.clone(), None));
    sink.warm_start();
    let begin = Instant::now();
    while sink.ingest.status.shared.read().snapshot.writes == 0 {
        sink.ingest.writer.step_snapshot(false);
        assert!(begin.elapsed() < PATIENCE, "{:?}", sink.ingest.status.shared.read().snapshot);
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
        let (_client, sink) =
            runtime.block_on(open(options, Setup::reporting_to(Arc::default()))).unwrap();
        let sink = sink.borrow();
        assert!(sink.configuration.is_configured());
        assert_eq!(running(&sink).ttl_seconds, ttl_s);
        assert!(serves_cart(&sink));
        assert_eq!(sink.ingest.status.shared.read().source_answers, None, "nothing was asked yet");
    }
}

#[test]
fn k24_another_exposure_lists_services_and_namespaces_at_once_and_no_slices() {
    let mut sink = sink();
    // Lists that all pods begin at once would be an hour apart.
    sink.configuration.pace.spread = Duration::from_secs(3600);
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    adopt(&mut sink, &selecting("back"));
    let asked = *sink.ingest.relists.borrow();
    let kinds: Vec<Resource> =
        Resource::ALL.into_iter().filter(|kind| asked[*kind as usize] > 0).collect();
    assert_eq!(kinds, [Resource::Services, Resource::Namespaces]);
    list(&mut sink, Resource::Services, &[service("cart")]);
    assert!(serves_cart(&sink), "one of two lists");
    list(&mut sink, Resource::Namespaces, &[]);
    assert_eq!(running(&sink), config(&selecting("back")));
    assert!(!serves_cart(&sink), "its tier is front");

    // That label is known now.
    adopt(&mut sink, &selecting("front"));
    assert_eq!(running(&sink), config(&selecting("front")));
    assert!(serves_cart(&sink));
    assert_eq!(*sink.ingest.relists.borrow(), asked);
}
