//! Which ClusterDNS are enqueued when all watches start, and which when one object changes. The API server is a
//! function.

use std::collections::BTreeSet;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use hyper::body::Bytes;
use kube::runtime::watcher::Event;
use process::items::MAX_OBJECT;
use serde_json::{Value, json};

use super::*;
use crate::ask_pods::pod_reports::http_address;
use crate::fixtures::api::{self, Asked, Reply};
use crate::observe::octets::octets;
use crate::observe::pods;
use crate::observe::unlisted::Cause;
use crate::runtime::restored::{Resets, confirming};

mod large_cluster;
mod resources;

const MANY: usize = 200;
/// Each ClusterDNS has one object of each of these kinds.
const KINDS: [&str; 5] = ["services", "configmaps", "deployments", "pods", "replicasets"];

type Pieces = UnboundedSender<Bytes>;

/// Lists what each ClusterDNS has, and keeps every watch open.
#[derive(Clone)]
struct Api {
    watches: Arc<Mutex<BTreeMap<String, Pieces>>>,
    /// Its version, and how many ClusterDNS have objects.
    has: Arc<Mutex<(usize, usize)>>,
    /// Every ClusterDNS.
    resources: Arc<Mutex<Vec<Value>>>,
    /// The namespace in which the operator may list nothing.
    refused: Arc<Mutex<Option<&'static str>>>,
}

impl Default for Api {
    fn default() -> Api {
        let has = Arc::new(Mutex::new((1, MANY)));
        let (watches, resources, refused) = (Arc::default(), Arc::default(), Arc::default());
        Api { watches, has, resources, refused }
    }
}

fn child(kind: &str, instance: &str, version: usize) -> Value {
    let labels = json!({names::INSTANCE: instance});
    let name = format!("{kind}-{instance}");
    json!({"metadata": {"name": name, "namespace": "dns", "resourceVersion": version.to_string(), "labels": labels}})
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        api::client(move |asked| api.reply(asked))
    }

    fn reply(&self, asked: &Asked) -> Reply {
        let kind = asked.last();
        let is_refused = |namespace| asked.path.contains(&format!("/namespaces/{namespace}/"));
        if self.refused.lock().unwrap().is_some_and(is_refused) {
            return Reply::status(403, &format!("{kind} is forbidden"));
        }
        if asked.is_watch() {
            let (pieces, body) = unbounded();
            self.watches.lock().unwrap().insert(kind.to_owned(), pieces);
            return Reply::stream(body);
        }
        let (version, many) = *self.has.lock().unwrap();
        let count = if KINDS.contains(&kind) { many } else { 0 };
        let items: Vec<Value> = match kind {
            "clusterdnses" => self.resources.lock().unwrap().clone(),
            kind => (0..count).map(|n| child(kind, &format!("d{n}"), 1)).collect(),
        };
        Reply::list_at(version, items)
    }

    /// Its etcd is restored from a backup: it is started again, and accepts watches at versions that it does not have yet.
    fn restore(&self, version: usize, many: usize) {
        *self.has.lock().unwrap() = (version, many);
        self.watches.lock().unwrap().clear();
    }

    /// An object has changed.
    async fn change(&self, kind: &str, instance: &str) {
        self.send(kind, child(kind, instance, 2)).await;
    }

    /// The watch of this kind may not have begun yet.
    async fn send(&self, kind: &str, object: Value) {
        let event = json!({"type": "MODIFIED", "object": object});
        loop {
            let watch = self.watches.lock().unwrap().get(kind).cloned();
            if let Some(watch) = watch {
                return watch.unbounded_send(format!("{event}\n").into()).unwrap();
            }
            tokio::task::yield_now().await;
        }
    }
}

fn started(api: &Api, all: Store<ClusterDNS>, triggers: &Arc<Triggers>) -> Caches {
    let (metrics, lists) = (Arc::default(), Arc::default());
    Caches::start(api.client(), &["dns".to_owned()], all, triggers.clone(), metrics, lists)
}

