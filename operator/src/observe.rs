//! Reads what exists and what the spec refers to, for one ClusterDNS: from what watches keep, and from the pods
//! themselves. If the watch may lag behind our own write, the object is read again before the next write.

pub mod observed;
pub mod budget;
pub mod stubs;
pub(crate) mod octets;
pub mod caches;
pub mod relist;
mod cluster_size;
mod left_elsewhere;
mod placement;
pub mod spare_nodes;
pub mod pods;
pub mod pods_to_ask;
pub mod foreign_pods;
pub mod certificates;
pub mod ca_bundles;
pub mod offers;
pub(crate) mod other_dns;
pub mod named_services;
mod others;
mod possible_labels;
mod read;
mod slices;
pub mod lists;
mod events;
mod room;
mod list_and_watch;
pub mod unlisted;
pub mod unreadable;
mod waits;
pub mod sample;
pub mod last_documents;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::core::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};

use crate::ask_pods::canary_analysis::{self, Look};
use crate::context::Context;
use crate::controller::triggers;
use crate::decide::{admit, config_map};
use crate::desired::Kind;
use crate::names;
use crate::observe::observed::{Child, KnownClients, Observed, Sample};
use possible_labels::PossibleLabels;
pub use read::refusal;
use read::{fresh_config_map, ours, typed, whole};

/// Between two looks for an edit of another client while questions are asked.
const EDITS_EVERY: Duration = Duration::from_secs(1);

