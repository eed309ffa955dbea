//! Faults of the proxy that no other test would miss, seen by a client that watches and lists the Services
//! of one namespace through it.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{AsyncReadExt, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Request, WatchEvent, WatchParams};
use serde_json::json;
use tests::control_plane::{ControlPlane, TestNamespace, client};
use tests::fault_proxy::{Fault, FaultProxy, Link, Requests};
use tests::objects::create;

/// How long the test waits for something that must not happen.
const NOTHING_FOR: Duration = Duration::from_millis(700);
/// How long the test waits for something that must happen, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_hung_link_says_nothing_and_loses_nothing() {
    let Some(proxied) = Proxied::new().await else { return };
    let (mut watch, _) = proxied.watch().await;

    proxied.proxy.link(Link::Hung);
    proxied.create("late").await;

    assert_eq!(watch.nothing_comes().await, None);
    assert!(tokio::time::timeout(NOTHING_FOR, proxied.list()).await.is_err());
    proxied.proxy.link(Link::Up);
    assert_eq!(watch.next().await, "late");
}

#[tokio::test]
async fn a_truncated_chunk_is_half_an_event() {
    let Some(proxied) = Proxied::new().await else { return };
    let (_, from) = proxied.watch().await;
    // Read as bytes: kube does not report half an event before an orderly end.
    let request =
        Request::new(proxied.api().await.resource_url()).watch(&WatchParams::default(), &from);
    let body =
        proxied.client().await.request_stream(request.expect("a request")).await.expect("a watch");

    proxied.proxy.fault_times(1, proxied.services().watches(), Fault::Truncate);
    proxied.create("halved").await;

    let mut half = String::new();
    let read = tokio::time::timeout(DEADLINE, pin!(body).read_to_string(&mut half))
        .await
        .expect("an end in time");
    assert!(read.is_ok());
    assert!(half.starts_with(r#"{"type":"ADDED","#), "{half}");
    assert!(
        serde_json::from_str::<serde_json::Value>(&half).is_err_and(|error| error.is_eof()),
        "{half}"
    );
}

#[tokio::test]
async fn a_throttle_takes_its_time_and_keeps_every_octet() {
    let Some(proxied) = Proxied::new().await else { return };
    proxied.create("slow").await;

    proxied.proxy.fault(proxied.services(), Fault::Throttle { bytes_per_s: 300 });
    let began = Instant::now();
    // The list of one Service is more than 350 bytes.
    assert_eq!(proxied.list().await.expect("a list"), ["slow"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_lost_request_was_never_made_and_a_lost_reply_was_to_one_that_was() {
    let Some(proxied) = Proxied::new().await else { return };
    let writes = || proxied.services().writes();
    for (fault, name) in [(Fault::LoseRequest, "unheard"), (Fault::LoseReply, "unanswered")] {
        proxied.proxy.fault_at(1, writes(), fault);
        let service = json!({"metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "example.com"}});
        let service = serde_json::from_value(service).expect("a Service");
        let (api, parameters) = (proxied.api().await, PostParams::default());
        let mut creating = pin!(api.create(&parameters, &service));
        let deadline = Instant::now() + DEADLINE;
        while proxied.proxy.lost(&writes()) == 0 {
            assert!(Instant::now() < deadline, "{name} is not lost");
            let answer = tokio::time::timeout(Duration::from_millis(50), &mut creating).await;
            assert!(answer.is_err(), "{name}: {answer:?}");
        }
        proxied.proxy.heal();
        let answer = tokio::time::timeout(NOTHING_FOR, &mut creating).await;
        assert!(answer.is_err(), "{name}, healed: {answer:?}");
    }
    assert_eq!(proxied.list().await.expect("a list"), ["unanswered"]);
    let answered = proxied.proxy.answered(&writes());
    assert_eq!(answered.iter().map(|answered| answered.status).collect::<Vec<_>>(), [201]);
    // The next one passes.
    proxied.proxy.fault_at(2, writes(), Fault::LoseRequest);
    proxied.api().await.delete("unanswered", &DeleteParams::default()).await.expect("an answer");
}

/// A namespace of a control plane, with a proxy on the way to it.
struct Proxied {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    proxy: FaultProxy,
}

impl Proxied {
    async fn new() -> Option<Proxied> {
        let plane = ControlPlane::shared().await?;
        let namespace = plane.namespace("way").await;
        let proxy = FaultProxy::start(plane).await;
        Some(Proxied { plane, namespace, proxy })
    }

    /// The requests about our Services.
    fn services(&self) -> Requests {
        Requests::to(&format!("/api/v1/namespaces/{}/services", self.namespace.name()))
    }

    /// Creates a Service, not through the proxy.
    async fn create(&self, name: &str) {
        let spec = json!({"type": "ExternalName", "externalName": "example.com"});
        let manifest =
            json!({"metadata": {"name": name, "namespace": self.namespace.name()}, "spec": spec});
        let _: Service = create(&self.plane.client().await, manifest).await;
    }

    async fn client(&self) -> kube::Client {
        client(self.proxy.kubeconfig()).await
    }

    async fn api(&self) -> Api<Service> {
        Api::namespaced(self.client().await, self.namespace.name())
    }

    /// The names of our Services, listed through the proxy.
    async fn list(&self) -> kube::Result<Vec<String>> {
        let list = self.api().await.list(&ListParams::default()).await?;
        Ok(list.items.into_iter().filter_map(|object| object.metadata.name).collect())
    }

    /// A watch of our Services through the proxy, and the resourceVersion it starts from.
    async fn watch(&self) -> (Watch, String) {
        let api = self.api().await;
        let list = api.list(&ListParams::default()).await.expect("a list");
        let from = list.metadata.resource_version.expect("a list has a version");
        let events = api.watch(&WatchParams::default(), &from).await.expect("a watch");
        (Watch(events.boxed()), from)
    }
}

struct Watch(BoxStream<'static, kube::Result<WatchEvent<Service>>>);

impl Watch {
    /// The name of the next Service that was added.
    async fn next(&mut self) -> String {
        let event = tokio::time::timeout(DEADLINE, self.0.next()).await.expect("an event in time");
        match event {
            Some(Ok(WatchEvent::Added(object))) => object.metadata.name.unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }

    /// An event that came although none should.
    async fn nothing_comes(&mut self) -> Option<String> {
        tokio::time::timeout(NOTHING_FOR, self.next()).await.ok()
    }
}
