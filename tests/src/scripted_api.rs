//! A small API server that a test controls, for behaviour that no proxy before a real one can produce: a list that
//! expires between two pages, a server that lags behind another, events that come twice, out of order or never.
//!
//! It lists in pages and watches like a real one, over HTTP without TLS and for every client. Selectors are not read:
//! tests put in it only what is selected. Put a [`crate::fault_proxy::FaultProxy`] before it for connections that break.

mod store;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::control_plane::kubeconfig;
use crate::fault_proxy::{Seen, status_object};
use crate::scratch::Scratch;
pub use store::Store;
use store::{Collection, Event, Refused};

/// Requests remembered for the test.
const SEEN_LIMIT: usize = 100_000;

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// The running server; it ends when dropped.
#[derive(Debug)]
pub struct ScriptedApi {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    kubeconfig: PathBuf,
    _scratch: Scratch,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What test and connections share.
#[derive(Debug, Default)]
struct Shared {
    store: Store,
    /// What watches start from, where the watch cache lags behind the store.
    watch_cache: Option<Store>,
    /// Octets that are added to each object of a kind in lists.
    padding: Option<(String, Bytes)>,
    watches: Vec<Watch>,
    /// A watch at a version that is not there yet is accepted, and silent until it is there.
    accepts_ahead: bool,
    seen: VecDeque<Seen>,
}

/// A watch that is open.
#[derive(Debug)]
struct Watch {
    collection: Collection,
    /// It gives events of later versions only.
    after: u64,
    out: mpsc::UnboundedSender<Bytes>,
}

impl ScriptedApi {
    /// Starts one that has these objects.
    pub fn start(objects: &[Value]) -> ScriptedApi {
        let scratch = Scratch::new("scripted-api").expect("a scratch directory");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let cluster = json!({"server": format!("http://{address}")});
        let document = kubeconfig::document(&cluster, None);
        let kubeconfig = scratch.write("kubeconfig", document).expect("the directory is ours");
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let (end, ended) = oneshot::channel();
        let served = shared.clone();
        let thread = std::thread::Builder::new().name("scripted-api".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve(listener, served, ended));
        });
        let api = ScriptedApi {
            address,
            shared,
            kubeconfig,
            _scratch: scratch,
            end: Some(end),
            thread: Some(thread.expect("a thread")),
        };
        for object in objects {
            api.put(object.clone());
        }
        api
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig file that leads here.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Creates or replaces an object, and sends the event to the watches. Returns its version.
    pub fn put(&self, object: Value) -> u64 {
        let mut shared = self.shared();
        let event = shared.store.put(object);
        shared.send_event(&event);
        event.version
    }

    /// The same without an event for the watches, as if it were lost.
    pub fn put_in_secret(&self, object: Value) -> u64 {
        self.shared().store.put_in_secret(object)
    }