/// Reads everything that decisions about this ClusterDNS need.
///
/// # Errors
/// When something that decisions need could not be read: no decision is better than a wrong one.
pub async fn observe(ctx: &Context, dns: &ClusterDNS) -> anyhow::Result<Observed> {
    let caches = &ctx.caches;
    let instance = dns.name_any();
    let name = names::child(&instance);
    let (namespace, service_name) = names::service(dns);
    // The operator has no right to read there, so each read would be refused.
    if !caches.namespaces().contains(&namespace) {
        return Ok(Observed { is_unwatched: true, ..Observed::default() });
    }
    let of = async |kind, name: &str| whole(ctx, kind, &namespace, name).await;

    let service = typed::<Service>(of(Kind::Service, &service_name).await?)?;
    let pods = caches.pods(&namespace, &instance);
    let config_map = fresh_config_map(ctx, &namespace, &name).await?;
    let config_map = ctx.last_documents.believed(dns, config_map, service.as_ref());
    let replica_sets = caches.replica_sets(&namespace, &instance);
    let deployment = ours(ctx, dns, Kind::Deployment, &namespace).await?;
    let daemon_set = ours(ctx, dns, Kind::DaemonSet, &namespace).await?;
    let autoscaler = ours(ctx, dns, Kind::HorizontalPodAutoscaler, &namespace).await?;
    let workloads = [&deployment, &daemon_set].into_iter().flatten();
    let workloads: Vec<String> = workloads.filter_map(|workload| workload.uid()).collect();
    let makers = pods::makers(&workloads, &replica_sets);
    let pod_reports = ctx.pod_reports.read(&pods, &makers, config_map.as_ref()).await;
    let lost_document = match config_map::whole(config_map.as_ref()) {
        Some(_) => None,
        None => {
            // Another client changed or deleted it: this process may know it, or pods.
            let revision = config_map::state_in(config_map.as_ref()).stable;
            match ctx.last_documents.of(&instance, &revision) {
                Some(text) => Some(text),
                None => ctx.pod_reports.document(&pods, &makers, &pod_reports).await,
            }
        }
    };
    let possible = PossibleLabels::of(dns, service.as_ref(), config_map.as_ref());
    let budgets = caches.objects(Kind::PodDisruptionBudget, &namespace);
    let budgets = budgets.iter().map(|it| &**it).filter(|it| it.name_any() != name);
    let budgets = possible.budgets(budgets);
    let services = caches.objects(Kind::Service, &namespace);
    let of_others = services.iter().map(|it| &**it).filter(|it| it.name_any() != service_name);
    let selectors = possible.selectors(of_others);
    let others = others::all(&ctx.caches, dns);
    let workload = other_dns::Workload::of(dns, &others);
    let looked_at = (services.as_slice(), service.as_ref());
    let dns_services =
        slices::dns_services(ctx, dns, looked_at, &possible, (&pods, &workload)).await?;
    let has_node_local = other_dns::leads_node_local(&services, &possible, &pods);
    drop(services);
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (map, key) in ca_bundles::of(dns) {
        wanted.entry(map).or_default().insert(key);
    }
    let mut bundles = ca_bundles::Bundles::default();
    for (map, keys) in wanted {
        if bundles.are_too_much() {
            bundles.pass_over(&map, keys);
            continue;
        }
        bundles.add(&map, keys, of(Kind::ConfigMap, &map).await.and_then(typed))?;
    }
    let (deployment, daemon_set) = (typed(deployment)?, typed(daemon_set)?);
    let mounted = pods::mounted_secrets(deployment.as_ref(), daemon_set.as_ref());
    let secrets = admit::certificates(dns).into_iter().map(|(_, name)| name).collect();
    let named = &ctx.settings.allowed.certificates;
    let certificates = &ctx.certificates;
    let certificates = certificates.read(&ctx.client, &namespace, secrets, named, &mounted).await;

    let wanted_nodes = placement::Wanted::of(dns);
    let fit = caches.fit(&wanted_nodes);
    let wanted_by_set = daemon_set.as_ref().map(placement::Wanted::of_daemon_set);
    let uncounted_nodes = wanted_by_set.as_ref().map(|set| {
        caches.of_nodes(&pods, |node| (!set.takes_pod(node)).then_some(())).into_keys().collect()
    });
    let dead_nodes = caches.of_nodes(&pods, |node| node.is_dead().then_some(()));
    let mut observed = Observed {
        services_of_others: others::services(&ctx.caches, &others),
        others,
        unreadable: caches.unreadable.all().into_keys().collect(),
        slices: slices::of(ctx, &namespace, &service_name).await?,
        deployment,
        replica_sets,
        daemon_set,
        autoscaler: typed(autoscaler)?,
        not_kept: caches.budget.not_kept(&namespace),
        is_cache_mostly_needed: caches.budget.is_mostly_needed(),
        selectors,
        dns_services,
        certificates: certificates.found,
        unread_certificates: certificates.unread,
        ca_bundles: bundles.found(),
        size: caches.size(),
        nodes_that_fit: fit.count,
        no_node_fits: fit.misfit,
        no_node_takes_pods: fit.none_takes_pods,
        nodes_for_new_pods: ctx.several_nodes.note(&instance, fit.take_new_pods, Timestamp::now()),
        no_node_fits_daemon_set: fit.misfit.is_some()
            && wanted_by_set.is_some_and(|set| caches.fit(&set).misfit.is_some()),
        unfit_nodes: caches.of_nodes(&pods, |node| wanted_nodes.ends_pods(node)),
        dead_nodes: dead_nodes.into_keys().collect(),
        uncounted_nodes: uncounted_nodes.unwrap_or_default(),
        budgets,
        refused_watches: caches.refused_watches(&namespace),
        is_unwatched: false,
        children: children(ctx, dns),
        left_in: left_elsewhere::namespaces(caches, dns),
        offers: ctx.offers(),
        lost_pods: ctx.lost_pods.get(),
        conflict: ctx.memory.conflict(&namespace, &service_name),
        comparison: None,
        watched: None,
        sample: Sample::default(),
        known_clients: KnownClients { has_node_local, ..caches.known_clients() },
        service,
        config_map,
        lost_document,
        pods,
        foreign_pods: Vec::new(),
        unread_foreign_pods: None,
        pod_reports,
    };
    match foreign_pods::needed(&ctx.client, &ctx.lists, dns, &observed).await {
        Ok(found) => observed.foreign_pods = found,
        Err(why) => observed.unread_foreign_pods = Some(why),
    }
    observed.watched = ctx.rounds.watched(dns, &observed, Instant::now());
    // Asks pods that were chosen from what they have just said.
    observed.comparison = match canary_analysis::look(dns, &observed, &ctx.rounds) {
        None => None,
        Some(Look::Postponed(comparison)) => Some(comparison),
        Some(Look::Round(round)) => {
            let asked = async {
                observed.sample =
                    ctx.samples.read(&ctx.client, &ctx.lists, &round.config().exposure).await;
                round.ask(&observed, &ctx.client, &ctx.lists).await
            };
            tokio::select! {
                comparison = asked => Some(comparison),
                () = edited(ctx, &instance, &namespace, (&name, &service_name)) => {
                    ctx.rounds.ended(dns, &observed)
                }
                // Nothing of it counts, and nothing is wrong: the next reconcile, which waits for this one, has the newer spec.
                () = outdated(&ctx.caches.resources, dns) => None,
            }
        }
    };
    is_the_canary_there(ctx, &mut observed, (&namespace, &instance)).await;
    // The questions took a part of its time.
    observed.watched = ctx.rounds.watched(dns, &observed, Instant::now());
    Ok(observed)
}

