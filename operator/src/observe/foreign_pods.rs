//! The pods of the other DNS server: those that the Service would select without our key. Their labels are not
//! ours, so no watch of ours covers them. They are listed only where the Service is about to be left to them, and
//! then as they are now: what a watch cache remembers may be gone.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{Pod, PodCondition, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::lists::Lists;
use super::observed::Observed;
use super::pods;
use crate::decide::adoption;
use crate::names;
use crate::runtime::time_limit::within;
use crate::shortened::shortened;

/// Octets of why they are not known: an API server may send a long text.
const MAX_WHY: usize = 200;
/// More pods than another DNS server has; the rest is not read.
const PAGE: u32 = 500;

/// These pods where a decision needs them. A list as it is now is dear for the API server, and a ClusterDNS may stay beside the
/// Service of another DNS server for good.
///
/// # Errors
/// When the API server does not answer: why. One decision waits then, and all others do not need them.
pub(super) async fn needed(
    client: &Client,
    lists: &Lists,
    dns: &ClusterDNS,
    observed: &Observed,
) -> Result<Vec<Pod>, String> {
    match observed.service.as_ref().filter(|_| adoption::needs_others(dns, observed)) {
        Some(service) => {
            let listed = of_others(client, lists, service).await;
            listed.map_err(|why| shortened(&format!("{why:#}"), MAX_WHY))
        }
        None => Ok(Vec::new()),
    }
}

/// Pods that this Service would select without our key and that are not ours.
///
/// # Errors
/// When the API server does not answer.
async fn of_others(client: &Client, lists: &Lists, service: &Service) -> anyhow::Result<Vec<Pod>> {
    let Some(selector) = without_ours(service) else { return Ok(Vec::new()) };
    let pods = Api::<Pod>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let params = ListParams::default().labels(&selector).limit(PAGE);
    let mut found = Vec::new();
    let take = |pod: Pod| {
        if !pod.labels().contains_key(names::INSTANCE) {
            found.push(slim(pod));
        }
    };
    within(lists.page(client, pods.resource_url(), &params, take)).await?;
    Ok(found)
}

/// Its selector as text, without our pods: with many of them, those of others might be on no page that is read. None where it selects
/// only by our key, or nothing.
fn without_ours(service: &Service) -> Option<String> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    let others = selector.iter().filter(|(key, _)| *key != names::INSTANCE);
    let text: Vec<String> = others.map(|(key, value)| format!("{key}={value}")).collect();
    (!text.is_empty()).then(|| format!("{},!{}", text.join(","), names::INSTANCE))
}

/// The fields that are read: its name, and whether it is ready, has no node or is being deleted. Anyone may make pods with
/// these labels, of 1.5 MiB each.
fn slim(mut pod: Pod) -> Pod {
    let metadata = &mut pod.metadata;
    (metadata.annotations, metadata.labels, metadata.managed_fields) = (None, None, None);
    (metadata.owner_references, metadata.finalizers) = (None, None);
    pod.spec = None;
    let has_no_node = pods::unschedulable(&pod).cloned();
    let conditions = pod.status.take().and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    // The reason of the second one is a known word, by which it was found.
    let ready = ready.map(|condition| PodCondition { reason: None, ..condition });
    let kept = ready.into_iter().chain(has_no_node);
    let kept = kept.map(|condition| PodCondition { message: None, ..condition });
    pod.status.get_or_insert_default().conditions = Some(kept.collect());
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Log, Reply};
    use crate::fixtures::{deploy, dns, foreign_pod, kube_dns, own_service, pod};

    /// A selector as it is written, of its form in a query.
    fn decoded(text: &str) -> String {
        [("%3D", "="), ("%2C", ","), ("%21", "!"), ("%2F", "/")]
            .iter()
            .fold(text.to_owned(), |text, (code, octet)| text.replace(code, octet))
    }

    /// Does the selector have these labels? Of its forms: `key=value` and `!key`.
    fn is_selected(pod: &Pod, selector: &str) -> bool {
        selector.split(',').all(|part| match (part.strip_prefix('!'), part.split_once('=')) {
            (Some(key), _) => !pod.labels().contains_key(key),
            (None, Some((key, value))) => pod.labels().get(key).is_some_and(|it| it == value),
            (None, None) => panic!("{part}"),
        })
    }

    /// An API server with these pods, and what was asked.
    fn server(all: Vec<Pod>) -> (Client, Log) {
        api::logged(move |asked| {
            let selector = decoded(asked.parameter("labelSelector").unwrap());
            let limit: usize = asked.parameter("limit").unwrap().parse().unwrap();
            let mut page = all.clone();
            page.retain(|pod| is_selected(pod, &selector));
            page.truncate(limit);
            Reply::list(page)
        })
    }

    fn switched() -> Service {
        let mut service = kube_dns();
        let selector = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()).unwrap();
        selector.insert(names::INSTANCE.to_owned(), "default".to_owned());
        service
    }

    #[tokio::test]
    async fn o15_many_pods_of_ours_do_not_hide_those_of_the_other_dns_server() {
        let ours = (0..PAGE + 100).map(|n| pod(&format!("clusterdns-default-{n:04}"), 0, 0));
        let (client, _) = server(ours.chain([foreign_pod()]).collect());
        let found = of_others(&client, &Lists::default(), &switched()).await.unwrap();
        assert_eq!(found.iter().map(|pod| pod.name_any()).collect::<Vec<_>>(), ["coredns-1"]);
    }

    #[test]
    fn o15_of_a_pod_of_others_is_kept_whether_it_has_a_node_and_no_long_text() {
        let long = "x".repeat(1 << 20);
        let mut pod = foreign_pod();
        let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
        (conditions[0].reason, conditions[0].message) = (Some(long.clone()), Some(long.clone()));
        conditions.push(crate::fixtures::from(json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": long})));
        conditions.push(crate::fixtures::from(json!({"type": long, "status": "True"})));
        let kept = slim(pod);
        assert!(pods::is_ready(&kept) && pods::unschedulable(&kept).is_some(), "{kept:?}");
        assert!(serde_json::to_string(&kept).unwrap().len() < 1_000);
    }

    #[tokio::test]
    async fn o15_pods_of_the_other_server_are_listed_only_while_ours_serve_behind_the_service() {
        let with = |service: Option<Service>| {
            let mut observed = Observed { service, ..Observed::default() };
            deploy(&mut observed, 2);
            observed
        };
        let mut released = with(Some(kube_dns()));
        let spec = released.deployment.as_mut().unwrap().spec.as_mut().unwrap();
        spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap().remove("k8s-app");
        let never_adopted = Observed { service: Some(kube_dns()), ..Observed::default() };
        let adopt = "{service: {adopt: true}}";
        for (what, spec, observed, expected) in [
            ("our key is in the selector", "{}", with(Some(switched())), 1),
            ("our pods have its labels", "{}", with(Some(kube_dns())), 1),
            ("it was given back", "{}", released, 0),
            ("another's, and nothing of ours", "{}", never_adopted, 0),
            ("adopted", adopt, with(Some(switched())), 0),
            ("our own", "{}", with(Some(own_service())), 0),
            ("none", "{}", with(None), 0),
        ] {
            let (client, log) = server(vec![foreign_pod()]);
            let found = needed(&client, &Lists::default(), &dns(spec), &observed).await.unwrap();
            assert_eq!((found.len(), log.all().len()), (expected, expected), "{what}");
        }
    }
}
