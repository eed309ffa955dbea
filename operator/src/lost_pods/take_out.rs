//! The one write: it sets a lost pod not ready, as the node lifecycle controller does with the pods of a node that it
//! gave up (O20). A living kubelet sets the condition back by itself, so a mistake heals. A standby operator may do
//! this too, because the leader may be on the node that died. The number of lost pods is read from the API server
//! right before, to respect the limit.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::ask::Target;
use super::{Lookout, silence};
use crate::names;
use crate::observe::lists::Lists;
use crate::observe::pods;
use crate::runtime::time_limit::within;

/// Pods in a page of the list before a write, and pages of it.
const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;

/// The message of the pod's condition.
const MESSAGE: &str = "nothing answers there: asked over UDP, TCP and HTTP by the operator of ClusterDNS and by another pod of \
                       this Service";

/// Whether this loss is settled: written, or refused for good. Otherwise the next round decides again.
pub(super) async fn take_out(it: &Lookout, dns: &str, lost: &Target) -> bool {
    let pods = Api::<Pod>::namespaced(it.client.clone(), &lost.namespace);
    // The leader may have taken it out a moment ago, and its kubelet set it back.
    let ready_until = match it.writes.leads() {
        true => Timestamp::MAX,
        false => Timestamp::now() - silence::AGAIN_AFTER,
    };
    let mut peers = Peers::of(&lost.uid, ready_until);
    match read(&it.client, &it.lists, (&pods, dns), &mut peers).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(
                "pod {} is lost and stays in the Service: more than {} pods have the label of this ClusterDNS, so it is not \
                 known how many of them are lost",
                lost.name,
                MAX_PAGES * PAGE as usize
            );
            return true;
        }
        Err(error) => {
            tracing::warn!("pod {} is lost and stays in the Service: {error:#}", lost.name);
            return false;
        }
    }
    let Some(version) = peers.version() else { return false };
    let body = json!({
        "metadata": {"uid": lost.uid, "resourceVersion": version},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": pods::LOST, "message": MESSAGE,
            "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]},
    });
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
    /// A pod that became ready later stays.
    ready_until: Timestamp,
    ready: usize,
    lost: usize,
    version: Option<String>,
}

impl<'a> Peers<'a> {
    fn of(uid: &'a str, ready_until: Timestamp) -> Peers<'a> {
        Peers { uid, ready_until, ready: 0, lost: 0, version: None }
    }

    fn add(&mut self, pod: &Pod) {
        let since = pods::ready_since(pod);
        self.ready += usize::from(since.is_some());
        self.lost += usize::from(pods::is_lost(pod));
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
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    fn pod(uid: &str, ready: &str, since: &str) -> Pod {
        let conditions: Value =
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
        let pod = json!({"metadata": {"name": uid, "uid": uid, "resourceVersion": "7"}, "status": {"conditions": conditions}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn o20_a_pod_that_a_kubelet_just_set_back_is_left_to_the_operator_that_leads() {
        let all = [
            pod("a", "True", "2026-01-01T00:00:00Z"),
            pod("b", "True", "2026-01-01T09:59:30Z"),
            pod("c", "False", "2026-01-01T00:00:00Z"),
        ];
        let version = |all: &[Pod], uid: &str, ready_until| {
            let mut peers = Peers::of(uid, ready_until);
            all.iter().for_each(|pod| peers.add(pod));
            peers.version()
        };
        let a_minute_ago = "2026-01-01T09:59:00Z".parse().unwrap();
        assert_eq!(version(&all, "a", a_minute_ago).as_deref(), Some("7"));
        assert_eq!(version(&all, "b", a_minute_ago), None, "ready for half a minute only");
        assert_eq!(version(&all, "b", Timestamp::MAX).as_deref(), Some("7"), "it leads");
        assert_eq!(version(&all, "c", Timestamp::MAX), None, "not ready");
    }

    /// A list with this many pods on each of these pages, and what was asked for.
    fn server(pages: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let queries = asked.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let mut queries = queries.lock().unwrap();
            queries.push(request.uri().query().unwrap_or_default().to_owned());
            let page = queries.len();
            let name = format!("pod-{page}");
            let items = [pod(&name, "True", "2026-01-01T00:00:00Z")];
            let token = if page < pages { "more" } else { "" };
            let list =
                json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items});
            let body = Body::from(list.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        (Client::new(server, "dns"), asked)
    }

    #[tokio::test]
    async fn k23_peers_are_read_in_pages_and_no_more_of_them_than_a_bound() {
        for (pages, asked_for, is_whole) in
            [(3, 3, true), (MAX_PAGES, MAX_PAGES, true), (1_000, MAX_PAGES, false)]
        {
            let (client, asked) = server(pages);
            let pods = Api::<Pod>::namespaced(client.clone(), "dns");
            let mut peers = Peers::of("pod-3", Timestamp::MAX);
            let read = read(&client, &Lists::default(), (&pods, "default"), &mut peers).await;
            assert_eq!(read.unwrap(), is_whole, "{pages} pages");
            assert_eq!((peers.ready, peers.version.as_deref()), (asked_for, Some("7")));
            let asked = asked.lock().unwrap();
            assert_eq!(asked.len(), asked_for, "{pages} pages");
            let is_page =
                |query: &&String| query.contains("limit=500") && query.contains("labelSelector=");
            assert_eq!(asked.iter().filter(is_page).count(), asked_for, "{asked:?}");
        }
    }
}