#[tokio::test]
async fn o13_the_start_wakes_each_of_many_once_and_a_change_wakes_the_one_it_is_about() {
    let (all, mut writer) = kube::runtime::reflector::store();
    for n in 0..MANY {
        let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": format!("d{n}")}, "spec": {"service": {"namespace": "dns", "name": format!("dns-{n}")}}});
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(dns).unwrap()));
    }
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    let caches = started(&api, all, &triggers);
    caches.wait_until_read("").await;
    caches.wait_until_read("dns").await;
    let mut woken = Box::pin(triggers.stream());
    let mut names = Vec::new();
    while let Some(Some(reference)) = woken.next().now_or_never() {
        names.push(reference.name);
    }
    names.sort();
    let mut expected: Vec<String> = (0..MANY).map(|n| format!("d{n}")).collect();
    expected.sort();
    // A thousand objects were listed.
    assert_eq!(names, expected, "each once");
    for kind in KINDS {
        api.change(kind, "d7").await;
        assert_eq!(woken.next().await.map(|it| it.name).as_deref(), Some("d7"), "{kind}");
        assert!(woken.next().now_or_never().is_none(), "{kind}: no other");
    }
}

#[tokio::test]
async fn o13_an_edit_wakes_also_those_whose_pods_are_not_selected_any_more() {
    let (all, mut writer) = kube::runtime::reflector::store();
    for name in ["a", "b"] {
        let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": name},
            "spec": {"service": {"namespace": "dns", "name": name}, "placement": {"podLabels": {"team": name}}}});
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(dns).unwrap()));
    }
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    *api.has.lock().unwrap() = (1, 0);
    let caches = started(&api, all, &triggers);
    caches.wait_until_read("dns").await;
    let mut woken = Box::pin(triggers.stream());
    while woken.next().now_or_never().is_some() {}
    for (kind, path) in [("poddisruptionbudgets", "matchLabels"), ("services", "")] {
        let mut version = 1;
        for (team, expected) in [("a", &["a"][..]), ("b", &["a", "b"]), ("c", &["b"])] {
            version += 1;
            let labels = json!({"team": team});
            let selector = if path.is_empty() { labels } else { json!({path: labels}) };
            let object = json!({"metadata": {"name": "foreign", "namespace": "dns", "resourceVersion": version.to_string()},
                "spec": {"selector": selector}});
            api.send(kind, object).await;
            let mut names = vec![woken.next().await.unwrap().name];
            while let Some(Some(reference)) = woken.next().now_or_never() {
                names.push(reference.name);
            }
            assert_eq!(names, expected, "{kind} {team}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn o13_a_repeated_list_wakes_those_whose_objects_are_gone() {
    let (all, mut writer) = kube::runtime::reflector::store();
    for (name, namespace) in [("d0", "dns"), ("other", "elsewhere")] {
        let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": name},
            "spec": {"service": {"namespace": namespace, "name": name}}});
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(dns).unwrap()));
    }
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    *api.has.lock().unwrap() = (1, 1);
    let caches = started(&api, all, &triggers);
    caches.wait_until_read("").await;
    caches.wait_until_read("dns").await;
    let services = || caches.objects(Kind::Service, "dns").len();
    let mut woken = Box::pin(triggers.stream());
    while woken.next().now_or_never().is_some() {}
    // It is deleted while the watch is away, which has missed too much.
    *api.has.lock().unwrap() = (2, 0);
    let expired = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old", "reason": "Expired", "code": 410});
    while services() > 0 {
        if let Some(watch) = api.watches.lock().unwrap().remove("services") {
            let event = json!({"type": "ERROR", "object": expired});
            watch.unbounded_send(format!("{event}\n").into()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut next = || woken.next().now_or_never().flatten().map(|it| it.name);
    assert_eq!(next().as_deref(), Some("d0"));
    assert_eq!(next(), None, "the others are of other namespaces");
}

#[tokio::test(start_paused = true)]
async fn k22_caches_show_what_an_api_server_has_whose_etcd_was_restored() {
    let (all, _writer) = kube::runtime::reflector::store();
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    *api.has.lock().unwrap() = (100, MANY);
    let metrics = Arc::<Metrics>::default();
    let client = confirming(api.client(), Resets::new(metrics.clone()));
    let namespaces = ["dns".to_owned()];
    let caches = Caches::start(client, &namespaces, all, triggers, metrics.clone(), Arc::default());
    caches.wait_until_read("").await;
    caches.wait_until_read("dns").await;
    let objects = |kind| caches.objects(kind, "dns").len();
    assert_eq!((objects(Kind::Service), objects(Kind::Deployment)), (MANY, MANY));
    while KINDS.iter().any(|kind| !api.watches.lock().unwrap().contains_key(*kind)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    api.restore(90, 3);
    let follow = async {
        while (objects(Kind::Service), objects(Kind::Deployment)) != (3, 3) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let followed = tokio::time::timeout(Duration::from_secs(3600), follow).await;
    assert!(followed.is_ok(), "{} Services after an hour", objects(Kind::Service));
    let text = metrics.text();
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("clusterdns_operator_version_resets_total "));
    assert!(count.is_some_and(|count| count != "0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn k23_an_event_that_is_too_long_ends_no_watch_and_a_list_follows() {
    let (all, _writer) = kube::runtime::reflector::store();
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    let (metrics, lists) = (Arc::default(), Arc::default());
    let namespaces = ["dns".to_owned()];
    let caches = Caches::start(api.client(), &namespaces, all, triggers, metrics, lists);
    caches.wait_until_read("dns").await;
    let services = || caches.objects(Kind::Service, "dns").len();
    let newest = || {
        let all = caches.objects(Kind::Service, "dns");
        all.iter().filter_map(|it| it.metadata.resource_version.clone()).max()
    };
    api.change("services", "d1").await;
    let watch = api.watches.lock().unwrap()["services"].clone();
    for piece in [vec![b'x'; MAX_OBJECT], vec![b'x'; MAX_OBJECT], b"\n".to_vec()] {
        watch.unbounded_send(piece.into()).unwrap();
    }
    let behind = json!({"type": "MODIFIED", "object": child("services", "d7", 3)});
    watch.unbounded_send(format!("{behind}\n").into()).unwrap();
    let read = async {
        while newest().as_deref() != Some("3") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), read).await.is_ok(), "{:?}", newest());
    assert!(api.watches.lock().unwrap()["services"].same_receiver(&watch), "it began again");
    assert!(caches.is_incomplete(Kind::Service, "dns"), "it is not known which object it was");
    // The watch ends in order.
    *api.has.lock().unwrap() = (4, 5);
    api.watches.lock().unwrap().remove("services");
    drop(watch);
    let listed = async {
        while services() != 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(600), listed).await.is_ok(), "{}", services());
    assert!(!caches.is_incomplete(Kind::Service, "dns"));
}

#[tokio::test(start_paused = true)]
async fn k23_a_namespace_that_cannot_be_read_keeps_no_other_one_waiting() {
    let (all, mut writer) = kube::runtime::reflector::store();
    for (name, namespace) in [("a", "dns"), ("b", "gone")] {
        let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": name}, "spec": {"service": {"namespace": namespace, "name": "x"}}});
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(dns).unwrap()));
    }
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    *api.refused.lock().unwrap() = Some("gone");
    let namespaces = ["dns".to_owned(), "gone".to_owned()];
    let (metrics, lists) = (Arc::default(), Arc::default());
    let caches = Caches::start(api.client(), &namespaces, all, triggers.clone(), metrics, lists);
    caches.wait_until_read("").await;
    caches.wait_until_read("dns").await;
    assert!(!caches.is_unread("dns"));
    assert!(!caches.is_incomplete(Kind::Service, "dns"));
    assert!(caches.is_unread("gone") && caches.slices("gone", "x").is_none());
    assert!(caches.is_incomplete(Kind::Service, "gone"), "what is missing there may exist");
    let mut woken = Box::pin(triggers.stream());
    let mut next = async || woken.next().await.map(|it| it.name);
    assert_eq!(next().await.as_deref(), Some("a"), "its namespace is read");
    assert_eq!(next().await.as_deref(), Some("b"), "what has no namespace is read");
    assert_eq!(next().await.as_deref(), Some("b"), "its lists were refused three times");
    let unlisted = caches.why_unread("gone").expect("a reason");
    assert!(unlisted.cause == Cause::Refused && unlisted.why.contains("forbidden"), "{unlisted:?}");
    // Time in which each kind is refused several times.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let unlisted = caches.why_unread("gone").expect("a reason");
    assert_eq!(unlisted.others + 1, caches.places().iter().filter(|it| it.1 == "gone").count() + 3);
    assert!(next().now_or_never().is_none(), "it is woken for the first kind only");
    *api.refused.lock().unwrap() = None;
    caches.wait_until_read("gone").await;
    assert!(!caches.is_unread("gone"));
    assert!(!caches.is_incomplete(Kind::Service, "gone"));
    while next().await.as_deref() != Some("b") {}
}

