//! An API server that shows less than it did (K22): its etcd was restored from a backup, or another cluster has its
//! address. And one that only lags, which must change nothing.

use std::time::Duration;

use dataplane::source::api::{Options, Pace};
use dataplane_core::Resource;
use serde_json::{Value, json};
use tests::live::{Live, options};
use tests::scripted_api::{ScriptedApi, Store};

use super::api_scripted::{cluster_ip, shop};

fn kube_system(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}})
}

const OURS: &str = "00000000-0000-4000-8000-00000000aaaa";
const ANOTHER: &str = "00000000-0000-4000-8000-00000000bbbb";

/// A data plane that watches everything of this API server.
fn follow(api: &ScriptedApi) -> Live {
    follow_with(api, Live::start(api.kubeconfig()))
}

fn follow_with(api: &ScriptedApi, live: Live) -> Live {
    live.wait_until_ready();
    live.wait("the watches", || {
        ["Service", "EndpointSlice", "Namespace"].iter().all(|kind| api.watches(kind) == 1)
    });
    live
}

fn resets(live: &Live) -> Option<f64> {
    live.metric("clusterdns_version_resets_total{resource=\"services\"}")
}

/// The state of a backup. The data plane has seen what came after it: `new` was made, `s1` changed, `s9` deleted.
fn backup_and_later(api: &ScriptedApi, live: &Live) -> Store {
    let backup = api.state();
    api.put(cluster_ip("new", "10.96.0.50"));
    api.put(cluster_ip("s1", "10.96.0.51"));
    api.delete("Service", "shop", "s9");
    live.wait_for_denial("s9.shop", "NXDOMAIN");
    live.wait_for("s1.shop", &["10.96.0.51"]);
    backup
}

#[test]
fn k22_after_etcd_is_restored_the_list_at_a_lower_version_is_the_truth() {
    let api = ScriptedApi::start(&shop());
    let live = follow(&api);
    let backup = backup_and_later(&api, &live);

    // Watches at our version are answered 504, then everything is listed at the version of the backup.
    api.show(backup);
    live.wait_for("s9.shop", &["10.96.0.9"]);
    live.wait_for("s1.shop", &["10.96.0.1"]);
    live.wait_for_denial("new.shop", "NXDOMAIN");
    live.wait("the count", || resets(&live) == Some(1.0));

    // Events from then on have versions that were seen before.
    api.put(cluster_ip("s1", "10.96.0.77"));
    live.wait_for("s1.shop", &["10.96.0.77"]);
    api.delete("Service", "shop", "s2");
    live.wait_for_denial("s2.shop", "NXDOMAIN");
}

#[test]
fn k22_a_watch_cache_that_lags_takes_nothing_back() {
    let api = ScriptedApi::start(&shop());
    let live = follow(&api);
    let before = api.state();
    api.put(cluster_ip("new", "10.96.0.50"));
    api.put(cluster_ip("s1", "10.96.0.51"));
    live.wait_for("s1.shop", &["10.96.0.51"]);

    let lists = api.lists("Service");
    api.lag(before);
    // Watches at our version are answered 504; the lists that follow are consistent reads.
    live.wait("some lists", || {
        live.wait_for("new.shop", &["10.96.0.50"]);
        live.wait_for("s1.shop", &["10.96.0.51"]);
        api.lists("Service") > lists + 2
    });
    api.catch_up();
    api.delete("Service", "shop", "new");
    live.wait_for_denial("new.shop", "NXDOMAIN");
    assert_eq!(resets(&live), Some(0.0));
}

