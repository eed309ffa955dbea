//! Which pods are asked when, and which reports are kept.

use super::*;
use serde_json::json;

fn pod(uid: &str, ready: bool) -> Pod {
    let status = if ready { "True" } else { "False" };
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid},
        "status": {"conditions": [{"type": "Ready", "status": status}]}}))
    .unwrap()
}

fn said_at(reported: Result<Reported, String>, at: Instant) -> Kept {
    Kept { reported, at, before: None, silent_since: None, restarts: 0 }
}

fn kept(revision: &str, at: Instant) -> Kept {
    said_at(Ok(Reported { revision: revision.into(), ..Reported::default() }), at)
}

fn on_trial() -> RolloutState {
    let canary = Some(crate::decide::plan::CanaryPod {
        name: "p099".into(),
        uid: "p099".into(),
        ..Default::default()
    });
    RolloutState {
        stable: "s".into(),
        canary: "c".into(),
        canary_pod: canary,
        ..RolloutState::default()
    }
}

/// Looks at this many pods, so far apart, until each was asked; returns the most questions of one look, and the looks.
fn looks(count: usize, apart: Duration) -> (usize, usize) {
    let pods: Vec<Pod> = (0..count).map(|n| pod(&format!("p{n:03}"), true)).collect();
    let state = RolloutState { stable: "s".into(), ..RolloutState::default() };
    let begin = Instant::now();
    // All are silent, so that all are due all the time.
    let silent = |at| said_at(Err("no answer".to_owned()), at);
    let mut kept = HashMap::new();
    let (mut most, mut looks) = (0, 0);
    for look in 0..1_000 {
        let now = begin + apart * look;
        let asked = next(&pods, &BTreeSet::new(), &kept, &state, now);
        most = most.max(asked.len());
        kept.extend(asked.iter().map(|pod| (pods::uid(pod).to_owned(), silent(now))));
        looks += 1;
        if kept.len() == count {
            // And in the same order again.
            let again = next(&pods, &BTreeSet::new(), &kept, &state, now + Duration::from_secs(2));
            assert_eq!(pods::uid(again[0]), "p000");
            return (most, looks);
        }
    }
    panic!("{} of {count} pods were asked", kept.len());
}

#[test]
fn o14_each_of_many_pods_is_asked_in_its_turn_and_fifty_in_one_second() {
    assert_eq!(looks(3, Duration::from_secs(30)), (3, 1));
    assert_eq!(looks(50, Duration::from_secs(2)), (50, 1));
    assert_eq!(looks(500, Duration::from_secs(2)), (50, 10));
    // Looks that follow each other faster ask no more.
    assert_eq!(looks(500, Duration::from_millis(250)), (50, 37));
}

#[test]
fn the_canary_is_asked_first_and_pods_that_are_not_ready_never() {
    let mut pods: Vec<Pod> = (0..100).map(|n| pod(&format!("p{n:03}"), true)).collect();
    pods.push(pod("p000-not-ready", false));
    let asked = next(&pods, &BTreeSet::new(), &HashMap::new(), &on_trial(), Instant::now());
    let asked: Vec<&str> = asked.into_iter().map(pods::uid).collect();
    assert_eq!((asked.len(), &asked[..3]), (50, &["p099", "p000", "p001"][..]));
}

#[test]
fn k23_pods_of_others_with_our_labels_do_not_keep_ours_from_being_asked() {
    let made_by = |uid: &str, maker: &str| {
        let mut made = pod(uid, true);
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": maker, "uid": maker,
            "controller": true});
        made.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        made
    };
    let set = |uid: &str, deployment: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": deployment,
            "controller": true});
        let metadata = json!({"name": uid, "uid": uid, "ownerReferences": [owner]});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let mut pods: Vec<Pod> = (0..500).map(|n| pod(&format!("a{n:03}"), true)).collect();
    pods.extend((0..500).map(|n| made_by(&format!("b{n:03}"), "theirs")));
    pods.extend([made_by("z1", "ours"), made_by("z2", "daemon-set")]);
    let workloads = ["deployment".to_owned(), "daemon-set".to_owned()];
    let sets = [set("ours", "deployment"), set("theirs", "another")];
    let makers = pods::makers(&workloads, &sets);
    let begin = Instant::now();
    let ours = HashMap::from([("z1".to_owned(), kept("old", begin))]);
    let state = RolloutState { stable: "s".into(), ..RolloutState::default() };
    let asked = next(&pods, &makers, &ours, &state, begin + Duration::from_secs(30));
    let asked: Vec<&str> = asked.into_iter().map(pods::uid).collect();
    assert_eq!((asked.len(), &asked[..3]), (50, &["z2", "z1", "a000"][..]));
}

