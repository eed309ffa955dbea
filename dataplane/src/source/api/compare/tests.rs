//! Lists and watches of a scripted API server, with the clock of the test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dataplane_core::Resource;
use futures::channel::mpsc;
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use process::items::MAX_OBJECT;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::*;
use crate::source::api::apply_in_turns;
use crate::source::api::client::ApiClient;
use crate::source::api::sink::Sink;
use crate::source::api::sink::tests::{adopt, sink};
use crate::source::api::watched::Watched;
use crate::status::feed::Feed;

const SERVICES: Watched = Watched::Objects(Resource::Services);
const SECOND: Duration = Duration::from_secs(1);
/// A list for comparison is due after this time, or up to four tenths later.
const COMPARE_AFTER: Duration = Duration::from_secs(60);

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Has Services, and shows one of them in each page of a list.
#[derive(Default)]
struct Server {
    version: u64,
    /// Versions by name.
    services: BTreeMap<String, u64>,
    /// The lists that were begun: their version, and what they have.
    lists: Vec<(u64, Vec<(String, u64)>)>,
    /// How often each page was asked for.
    asked: [usize; 4],
    /// The page that is answered with these codes, and the Retry-After of each.
    refused: usize,
    refusals: Vec<(u16, u64)>,
    /// This page is answered when the test says so.
    kept_back: Option<usize>,
    watches: Vec<mpsc::UnboundedSender<Bytes>>,
}

#[derive(Clone, Default)]
struct Api {
    server: Arc<Mutex<Server>>,
    go_on: Arc<Notify>,
}

fn service(name: &str, version: u64) -> Value {
    let uid = format!("00000000-0000-4000-8000-{:012}", name.len());
    let version = version.to_string();
    json!({"metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version},
           "spec": {"clusterIP": "10.96.0.1"}})
}

