//! O8: an operator that ends in order leaves a free lease, also when its last attempt was cancelled.

use std::sync::Mutex;

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::fixtures::api::{self, Asked, Reply};
use crate::runtime::write::{WRITE_TIMEOUT, Writes};

/// One Lease with optimistic concurrency, as an API server keeps it.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    /// Writes that are applied from now on, and of which no answer is sent.
    is_mute: Mutex<bool>,
    applied: Notify,
    /// Others clear the record before each write of ours.
    is_contended: Mutex<bool>,
    /// How long the next read is on its way.
    slow_read: Mutex<Option<Duration>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        api::client(move |asked| server.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        if asked.path.contains("selfsubjectreviews") {
            return Reply::not_found();
        }
        let mut lease = self.lease.lock().unwrap();
        if !asked.is_write() {
            let slow = self.slow_read.lock().unwrap().take();
            return Reply::found(lease.as_ref()).after(slow.unwrap_or_default());
        }
        let mut written = asked.body.clone();
        let is_released = written["spec"]["holderIdentity"] == "";
        if asked.method == Method::PUT && lease.is_none() {
            return Reply::not_found();
        }
        if let Some(lease) = lease.as_mut().filter(|_| *self.is_contended.lock().unwrap()) {
            lease["spec"]["holderIdentity"] = json!("");
            return Reply::status(409, "the object has been modified");
        }
        let version = lease.as_ref().map(|it| it["metadata"]["resourceVersion"].clone());
        if version.as_ref().is_some_and(|held| written["metadata"]["resourceVersion"] != *held) {
            return Reply::status(409, "the object has been modified");
        }
        let version = version.and_then(|held| held.as_str()?.parse::<u64>().ok()).unwrap_or(0);
        written["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        *lease = Some(written.clone());
        if *self.is_mute.lock().unwrap() && !is_released {
            self.applied.notify_one();
            return Reply::silence();
        }
        Reply::ok(written)
    }

    fn holder(&self) -> Value {
        self.lease.lock().unwrap().as_ref().expect("a Lease")["spec"]["holderIdentity"].clone()
    }
}

fn elector(server: &Arc<Server>) -> Elector {
    let leadership = Arc::new(Leadership::new(|| tokio::time::Instant::now().into_std()));
    Elector::new(server.client(), "dns", "operator-0", leadership)
}