/// Returns when another client has changed what all pods run, or deleted the ConfigMap or the Service: a round of questions
/// takes up to a minute, and until that is undone clients get answers by the edit, or none.
async fn edited(ctx: &Context, instance: &str, namespace: &str, (map, service): (&str, &str)) {
    let kept = |kind, name| ctx.caches.object(kind, namespace, name);
    let is_whole = |kind| !ctx.caches.is_incomplete(kind, namespace);
    let (mut map_seen, mut service_seen) = (false, false);
    loop {
        let is_map_gone = has_gone(&mut map_seen, kept(Kind::ConfigMap, map).is_some());
        let is_service_gone = has_gone(&mut service_seen, kept(Kind::Service, service).is_some());
        if is_map_gone && is_whole(Kind::ConfigMap) || is_service_gone && is_whole(Kind::Service) {
            return;
        }
        tokio::time::sleep(EDITS_EVERY).await;
        let kept = kept(Kind::ConfigMap, map);
        let map = kept.and_then(|kept| typed::<ConfigMap>(Some(kept)).ok()?);
        let map = map.map(|map| ctx.last_documents.with_own_state(instance, map));
        if map.is_some_and(|map| config_map::whole(Some(&map)).is_none()) {
            return;
        }
    }
}

/// Returns when the watch has shown a newer spec: it may ask for what pods run, and then no pod should wait for a round.
async fn outdated(resources: &Store<ClusterDNS>, dns: &ClusterDNS) {
    let reference = ObjectRef::from_obj(dns);
    while !resources.get(&reference).is_some_and(|kept| is_newer(&kept, dns)) {
        tokio::time::sleep(EDITS_EVERY).await;
    }
}

/// The watch may be behind: what it shows may be older, too, or another object of this name.
fn is_newer(kept: &ClusterDNS, dns: &ClusterDNS) -> bool {
    kept.metadata.uid == dns.metadata.uid && kept.metadata.generation > dns.metadata.generation
}

/// Whether an object is gone that a watch has shown before. One that was never shown may be too new.
fn has_gone(was_seen: &mut bool, is_kept: bool) -> bool {
    *was_seen |= is_kept;
    *was_seen && !is_kept
}

/// The canary's answers count only if the same process reports the configuration on trial before and after. A process
/// that died in between was silent because it died: that is a lost pod, not a failure of the configuration. Its
/// successor proves nothing.
async fn is_the_canary_there(
    ctx: &Context,
    observed: &mut Observed,
    (namespace, instance): (&str, &str),
) {
    let Some(uid) = observed.comparison.as_ref().map(|it| it.canary_uid.clone()) else { return };
    let Some(canary) = observed.pods.iter().find(|pod| pods::uid(pod) == uid) else { return };
    let answer = ctx.pod_reports.read_now(canary).await;
    observed.pod_reports.insert(uid, answer);
    observed.pods = ctx.caches.pods(namespace, instance);
}

