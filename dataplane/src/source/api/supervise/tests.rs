//! Waits and lists after each kind of failure, and what raises doubt about a version.

use super::*;

const ASKED: Duration = Duration::from_secs(180);

fn status(code: u16, message: &str) -> Failure {
    Failure::Status { code, message: message.into(), retry_after: None }
}

fn next(supervisor: &mut Supervisor, failure: &Failure, during: During) -> Next {
    supervisor.next(failure, during, Instant::now(), 0.5)
}

#[test]
fn e23_waits_double_to_five_seconds_with_full_jitter() {
    let mut supervisor = Supervisor::default();
    let link = Failure::Link("refused".into());
    let waits: Vec<u128> =
        (0..8).map(|_| next(&mut supervisor, &link, During::Start).after.as_millis()).collect();
    assert_eq!(waits, [100, 200, 400, 800, 1600, 2500, 2500, 2500]);
    assert_eq!(supervisor.next(&link, During::Start, Instant::now(), 0.0).after, Duration::ZERO);
}

#[test]
fn e23_a_server_that_refuses_or_makes_no_sense_is_never_asked_without_a_pause() {
    for failure in [status(401, ""), status(403, ""), Failure::Garbage("<html>".into())] {
        for during in [During::List, During::Start] {
            let next = Supervisor::default().next(&failure, during, Instant::now(), 0.0);
            assert_eq!(next.after.as_millis(), 100, "{failure:?}");
        }
    }
}

#[test]
fn k22_lists_that_ask_for_another_list_each_time_wait_after_the_third() {
    let mut supervisor = Supervisor::default();
    let mut list = || next(&mut supervisor, &Failure::Relist, During::List).after.as_millis();
    let waits: Vec<u128> = (0..6).map(|_| list()).collect();
    assert_eq!(waits, [0, 0, 0, 100, 200, 400]);
    supervisor.moved();
    let next = next(&mut supervisor, &Failure::Relist, During::List);
    assert_eq!(next.after, Duration::ZERO, "a list was complete since");
}

#[test]
fn e23_a_minute_of_health_resets_the_wait() {
    let mut supervisor = Supervisor::default();
    let link = Failure::Link("reset".into());
    for _ in 0..6 {
        next(&mut supervisor, &link, During::Start);
    }
    let since = Instant::now();
    let short = supervisor.next(
        &link,
        During::Watch { since, asked: ASKED },
        since + HEALTHY_AFTER / 2,
        0.5,
    );
    assert_eq!(short.after.as_millis(), 2500);
    let healthy =
        supervisor.next(&link, During::Watch { since, asked: ASKED }, since + HEALTHY_AFTER, 0.5);
    assert_eq!(healthy.after.as_millis(), 100);
}

#[test]
fn k9_retry_after_is_honoured_and_bounded() {
    let mut supervisor = Supervisor::default();
    let asked = |seconds| Failure::Status {
        code: 429,
        message: String::new(),
        retry_after: Some(Duration::from_secs(seconds)),
    };
    let wait = next(&mut supervisor, &asked(7), During::List).after;
    assert_eq!(wait, Duration::from_millis(8750));
    assert_eq!(next(&mut supervisor, &asked(86_400), During::List).after.as_secs(), 150);
}

#[test]
fn k9_clients_that_get_the_same_retry_after_come_back_at_different_times() {
    let retry_after = Some(Duration::from_secs(32));
    let busy = Failure::Status { code: 429, message: String::new(), retry_after };
    let wait = |chance| {
        let next = Supervisor::default().next(&busy, During::List, Instant::now(), chance);
        next.after.as_secs()
    };
    assert_eq!([0.0, 0.5, 0.999].map(wait), [32, 40, 47]);
}

#[test]
fn k5_what_says_that_the_version_is_lost_leads_to_a_list() {
    let watch = During::Watch { since: Instant::now(), asked: ASKED };
    let lost = [
        status(410, "Expired"),
        status(400, "invalid"),
        status(422, "invalid"),
        status(504, "Too large resource version: 9, current: 7"),
    ];
    for failure in lost {
        for during in [During::Start, watch] {
            assert!(next(&mut Supervisor::default(), &failure, during).relist, "{failure:?}");
        }
    }
    let kept = [status(503, ""), status(504, "timeout"), status(403, ""), status(401, "")];
    for failure in kept {
        assert!(!next(&mut Supervisor::default(), &failure, During::Start).relist);
    }
    assert!(!next(&mut Supervisor::default(), &Failure::End, watch).relist);
    assert!(next(&mut Supervisor::default(), &status(503, ""), During::List).relist);
}