#[tokio::test(start_paused = true)]
async fn o8_a_renewal_that_was_cancelled_does_not_keep_the_lease() {
    let server = Arc::new(Server::default());
    let mut elector = elector(&server);
    elector.acquire().await;
    *server.is_mute.lock().unwrap() = true;
    tokio::select! {
        _ = elector.hold() => panic!("the renewal has no answer"),
        () = server.applied.notified() => {}
    }
    assert_ne!(server.holder(), "");
    elector.release().await;
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn o9_a_renewal_whose_answer_is_lost_stops_no_writes() {
    let server = Arc::new(Server::default());
    let mut elector = elector(&server);
    elector.acquire().await;
    let writes = Writes::new(elector.leadership.clone(), Arc::default());
    *server.is_mute.lock().unwrap() = true;
    let watched = async {
        server.applied.notified().await;
        *server.is_mute.lock().unwrap() = false;
        // The next attempt is after 6 s, and must write again to know that the lease is ours. The read before that is slow.
        *server.slow_read.lock().unwrap() = Some(Duration::from_millis(500));
        for tenth in 0..200 {
            assert!(
                writes.leads(),
                "{tenth} tenths of a second after the renewal without an answer"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        lost = elector.hold() => panic!("{lost}"),
        () = watched => {}
    }
    assert_eq!(server.holder(), elector.me.as_str());
}

#[tokio::test(start_paused = true)]
async fn o9_a_lease_that_another_has_taken_is_not_written_again() {
    let server = Arc::new(Server::default());
    let (mut first, mut second) = (elector(&server), elector(&server));
    first.acquire().await;
    first.release().await;
    second.acquire().await;
    let held = server.holder();
    first.seen.as_mut().expect("a lease").holder = first.me.clone();
    assert!(!first.attempt().await.expect("an answer"));
    assert_eq!(server.holder(), held);
}

#[tokio::test(start_paused = true)]
async fn o9_a_leader_that_finds_its_lease_free_takes_it_again_at_once() {
    for is_deleted in [false, true] {
        let server = Arc::new(Server::default());
        let mut elector = elector(&server);
        elector.acquire().await;
        // A person does that.
        {
            let mut lease = server.lease.lock().unwrap();
            let cleared = lease.as_mut().expect("a Lease");
            cleared["spec"]["holderIdentity"] = json!("");
            cleared["metadata"]["resourceVersion"] = json!("9");
            *lease = lease.take().filter(|_| !is_deleted);
        }
        assert!(elector.attempt().await.expect("an answer"), "deleted: {is_deleted}");
        assert_eq!(server.holder(), elector.me.as_str());
    }
}

/// What it knows is older than what the other wrote.
#[tokio::test(start_paused = true)]
async fn o9_a_leader_that_stood_still_while_another_led_does_not_lead_again() {
    let server = Arc::new(Server::default());
    let (mut first, mut second) = (elector(&server), elector(&server));
    first.acquire().await;
    // It stands still until its lease is over.
    second.acquire().await;
    second.release().await;
    assert!(!first.attempt().await.expect("an answer"));
    assert_eq!(server.holder(), "");
    // Another instance may lead for a moment only, where a person cleared the record.
    first.acquire().await;
    first.release().await;
    second.acquire().await;
    second.release().await;
    first.seen.as_mut().expect("a lease").holder = first.me.clone();
    first.leadership.renewed(first.leadership.now());
    assert!(!first.attempt().await.expect("an answer"));
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn o9_a_leader_whose_lease_is_not_its_own_any_more_stops_at_once() {
    let server = Arc::new(Server::default());
    let mut elector = elector(&server);
    elector.acquire().await;
    let began = elector.leadership.now();
    *server.is_contended.lock().unwrap() = true;
    elector.hold().await;
    assert!(elector.leadership.now() - began <= RETRY * 2, "it wrote for longer");
}

#[tokio::test(start_paused = true)]
async fn o9_the_lease_is_free_only_when_writes_that_were_sent_have_ended() {
    let server = Arc::new(Server::default());
    let mut elector = elector(&server);
    elector.acquire().await;
    let (leadership, held) = (elector.leadership.clone(), server.holder());
    assert!(leadership.ensure().is_ok());
    let just_before = WRITE_TIMEOUT - Duration::from_millis(10);
    {
        let mut releasing = std::pin::pin!(elector.release_after_writes(WRITE_TIMEOUT));
        assert!(timeout(just_before, &mut releasing).await.is_err(), "writes may be on their way");
        assert!(leadership.ensure().is_err(), "no other write begins");
        assert_eq!(server.holder(), held);
        releasing.await;
    }
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn o8_an_operator_that_is_stopped_while_it_takes_the_lease_does_not_keep_it() {
    let server = Arc::new(Server::default());
    *server.is_mute.lock().unwrap() = true;
    let mut elector = elector(&server);
    tokio::select! {
        () = elector.acquire() => panic!("the write has no answer"),
        () = server.applied.notified() => {}
    }
    assert_ne!(server.holder(), "");
    elector.release().await;
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn o9_the_lease_of_another_counts_from_when_it_was_read() {
    let server = Arc::new(Server::default());
    let spec = json!({"holderIdentity": "operator-1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"});
    *server.lease.lock().unwrap() =
        Some(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME, "namespace": "dns", "resourceVersion": "1"}, "spec": spec}));
    // The holder may have written it just before the read was answered.
    let on_its_way = Duration::from_millis(3_500);
    *server.slow_read.lock().unwrap() = Some(on_its_way);
    let mut elector = elector(&server);
    assert!(!elector.attempt().await.expect("an answer"));
    tokio::time::sleep(DURATION - Duration::from_millis(100)).await;
    assert!(!elector.attempt().await.expect("an answer"), "the holder may still write");
    assert_eq!(server.holder(), "operator-1");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(elector.attempt().await.expect("an answer"));
}

#[tokio::test(start_paused = true)]
async fn o8_the_lease_of_another_operator_is_left_alone() {
    let server = Arc::new(Server::default());
    let mut first = elector(&server);
    first.acquire().await;
    let held = server.holder();
    let mut second = elector(&server);
    assert!(!second.attempt().await.expect("an answer"));
    second.release().await;
    assert_eq!(server.holder(), held);
}
