//! A scripted API server that has Services, with lists and watches of them.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

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
use tokio::sync::Notify;

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Has Services, and shows one of them in each page of a list.
#[derive(Default)]
pub(super) struct Server {
    pub(super) version: u64,
    /// By name.
    pub(super) services: BTreeMap<String, Held>,
    /// The lists that were begun: their version, and what they have.
    pub(super) lists: Vec<(u64, Vec<(String, Held)>)>,
    /// How often each page was asked for.
    pub(super) asked: [usize; 4],
    /// The page that is answered with these codes, and the Retry-After of each.
    pub(super) refused: usize,
    pub(super) refusals: Vec<(u16, u64)>,
    /// This page is answered when the test says so.
    pub(super) kept_back: Option<usize>,
    /// Whether events are sent when the test says so, and those that were not sent yet.
    pub(super) is_late: bool,
    pub(super) late: VecDeque<Value>,
    pub(super) watches: Vec<mpsc::UnboundedSender<Bytes>>,
}

/// A Service that is there.
#[derive(Clone, Copy)]
pub(super) struct Held {
    uid: u64,
    version: u64,
}

#[derive(Clone, Default)]
pub(super) struct Api {
    pub(super) server: Arc<Mutex<Server>>,
    pub(super) go_on: Arc<Notify>,
}

fn service(name: &str, Held { uid, version }: Held) -> Value {
    let uid = format!("00000000-0000-4000-8000-{uid:012}");
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
    pub(super) fn new() -> Api {
        let api = Api::default();
        let services = ["a", "b", "c"].map(|name| (name.to_owned(), Held { uid: 5, version: 5 }));
        *api.server() = Server { version: 10, services: services.into(), ..Server::default() };
        api
    }

    pub(super) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let answer = move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    pub(super) async fn answer(&self, request: Request<Body>) -> Reply {
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
    pub(super) fn delete(&self, name: &str) {
        let mut server = self.server();
        server.version += 1;
        let held = server.services.remove(name).unwrap();
        let object = service(name, Held { version: server.version, ..held });
        server.send(&json!({"type": "DELETED", "object": object}));
    }

    /// Changes a Service, or creates it, and sends the event.
    pub(super) fn put(&self, name: &str) {
        let mut server = self.server();
        let object = server.put(name);
        server.send(&json!({"type": "MODIFIED", "object": object}));
    }

    /// The same with an event that has a field of a type that it cannot have.
    pub(super) fn put_unreadable(&self, name: &str) {
        let mut server = self.server();
        let mut object = server.put(name);
        object["spec"]["clusterIP"] = json!(5);
        server.send(&json!({"type": "MODIFIED", "object": object}));
    }

    /// Sends an event that is too long to be read.
    pub(super) fn put_too_long(&self) {
        let line = Bytes::from(vec![b'x'; MAX_OBJECT + 2_048]);
        for watch in &self.server().watches {
            let _ = watch.unbounded_send(line.clone());
            let _ = watch.unbounded_send("\n".into());
        }
    }

    /// Answers the page that was kept back.
    pub(super) fn let_go_on(&self) {
        self.server().kept_back = None;
        self.go_on.notify_one();
    }

    pub(super) fn refuse(&self, page: usize, refusals: Vec<(u16, u64)>) {
        let mut server = self.server();
        (server.refused, server.refusals) = (page, refusals);
    }
}

impl Server {
    fn put(&mut self, name: &str) -> Value {
        self.version += 1;
        let version = self.version;
        let held = self.services.entry(name.to_owned()).or_insert(Held { uid: version, version });
        held.version = version;
        service(name, *held)
    }

    pub(super) fn begin_list(&mut self) -> usize {
        let services = self.services.iter().map(|(name, held)| (name.clone(), *held));
        self.lists.push((self.version, services.collect()));
        self.lists.len() - 1
    }

    pub(super) fn page(&self, list: usize, page: usize) -> Reply {
        let (version, services) = &self.lists[list];
        let next = (page < services.len()).then(|| format!("{list}-{}", page + 1));
        let items: Vec<Value> =
            services[page - 1..page].iter().map(|(name, held)| service(name, *held)).collect();
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        reply(200, None, &json!({"metadata": metadata, "items": items}))
    }

    pub(super) fn send(&mut self, event: &Value) {
        match self.is_late {
            true => self.late.push_back(event.clone()),
            false => self.send_now(event),
        }
    }

    pub(super) fn send_late(&mut self) {
        let event = self.late.pop_front().unwrap();
        self.send_now(&event);
    }

    pub(super) fn send_now(&self, event: &Value) {
        for watch in &self.watches {
            let _ = watch.unbounded_send(format!("{event}\n").into());
        }
    }
}
