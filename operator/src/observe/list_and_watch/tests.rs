//! Lists and watches of a scripted API server, with the clock of the test.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::json;

use super::super::budget::Budget;
use super::*;
use crate::fixtures::api::{self, Asked, Reply};
use crate::runtime::patience::patient;

/// Has three pages of one ConfigMap each, and watches in which nothing happens.
#[derive(Default)]
struct Server {
    /// Answers to the next requests for the second page.
    refusals: Mutex<Vec<u16>>,
    /// How often each request was made: the page, or `watch`.
    asked: Mutex<BTreeMap<&'static str, usize>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        api::client(move |asked| server.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let (request, page) = match asked.parameter("continue") {
            _ if asked.is_watch() => ("watch", 0),
            Some("to-2") => ("page 2", 2),
            Some("to-3") => ("page 3", 3),
            _ => ("page 1", 1),
        };
        *self.asked.lock().unwrap().entry(request).or_default() += 1;
        if request == "watch" {
            return Reply::stream(stream::pending());
        }
        if page == 2
            && let Some(code) = self.refusals.lock().unwrap().pop()
        {
            return Reply::status(code, "refused");
        }
        let next = (page < 3).then(|| format!("to-{}", page + 1));
        Reply::ok(json!({"metadata": {"resourceVersion": "7", "continue": next},
            "items": [{"metadata": {"name": format!("map-{page}"), "namespace": "dns",
                "uid": format!("uid-{page}"), "resourceVersion": "5"}}]}))
    }

    fn asked(&self, request: &str) -> usize {
        self.asked.lock().unwrap().get(request).copied().unwrap_or_default()
    }
}

/// Follows the ConfigMaps of this server for a while; the names that are known at its end.
async fn followed(server: &Arc<Server>, time: Duration) -> Vec<String> {
    heard(server, time).await.0
}

/// The same, and how many failures it said.
async fn heard(server: &Arc<Server>, time: Duration) -> (Vec<String>, usize) {
    followed_by(server.client(), time).await
}

async fn followed_by(client: Client, time: Duration) -> (Vec<String>, usize) {
    let writer = Writer::<ConfigMap>::new(());
    let store = writer.as_reader();
    let followed = Followed {
        api: Api::namespaced(client.clone(), "dns"),
        kind: (),
        label: None,
        slim: |_: &mut ConfigMap| {},
        stub: None,
        is_needed: |_, _| true,
        longest_wait: Duration::from_secs(30),
    };
    let means = Means {
        client,
        lists: Arc::new(Lists::default()),
        metrics: Arc::default(),
        gauge: Metrics::cached,
        all: Writer::new(()).as_reader(),
    };
    let share = Share::new(Arc::new(Budget::default()), 1, "ConfigMap");
    let failures = Cell::new(0);
    let count = |heard: Heard<'_, ConfigMap>| {
        failures.set(failures.get() + usize::from(matches!(heard, Heard::Failed(_))));
    };
    let _ = timeout(time, follow(followed, writer, share, means, count)).await;
    let mut names: Vec<String> = store.state().iter().map(|it| it.name_any()).collect();
    names.sort();
    (names, failures.get())
}

/// Whether a server is too busy for a request.
type IsRefused = fn(&Asked) -> bool;