fn reply(code: u16, retry_after: Option<u64>, body: &Value) -> Reply {
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let text = Bytes::from(body.to_string());
    let frames = stream::iter([Ok(Frame::data(text))]);
    response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

impl Api {
    /// Has three Services, at version 10.
    fn new() -> Api {
        let api = Api::default();
        let services = ["a", "b", "c"].map(|name| (name.to_owned(), 5));
        *api.server() = Server { version: 10, services: services.into(), ..Server::default() };
        api
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let answer = move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    async fn answer(&self, request: Request<Body>) -> Reply {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.contains("watch=true") {
            let (out, lines) = mpsc::unbounded();
            self.server().watches.push(out);
            let frames = lines.map(|line| Ok(Frame::data(line)));
            return Response::new(StreamBody::new(frames).boxed_unsync());
        }
        if request.uri().path().contains("/default/") {
            let version = self.server().version.to_string();
            return reply(
                200,
                None,
                &json!({"metadata": {"resourceVersion": version}, "items": []}),
            );
        }
        let token = query.split('&').find_map(|part| part.strip_prefix("continue="));
        let (list, page) = match token.and_then(|token| token.split_once('-')) {
            Some((list, page)) => (list.parse().unwrap(), page.parse().unwrap()),
            None => (self.server().begin_list(), 1),
        };
        let is_kept_back = {
            let mut server = self.server();
            server.asked[page] += 1;
            if server.refused == page
                && let Some((code, seconds)) = server.refusals.pop()
            {
                return reply(code, Some(seconds), &json!({"message": "busy"}));
            }
            server.kept_back == Some(page)
        };
        if is_kept_back {
            self.go_on.notified().await;
        }
        self.server().page(list, page)
    }

    /// Deletes a Service, and sends the event.
    fn delete(&self, name: &str) {
        let mut server = self.server();
        server.version += 1;
        server.services.remove(name);
        let object = service(name, server.version);
        server.send(&json!({"type": "DELETED", "object": object}));
    }

    fn put(&self, name: &str) {
        let mut server = self.server();
        server.version += 1;
        let version = server.version;
        server.services.insert(name.to_owned(), version);
        server.send(&json!({"type": "MODIFIED", "object": service(name, version)}));
    }

    /// Sends an event that is too long to be read.
    fn put_too_long(&self) {
        let line = Bytes::from(vec![b'x'; MAX_OBJECT + 2_048]);
        for watch in &self.server().watches {
            let _ = watch.unbounded_send(line.clone());
            let _ = watch.unbounded_send("\n".into());
        }
    }

    fn refuse(&self, page: usize, refusals: Vec<(u16, u64)>) {
        let mut server = self.server();
        (server.refused, server.refusals) = (page, refusals);
    }
}

impl Server {
    fn begin_list(&mut self) -> usize {
        let services = self.services.iter().map(|(name, version)| (name.clone(), *version));
        self.lists.push((self.version, services.collect()));
        self.lists.len() - 1
    }

    fn page(&self, list: usize, page: usize) -> Reply {
        let (version, services) = &self.lists[list];
        let next = (page < services.len()).then(|| format!("{list}-{}", page + 1));
        let items: Vec<Value> =
            services[page - 1..page].iter().map(|(name, of)| service(name, *of)).collect();
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        reply(200, None, &json!({"metadata": metadata, "items": items}))
    }

    fn send(&self, event: &Value) {
        for watch in &self.watches {
            let _ = watch.unbounded_send(format!("{event}\n").into());
        }
    }
}

/// A sink that one stream of Services feeds.
struct Followed {
    api: Api,
    sink: Rc<RefCell<Sink>>,
}

impl Followed {
    fn feed<T>(&self, read: impl FnOnce(&mut Feed) -> T) -> T {
        self.sink.borrow().feed(&SERVICES, read)
    }

    /// Services that are held.
    fn services(&self) -> usize {
        self.sink.borrow_mut().ingest.publish();
        self.sink.borrow().ingest.status.shared.read().objects[Resource::Services as usize]
    }

    fn watches(&self) -> usize {
        self.api.server().watches.len()
    }

    /// Waits until a page was asked for so often.
    async fn until_asked(&self, page: usize, times: usize) {
        for _ in 0..10_000 {
            sleep(SECOND).await;
            if self.api.server().asked[page] == times {
                return;
            }
        }
        panic!("page {page} was not asked for {times} times: {:?}", self.api.server().asked);
    }
}

/// Follows the Services of this API server until the test ends.
async fn with(api: Api, compare_after: Duration, test: impl AsyncFnOnce(Followed)) {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    let pace = &mut sink.configuration.pace;
    (pace.compare_after, pace.silence) = (compare_after, Duration::from_secs(1_000_000));
    let sink = Rc::new(RefCell::new(sink));
    let client = Rc::new(ApiClient::of(api.client()));
    let (_dead, dead) = watch::channel(0);
    let stream = Stream::new(SERVICES, client, sink.clone(), dead);
    tokio::select! {
        () = stream.follow() => {}
        () = apply_in_turns(sink.clone()) => {}
        () = test(Followed { api, sink }) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn e25_while_lists_for_comparison_are_refused_the_watch_continues() {
    for page in [1, 3] {
        with(Api::new(), COMPARE_AFTER, async |it| {
            sleep(SECOND).await;
            assert_eq!((it.services(), it.watches()), (3, 1));
            it.api.refuse(page, vec![(429, 32); 1_000]);
            sleep(10 * COMPARE_AFTER).await;
            let asked = it.api.server().asked[page];
            assert!(asked > 3, "{asked} lists or pages were refused");
            it.api.delete("b");
            sleep(SECOND).await;
            assert_eq!((it.services(), it.watches()), (2, 1), "page {page} is refused");
            assert!(it.feed(|feed| feed.trouble.is_none() && feed.failures > 3));
            assert_eq!(it.feed(|feed| feed.relists), 0);
            it.api.refuse(page, Vec::new());
            sleep(10 * COMPARE_AFTER).await;
            assert!(it.feed(|feed| feed.relists) > 1, "lists follow");
            assert_eq!((it.services(), it.watches()), (2, 1));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn e25_an_event_shows_while_a_list_is_read_beside_it_and_wins_over_it() {
    for page in [1, 2] {
        with(Api::new(), COMPARE_AFTER, async |it| {
            sleep(SECOND).await;
            it.api.server().kept_back = Some(page);
            it.until_asked(page, 2).await;
            // The list has it still.
            it.api.delete("c");
            it.api.put("b");
            sleep(SECOND).await;
            assert_eq!(it.services(), 2, "at once");
            it.api.server().kept_back = None;
            it.api.go_on.notify_one();
            sleep(SECOND).await;
            assert_eq!(it.feed(|feed| (feed.relists, feed.differences, feed.resets)), (1, 0, 0));
            assert_eq!((it.services(), it.watches()), (2, 1), "page {page} came late");
            // Events still come.
            it.api.delete("b");
            sleep(SECOND).await;
            assert_eq!(it.services(), 1);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn l18_what_is_passed_over_while_a_list_is_read_is_in_another_list() {
    with(Api::new(), 60 * COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().kept_back = Some(2);
        it.until_asked(2, 2).await;
        it.api.put_too_long();
        sleep(SECOND).await;
        assert_eq!(it.feed(|feed| feed.undecodable), 1);
        it.api.server().kept_back = None;
        it.api.go_on.notify_one();
        sleep(SECOND).await;
        assert_eq!(it.feed(|feed| feed.relists), 1);
        // If that list is refused, the next one comes as soon.
        it.api.refuse(1, vec![(429, 1)]);
        sleep(LIST_AGAIN_AFTER.mul_f64(1.5)).await;
        assert_eq!(it.api.server().asked[1], 3);
        sleep(LIST_AGAIN_AFTER.mul_f64(1.5)).await;
        assert_eq!((it.api.server().asked[1], it.feed(|feed| feed.relists)), (4, 2));
        assert_eq!(it.watches(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn k22_a_list_beside_the_watch_finds_that_the_api_server_went_back() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().version = 7;
        it.api.server().services.remove("c");
        sleep(2 * COMPARE_AFTER).await;
        assert_eq!(it.feed(|feed| (feed.resets, feed.failures)), (1, 0));
        assert_eq!((it.services(), it.watches()), (2, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn e25_a_list_that_is_needed_ends_the_one_beside_the_watch() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().kept_back = Some(2);
        it.until_asked(2, 2).await;
        it.api.server().kept_back = None;
        it.sink.borrow().ingest.relist([Resource::Services].into_iter());
        sleep(SECOND).await;
        it.api.go_on.notify_one();
        sleep(SECOND).await;
        assert_eq!((it.feed(|feed| feed.relists), it.watches()), (1, 2));
        assert_eq!(it.api.server().asked[3], 2, "the list beside the watch was not read on");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn k9_a_list_is_not_begun_again_while_the_api_server_asks_for_patience() {
    for (code, waits) in [(429, vec![1, 2, 4, 8, 16, 32, 32]), (503, vec![32; 4])] {
        let api = Api::new();
        api.refuse(2, waits.iter().rev().map(|seconds| (code, *seconds)).collect());
        with(api, 60 * COMPARE_AFTER, async |it| {
            sleep(240 * SECOND).await;
            let asked = it.api.server().asked;
            assert_eq!((it.services(), asked[1], asked[2]), (3, 1, waits.len() + 1), "{code}");
        })
        .await;
    }
    // Until etcd may lose its version.
    let api = Api::new();
    api.refuse(2, vec![(429, 32); 100]);
    with(api, 60 * COMPARE_AFTER, async |it| {
        sleep(200 * SECOND).await;
        assert_eq!(it.api.server().asked[1], 1);
        sleep(200 * SECOND).await;
        assert_eq!(it.api.server().asked[1], 2);
    })
    .await;
}
