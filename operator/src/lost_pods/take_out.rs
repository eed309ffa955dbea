//! The one write: it sets a lost pod not ready, as the node lifecycle controller does with the pods of a node that it
//! gave up (O20). A living kubelet sets the condition back by itself, so a mistake heals. A standby operator may do
//! this too, because the leader may be on the node that died. The number of lost pods is read from the API server
//! right before, to respect the limit. Two operators that write at the same moment do not see each other.

mod patch;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};

use super::ask::{self, Target};
use super::rounds::SOON;
use super::silence::{self, Heard, Known};
use super::{Lookout, loss};
use crate::names;
use crate::observe::lists::Lists;
use crate::observe::pods;
use crate::runtime::time_limit::within;

/// Pods in a page of the list before a write, and pages of it.
const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;

/// A pod whose silence was heard longer ago is asked once more before the write: a later round may have heard an answer, while a
/// slow API server lists its peers. They are listed again after that question.
const FRESH: Duration = SOON;

/// Whether this loss is settled: written, or refused for good. Otherwise the next round decides again. `heard`: when the pod
/// was silent last. `known`: of its peers.
pub(super) async fn take_out(
    it: &Lookout,
    (dns, known): (&str, &Known),
    lost: &Target,
    heard: Instant,
) -> bool {
    let pods = Api::<Pod>::namespaced(it.client.clone(), &lost.namespace);
    let mut version = version_to_patch(it, &pods, (dns, known), lost).await;
    if version.is_ok() && heard.elapsed() > FRESH {
        if ask::ask(lost).await != Heard::Silence {
            tracing::info!("pod {} stays in the Service: it is not silent any more", lost.name);
            return false;
        }
        // Another operator may have taken out another pod meanwhile.
        version = version_to_patch(it, &pods, (dns, known), lost).await;
    }
    let version = match version {
        Ok(version) => version,
        Err(NotNow { is_settled }) => return is_settled,
    };
    let body = patch::not_ready(lost, &version, Timestamp::now());
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(&body);
    let written = it.writes.send_unled("Pod", pods.patch_status(&lost.name, &params, &patch)).await;
    match written {
        Ok(_) => {
            it.metrics.pod_lost();
            tracing::warn!(
                "pod {}/{} on node {} does not answer: the operator took it out of the Service; check the node",
                lost.namespace,
                lost.name,
                lost.node
            );
            true
        }
        Err(error) => {
            tracing::warn!(
                "pod {}/{} is lost and stays in the Service, because it cannot be patched: {error}",
                lost.namespace,
                lost.name
            );
            // RBAC or a policy refuses the write: it is not tried again before the pod may be taken out again.
            matches!(error.code(), Some(401 | 403 | 422))
        }
    }
}

/// The pod is not taken out; settled: it is not tried again in the next round.
struct NotNow {
    is_settled: bool,
}

/// The version of the pod to patch, by a new list of its peers.
async fn version_to_patch(
    it: &Lookout,
    pods: &Api<Pod>,
    (dns, known): (&str, &Known),
    lost: &Target,
) -> Result<String, NotNow> {
    // The leader sees a pod that became ready a moment ago sooner or later than we do. One that a kubelet set back keeps its old
    // time: that it was out the watch has shown.
    let ready_until = match it.writes.leads() {
        true => Timestamp::MAX,
        false => Timestamp::now() - silence::AGAIN_AFTER,
    };
    let mut peers = Peers::of((&lost.uid, known), ready_until);
    match read(&it.client, &it.lists, (pods, dns), &mut peers).await {
        Ok(true) => peers.version().ok_or(NotNow { is_settled: false }),
        Ok(false) => {
            tracing::warn!(
                "pod {} is lost and stays in the Service: more than {} pods have the label of this ClusterDNS, so it is not \
                 known how many of them are lost",
                lost.name,
                MAX_PAGES * PAGE as usize
            );
            Err(NotNow { is_settled: true })
        }
        Err(error) => {
            tracing::warn!("pod {} is lost and stays in the Service: {error:#}", lost.name);
            Err(NotNow { is_settled: false })
        }
    }
}