/// When a server was asked that is too busy for this request, and asks each time for a wait of 40 s, in seconds from the beginning.
async fn asked_while_busy(is_refused: IsRefused) -> Vec<u64> {
    let (server, begun) = (Arc::<Server>::default(), time::Instant::now());
    let times = Arc::<Mutex<Vec<u64>>>::default();
    let noted = times.clone();
    let client = api::client(move |asked| {
        if !is_refused(asked) {
            return server.answer(asked);
        }
        noted.lock().unwrap().push(begun.elapsed().as_secs());
        Reply::overloaded(429, 40)
    });
    followed_by(patient(client), Duration::from_secs(130)).await;
    std::mem::take(&mut *times.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn o13_an_overloaded_api_server_is_left_alone_as_long_as_it_asks() {
    let requests: [(&str, IsRefused); 3] = [
        ("lists", |asked| !asked.is_watch()),
        ("watches", Asked::is_watch),
        ("a later page, whose list begins again", |asked| asked.parameter("continue").is_some()),
    ];
    for (what, is_refused) in requests {
        let times = asked_while_busy(is_refused).await;
        let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((3..=4).contains(&times.len()), "{what}: {times:?}");
        assert!(waits.iter().all(|wait| (40..=51).contains(wait)), "{what}: {times:?}");
    }
}

const ALL: [&str; 3] = ["map-1", "map-2", "map-3"];

#[tokio::test(start_paused = true)]
async fn k9_one_refused_page_is_asked_for_again_and_not_the_whole_list() {
    for code in [429, 503] {
        let server = Arc::new(Server::default());
        *server.refusals.lock().unwrap() = vec![code; 3];
        let (names, failures) = heard(&server, Duration::from_secs(60)).await;
        assert_eq!(names, ALL);
        assert_eq!((server.asked("page 1"), server.asked("page 2")), (1, 4), "{code}");
        assert_eq!(failures, 3, "each is said, so that a list that does not come is noticed");
    }
}

#[tokio::test(start_paused = true)]
async fn k5_a_page_whose_version_has_expired_is_not_asked_for_again() {
    let server = Arc::new(Server::default());
    *server.refusals.lock().unwrap() = vec![410];
    assert_eq!(followed(&server, Duration::from_secs(60)).await, ALL);
    assert_eq!((server.asked("page 1"), server.asked("page 2")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn k23_a_page_that_never_comes_does_not_hold_the_list_for_good() {
    let server = Arc::new(Server::default());
    *server.refusals.lock().unwrap() = vec![503; 6];
    assert_eq!(followed(&server, Duration::from_secs(600)).await, ALL);
    assert_eq!(server.asked("page 1"), 2, "a new list after 30 s of tries");
}

#[tokio::test(start_paused = true)]
async fn k9_a_busy_api_server_is_waited_for_longer_than_one_that_fails() {
    let server = Arc::new(Server::default());
    *server.refusals.lock().unwrap() = vec![429; 8];
    let (names, failures) = heard(&server, Duration::from_secs(160)).await;
    assert_eq!((names, failures), (ALL.map(str::to_owned).to_vec(), 8));
    assert_eq!(server.asked("page 1"), 1, "all pages were asked for again");
    // Until etcd may lose the version of the list.
    let server = Arc::new(Server::default());
    *server.refusals.lock().unwrap() = vec![429; 20];
    heard(&server, Duration::from_secs(600)).await;
    assert!(server.asked("page 1") > 1);
}

#[tokio::test(start_paused = true)]
async fn e24_a_watch_without_a_bookmark_for_longer_than_they_take_begins_again() {
    let server = Arc::new(Server::default());
    followed(&server, Duration::from_secs(100)).await;
    assert_eq!((server.asked("watch"), server.asked("page 1")), (2, 1));
}

/// Each watch ends in order after this time.
const OF_A_WATCH: Duration = Duration::from_secs(80);

/// Three ConfigMaps that leave no room for a Service, until they are deleted.
#[derive(Default)]
struct Full {
    are_deleted: AtomicBool,
    lists_of_services: AtomicUsize,
}

impl Full {
    fn answer(&self, asked: &Asked) -> Reply {
        let filling = "x".repeat(450_000);
        let metadata = |name: &str| {
            json!({"name": name, "namespace": "dns", "uid": name, "resourceVersion": "5",
            "annotations": {"a": filling}})
        };
        let maps: Vec<_> =
            ["a", "b", "c"].map(|name| json!({"metadata": metadata(name)})).into_iter().collect();
        if !asked.is_watch() {
            if asked.last() == "services" {
                self.lists_of_services.fetch_add(1, Ordering::Relaxed);
                return Reply::list([json!({"metadata": metadata("s")})]);
            }
            return Reply::list(maps);
        }
        let are_deleted = self.are_deleted.load(Ordering::Relaxed);
        let deleted = maps.iter().filter(|_| are_deleted && asked.last() == "configmaps");
        let mut events: String =
            deleted.map(|map| format!("{}\n", json!({"type": "DELETED", "object": map}))).collect();
        let reached = json!({"metadata": {"resourceVersion": "9"}});
        events.push_str(&format!("{}\n", json!({"type": "BOOKMARK", "object": reached})));
        Reply::stream(stream::once(async {
            time::sleep(OF_A_WATCH).await;
            events.into()
        }))
    }
}

/// Follows one kind forever, which has stubs without annotations.
async fn followed_within<K>(budget: &Arc<Budget>, store: u64, client: &Client, writer: Writer<K>)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let followed = Followed {
        api: Api::<K>::namespaced(client.clone(), "dns"),
        kind: (),
        label: None,
        slim: |_| {},
        stub: Some(|object| object.annotations_mut().clear()),
        is_needed: |_, _| false,
        longest_wait: Duration::from_secs(30),
    };
    let means = Means {
        client: client.clone(),
        lists: Arc::default(),
        metrics: Arc::default(),
        gauge: Metrics::cached,
        all: Writer::new(()).as_reader(),
    };
    let share = Share::new(budget.clone(), store, &K::plural(&()));
    follow(followed, writer, share, means, |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn k23_what_had_no_room_is_listed_again_when_others_have_made_room() {
    let (server, budget) = (Arc::<Full>::default(), Arc::new(Budget::of(2 << 20, "")));
    let it = server.clone();
    let client = api::client(move |asked| it.answer(asked));
    let (maps, services) = (Writer::<ConfigMap>::new(()), Writer::<Service>::new(()));
    let (kept_maps, kept) = (maps.as_reader(), services.as_reader());
    let is_whole = || kept.state().iter().all(|service| !service.annotations().is_empty());
    let lists = || server.lists_of_services.load(Ordering::Relaxed);
    let look = async {
        // Many watches later it is as full as it was.
        time::sleep(Duration::from_secs(1_200)).await;
        assert_eq!((kept_maps.state().len(), kept.state().len(), is_whole()), (3, 1, false));
        assert_eq!(lists(), 1, "a full cache is no reason to list");
        assert_eq!(budget.not_kept("dns"), BTreeSet::from(["services".to_owned()]));
        server.are_deleted.store(true, Ordering::Relaxed);
        time::sleep(3 * OF_A_WATCH).await;
        assert!(kept_maps.state().is_empty() && is_whole());
        assert!(budget.not_kept("dns").is_empty());
        time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(lists(), 2, "once");
    };
    tokio::select! {
        () = followed_within(&budget, 1, &client, maps) => {}
        () = async {
            time::sleep(Duration::from_secs(1)).await;
            followed_within(&budget, 2, &client, services).await;
        } => {}
        () = look => {}
    }
}

/// Has one ConfigMap, and refuses each list but the first. A watch brings an object that cannot be read, so that a list is due.
#[derive(Default)]
struct Busy {
    lists: AtomicUsize,
    watches: AtomicUsize,
}

impl Busy {
    /// The watch that brings a new ConfigMap. It begins more than 10 minutes after the list.
    const NEWS: usize = 10;

    fn answer(&self, asked: &Asked) -> Reply {
        let metadata = |name: &str, version: &str| json!({"name": name, "namespace": "dns", "uid": name, "resourceVersion": version});
        if !asked.is_watch() {
            return match self.lists.fetch_add(1, Ordering::Relaxed) {
                0 => Reply::list([json!({"metadata": metadata("old", "5")})]),
                _ => Reply::status(429, "busy"),
            };
        }
        let event = match self.watches.fetch_add(1, Ordering::Relaxed) {
            0 => json!({"type": "ADDED", "object": {"metadata": metadata("bad", "8"), "data": 7}}),
            Self::NEWS => json!({"type": "ADDED", "object": {"metadata": metadata("new", "9")}}),
            _ => json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}),
        };
        Reply::stream(stream::once(async move {
            time::sleep(OF_A_WATCH).await;
            format!("{event}\n").into()
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn k9_while_a_list_that_is_not_needed_is_refused_watches_bring_what_is_new() {
    let server = Arc::<Busy>::default();
    let it = server.clone();
    let client = api::client(move |asked| it.answer(asked));
    let (names, _) = followed_by(client, Duration::from_secs(1_500)).await;
    let lists = server.lists.load(Ordering::Relaxed);
    assert!(lists > 2, "it is asked for again: {lists}");
    assert_eq!(names, ["new", "old"]);
}
