//! Each fault of the proxy, seen from a client that watches and lists the Services of one namespace through it.

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

/// How long something that must not happen is given to happen.
const NOTHING_FOR: Duration = Duration::from_millis(700);
/// How long something that must happen may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// What a watch gives that ended in order.
const END: &str = "the end";

#[tokio::test]
async fn a_watch_passes_and_what_was_asked_is_recorded() {
    let Some(way) = Way::new().await else { return };
    let (mut watch, from) = way.watch().await;

    way.create("seen").await;

    assert_eq!(watch.next().await, Ok("ADDED seen".to_owned()));
    let watches = way.proxy.seen(&way.services().watches());
    assert_eq!(watches.len(), 1);
    assert_eq!(watches[0].parameter("resourceVersion"), Some(from.as_str()));
    assert_eq!(way.proxy.count(&way.services().lists()), 1);
}

#[tokio::test]
async fn a_status_is_answered_as_often_as_asked() {
    let Some(way) = Way::new().await else { return };
    for status in [403, 410, 429, 500, 503, 504] {
        way.proxy.fault_times(1, way.services(), Fault::Answer { status, retry_after_s: Some(2) });
        let refusal = way.list().await.expect_err("a refusal");
        assert!(
            matches!(&refusal, kube::Error::Api(refusal) if refusal.code == status),
            "{status}: {refusal}"
        );
    }
    assert_eq!(way.list().await.expect("a list"), [""; 0]);
}

#[tokio::test]
async fn a_status_for_one_path_leaves_the_others_alone_until_healed() {
    let Some(way) = Way::new().await else { return };

    way.proxy.fault(way.services(), Fault::status(503));

    assert!(way.list().await.is_err());
    assert!(way.client().await.apiserver_version().await.is_ok());
    assert!(way.list().await.is_err());
    way.proxy.heal();
    assert!(way.list().await.is_ok());
}

#[tokio::test]
async fn a_410_put_into_an_open_watch_is_seen_once() {
    let Some(way) = Way::new().await else { return };
    let (mut watch, _) = way.watch().await;

    way.proxy.fault(way.services().watches(), Fault::expired());

    assert_eq!(watch.next().await, Ok("ERROR 410 Expired".to_owned()));
    assert_eq!(watch.nothing_comes().await, None);
}

#[tokio::test]
async fn a_cut_link_resets_what_is_open_and_what_is_new() {
    let Some(way) = Way::new().await else { return };
    let (mut watch, _) = way.watch().await;

    way.proxy.link(Link::Cut);

    assert!(watch.next().await.is_err_and(|error| error != END));
    assert!(way.list().await.is_err());
    way.proxy.link(Link::Up);
    way.create("after").await;
    assert_eq!(way.list().await.expect("a list"), ["after"]);
}

#[tokio::test]
async fn a_hung_link_says_nothing_and_loses_nothing() {
    let Some(way) = Way::new().await else { return };
    let (mut watch, _) = way.watch().await;

    way.proxy.link(Link::Hung);
    way.create("late").await;

    assert_eq!(watch.nothing_comes().await, None);
    assert!(tokio::time::timeout(NOTHING_FOR, way.list()).await.is_err());
    way.proxy.link(Link::Up);
    assert_eq!(watch.next().await, Ok("ADDED late".to_owned()));
}

#[tokio::test]
async fn a_hung_watch_leaves_lists_alone_and_goes_on_when_healed() {
    let Some(way) = Way::new().await else { return };
    let (mut watch, _) = way.watch().await;

    way.proxy.fault(way.services().watches(), Fault::Hang);
    way.create("late").await;

    assert_eq!(watch.nothing_comes().await, None);
    assert_eq!(way.list().await.expect("a list"), ["late"]);
    way.proxy.heal();
    assert_eq!(watch.next().await, Ok("ADDED late".to_owned()));
}

#[tokio::test]
async fn a_hung_list_is_answered_when_healed() {
    let Some(way) = Way::new().await else { return };
    way.proxy.fault(way.services(), Fault::Hang);

    let mut list = Box::pin(way.list());

    assert!(tokio::time::timeout(NOTHING_FOR, &mut list).await.is_err());
    way.proxy.heal();
    assert!(tokio::time::timeout(DEADLINE, list).await.expect("an answer").is_ok());
}

