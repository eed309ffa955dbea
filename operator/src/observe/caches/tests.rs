//! Which ClusterDNS are enqueued when all watches start, and which when one object changes. The API server is a
//! function.

use std::convert::Infallible;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response};
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;

const MANY: usize = 200;
/// Each ClusterDNS has one object of each of these kinds.
const KINDS: [&str; 5] = ["services", "configmaps", "deployments", "pods", "replicasets"];

type Pieces = UnboundedSender<Result<Frame<Bytes>, Infallible>>;

/// Lists what each ClusterDNS has, and keeps every watch open.
#[derive(Clone, Default)]
struct Api {
    watches: Arc<Mutex<BTreeMap<String, Pieces>>>,
}

fn child(kind: &str, instance: &str, version: usize) -> Value {
    let labels = json!({names::INSTANCE: instance});
    let name = format!("{kind}-{instance}");
    json!({"metadata": {"name": name, "namespace": "dns", "resourceVersion": version.to_string(), "labels": labels}})
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let reply = api.reply(&request);
            async move { Ok::<_, Infallible>(reply) }
        });
        Client::new(server, "dns")
    }

    fn reply(
        &self,
        request: &Request<Body>,
    ) -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + use<>> {
        let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (pieces, body) = unbounded();
        if request.uri().query().unwrap_or_default().contains("watch=true") {
            self.watches.lock().unwrap().insert(kind, pieces);
        } else {
            let is_made = KINDS.contains(&kind.as_str());
            let count = if is_made { MANY } else { 0 };
            let items: Vec<Value> = (0..count).map(|n| child(&kind, &format!("d{n}"), 1)).collect();
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            pieces.unbounded_send(Ok(Frame::data(list.to_string().into()))).unwrap();
        }
        Response::new(StreamBody::new(body))
    }

    /// An object has changed. The watch may not have begun yet.
    async fn change(&self, kind: &str, instance: &str) {
        let event = json!({"type": "MODIFIED", "object": child(kind, instance, 2)});
        loop {
            let watch = self.watches.lock().unwrap().get(kind).cloned();
            if let Some(watch) = watch {
                let piece = Frame::data(format!("{event}\n").into());
                return watch.unbounded_send(Ok(piece)).unwrap();
            }
            tokio::task::yield_now().await;
        }
    }
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
    let namespaces = ["dns".to_owned()];
    let (metrics, lists) = (Arc::default(), Arc::default());
    let caches = Caches::start(api.client(), &namespaces, all, triggers.clone(), metrics, lists);
    caches.wait_until_ready().await;
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