#[test]
fn reports_of_pods_that_are_gone_are_forgotten_and_of_too_many_the_oldest() {
    let now = Instant::now() + FORGOTTEN_AFTER * 2;
    let ago = |n: usize| now - Duration::from_millis(n as u64);
    let all = (0..MAX_KEPT + 2).map(|n| (n.to_string(), kept("s", ago(n))));
    let mut all: HashMap<String, Kept> = all.collect();
    all.insert("gone".to_owned(), kept("s", now - FORGOTTEN_AFTER));
    forget(&mut all, now);
    assert_eq!(all.len(), MAX_KEPT);
    assert!(all.contains_key("0") && !all.contains_key(&MAX_KEPT.to_string()));
}

/// A report with twenty objects, whose reasons say this.
fn long(why: &str) -> Result<Reported, String> {
    let object = |n: usize| crds::v1alpha1::SkippedObject {
        name: n.to_string(),
        reason: format!("{why} {}", "x".repeat(1_000)),
        ..Default::default()
    };
    Ok(Reported { skipped: (0..20).map(object).collect(), ..Reported::default() })
}

#[test]
fn reports_are_bounded_by_octets_and_what_many_pods_skip_is_kept_once() {
    let now = Instant::now() + FORGOTTEN_AFTER;
    let ago = |n: usize| now - Duration::from_millis(n as u64);
    let mut same = HashMap::new();
    for n in 0..MAX_KEPT {
        keep(&mut same, n.to_string(), 0, long("same"), ago(n));
    }
    forget(&mut same, now);
    assert_eq!(same.len(), MAX_KEPT, "100 MB, if each had its own");

    // One after the other, each with a list of its own.
    let own = |n: usize| said_at(long(&n.to_string()), ago(n));
    let mut each: HashMap<String, Kept> = (0..2_000).map(|n| (n.to_string(), own(n))).collect();
    forget(&mut each, now);
    let mut size = size::Size::default();
    let held = each.values().filter(|kept| kept.reported.is_ok());
    let octets = held.map(|kept| size.with(said(kept), 0)).last().unwrap_or(0);
    assert!((MAX_OCTETS * 9 / 10..=MAX_OCTETS).contains(&octets), "{octets}");
    assert!(each["0"].reported.is_ok(), "it is the youngest");
    assert_eq!(each["1999"].reported, Err(NO_ROOM.to_owned()), "the oldest went");
    assert_eq!(each.len(), 2_000, "each has its turn: none counts as never asked");
}

#[test]
fn k23_large_reports_of_some_pods_leave_those_of_the_others() {
    let now = Instant::now() + FORGOTTEN_AFTER;
    let ago = |n: u64| now - Duration::from_secs(n);
    // Ours were asked before those of another client, which are as large as they may be.
    let mut all: HashMap<String, Kept> =
        (0..100).map(|n| (format!("ours-{n}"), kept("s", ago(60)))).collect();
    for n in 0..2_000 {
        let reported = long(&n.to_string());
        all.insert(format!("large-{n}"), said_at(reported, ago(1)));
    }
    forget(&mut all, now);
    let is_read = |name: &str| all[name].reported.is_ok();
    assert!((0..100).all(|n| is_read(&format!("ours-{n}"))), "they are small");
    assert!((0..2_000).any(|n| !is_read(&format!("large-{n}"))));
}

#[test]
fn o19_what_a_pod_said_counts_until_it_was_silent_for_five_minutes() {
    let begin = Instant::now();
    let mut all = HashMap::new();
    let mut ask = |seconds, restarts, reported: Result<&str, &str>| {
        let reported = reported.map(|it| Reported { revision: it.into(), ..Reported::default() });
        let at = begin + Duration::from_secs(seconds);
        let reported = reported.map_err(str::to_owned);
        let report = keep(&mut all, "p".to_owned(), restarts, reported, at).report(at);
        (report.known().map(|known| known.revision.clone()), report.is_silent)
    };
    let said = |revision: &str| (Some(revision.to_owned()), false);
    assert_eq!(ask(0, 0, Ok("a")), said("a"));
    // Of many pods, one is asked every few minutes: the time since its last reply says nothing.
    assert_eq!(ask(1_000, 0, Err("late")), said("a"));
    assert_eq!(ask(1_299, 0, Err("late")), said("a"));
    assert_eq!(ask(1_300, 0, Err("late")), (None, true));
    assert_eq!(ask(1_400, 0, Ok("b")), said("b"));
    assert_eq!(ask(1_700, 0, Err("late")), said("b"), "it answered in between");
    assert_eq!(ask(1_701, 1, Err("late")), (None, false), "another process");
    assert_eq!(ask(1_702, 1, Err("late")), (None, false));
    assert_eq!(ask(2_001, 1, Err("late")), (None, true));
}

