//! What `/readyz` says about a process that is not ready, and what keeps it so.

use super::*;
use std::time::Duration;

use crate::status::snapshot::Loaded;
use crate::status::{Rejection, Violation};

#[test]
fn e43_readiness_explains_itself() {
    let (health, status) = (Health::default(), Status::default());
    status.read().feeds[0].failed("403".into());
    let reasons = why_not_ready(&health, &status);
    assert_eq!(reasons.len(), 1 + Resource::ALL.len());
    assert!(reasons[0].contains("services") && reasons[0].ends_with("for 0 s: 403"), "{reasons:?}");
    status.contact();
    assert_eq!(why_not_ready(&health, &status), ["the DNS sockets are not open yet"]);
    health.serving();
    assert!(why_not_ready(&health, &status).is_empty());
    health.leaving();
    assert_eq!(why_not_ready(&health, &status), ["draining: the process was asked to end"]);
}

#[test]
fn d5_readiness_never_drops_for_a_refused_configuration() {
    let (health, status) = (Health::default(), Status::default());
    status.contact();
    health.serving();
    assert_eq!(notes(&status), "");
    let [field, reason, message] =
        ["spec.domain", "Malformed", "write cluster.local"].map(str::to_owned);
    let violations = vec![Violation { field, reason, message, line: None }];
    status.reject(Rejection { origin: "ClusterDNS \"a\"".into(), violations });
    assert!(why_not_ready(&health, &status).is_empty());
    let said = notes(&status);
    assert!(said.contains("\"a\" was refused because of spec.domain,"), "{said}");
}

#[test]
fn e44_readyz_says_what_runs_where_a_configuration_is_refused_or_not_given() {
    let said = |field: &str, reason: &str, is_unconfigured| {
        let status = Status::default();
        status.contact();
        status.read().is_unconfigured = is_unconfigured;
        let [field, reason, message] = [field, reason, "there is no ConfigMap a/b"];
        let [field, reason, message] = [field, reason, message].map(str::to_owned);
        let violations = vec![Violation { field, reason, message, line: None }];
        status.reject(Rejection { origin: "ConfigMap a/b".into(), violations });
        notes(&status)
    };
    let missing = said("", "Missing", false);
    assert!(!missing.contains("was refused") && missing.contains("before it runs"), "{missing}");
    assert!(missing.contains("there is no ConfigMap a/b"), "{missing}");
    for (field, reason) in [("", "Missing"), ("spec.domain", "Malformed")] {
        let text = said(field, reason, true);
        assert!(!text.contains("before it runs") && text.contains("none is in use yet"), "{text}");
    }
}

fn is_loaded(status: &Status, age_s: u64) {
    let mut reported = status.read();
    reported.snapshot.loaded = Some(loaded(age_s));
    let source = DataSource::Snapshot { confirmed_at_s: 0 };
    reported.feeds.iter_mut().for_each(|feed| feed.source = source);
}

fn loaded(age_s: u64) -> Loaded {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let confirmed_at_s = now.as_secs() - age_s;
    Loaded { confirmed_at_s, age_s, is_partial: false, at: Instant::now() }
}

#[test]
fn k2_a_snapshot_is_enough_and_says_that_it_is_one() {
    let (health, status) = (Health::default(), Status::default());
    health.serving();
    is_loaded(&status, 90);
    assert!(why_not_ready(&health, &status).is_empty());
    assert!(notes(&status).contains("confirmed 9"));
    status.contact();
    assert_eq!(notes(&status), "");
}

#[test]
fn e41_readyz_shows_the_age_of_a_snapshot_by_the_clock_as_it_is_now() {
    let status = Status::default();
    is_loaded(&status, 90);
    // The clock was behind when the process started.
    let loaded = status.read().snapshot.loaded;
    status.read().snapshot.loaded = loaded.map(|loaded| Loaded { age_s: 0, ..loaded });
    assert!(notes(&status).contains("confirmed 9"), "{}", notes(&status));
    // It is behind still: the process knows how long it serves the snapshot.
    let hour = Duration::from_secs(3_600);
    let at = Instant::now().checked_sub(hour).unwrap();
    let of_later = Loaded { confirmed_at_s: u64::MAX, age_s: 0, is_partial: false, at };
    assert_eq!(of_later.age(SystemTime::now()).as_secs(), hour.as_secs());
}

