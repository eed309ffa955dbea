//! Lists and watches of a scripted API server, with the clock of the test.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::super::budget::Budget;
use super::*;
use crate::fixtures::api::{self, Asked, Reply};

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
    let client = server.client();
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
async fn e24_a_watch_without_a_bookmark_for_longer_than_they_take_begins_again() {
    let server = Arc::new(Server::default());
    followed(&server, Duration::from_secs(100)).await;
    assert_eq!((server.asked("watch"), server.asked("page 1")), (2, 1));
}
