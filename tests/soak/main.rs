//! A soak (docs/soak.md): faults and changes from a seed, replies held against the objects. `make test` runs some seconds
//! of it, `make soak HOURS=4` hours.

use std::net::IpAddr;
use std::time::Duration;

use tests::netns::inside;
use tests::soak::objects::{NAMESPACES, pillar};
use tests::soak::report::Report;
use tests::soak::schedule::{Kind, Part};
use tests::soak::{Plan, Soak, say};

/// Of a run without SEED.
const SEED: u64 = 1;
/// The kinds that a short run of a real control plane has: its own, and the one after them.
const REAL_FAULTS: [Kind; 5] = [
    Kind::ServerRestarted,
    Kind::OperatorKilled,
    Kind::OperatorStopped,
    Kind::ClocksShifted,
    Kind::Restored,
];
/// A quiet cycle, and one for each of them.
const REAL_CYCLES: usize = 1 + REAL_FAULTS.len();
/// Finds after which a long run ends.
const MOST_FINDS: usize = 20;
/// On a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(90);

/// Some seconds: nothing is timed, the waits only end when something never comes.
fn short(part: Part, cycles: usize) -> Plan {
    Plan {
        part,
        seed: SEED,
        cycles,
        time: Duration::MAX,
        longest: 2,
        questions: 12,
        round: Duration::ZERO,
        most_finds: 1,
        event_within: PATIENCE,
        recovery_within: PATIENCE,
        progress: None,
    }
}

fn number(variable: &str) -> Option<f64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

fn print(report: &Report) {
    report.table().iter().for_each(|line| say(line));
    report.finds.iter().for_each(|find| say(find));
}

#[test]
fn l11_a_short_soak_with_faults_finds_nothing() {
    inside(async || {
        let soak = Soak::start(short(Part::Scripted, 9)).await.expect("nothing else is needed");
        let report = soak.run();
        assert_found_nothing(&report);
        // A run that made no fault, or judged no reply, would find nothing either.
        assert_eq!(report.cycles, 9);
        assert!(report.faults.len() >= 6, "{:?}", report.faults);
    });
}

#[test]
fn l11_a_short_soak_of_a_real_control_plane_finds_nothing() {
    inside(async || {
        let Some(soak) = Soak::start(short(Part::Real, REAL_CYCLES)).await else { return };
        let report = soak.run();
        assert_found_nothing(&report);
        for kind in REAL_FAULTS {
            let made = report.faults.get(&kind) == Some(&1);
            // Not every kernel has time namespaces.
            let may_be_left_out =
                kind == Kind::ClocksShifted && report.left_out.contains_key(&kind);
            assert!(made || may_be_left_out, "{kind:?}: {:?}", report.faults);
        }
        assert!(report.refused * 5 < report.changes, "{report:?}");
    });
}

fn assert_found_nothing(report: &Report) {
    assert!(report.finds.is_empty(), "{}", report.finds.join("\n"));
    for outcome in ["own names: records", "own names: NXDOMAIN", "names of others: answered"] {
        assert!(report.questions.get(outcome).is_some_and(|count| *count > 20), "{report:?}");
    }
    let of = |is: fn(&str) -> bool| -> u64 {
        report.questions.iter().filter(|(outcome, _)| is(outcome)).map(|(_, count)| *count).sum()
    };
    let (unjudged, all) = (of(|outcome| outcome.starts_with("not judged")), of(|_| true));
    assert!(unjudged * 10 < all, "a run that judges few replies finds little: {report:?}");
}

#[test]
fn l11_a_soak_finds_an_object_that_the_api_server_never_had() {
    inside(async || {
        for part in [Part::Scripted, Part::Real] {
            let Some(mut soak) = Soak::start(short(part, 1)).await else { return };
            for namespace in NAMESPACES {
                soak.believe(pillar(namespace, IpAddr::from([10, 96, 66, 66])));
            }
            let report = soak.run();
            assert!(!report.finds.is_empty(), "{part:?}: {}", report.table().join("\n"));
        }
    });
}

#[test]
fn l11_a_soak_finds_a_process_that_has_ended() {
    inside(async || {
        let mut soak = Soak::start(short(Part::Scripted, 1)).await.expect("nothing else is needed");
        soak.crash();
        let report = soak.run();
        assert!(report.finds.iter().any(|find| find.contains("does not answer")), "{report:?}");
    });
}

/// `make soak HOURS=4 SEED=7 PART=real`.
#[test]
#[ignore = "runs for hours"]
fn soak() {
    inside(async || {
        let hours = number("SOAK_HOURS").unwrap_or(4.0);
        let parts = parts();
        let mut finds = 0;
        for part in &parts {
            let plan = Plan {
                part: *part,
                seed: number("SOAK_SEED").map_or(SEED, |seed| seed as u64),
                cycles: usize::MAX,
                time: Duration::from_secs_f64(hours * 3600.0 / parts.len() as f64),
                longest: 12,
                questions: 40,
                round: Duration::from_millis(500),
                most_finds: MOST_FINDS,
                event_within: Duration::from_secs(30),
                recovery_within: Duration::from_secs(120),
                progress: Some(Duration::from_secs(60)),
            };
            let Some(soak) = Soak::start(plan).await else { continue };
            let report = soak.run();
            print(&report);
            finds += report.finds.len();
            let kinds = Kind::of(*part).len();
            let is_short = plan.time < Duration::from_secs(720);
            assert!(report.faults.len() >= kinds / 2 || is_short, "{:?}", report.faults);
        }
        assert_eq!(finds, 0, "finds; see above");
    });
}

/// What `PART` says.
fn parts() -> Vec<Part> {
    match std::env::var("SOAK_PART").as_deref() {
        Ok("scripted") => vec![Part::Scripted],
        Ok("real") => vec![Part::Real],
        Ok("both") | Err(_) => vec![Part::Scripted, Part::Real],
        Ok(other) => panic!("PART is scripted, real or both, not {other}"),
    }
}