#[test]
fn e43_with_an_old_snapshot_live_data_comes_first_if_the_source_answers() {
    let (health, status) = (Health::default(), Status::default());
    health.serving();
    is_loaded(&status, 301);
    assert_eq!(why_not_ready(&health, &status).len(), 1, "not tried yet");
    status.read().source_answers = Some(true);
    assert_eq!(why_not_ready(&health, &status).len(), 1);
    status.read().source_answers = Some(false);
    assert!(why_not_ready(&health, &status).is_empty());
    status.read().source_answers = Some(true);
    assert!(why_not_ready(&health, &status).is_empty(), "once reached it does not drop");
}

#[test]
fn k22_readyz_says_when_answers_are_those_of_a_former_cluster() {
    let status = Status::default();
    status.contact();
    assert_eq!(notes(&status), "");
    status.read().feeds[0].is_of_former_cluster = true;
    assert!(notes(&status).contains("another cluster"), "{}", notes(&status));
}

#[test]
fn e42_readyz_names_what_still_comes_from_the_snapshot() {
    let status = Status::default();
    status.contact();
    is_loaded(&status, 5);
    let last = Resource::ALL.len() - 1;
    for feed in &mut status.read().feeds[..last] {
        feed.source = DataSource::Live;
    }
    status.read().feeds[last].want(true, true);
    let note = format!(
        "answers come from a snapshot that was confirmed 5 s ago: no complete list of {} has been \
         read yet\n",
        Resource::ALL[last].plural()
    );
    assert_eq!(notes(&status), note, "the others are live");
    let loaded = status.read().snapshot.loaded;
    status.read().snapshot.loaded = loaded.map(|loaded| Loaded { is_partial: true, ..loaded });
    assert!(notes(&status).contains("no room for all objects"), "{}", notes(&status));
}

#[test]
fn e40_readyz_says_that_snapshots_cannot_be_written_before_a_restart_needs_one() {
    let (health, status) = (Health::default(), Status::default());
    status.contact();
    health.serving();
    status.read().snapshot.error = Some("No space left on device\nby a person".to_owned());
    assert_eq!(
        notes(&status),
        "warning: snapshots cannot be written, so a restart finds an old one or none: No space left on device\\u{a}by a \
         person\n"
    );
    assert!(why_not_ready(&health, &status).is_empty(), "no reason to be unready");
    status.read().snapshot.error = None;
    assert_eq!(notes(&status), "");
}

#[test]
fn l3_pages_give_way_to_those_that_answer_clients_and_probes_do_not() {
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_whitespace().nth(16).unwrap().parse().unwrap()
    }
    let (runtime, before) = (runtime().unwrap(), nice());
    let (of_probes, of_pages) =
        runtime.block_on(async { (nice(), tokio::task::spawn_blocking(nice).await.unwrap()) });
    assert_eq!((of_probes, of_pages), (before, before.max(5)));
}

#[test]
fn e43_readyz_says_which_watches_fail_also_once_it_is_ready() {
    let (health, status) = (Health::default(), Status::default());
    status.contact();
    health.serving();
    assert!(why_not_ready(&health, &status).is_empty());
    let first = Resource::ALL[0].plural();
    status.read().feeds[0].failed("403\nby a person".into());
    status.read().configuration = Some(Feed::default());
    assert_eq!(
        notes(&status),
        format!(
            "warning: changes of {first} do not arrive: failing for 0 s: 403\\u{{a}}by a person\n"
        )
    );
    status.read().feeds[0].heard();
    assert_eq!(notes(&status), "");

    // A list that answers need only now.
    status.read().feeds[0].source = DataSource::None;
    let listing = format!("warning: no complete list of {first} has been read yet: the first list");
    assert!(notes(&status).starts_with(&listing), "{}", notes(&status));
    status.read().feeds[0].want(false, false);
    assert_eq!(notes(&status), "", "it is not read");

    status.read().configuration.as_mut().unwrap().failed("401".into());
    let configuration =
        "warning: changes of the configuration do not arrive: failing for 0 s: 401\n";
    assert_eq!(notes(&status), configuration);
    assert!(why_not_ready(&health, &status).is_empty(), "no reason to be unready");
}