    /// The object of this kind, namespace and name, to be changed and put.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let object = self.shared().store.get(kind, namespace, name);
        object.unwrap_or_else(|| panic!("there is no {kind} {namespace}/{name}"))
    }

    /// Deletes an object, and sends the event to the watches. Returns the version of that.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> u64 {
        let mut shared = self.shared();
        let event = shared.store.delete(kind, namespace, name);
        let event = event.unwrap_or_else(|| panic!("there is no {kind} {namespace}/{name}"));
        shared.send_event(&event);
        event.version
    }

    /// Sends this line to every open watch of the collection of this kind; what there is stays as it is.
    pub fn say(&self, kind: &str, line: &Value) {
        let collection = Collection::of_kind(kind);
        self.shared().send(&collection, line);
    }

    /// At most this many objects a page.
    pub fn pages_of(&self, objects: usize) {
        self.shared().store.page = objects;
    }

    /// Objects of this kind are this many octets larger in lists, in an annotation. They are sent piece by piece.
    pub fn pad(&self, kind: &str, octets: usize) {
        self.shared().padding = Some((kind.to_owned(), Bytes::from(vec![b'x'; octets])));
    }

    /// How many objects each list of this kind asked for, page by page.
    pub fn limits(&self, kind: &str) -> Vec<u32> {
        let path = Collection::of_kind(kind).path();
        let shared = self.shared();
        let lists = shared.seen.iter().filter(|seen| seen.path == path && !seen.is_watch());
        lists.filter_map(|seen| seen.parameter("limit")?.parse().ok()).collect()
    }

    /// Forgets versions up to now, as etcd does when it is compacted: a client that continues from one of them, in a watch or
    /// on the next page of a list, gets 410.
    pub fn compact(&self) {
        self.shared().store.compact();
    }

    /// Ends every open watch in order.
    pub fn end_watches(&self) {
        self.shared().watches.clear();
    }

    pub fn version(&self) -> u64 {
        self.shared().store.version()
    }

    /// What there is now; it can be shown again later.
    pub fn state(&self) -> Store {
        self.shared().store.clone()
    }

    /// Shows another state from now on, and ends every watch, as another server behind the same address does.
    pub fn show(&self, state: Store) {
        let mut shared = self.shared();
        shared.store = state;
        shared.watch_cache = None;
        shared.watches.clear();
    }

    /// Accepts watches at versions that are not there yet, and sends nothing until they are there, as kube-apiserver does;
    /// other API servers answer 504.
    pub fn accept_versions_ahead(&self) {
        self.shared().accepts_ahead = true;
    }

    /// Shows another state from now on, while watches stay open: they see neither this change, nor events below the
    /// versions that they are at.
    pub fn show_in_silence(&self, state: Store) {
        self.shared().store = state;
    }

    /// Answers watches, and lists that allow any version, from this older state, as a server does whose watch cache
    /// lags behind etcd. A list without a version is a consistent read and shows the newest state.
    pub fn lag(&self, watch_cache: Store) {
        let mut shared = self.shared();
        shared.watch_cache = Some(watch_cache);
        shared.watches.clear();
    }

    /// Ends the lag of [`ScriptedApi::lag`].
    pub fn catch_up(&self) {
        let mut shared = self.shared();
        shared.watch_cache = None;
        shared.watches.clear();
    }

    /// How many watches of this kind are open.
    pub fn watches(&self, kind: &str) -> usize {
        let collection = Collection::of_kind(kind);
        let mut shared = self.shared();
        shared.watches.retain(|watch| !watch.out.is_closed());
        shared.watches.iter().filter(|watch| watch.collection.has_kind_of(&collection)).count()
    }

    /// How many lists of this kind were begun.
    pub fn lists(&self, kind: &str) -> usize {
        let path = Collection::of_kind(kind).path();
        let is_list = |seen: &&Seen| {
            let is_first_page = seen.parameter("continue").is_none();
            seen.path == path && !seen.is_watch() && is_first_page && !seen.is_look()
        };
        self.shared().seen.iter().filter(is_list).count()
    }

    /// How many times a list of one object of this kind was asked for: what version, and which cluster, is this?
    pub fn looks(&self, kind: &str) -> usize {
        let is_of_kind =
            |seen: &Seen| Collection::of_request(seen).is_some_and(|asked| asked.is_of(kind));
        self.shared().seen.iter().filter(|seen| seen.is_look() && is_of_kind(seen)).count()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics while holding this lock")
    }
}

impl Drop for ScriptedApi {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; a second one here would hide what the test itself says.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn send_event(&mut self, event: &Event) {
        let line = event.line();
        self.watches.retain(|watch| {
            !watch.collection.holds(&event.object)
                || event.version <= watch.after
                || watch.out.send(line.clone()).is_ok()
        });
    }

    fn send(&mut self, collection: &Collection, line: &Value) {
        let line = Bytes::from(format!("{line}\n"));
        self.watches.retain(|watch| {
            !watch.collection.has_kind_of(collection) || watch.out.send(line.clone()).is_ok()
        });
    }