#[tokio::test]
async fn a_reset_breaks_a_watch_and_an_end_closes_it_in_order() {
    let Some(way) = Way::new().await else { return };

    let (mut broken, _) = way.watch().await;
    way.proxy.fault_times(1, way.services().watches(), Fault::Reset);
    assert!(broken.next().await.is_err_and(|error| error != END));

    let (mut ended, _) = way.watch().await;
    way.proxy.fault_times(1, way.services().watches(), Fault::End);
    assert_eq!(ended.next().await, Err(END.to_owned()));
}

#[tokio::test]
async fn a_truncated_chunk_is_half_an_event() {
    let Some(way) = Way::new().await else { return };
    let (_, from) = way.watch().await;
    // Read as bytes: kube takes half an event before an orderly end for the end alone.
    let request =
        Request::new(way.api().await.resource_url()).watch(&WatchParams::default(), &from);
    let body =
        way.client().await.request_stream(request.expect("a request")).await.expect("a watch");

    way.proxy.fault_times(1, way.services().watches(), Fault::Truncate);
    way.create("halved").await;

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
async fn a_delay_and_a_throttle_take_their_time_and_keep_every_byte() {
    let Some(way) = Way::new().await else { return };
    way.create("slow").await;

    way.proxy.fault(way.services(), Fault::Delay(NOTHING_FOR));
    let began = Instant::now();
    assert_eq!(way.list().await.expect("a list"), ["slow"]);
    assert!(began.elapsed() >= NOTHING_FOR);

    way.proxy.heal();
    way.proxy.fault(way.services(), Fault::Throttle { bytes_per_s: 300 });
    let began = Instant::now();
    // The list of one Service is more than 350 bytes.
    assert_eq!(way.list().await.expect("a list"), ["slow"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_lost_request_was_never_made_and_a_lost_reply_was_to_one_that_was() {
    let Some(way) = Way::new().await else { return };
    let writes = || way.services().writes();
    for (fault, name) in [(Fault::LoseRequest, "unheard"), (Fault::LoseReply, "unanswered")] {
        way.proxy.fault_at(1, writes(), fault);
        let service = json!({"metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "example.com"}});
        let service = serde_json::from_value(service).expect("a Service");
        let (api, parameters) = (way.api().await, PostParams::default());
        let mut creating = pin!(api.create(&parameters, &service));
        let deadline = Instant::now() + DEADLINE;
        while way.proxy.lost(&writes()) == 0 {
            assert!(Instant::now() < deadline, "{name} is not lost");
            let answer = tokio::time::timeout(Duration::from_millis(50), &mut creating).await;
            assert!(answer.is_err(), "{name}: {answer:?}");
        }
        way.proxy.heal();
        let answer = tokio::time::timeout(NOTHING_FOR, &mut creating).await;
        assert!(answer.is_err(), "{name}, healed: {answer:?}");
    }
    assert_eq!(way.list().await.expect("a list"), ["unanswered"]);
    let answered = way.proxy.answered(&writes());
    assert_eq!(answered.iter().map(|answered| answered.status).collect::<Vec<_>>(), [201]);
    // The next one passes.
    way.proxy.fault_at(2, writes(), Fault::LoseRequest);
    way.api().await.delete("unanswered", &DeleteParams::default()).await.expect("an answer");
}

/// A namespace of a control plane, with a proxy on the way to it.
struct Way {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    proxy: FaultProxy,
}

impl Way {
    async fn new() -> Option<Way> {
        let plane = ControlPlane::shared().await?;
        let namespace = plane.namespace("way").await;
        let proxy = FaultProxy::start(plane).await;
        Some(Way { plane, namespace, proxy })
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
    /// The next event in words; the error is what ended the watch.
    async fn next(&mut self) -> Result<String, String> {
        let event = tokio::time::timeout(DEADLINE, self.0.next()).await.expect("an event in time");
        let named = |verb: &str, object: Service| {
            Ok(format!("{verb} {}", object.metadata.name.unwrap_or_default()))
        };
        match event {
            None => Err(END.to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(WatchEvent::Added(object))) => named("ADDED", object),
            Some(Ok(WatchEvent::Modified(object))) => named("MODIFIED", object),
            Some(Ok(WatchEvent::Deleted(object))) => named("DELETED", object),
            Some(Ok(WatchEvent::Bookmark(_))) => Ok("BOOKMARK".to_owned()),
            Some(Ok(WatchEvent::Error(status))) => {
                Ok(format!("ERROR {} {}", status.code, status.reason))
            }
        }
    }

    /// What came although nothing should.
    async fn nothing_comes(&mut self) -> Option<Result<String, String>> {
        tokio::time::timeout(NOTHING_FOR, self.next()).await.ok()
    }
}