#[tokio::test]
async fn o19_a_pod_that_was_not_asked_because_it_was_not_ready_was_not_silent() {
    let begin = Instant::now();
    let reports = PodReports::default();
    let late = |seconds| {
        let at = begin + Duration::from_secs(seconds);
        let report =
            keep(&mut reports.lock(), "p".to_owned(), 0, Err("late".into()), at).report(at);
        (report.known().map(|known| known.revision.clone()), report.is_silent)
    };
    reports.lock().insert("p".to_owned(), kept("s", begin));
    assert_eq!(late(0), (Some("s".to_owned()), false));
    let shown = reports.read(&[pod("p", false)], &BTreeSet::new(), None).await;
    assert_eq!(shown, BTreeMap::new());
    assert_eq!(late(600), (None, false), "the first question since");
    assert_eq!(late(899), (None, false));
    assert_eq!(late(900), (None, true));
}

#[test]
fn o19_a_report_does_not_outlive_minutes_in_which_its_pod_was_not_ready() {
    let begin = Instant::now();
    let after = |seconds, ready| {
        let mut all = HashMap::from([("p".to_owned(), kept("s", begin))]);
        forget_unasked(&mut all, &[pod("p", ready)], begin + Duration::from_secs(seconds));
        all.contains_key("p")
    };
    assert_eq!([after(299, false), after(300, false)], [true, false]);
    assert!(after(3_000, true), "of very many pods, each is asked once in an hour");
}

#[test]
fn reports_of_before_count_among_the_octets_and_go_where_there_is_no_room() {
    let now = Instant::now() + FORGOTTEN_AFTER;
    let mut all = HashMap::new();
    for n in 0..2_000 {
        keep(&mut all, n.to_string(), 0, long(&n.to_string()), now);
    }
    for n in 0..2_000 {
        keep(&mut all, n.to_string(), 0, Err("late".to_owned()), now);
    }
    forget(&mut all, now);
    let mut size = size::Size::default();
    let octets = all.values().map(|kept| size.with(said(kept), 0)).last().unwrap_or(0);
    assert!((MAX_OCTETS * 9 / 10..=MAX_OCTETS).contains(&octets), "{octets}");
}

#[test]
fn o4_what_most_pods_run_is_what_they_are_asked_for() {
    let pods: Vec<Pod> = ["a", "b", "c", "d"].map(|uid| pod(uid, uid != "d")).into();
    let said = |revision: &str, role: &str| PodReport {
        reported: Ok(Reported {
            revision: revision.into(),
            role: role.into(),
            ..Reported::default()
        }),
        age: Duration::ZERO,
        before: None,
        is_silent: false,
    };
    let chosen = |all: [(&str, PodReport); 4]| {
        let reports = all.into_iter().map(|(uid, said)| (uid.to_owned(), said)).collect();
        speaker(&pods, &reports).map(|pod| pods::uid(pod).to_owned())
    };
    let [a, b, c, d] = ["a", "b", "c", "d"];
    let (new, old) = (|| said("new", "canary"), || said("old", "stable"));
    assert_eq!(chosen([(a, new()), (b, old()), (c, new()), (d, old())]).as_deref(), Some("b"));
    let mixed = [(a, said("x", "stable")), (b, old()), (c, old()), (d, said("x", "stable"))];
    assert_eq!(chosen(mixed).as_deref(), Some("b"), "one that is not ready does not count");
    assert_eq!(chosen([(a, new()), (b, new()), (c, new()), (d, old())]), None);
}

#[test]
fn pods_are_asked_more_often_while_something_is_on_its_way() {
    let now = Instant::now() + Duration::from_secs(100);
    let ago = |seconds| now - Duration::from_secs(seconds);
    let stable = RolloutState { stable: "s".into(), ..RolloutState::default() };
    let missing = |at| {
        let mut kept = kept("s", at);
        kept.reported.as_mut().unwrap().rejection = Some("there is no ConfigMap".into());
        Some(kept)
    };
    for (what, kept, uid, state, expected) in [
        ("never asked", None, "p", &stable, true),
        ("settled", Some(kept("s", ago(20))), "p", &stable, false),
        ("settled, long ago", Some(kept("s", ago(30))), "p", &stable, true),
        ("on its way", Some(kept("old", ago(1))), "p", &stable, true),
        ("given no document for a moment", missing(ago(1)), "p", &stable, true),
        ("asked just now", Some(kept("old", now)), "p", &stable, false),
        ("beside a canary", Some(kept("s", ago(2))), "p", &on_trial(), true),
        ("the canary, not there yet", Some(kept("s", ago(1))), "p099", &on_trial(), true),
        ("the canary", Some(kept("c", ago(1))), "p099", &on_trial(), false),
    ] {
        assert_eq!(is_due(kept.as_ref(), uid, state, now), expected, "{what}");
    }
}
