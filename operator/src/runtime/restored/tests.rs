//! An API server as a function: it has one collection, and goes back to an older state as kube-apiserver does.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{StreamExt, pin_mut};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::api::{self, Asked, Reply};

/// What it has, and how often it was asked.
#[derive(Default)]
struct State {
    version: u64,
    names: BTreeMap<String, u64>,
    lists: usize,
    looks: Vec<String>,
    watches: Vec<u64>,
    /// Lists of one object are answered with this status.
    refusal: Option<u16>,
    /// Watches at versions that are not there yet.
    silent: Vec<UnboundedSender<Bytes>>,
}

type Shared = Arc<Mutex<State>>;

fn with<T>(shared: &Shared, change: impl FnOnce(&mut State) -> T) -> T {
    change(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

fn has(version: u64, names: &[(&str, u64)]) -> State {
    let names = names.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
    State { version, names, ..State::default() }
}

fn object(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()}})
}

fn answer(shared: &Shared, asked: &Asked) -> Reply {
    with(shared, |state| {
        if asked.is_watch() {
            let held = asked.parameter("resourceVersion").map_or(0, |it| it.parse().unwrap());
            state.watches.push(held);
            // Bookmarks and events come up to the present version; then the watch ends. One that is ahead stays silent.
            let version = state.version.to_string();
            let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"resourceVersion": version}}});
            if held <= state.version {
                return Reply::text(format!("{bookmark}\n"));
            }
            let (pieces, body) = unbounded();
            state.silent.push(pieces);
            return Reply::stream(body);
        }
        if asked.parameter("limit") == Some("1") {
            state.looks.push(format!("{}?{}", asked.path, asked.query));
            if let Some(code) = state.refusal {
                return Reply::status(code, "m");
            }
        } else {
            state.lists += 1;
        }
        let items: Vec<Value> = state.names.iter().map(|(name, at)| object(name, *at)).collect();
        Reply::list_at(state.version, items)
    })
}

fn server(state: State) -> (Shared, Client, Resets) {
    let shared: Shared = Arc::new(Mutex::new(state));
    let (served, resets) = (shared.clone(), Resets::new(Arc::default()));
    let client = api::client(move |asked| answer(&served, asked));
    (shared, confirming(client, resets.clone()), resets)
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "n")
}

/// The first event of a watch at this version.
async fn first(client: &Client, version: &str) -> kube::Result<Option<WatchEvent<ConfigMap>>> {
    let params = WatchParams::default().labels("a=b").fields("metadata.name=one");
    let events = maps(client).watch(&params, version).await?;
    pin_mut!(events);
    events.next().await.transpose()
}

#[tokio::test]
async fn k22_a_watch_ahead_of_the_api_server_is_answered_as_expired() {
    let (shared, client, resets) = server(has(50, &[("one", 50)]));
    let at_50 = first(&client, "50").await.unwrap();
    assert!(matches!(at_50, Some(WatchEvent::Bookmark(_))), "{at_50:?}");
    let ahead = first(&client, "51").await.unwrap();
    let is_expired = |status: &kube::core::Status| status.code == 410;
    assert!(matches!(&ahead, Some(WatchEvent::Error(status)) if is_expired(status)), "{ahead:?}");
    assert_eq!(*resets.subscribe().borrow(), 1);
    assert!(resets.metrics.text().contains("clusterdns_operator_version_resets_total 1"));
    with(&shared, |state| {
        assert_eq!(state.watches, [50], "the other one never reached it");
        let look = "/api/v1/namespaces/n/configmaps?limit=1&fieldSelector=metadata.name%3Done";
        assert_eq!(state.looks, [look, look]);
    });
}

#[tokio::test]
async fn k22_a_list_of_one_object_that_is_refused_refuses_the_watch() {
    let (shared, client, resets) = server(State { refusal: Some(503), ..has(50, &[]) });
    let refused = first(&client, "50").await;
    assert!(matches!(&refused, Err(Error::Api(status)) if status.code == 503), "{refused:?}");
    with(&shared, |state| assert!(state.watches.is_empty()));
    assert_eq!(*resets.subscribe().borrow(), 0);
    // Any version will do for such a watch.
    assert!(first(&client, "0").await.is_ok());
}

/// As lost pods and ClusterDNS are followed.
#[tokio::test(start_paused = true)]
async fn k22_kubes_watcher_lists_again_after_etcd_went_back() {
    let (shared, client, _) = server(has(100, &[("one", 90), ("two", 100)]));
    let events = watcher(maps(&client), watcher::Config::default());
    pin_mut!(events);
    let names =
        async |events: &mut (
                        dyn futures::Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin + Send
                    )| {
            let mut names = Vec::new();
            loop {
                match timeout(Duration::from_secs(1000), events.next())
                    .await
                    .expect("it is not silent")
                    .unwrap()
                {
                    Ok(Event::Init) => names.clear(),
                    Ok(Event::InitApply(map)) => names.push(map.name_any()),
                    Ok(Event::InitDone) => return names,
                    Ok(Event::Apply(_) | Event::Delete(_)) | Err(_) => {}
                }
            }
        };
    assert_eq!(names(&mut events).await, ["one", "two"]);
    with(&shared, |state| *state = has(95, &[("one", 90)]));
    assert_eq!(names(&mut events).await, ["one"]);
}