    fn answer(&mut self, seen: &Seen) -> Reply {
        if self.seen.len() == SEEN_LIMIT {
            self.seen.pop_front();
        }
        self.seen.push_back(seen.clone());
        match &*seen.path {
            "/version" => return json_reply(200, &json!({"major": "1", "minor": "36"})),
            "/livez" => return json_reply(200, &json!("ok")),
            _ => {}
        }
        let Some(collection) = Collection::of_request(seen) else {
            return json_reply(404, &status_object(404, "there is no such collection"));
        };
        let answered = match seen.is_watch() {
            true => self.watch(collection, seen.parameter("resourceVersion").unwrap_or_default()),
            false => {
                let store = match seen.parameter("resourceVersion") {
                    Some(_) => self.watch_cache.as_mut().unwrap_or(&mut self.store),
                    None => &mut self.store,
                };
                let limit = seen.parameter("limit").and_then(|limit| limit.parse().ok());
                let list = store.list(&collection, seen.parameter("continue"), limit);
                let padding = self.padding.as_ref().filter(|(kind, _)| collection.is_of(kind));
                list.map(|list| list_reply(&list, padding.map(|(_, padding)| padding)))
            }
        };
        answered.unwrap_or_else(|Refused { code, message }| {
            json_reply(code, &status_object(code, &message))
        })
    }

    fn watch(&mut self, collection: Collection, version: &str) -> Result<Reply, Refused> {
        let store = self.watch_cache.as_ref().unwrap_or(&self.store);
        let after = version.parse().unwrap_or_default();
        let since = match self.accepts_ahead && after > store.version() {
            true => Vec::new(),
            false => store.events_since(&collection, version)?,
        };
        let (out, mut lines) = mpsc::unbounded_channel::<Bytes>();
        for event in since {
            let _ = out.send(event.line());
        }
        self.watches.push(Watch { collection, after, out });
        let body = StreamBody::new(futures::stream::poll_fn(move |context| {
            lines.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
        }));
        Ok(Response::new(BoxBody::new(body)))
    }
}

/// A list with its members in the order of a real server: metadata before items. What is added to each object is
/// shared by all of them, so that the largest list takes no memory here.
fn list_reply(list: &Value, padding: Option<&Bytes>) -> Reply {
    const PLACE: &str = "@padding@";
    let metadata = &list["metadata"];
    let head = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":["#);
    let mut pieces = vec![Bytes::from(head)];
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (number, item) in items.iter().enumerate() {
        let mut item = item.clone();
        if padding.is_some() {
            item["metadata"]["annotations"] = json!({ "padding": PLACE });
        }
        let comma = if number > 0 { "," } else { "" };
        let text = format!("{comma}{item}");
        match (padding, text.split_once(PLACE)) {
            (Some(padding), Some((before, after))) => {
                pieces.push(Bytes::from(before.to_owned()));
                pieces.push(padding.clone());
                pieces.push(Bytes::from(after.to_owned()));
            }
            _ => pieces.push(Bytes::from(text)),
        }
    }
    pieces.push(Bytes::from_static(b"]}"));
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    Response::new(BoxBody::new(StreamBody::new(futures::stream::iter(frames))))
}

fn json_reply(status: u16, object: &Value) -> Reply {
    let body = BoxBody::new(Full::new(Bytes::from(object.to_string())));
    Response::builder().status(status).body(body).expect("a well-formed response")
}

/// Accepts until the other end of `ended` is dropped. Dropping the runtime then ends every connection.
async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Mutex<Shared>>,
    ended: oneshot::Receiver<()>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            // As a real API server: an event does not wait for the acknowledgement of the one before it.
            let _ = stream.set_nodelay(true);
            let shared = shared.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let shared = shared.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let _ = body.collect().await;
                    let mut shared = shared.lock().expect("nothing panics while holding it");
                    Ok::<_, Infallible>(shared.answer(&Seen::of(&parts.method, &parts.uri)))
                }
            });
            // Clients that give up in the middle are part of the tests.
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = ended => {}
    }
}
