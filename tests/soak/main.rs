//! A soak (docs/soak.md): faults and changes from a seed, replies held against the objects. `make test` runs some seconds
//! of it, `make soak HOURS=4` hours.

#![cfg(target_os = "linux")]

use std::net::IpAddr;
use std::time::Duration;

use tests::netns::inside;
use tests::soak::objects::{NAMESPACES, pillar};
use tests::soak::report::Report;
use tests::soak::schedule::Kind;
use tests::soak::{Plan, Soak, say};

/// Of a run without SEED.
const SEED: u64 = 1;
/// On a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(90);

/// Some seconds: nothing is timed, the waits only end when something never comes.
fn short(cycles: usize) -> Plan {
    Plan {
        seed: SEED,
        cycles,
        time: Duration::MAX,
        longest: 2,
        questions: 12,
        round: Duration::ZERO,
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
        let report = Soak::start(short(9)).await.run();
        assert!(report.finds.is_empty(), "{}", report.finds.join("\n"));
        // A run that made no fault, or judged no reply, would find nothing either.
        assert_eq!(report.cycles, 9);
        assert!(report.faults.len() >= 6, "{:?}", report.faults);
        for outcome in ["own names: records", "own names: NXDOMAIN", "names of others: answered"] {
            assert!(report.questions.get(outcome).is_some_and(|count| *count > 20), "{report:?}");
        }
    });
}

#[test]
fn l11_a_soak_finds_an_object_that_the_api_server_never_had() {
    inside(async || {
        let mut soak = Soak::start(short(1)).await;
        for namespace in NAMESPACES {
            soak.believe(pillar(namespace, IpAddr::from([10, 96, 66, 66])));
        }
        let report = soak.run();
        assert!(!report.finds.is_empty(), "{}", report.table().join("\n"));
    });
}

/// `make soak HOURS=4 SEED=7`.
#[test]
#[ignore = "runs for hours"]
fn soak() {
    inside(async || {
        let hours = number("SOAK_HOURS").unwrap_or(4.0);
        let plan = Plan {
            seed: number("SOAK_SEED").map_or(SEED, |seed| seed as u64),
            cycles: usize::MAX,
            time: Duration::from_secs_f64(hours * 3600.0),
            longest: 12,
            questions: 40,
            round: Duration::from_millis(500),
            event_within: Duration::from_secs(30),
            recovery_within: Duration::from_secs(120),
            progress: Some(Duration::from_secs(60)),
        };
        let report = Soak::start(plan).await.run();
        print(&report);
        assert!(report.finds.is_empty(), "seed {}: {} finds", plan.seed, report.finds.len());
        assert!(report.faults.len() >= Kind::ALL.len() / 2 || hours < 0.2, "{:?}", report.faults);
    });
}
