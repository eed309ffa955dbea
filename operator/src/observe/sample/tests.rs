//! What is sampled of an API server, also where tenants made its objects to be in the way.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::fixtures::api::{self, Reply};
use serde_json::{Value, json};

#[test]
fn o17_a_selector_is_written_as_the_api_server_reads_it() {
    let selector = serde_json::json!({"matchLabels": {"team": "shop"}, "matchExpressions": [
        {"key": "a", "operator": "In", "values": ["x", "y"]},
        {"key": "b", "operator": "NotIn", "values": ["z"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"}]});
    let selector = serde_json::from_value(selector).unwrap();
    assert_eq!(as_text(&selector), "team=shop,a in (x,y),b notin (z),c,!d");
}

#[test]
fn o17_the_sample_is_spread_over_all_namespaces() {
    let of = |count: usize| {
        let named = (0..count).map(|n| (format!("n{n:04}"), BTreeMap::new()));
        spread(&named.collect()).into_iter().cloned().collect::<Vec<String>>()
    };
    assert_eq!(of(2), ["n0000", "n0001"]);
    let many = of(1_000);
    assert_eq!((many.len(), many[0].as_str(), many[11].as_str()), (12, "n0000", "n0924"));
}

/// What an API server would list of these kinds, each object with labels of this many octets.
fn listed(path: &str, octets: usize) -> Value {
    let kind = path.rsplit('/').next().unwrap_or_default();
    let object = |name: &str, labels: Value| json!({"metadata": {"name": name, "resourceVersion": "7", "labels": labels}});
    let many: serde_json::Map<String, Value> =
        (0..octets / 10).map(|number| (format!("l{number:07}"), json!("1"))).collect();
    let items = match kind {
        "namespaces" => vec![object("shop", json!({"team": "a"})), object("wide", many.into())],
        "services" => vec![object("cart", json!({"app": "b"})), object("wide", many.into())],
        "endpointslices" => (0..20).map(|_| object("cart-1", many.clone().into())).collect(),
        other => panic!("{other}"),
    };
    json!({"metadata": {"resourceVersion": "9"}, "items": items})
}

#[tokio::test]
async fn l12_of_objects_with_thousands_of_labels_a_sample_keeps_versions_at_most() {
    let client = api::client(|asked| Reply::ok(listed(&asked.path, 3 * LABEL_OCTETS)));
    let samples = Samples::default();
    let exposure = Exposure { namespaces: vec!["wide".to_owned()], ..Exposure::default() };
    let sample = samples.read(&client, &Lists::default(), &exposure).await;
    assert_eq!(sample.unread, None);
    assert_eq!(sample.namespaces.keys().collect::<Vec<_>>(), ["shop"]);
    assert!(sample.missing.is_empty(), "it exists, and is only too wide to keep");
    let named: Vec<_> = sample.services.iter().map(|it| (&*it.name, it.labels.len())).collect();
    assert_eq!(named, [("cart", 1)]);
    let version = &sample.services[0].version;
    assert!(version.starts_with("shop@7,wide@7 cart@7,wide@7 cart-1@7"), "{version}");
}

/// An API server that answers each path with this list, or refuses.
fn sampled(list: fn(&str) -> Option<Value>) -> impl Future<Output = Sample> {
    let client = api::client(move |asked| match list(&asked.path) {
        Some(list) => Reply::ok(list),
        None => Reply::status(500, "etcdserver: request timed out"),
    });
    async move { Samples::default().read(&client, &Lists::default(), &Exposure::default()).await }
}

fn named(names: &[&str]) -> Value {
    let objects =
        names.iter().map(|name| json!({"metadata": {"name": name, "resourceVersion": "7"}}));
    json!({"metadata": {"resourceVersion": "9"}, "items": objects.collect::<Vec<_>>()})
}

#[tokio::test]
async fn o17_a_service_whose_answer_comes_from_elsewhere_is_not_asked_for() {
    let list = |path: &str| {
        let mut list = named(&["aaa", "aab", "cart", "db", "web"]);
        match path.rsplit('/').next() {
            Some("namespaces") => Some(named(&["shop"])),
            Some("services") => {
                for place in [0, 1] {
                    list["items"][place]["spec"] =
                        json!({"type": "ExternalName", "externalName": "a.tenant.example"});
                }
                // As an API server shows what a tenant wrote there: no library reads it as a time.
                list["items"][2]["metadata"]["managedFields"] =
                    json!([{"time": "10000-01-01T11:59:59Z"}]);
                list["items"][2]["spec"] = json!({"type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"]});
                Some(list)
            }
            _ => Some(named(&["cart-1"])),
        }
    };
    let sample = sampled(list).await;
    assert_eq!(sample.unread, None);
    let found: Vec<_> = sample.services.iter().map(|it| (&*it.name, it.address)).collect();
    assert_eq!(found, [("cart", Some([10, 96, 0, 7].into())), ("db", None)]);
}

#[tokio::test]
async fn o17_a_namespace_that_cannot_be_read_leaves_the_others_of_the_sample() {
    let list = |path: &str| match path.rsplit('/').next() {
        Some("namespaces") => Some(named(&["a", "b", "c"])),
        Some("services") => (!path.contains("/b/")).then(|| named(&["web"])),
        _ => Some(named(&["web-1"])),
    };
    let sample = sampled(list).await;
    assert_eq!(sample.unread, None);
    let found: Vec<_> = sample.services.iter().map(|it| &*it.namespace).collect();
    assert_eq!(found, ["a", "c"]);
    let list = |path: &str| path.ends_with("/namespaces").then(|| named(&["a", "b", "c"]));
    assert!(sampled(list).await.unread.is_some(), "no namespace can be read");
}

#[tokio::test]
async fn o17_a_change_beyond_the_slices_that_are_listed_is_seen() {
    let list = |path: &str| match path.rsplit('/').next() {
        Some("namespaces") => Some(named(&["shop"])),
        Some("endpointslices") => {
            let mut list = named(&["web-1"]);
            list["metadata"]["continue"] = json!("more");
            Some(list)
        }
        _ => Some(named(&["web"])),
    };
    let version = sampled(list).await.services.remove(0).version;
    assert_eq!(version, "shop@7 web@7 web-1@7,more@9");
}

/// An API server with the namespace `shop` and its Service `web`. The edit of a user brings the namespace `new`, with a label, and
/// a Service with a label.
fn edited(is_edited: &Arc<AtomicBool>) -> Client {
    let is_edited = Arc::clone(is_edited);
    api::client(move |asked| {
        let is_edited = is_edited.load(Relaxed);
        let query = &asked.query;
        let is_about_new = query.contains("labelSelector=team") || query.contains("name%3Dnew");
        Reply::ok(match asked.last() {
            "namespaces" if is_about_new && is_edited => {
                let mut list = named(&["new"]);
                list["items"][0]["metadata"]["labels"] = json!({"team": "a"});
                list
            }
            "namespaces" if is_about_new => named(&[]),
            "namespaces" => named(&["shop"]),
            "services" if query.contains("labelSelector") && !is_edited => named(&[]),
            _ => named(&["web"]),
        })
    })
}

#[tokio::test]
async fn o17_what_a_user_mends_after_a_failed_trial_is_seen_by_the_next_one() {
    let is_edited = Arc::new(AtomicBool::new(false));
    let (client, lists, samples) = (edited(&is_edited), Lists::default(), Samples::default());
    let exposure = |exposure: Value| serde_json::from_value::<Exposure>(exposure).unwrap();
    let named = exposure(json!({"namespaces": ["shop", "new"]}));
    let by_team = exposure(json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}));
    let by_dns = exposure(json!({"serviceSelector": {"matchLabels": {"dns": "shown"}}}));
    let selects_namespace = |sample: &Sample| {
        sample.namespaces.values().any(|labels| by_team.namespace_selector.matches(labels))
    };
    assert_eq!(samples.read(&client, &lists, &named).await.missing, ["new".to_owned()].into());
    assert!(!selects_namespace(&samples.read(&client, &lists, &by_team).await));
    assert_eq!(samples.read(&client, &lists, &by_dns).await.selects, Some(false));
    is_edited.store(true, Relaxed);
    assert!(samples.read(&client, &lists, &named).await.missing.is_empty());
    assert!(selects_namespace(&samples.read(&client, &lists, &by_team).await));
    assert_eq!(samples.read(&client, &lists, &by_dns).await.selects, Some(true));
}