/// Reads all pods of this ClusterDNS, page by page; false: there are more than are read.
async fn read(
    client: &Client,
    lists: &Lists,
    (pods, dns): (&Api<Pod>, &str),
    peers: &mut Peers<'_>,
) -> anyhow::Result<bool> {
    let its = format!("{}={dns}", names::INSTANCE);
    let mut params = ListParams::default().labels(&its).limit(PAGE);
    for _ in 0..MAX_PAGES {
        let add = |pod: Pod| peers.add(&pod);
        let page = within(lists.page(client, pods.resource_url(), &params, add)).await;
        let page = page.context("its peers cannot be listed")?;
        match page.token {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// What decides whether a pod is taken out, added up over all pods of its ClusterDNS.
struct Peers<'a> {
    uid: &'a str,
    /// Of pods that are being taken out, which count as lost also where the list shows them as ready, and of past losses.
    known: &'a Known,
    /// A pod that became ready later stays.
    ready_until: Timestamp,
    ready: usize,
    lost: usize,
    version: Option<String>,
}

impl<'a> Peers<'a> {
    fn of((uid, known): (&'a str, &'a Known), ready_until: Timestamp) -> Peers<'a> {
        Peers { uid, known, ready_until, ready: 0, lost: 0, version: None }
    }

    fn add(&mut self, pod: &Pod) {
        let since = pods::ready_since(pod);
        let ahead = &self.known.ahead;
        let is_leaving = since.is_some() && ahead.iter().any(|uid| uid == pods::uid(pod));
        let is_lost = loss(pod).is_some_and(|loss| !self.known.past.contains(&loss));
        self.ready += usize::from(since.is_some() && !is_leaving);
        self.lost += usize::from(is_lost || is_leaving);
        if pods::uid(pod) == self.uid && since.is_some_and(|since| since <= self.ready_until) {
            self.version = pod.resource_version();
        }
    }

    /// The version of the pod to patch; none: it is not ready any more, it became ready too late, or too many are not ready.
    fn version(self) -> Option<String> {
        self.version.filter(|_| silence::room(self.ready, self.lost) > 0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use serde_json::{Value, json};
    use tokio::net::UdpSocket;

    use super::*;
    use crate::fixtures;
    use crate::fixtures::api::{self, Asked, Log, Reply};
    use crate::lost_pods::silence::Loss;
    use crate::runtime::lease::Leadership;
    use crate::runtime::metrics::Metrics;
    use crate::runtime::write::Writes;

    pub(crate) fn pod(uid: &str, ready: &str, since: &str) -> Pod {
        let conditions: Value =
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
        let pod = json!({"metadata": {"name": uid, "uid": uid, "resourceVersion": "7"}, "status": {"conditions": conditions}});
        serde_json::from_value(pod).unwrap()
    }

    /// One that an operator took out at this time.
    fn out(uid: &str, at: &str) -> Pod {
        let mut out = pod(uid, "False", at);
        let conditions = out.status.as_mut().unwrap().conditions.as_mut().unwrap();
        conditions[0].reason = Some(pods::LOST.to_owned());
        out
    }

    #[test]
    fn o20_a_pod_that_just_became_ready_is_left_to_the_operator_that_leads() {
        let all = [
            pod("a", "True", "2026-01-01T00:00:00Z"),
            pod("b", "True", "2026-01-01T09:59:30Z"),
            pod("c", "False", "2026-01-01T00:00:00Z"),
        ];
        let version = |all: &[Pod], uid: &str, ready_until| {
            let known = Known::default();
            let mut peers = Peers::of((uid, &known), ready_until);
            all.iter().for_each(|pod| peers.add(pod));
            peers.version()
        };
        let a_minute_ago = "2026-01-01T09:59:00Z".parse().unwrap();
        assert_eq!(version(&all, "a", a_minute_ago).as_deref(), Some("7"));
        assert_eq!(version(&all, "b", a_minute_ago), None, "ready for half a minute only");
        assert_eq!(version(&all, "b", Timestamp::MAX).as_deref(), Some("7"), "it leads");
        assert_eq!(version(&all, "c", Timestamp::MAX), None, "not ready");
    }

    #[test]
    fn o20_a_node_that_stays_off_does_not_use_up_what_others_may_lose() {
        // However old its time is, only what this process has seen for long is past.
        let at = "2026-01-01T09:50:00Z";
        let past = Loss { uid: "off".to_owned(), at: at.parse().unwrap() };
        for (uid, time, may_go) in
            [("off", at, true), ("off", "2026-01-01T09:50:01Z", false), ("other", at, false)]
        {
            let ready = (0..4).map(|n| pod(&format!("p{n}"), "True", "2026-01-01T00:00:00Z"));
            let all: Vec<Pod> = ready.chain([out(uid, time)]).collect();
            let known = Known { past: [past.clone()].into(), ..Known::default() };
            let mut peers = Peers::of(("p0", &known), Timestamp::MAX);
            all.iter().for_each(|pod| peers.add(pod));
            assert_eq!(peers.version().is_some(), may_go, "{uid} at {time}");
        }
    }

    #[test]
    fn o20_a_pod_counts_those_that_are_taken_out_before_it_as_lost() {
        let all: Vec<Pod> =
            (0..9).map(|n| pod(&format!("p{n}"), "True", "2026-01-01T00:00:00Z")).collect();
        let may_go = |uid: &str, ahead: &[&str]| {
            let ahead = ahead.iter().map(|uid| (*uid).to_owned()).collect();
            let known = Known { ahead, ..Known::default() };
            let mut peers = Peers::of((uid, &known), Timestamp::MAX);
            all.iter().for_each(|pod| peers.add(pod));
            peers.version().is_some()
        };
        assert!(may_go("p2", &["p0", "p1"]), "three of nine");
        assert!(!may_go("p3", &["p0", "p1", "p2"]));
        assert!(may_go("p3", &["p0", "p1", "gone"]));
    }

    /// A list with this many pages of one pod each, and what was asked for.
    fn server(pages: usize) -> (Client, Log) {
        let lists = AtomicUsize::new(0);
        api::logged(move |_| {
            let page = lists.fetch_add(1, Relaxed) + 1;
            let items = [pod(&format!("pod-{page}"), "True", "2026-01-01T00:00:00Z")];
            let mut list = api::list(items);
            list["metadata"]["continue"] = json!(if page < pages { "more" } else { "" });
            Reply::ok(list)
        })
    }

    #[tokio::test]
    async fn k23_peers_are_read_in_pages_and_no_more_of_them_than_a_bound() {
        for (pages, asked_for, is_whole) in
            [(3, 3, true), (MAX_PAGES, MAX_PAGES, true), (1_000, MAX_PAGES, false)]
        {
            let (client, log) = server(pages);
            let pods = Api::<Pod>::namespaced(client.clone(), "dns");
            let known = Known::default();
            let mut peers = Peers::of(("pod-3", &known), Timestamp::MAX);
            let read = read(&client, &Lists::default(), (&pods, "default"), &mut peers).await;
            assert_eq!(read.unwrap(), is_whole, "{pages} pages");
            assert_eq!((peers.ready, peers.version.as_deref()), (asked_for, Some("7")));
            let asked = log.all();
            assert_eq!(asked.len(), asked_for, "{pages} pages");
            let is_page =
                |it: &&Asked| it.query.contains("limit=500") && it.query.contains("labelSelector=");
            assert_eq!(asked.iter().filter(is_page).count(), asked_for, "{asked:?}");
        }
    }

    /// A pod at this port of this machine, which is also where its HTTP server is.
    pub(crate) fn target(port: u16) -> Target {
        let dns = fixtures::dns(&format!("{{service: {{podPort: {port}}}}}"));
        let mut pod = pod("pod-1", "True", "2026-01-01T00:00:00Z");
        pod.metadata.namespace = Some("dns".to_owned());
        pod.spec = Some(fixtures::from(json!({"nodeName": "node", "containers": [{"name": "dns",
            "ports": [{"name": "metrics", "containerPort": port}]}]})));
        pod.status.as_mut().unwrap().pod_ip = Some("127.0.0.1".to_owned());
        ask::target(&dns, &pod).unwrap()
    }

    /// An operator that leads.
    pub(crate) fn lookout(client: Client) -> Lookout {
        let leadership = Arc::new(Leadership::new(Instant::now));
        leadership.renewed(Instant::now());
        let metrics = Arc::<Metrics>::default();
        Lookout {
            client,
            lists: Arc::default(),
            settings: fixtures::settings(),
            writes: Writes::new(leadership, metrics.clone()),
            metrics,
            standing: Arc::default(),
            node: None,
        }
    }

    /// Whether a pod is patched that was silent at this time, where the first list shows all three pods as ready. Each list after it
    /// shows that another operator took the second one out meanwhile, or that it did not.
    async fn is_patched(lost: &Target, heard: Instant, taken_out_meanwhile: bool) -> bool {
        let lists = AtomicUsize::new(0);
        let (client, log) = api::logged(move |asked| {
            let mut pods =
                ["pod-1", "pod-2", "pod-3"].map(|it| pod(it, "True", "2026-01-01T00:00:00Z"));
            if asked.is_write() {
                return Reply::ok(&pods[0]);
            }
            if lists.fetch_add(1, Relaxed) > 0 && taken_out_meanwhile {
                // Its clock is far behind.
                pods[1] = out("pod-2", "2026-01-01T00:00:00Z");
            }
            Reply::list(pods)
        });
        let it = lookout(client);
        let is_settled = take_out(&it, ("default", &Known::default()), lost, heard).await;
        assert_eq!(log.writes().len(), usize::from(is_settled));
        is_settled
    }

    #[tokio::test]
    async fn o20_a_pod_that_answers_again_while_the_list_is_read_stays_in_the_service() {
        let (udp, tcp) = fixtures::on_one_port(("127.0.0.1", 0));
        let silent = target(tcp.local_addr().unwrap().port());
        // Before the round that came next; and, however slow this machine is, a moment ago.
        let before = Instant::now() - Duration::from_millis(701);
        let lately = Instant::now() + Duration::from_secs(3_600);
        // The kernel of its node answers: nothing is bound there any more.
        let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let alive = target(closed);
        let (at_once, still_silent, answers, another) = futures::join!(
            is_patched(&alive, lately, false),
            is_patched(&silent, before, false),
            is_patched(&alive, before, false),
            is_patched(&silent, before, true)
        );
        assert!(at_once, "a fresh silence is enough: a dead node costs no second question");
        assert!(still_silent, "a slow API server keeps no dead pod in the Service");
        assert!(!answers, "it answered before the write");
        assert!(!another, "another operator took out the one pod that may be lost");
        drop((udp, tcp));
    }
}
