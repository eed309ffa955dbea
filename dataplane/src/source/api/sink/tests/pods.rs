//! Verified pod records wait for the Pods (E43): what is reported meanwhile, and what another document does then.

use super::*;
use crate::status::Reported;

const PODS: usize = Resource::Pods as usize;

fn verified() -> Value {
    json!({"format": 1, "podRecords": "Verified"})
}

fn status(sink: &Sink) -> Reported {
    sink.ingest.status.shared.read().clone()
}

fn revision(sink: &Sink) -> String {
    status(sink).running.revision.clone()
}

/// Runs insecure pod records, with everything that they need.
fn insecure() -> Sink {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    list_all(&mut sink);
    assert!(status(&sink).feeds[PODS].staleness(std::time::SystemTime::now()).is_none());
    sink
}

#[test]
fn e43_verified_pod_records_are_reported_once_the_pods_are_known() {
    let mut sink = insecure();
    let before = revision(&sink);
    let mut asked = verified();
    asked["ttlSeconds"] = 9.into();
    adopt(&mut sink, &asked);
    assert_eq!(revision(&sink), before, "a trial must not pass on it yet");
    assert_eq!(running(&sink).ttl_seconds, 9, "the rest does not wait");
    assert_eq!(running(&sink).pod_records, PodRecords::Insecure);

    // A list that never completes shows, and the pod stays ready.
    let pods = || Watched::Objects(Resource::Pods);
    sink.feed(&pods(), |feed| feed.failed("403".into()));
    let feed = status(&sink).feeds[PODS].clone();
    assert!(feed.staleness(std::time::SystemTime::now()).is_some() && feed.is_followed);
    assert!(feed.is_answerable() && !feed.is_wanted);
    sink.tick(Instant::now());
    assert_eq!(revision(&sink), before);

    list(&mut sink, Resource::Pods, &[]);
    assert_eq!(revision(&sink), config(&asked).revision());
    assert_eq!(running(&sink), config(&asked));
    assert!(status(&sink).feeds[PODS].is_wanted);
}

#[test]
fn e43_documents_that_come_while_the_pods_are_awaited_take_over() {
    let mut sink = insecure();
    let before = revision(&sink);
    adopt(&mut sink, &verified());
    // One that needs other lists and reads the Pods as well waits for both, one after the other.
    let mut exposed = selecting("front");
    exposed["podRecords"] = "Verified".into();
    adopt(&mut sink, &exposed);
    list_all(&mut sink);
    assert_eq!(revision(&sink), before);
    assert_eq!(running(&sink).exposure, config(&exposed).exposure);
    // A refused one changes nothing, and stays reported when the one before it takes effect.
    adopt(&mut sink, &json!({"format": 1, "ttlSeconds": "long"}));
    assert!(status(&sink).rejection.is_some());
    list(&mut sink, Resource::Pods, &[]);
    assert_eq!(revision(&sink), config(&exposed).revision());
    assert!(status(&sink).rejection.is_some(), "it is newer");

    // Without a list of Pods: a good one ends the refusal, and one that reads no Pods runs at once.
    let mut sink = insecure();
    adopt(&mut sink, &json!({"format": 1, "ttlSeconds": "long"}));
    adopt(&mut sink, &verified());
    assert!(status(&sink).rejection.is_none(), "the newest document is good");
    let plain = json!({"format": 1, "ttlSeconds": 7});
    adopt(&mut sink, &plain);
    assert_eq!(revision(&sink), config(&plain).revision());
    let feed = status(&sink).feeds[PODS].clone();
    assert!(!feed.is_followed && !*sink.configuration.pods_wanted.borrow());
    sink.forget(Resource::Pods);
    list(&mut sink, Resource::Services, &[service("cart")]);
    assert_eq!(running(&sink), config(&plain), "nothing of the one that waited comes back");
}

#[test]
fn e43_the_pod_of_a_trial_lists_at_once_and_all_others_at_a_random_time() {
    let mut sink = insecure();
    sink.configuration.pace.spread = Duration::from_secs(1 << 40);
    let stable = json!({"format": 1}).to_string();
    let rollout = json!({"stable": "1", "canary": "2", "observeSeconds": 60,
        "canaryPod": {"name": "dns-1", "uid": "uid-1"}, "startedAt": "2026-01-01T00:00:00Z"});
    adopt_texts(
        &mut sink,
        json!({"stable.json": stable, "canary.json": verified().to_string(),
            "rollout.json": rollout.to_string()}),
    );
    assert_eq!(sink.configuration.delay(), Duration::ZERO);
    // Promoted: the same document is every pod's.
    adopt(&mut sink, &verified());
    assert!(sink.configuration.delay() > Duration::ZERO);
}

#[test]
fn o7_a_pod_whose_trial_ends_lists_at_once_and_with_the_others_after_that() {
    let mut sink = insecure();
    sink.configuration.pace.spread = Duration::from_secs(1 << 40);
    let stable = json!({"format": 1});
    let rollout = json!({"stable": "1", "canary": "2", "observeSeconds": 60,
        "canaryPod": {"name": "dns-1", "uid": "uid-1"}, "startedAt": "2026-01-01T00:00:00Z"});
    adopt_texts(
        &mut sink,
        json!({"stable.json": stable.to_string(), "canary.json": verified().to_string(),
            "rollout.json": rollout.to_string()}),
    );
    adopt(&mut sink, &stable);
    assert_eq!(sink.configuration.delay(), Duration::ZERO, "no other pod goes back now");
    adopt(&mut sink, &stable);
    assert_eq!(sink.configuration.delay(), Duration::ZERO, "the same document changes nothing");
    adopt(&mut sink, &verified());
    assert!(sink.configuration.delay() > Duration::ZERO, "every pod gets this one");
}