/// Whether this ClusterDNS, and not one of the same name before it, owns something.
pub fn is_owned(object: &impl Resource, dns: &ClusterDNS) -> bool {
    let uid = dns.metadata.uid.as_deref().unwrap_or_default();
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Whether it was made for a ClusterDNS of this name that was deleted without its children. This one takes it over.
pub fn is_left_behind(object: &DynamicObject, dns: &ClusterDNS) -> bool {
    let has = |key, value: &str| triggers::label(object.meta(), key) == Some(value);
    object.owner_references().is_empty()
        && has(names::MANAGED_BY, names::FIELD_MANAGER)
        && has(names::INSTANCE, &dns.name_any())
}

/// Whether it is ours, so that it is deleted once it is not wanted. What was left behind in another namespace is not taken over:
/// it may serve clients there.
fn is_child(object: &DynamicObject, dns: &ClusterDNS) -> bool {
    let is_labelled = triggers::label(object.meta(), names::INSTANCE).is_some();
    let is_so_called = object.name_any() == names::child(&dns.name_any());
    let is_here = object.namespace().is_none_or(|namespace| namespace == names::service(dns).0);
    is_owned(object, dns) && is_labelled || is_left_behind(object, dns) && is_so_called && is_here
}

/// The configuration ConfigMap, and of one that another ClusterDNS of this name had what is true of this one too.
pub(crate) fn believed(map: ConfigMap, dns: &ClusterDNS, service: Option<&Service>) -> ConfigMap {
    match is_owned(&map, dns) {
        true => map,
        false => config_map::left_behind(map, dns, service),
    }
}

fn children(ctx: &Context, dns: &ClusterDNS) -> Vec<Child> {
    let mut children = Vec::new();
    for (kind, namespace) in ctx.caches.places() {
        let objects = ctx.caches.objects(kind, &namespace);
        let ours = objects.iter().filter(|object| is_child(object, dns));
        children.extend(ours.map(|object| Child {
            kind,
            namespace: namespace.clone(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }));
    }
    children.sort_by(|a, b| (a.kind, &a.namespace, &a.name).cmp(&(b.kind, &b.namespace, &b.name)));
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, from};
    use futures::FutureExt;
    use kube::runtime::{reflector, watcher};
    use serde_json::{Value, json};

    #[test]
    fn o10_what_a_clusterdns_of_the_same_name_left_behind_is_a_child_too() {
        let owner = |kind: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "default", "uid": uid}]);
        let case = |name: &str, owners: Value, labels: Value| {
            let metadata = json!({"name": name, "ownerReferences": owners, "labels": labels});
            is_child(&from(json!({"metadata": metadata})), &dns("{}"))
        };
        let labels = || json!(names::labels("default"));
        let own = "clusterdns-default";
        assert!(case(own, owner("ClusterDNS", "dns-uid"), labels()));
        assert!(case("kube-dns", owner("ClusterDNS", "dns-uid"), labels()));
        assert!(case(own, json!([]), labels()), "deleted with --cascade=orphan");
        for (namespace, expected) in [("kube-system", true), ("elsewhere", false)] {
            let metadata = json!({"name": own, "namespace": namespace, "labels": labels()});
            let object = from(json!({"metadata": metadata}));
            assert_eq!(is_child(&object, &dns("{}")), expected, "{namespace}");
        }
        for (name, owners, labels) in [
            (own, owner("ClusterDNS", "before"), labels()),
            (own, owner("Node", "n"), labels()),
            ("clusterdns-other", json!([]), labels()),
            (own, json!([]), json!(names::labels("other"))),
            (own, json!([]), json!(names::selector("default"))),
            (own, owner("ClusterDNS", "dns-uid"), json!({})),
        ] {
            assert!(!case(name, owners.clone(), labels.clone()), "{name} {owners} {labels}");
        }
    }

    #[tokio::test]
    async fn o17_a_newer_spec_ends_the_round_of_questions_about_the_one_before() {
        let (resources, mut writer) = reflector::store();
        let generation = |generation: i64, uid: &str| {
            let mut dns = dns("{}");
            dns.metadata.generation = Some(generation);
            dns.metadata.uid = Some(uid.to_owned());
            dns
        };
        let decided_on = generation(2, "dns-uid");
        let ends = || outdated(&resources, &decided_on).now_or_never().is_some();
        assert!(!ends(), "it was read from the API server, and the watch has not shown it");
        for (kept, uid, expected) in [
            (1, "dns-uid", false),
            (2, "dns-uid", false),
            (9, "before", false),
            (3, "dns-uid", true),
        ] {
            writer.apply_watcher_event(&watcher::Event::Apply(generation(kept, uid)));
            assert_eq!(ends(), expected, "{kept} {uid}");
        }
    }

    #[test]
    fn o16_an_object_is_gone_only_where_a_watch_has_shown_it_before() {
        let mut was_seen = false;
        let shown = [false, false, true, true, false];
        let gone = shown.map(|is_kept| has_gone(&mut was_seen, is_kept));
        assert_eq!(gone, [false, false, false, false, true]);
    }
}