#[tokio::test(start_paused = true)]
async fn o4_a_right_that_is_taken_away_while_the_operator_runs_is_noticed() {
    let (all, _writer) = kube::runtime::reflector::store();
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    let (metrics, lists) = (Arc::default(), Arc::default());
    let namespaces = ["dns".to_owned()];
    let caches = Caches::start(api.client(), &namespaces, all, triggers, metrics, lists);
    caches.wait_until_read("dns").await;
    while KINDS.iter().any(|kind| !api.watches.lock().unwrap().contains_key(*kind)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(caches.refused_watches("dns"), None);
    // The Role is gone, and the watches that are open end.
    *api.refused.lock().unwrap() = Some("dns");
    api.watches.lock().unwrap().clear();
    let becomes = async |is_refused: bool| {
        let seen = async {
            while caches.refused_watches("dns").is_some() != is_refused {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(300), seen).await.expect("it is noticed");
    };
    becomes(true).await;
    let refused = caches.refused_watches("dns").unwrap();
    assert!(refused.cause == Cause::Refused && refused.why.contains("forbidden"), "{refused:?}");
    assert!(!caches.is_unread("dns"), "what is kept is still decided from");
    *api.refused.lock().unwrap() = None;
    becomes(false).await;
}

#[test]
fn k23_of_a_pod_and_a_replica_set_only_what_is_read_is_kept() {
    let long = "x".repeat(100_000);
    let metadata = json!({"name": "a", "uid": "u", "labels": {names::INSTANCE: "default"},
        "annotations": {"deployment.kubernetes.io/revision": "7"}});
    let container = json!({"name": "dns", "image": "i", "env": [{"name": "e", "value": long}],
        "ports": [{"name": "metrics", "containerPort": 19153}]});
    let spec = json!({"nodeName": "n", "containers": [container], "volumes": [{"name": long}]});
    let status =
        json!({"podIP": "10.244.0.9", "conditions": [{"type": "Ready", "status": "True"}]});
    let mut pod: Pod =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap();
    let before = pod.clone();
    slim_pod(&mut pod);
    assert!(octets(&pod) < 16 << 10);
    let read = |pod: &Pod| {
        let node = pods::node(pod).map(str::to_owned);
        (node, http_address(pod), pods::is_ready(pod), pod.metadata.labels.clone())
    };
    assert_eq!(read(&pod), read(&before));
    assert_eq!(http_address(&pod).as_deref(), Some("10.244.0.9:19153"));
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let label = json!({"key": "pool", "operator": "In", "values": [long]});
    let required = |term| json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let affinity = required(json!({"matchFields": [field], "matchExpressions": [label]}));
    let spec = json!({"containers": [], "affinity": {"nodeAffinity": affinity, "podAffinity": {}}});
    let mut waiting: Pod =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    slim_pod(&mut waiting);
    let expected = json!({"nodeAffinity": required(json!({"matchFields": [field]}))});
    assert_eq!(json!(waiting.spec.unwrap().affinity), expected, "for which node it was made");
    let template = json!({"spec": {"containers": [{"name": long}]}});
    let mut set: ReplicaSet = serde_json::from_value(json!({"metadata": metadata,
        "spec": {"selector": {}, "template": template}}))
    .unwrap();
    slim_replica_set(&mut set);
    assert!(octets(&set) < 8 << 10);
    assert_eq!(set.annotations()["deployment.kubernetes.io/revision"], "7");
}
