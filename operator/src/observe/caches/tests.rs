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
use crate::runtime::restored::{Resets, confirming};

const MANY: usize = 200;
/// Each ClusterDNS has one object of each of these kinds.
const KINDS: [&str; 5] = ["services", "configmaps", "deployments", "pods", "replicasets"];

type Pieces = UnboundedSender<Result<Frame<Bytes>, Infallible>>;

/// Lists what each ClusterDNS has, and keeps every watch open.
#[derive(Clone)]
struct Api {
    watches: Arc<Mutex<BTreeMap<String, Pieces>>>,
    /// Its version, and how many ClusterDNS have objects.
    has: Arc<Mutex<(usize, usize)>>,
}

impl Default for Api {
    fn default() -> Api {
        Api { watches: Arc::default(), has: Arc::new(Mutex::new((1, MANY))) }
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
            let (version, many) = *self.has.lock().unwrap();
            let count = if is_made { many } else { 0 };
            let items: Vec<Value> = (0..count).map(|n| child(&kind, &format!("d{n}"), 1)).collect();
            let version = version.to_string();
            let list = json!({"metadata": {"resourceVersion": version}, "items": items});
            pieces.unbounded_send(Ok(Frame::data(list.to_string().into()))).unwrap();
        }
        Response::new(StreamBody::new(body))
    }

    /// Its etcd is restored from a backup: it is started again, and accepts watches at versions that it does not have yet.
    fn restore(&self, version: usize, many: usize) {
        *self.has.lock().unwrap() = (version, many);
        self.watches.lock().unwrap().clear();
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

#[tokio::test(start_paused = true)]
async fn k22_caches_show_what_an_api_server_has_whose_etcd_was_restored() {
    let (all, _writer) = kube::runtime::reflector::store();
    let (api, triggers) = (Api::default(), Arc::<Triggers>::default());
    *api.has.lock().unwrap() = (100, MANY);
    let metrics = Arc::<Metrics>::default();
    let client = confirming(api.client(), Resets::new(metrics.clone()));
    let namespaces = ["dns".to_owned()];
    let caches = Caches::start(client, &namespaces, all, triggers, metrics.clone(), Arc::default());
    caches.wait_until_ready().await;
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