#[test]
fn k5_five_refusals_at_one_version_lead_to_a_list_an_outage_does_not() {
    let refusals = |failure: Failure, during| {
        let mut supervisor = Supervisor::default();
        (0..20).map(|_| next(&mut supervisor, &failure, during).relist).collect::<Vec<_>>()
    };
    let refused = refusals(status(500, "boom"), During::Start);
    assert_eq!(refused.iter().position(|relist| *relist), Some(4));
    assert!(refused[9], "and again after five more");
    let harmless = [403, 429, 502, 503, 504].map(|code| status(code, ""));
    for harmless in harmless.into_iter().chain([Failure::Link("refused".into())]) {
        assert!(!refusals(harmless, During::Start).contains(&true));
    }
    // A look names no version.
    assert!(!refusals(status(500, "boom"), During::Look).contains(&true));
    let mut supervisor = Supervisor::default();
    for _ in 0..20 {
        assert!(!next(&mut supervisor, &status(500, ""), During::Start).relist);
        supervisor.moved();
    }
}

#[test]
fn k22_a_watch_that_ends_by_its_own_time_raises_no_doubt_about_its_version() {
    let since = Instant::now();
    let raises = |failure: &Failure, seconds| {
        let mut supervisor = Supervisor::default();
        let now = since + Duration::from_secs(seconds);
        supervisor.next(failure, During::Watch { since, asked: ASKED }, now, 0.5);
        supervisor.is_in_doubt()
    };
    assert!(!raises(&Failure::End, 180));
    assert!(raises(&Failure::End, 100), "API servers may have been restarted");
    assert!(raises(&Failure::Silence, 180));
    assert!(raises(&Failure::Link("reset".into()), 180));
    assert!(raises(&status(503, ""), 180), "of a balancer without API servers");
    for asked_s in [150, 210] {
        let asked = Duration::from_secs(asked_s);
        let ends_at = |seconds| {
            let (mut supervisor, now) =
                (Supervisor::default(), since + Duration::from_secs(seconds));
            supervisor.next(&Failure::End, During::Watch { since, asked }, now, 0.5);
            supervisor.is_in_doubt()
        };
        assert!(!ends_at(asked_s) && !ends_at(asked_s - 9) && ends_at(asked_s - 11), "{asked_s}");
    }
    for refused in [401, 403, 429] {
        assert!(!raises(&status(refused, ""), 1), "{refused}");
    }
}

#[test]
fn a_watch_that_ends_in_order_continues_at_once_unless_it_was_short() {
    let since = Instant::now();
    let mut supervisor = Supervisor::default();
    let end = |supervisor: &mut Supervisor, seconds| {
        let now = since + Duration::from_secs(seconds);
        supervisor.next(&Failure::End, During::Watch { since, asked: ASKED }, now, 0.5).after
    };
    assert_eq!(end(&mut supervisor, 180), Duration::ZERO);
    assert!(end(&mut supervisor, 0) > Duration::ZERO);
}

#[test]
fn e23_large_lists_of_many_pods_after_a_restart_of_an_api_server_are_spread() {
    let since = Instant::now();
    let wait = |pages, failure: &Failure, during, chance| {
        let mut supervisor = Supervisor::default();
        supervisor.listed(pages);
        supervisor.next(failure, during, since + HEALTHY_AFTER, chance).after.as_millis()
    };
    let expired = status(410, "too old resource version");
    for during in [During::Start, During::Watch { since, asked: ASKED }] {
        assert_eq!(wait(1, &expired, during, 0.5), 100, "a small list costs little");
        assert_eq!(wait(23, &expired, during, 0.5), 5_600);
        assert_eq!(wait(u32::MAX, &expired, during, 0.5), 7_600);
        assert_eq!(wait(23, &expired, during, 0.0), 0, "at random");
        // The data may be wrong: it is corrected as fast as can be.
        assert_eq!(wait(23, &Failure::Relist, during, 0.5), 0);
    }
    assert_eq!(wait(23, &expired, During::List, 0.5), 100);
    let first = next(&mut Supervisor::default(), &expired, During::List);
    assert_eq!(first.after.as_millis(), 100, "nothing is served yet");
}