#[test]
fn k22_another_cluster_at_the_same_address_replaces_the_first_and_is_reported() {
    let api = ScriptedApi::start(&shop());
    api.put(kube_system(OURS));
    let live = follow(&api);
    live.wait_for("s1.shop", &["10.96.0.1"]);

    // Our version is also part of the other cluster's history, so that watches could simply continue.
    let other = ScriptedApi::start(&[shop().remove(0), cluster_ip("other", "10.96.0.90")]);
    other.put(kube_system(ANOTHER));
    while other.version() < api.version() + 9 {
        other.put(cluster_ip("other", "10.96.0.90"));
    }
    api.show(other.state());
    live.wait_for("other.shop", &["10.96.0.90"]);
    live.wait_for_denial("s1.shop", "NXDOMAIN");
    live.wait("the count", || live.metric("clusterdns_cluster_changes_total") == Some(1.0));
    live.wait("the end of the change", || {
        live.metric("clusterdns_serves_former_cluster") == Some(0.0)
    });
    assert!(live.trouble(Resource::Services).is_none());
}

/// A data plane that takes a watch for silent after a second.
fn follow_impatiently(api: &ScriptedApi) -> Live {
    let pace = Pace { silence: Duration::from_secs(1), ..Pace::with_spread(Duration::ZERO) };
    let live = Live::with(Options { pace, ..options(api.kubeconfig()) });
    follow_with(api, live.expect("a data plane starts"))
}

/// As kube-apiserver does it: no 504, no events, no bookmarks.
#[test]
fn k22_a_watch_ahead_of_a_restored_etcd_that_stays_silent_is_noticed() {
    let api = ScriptedApi::start(&shop());
    api.accept_versions_ahead();
    let live = follow_impatiently(&api);
    let backup = backup_and_later(&api, &live);

    // No connection breaks. What changes now has versions that were seen before, or slightly higher ones.
    api.show_in_silence(backup);
    api.put(cluster_ip("s2", "10.96.0.52"));
    live.wait_for("s9.shop", &["10.96.0.9"]);
    live.wait_for("s1.shop", &["10.96.0.1"]);
    live.wait_for("s2.shop", &["10.96.0.52"]);
    live.wait_for_denial("new.shop", "NXDOMAIN");
    live.wait("the count", || resets(&live) == Some(1.0));
    api.put(cluster_ip("s3", "10.96.0.77"));
    live.wait_for("s3.shop", &["10.96.0.77"]);
    assert_eq!(resets(&live), Some(1.0));
}

/// The same after API servers were restarted, which ends all watches: there is no need to wait for silence. Objects of
/// another resource are lost as well, although its stream holds a version that the restored etcd has.
#[test]
fn k22_a_watch_that_ended_early_continues_only_at_a_version_that_exists() {
    let api = ScriptedApi::start(&shop());
    api.accept_versions_ahead();
    let live = follow(&api);
    let backup = api.state();
    let of =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    api.put(of("lost"));
    for number in 0..20 {
        api.put(cluster_ip("s1", &format!("10.96.1.{number}")));
    }
    live.wait_for("s1.shop", &["10.96.1.19"]);
    live.wait_for_denial("x.lost", "NXDOMAIN");
    let namespaces = || live.metric("clusterdns_objects{resource=\"namespaces\"}");
    live.wait("the new namespace", || namespaces() == Some(2.0));

    // The restored etcd has passed the version of the stream of Namespaces when that connects again.
    api.show_in_silence(backup);
    for number in 0..9 {
        api.put(cluster_ip("s2", &format!("10.96.2.{number}")));
    }
    api.end_watches();
    live.wait_for("s1.shop", &["10.96.0.1"]);
    live.wait_for("s2.shop", &["10.96.2.8"]);
    live.wait("the namespace to be gone", || namespaces() == Some(1.0));
    live.wait("the count", || resets(&live) == Some(1.0));
    assert_eq!(live.metric("clusterdns_version_resets_total{resource=\"namespaces\"}"), Some(1.0));
}

#[test]
fn k22_silence_alone_costs_one_object_of_each_kind_and_no_list() {
    let api = ScriptedApi::start(&shop());
    let live = follow_impatiently(&api);
    let (lists, looks) = (api.lists("Service"), api.looks("Service"));
    live.wait("three looks", || api.looks("Service") >= looks + 3);
    assert_eq!(api.lists("Service"), lists);
    assert_eq!(live.relists(Resource::Services), 0);
    assert_eq!(resets(&live), Some(0.0));
}
