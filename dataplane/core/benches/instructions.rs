//! Instructions and cache misses of one reply by outcome, counted by callgrind: exact where a clock is
//! not, so that a change which makes replies 2 % dearer is seen on any machine.
//!
//! The program runs itself in valgrind, compares with `instructions.txt` beside it and fails above
//! [`MOST_PERCENT`]; `UPDATE_EXPECT=1` writes that file. The counts belong to one compiler on one kind of
//! processor: with another of either, the file may have to be written again.

#![allow(dead_code, clippy::print_stdout, clippy::print_stderr)]

mod fixture;

use std::process::{Command, ExitCode};

use dataplane_core::{AheadRoom, Records, Relayed, WorkerCounters};

use crate::fixture::{IN_BATCHES, Questions, ask, ask_batch, ask_cached, cached};

/// Above this a reply has become dearer.
const MOST_PERCENT: f64 = 2.0;
const SERVICES: usize = 10_000;
/// Replies that are counted, after as many that warm the caches.
const REPLIES: usize = 10_000;
/// Queries of a full batch, which is read ahead.
const BATCH: usize = 32;
/// Stands behind the outcome of replies in batches.
const BATCHED: &str = "/batch";
/// A name outside the cluster that is in the cache: the decision, and the reply made of its entry. The look-up is not counted.
const CACHED: &str = "cached";
/// First and second level cache of a common server core; the second is what valgrind calls LL.
const CACHES: [&str; 3] = ["--cache-sim=yes", "--D1=49152,12,64", "--LL=2097152,16,64"];
/// In the package; messages name the place in the repository.
const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
const EXPECTED_IN_REPOSITORY: &str = "dataplane/core/benches/instructions.txt";

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--inside") {
        answer_everything();
        return ExitCode::SUCCESS;
    }
    let Some(prices) = prices() else {
        println!("valgrind is not installed: instructions per reply are not counted");
        return ExitCode::SUCCESS;
    };
    let expected = std::fs::read_to_string(EXPECTED).unwrap_or_default();
    let mut dearer = false;
    println!(
        "{:26} {:>13} {:>8} {:>10} {:>10}",
        "one reply", "instructions", "change", "D1 misses", "L2 misses"
    );
    for price in &prices {
        let known = expected.lines().find_map(|line| {
            let (outcome, count) = line.split_once(char::is_whitespace)?;
            (outcome == price.outcome).then(|| count.trim().parse::<f64>().ok())?
        });
        let change = known.map_or(0.0, |known| (price.instructions / known - 1.0) * 100.0);
        dearer |= known.is_none() || change > MOST_PERCENT;
        println!(
            "{:26} {:13.1} {change:+7.1}% {:10.2} {:10.2}",
            price.outcome, price.instructions, price.d1_misses, price.l2_misses
        );
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let lines: String =
            prices.iter().map(|p| format!("{:26} {:.0}\n", p.outcome, p.instructions)).collect();
        std::fs::write(EXPECTED, lines).expect("benches/instructions.txt can be written");
        return ExitCode::SUCCESS;
    }
    if dearer {
        eprintln!(
            "a reply takes over {MOST_PERCENT} % more instructions than {EXPECTED_IN_REPOSITORY} says; \
             if that is meant, or the compiler is another one: UPDATE_EXPECT=1"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What callgrind counted, per reply.
struct Price {
    outcome: String,
    instructions: f64,
    d1_misses: f64,
    l2_misses: f64,
}

/// Runs this program in valgrind, which writes a file before every call of [`counted`] and of
/// [`ended`]: every second file is the price of one outcome.
fn prices() -> Option<Vec<Price>> {
    Command::new("valgrind").arg("--version").output().ok()?;
    let folder = std::env::temp_dir().join(format!("instructions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for what callgrind writes");
    let program = std::env::current_exe().expect("the path of this program");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-before=*counted*", "--dump-before=*ended*"])
        .args(CACHES)
        .arg(format!("--callgrind-out-file={}/out", folder.display()))
        .args([program.as_os_str(), "--inside".as_ref()])
        .output()
        .expect("valgrind runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let alone = fixture::cases(1_000).into_iter().map(|(outcome, _)| outcome.to_owned());
    let in_batches = IN_BATCHES.map(|outcome| format!("{outcome}{BATCHED}"));
    let outcomes = alone.chain(in_batches).chain([CACHED.to_owned()]);
    let prices = outcomes.enumerate().map(|(index, outcome)| {
        let text = std::fs::read_to_string(folder.join(format!("out.{}", 2 * index + 2)))
            .expect("callgrind writes a file for each outcome");
        price(outcome, &text)
    });
    let prices = prices.collect();
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    Some(prices)
}

fn price(outcome: String, text: &str) -> Price {
    let line = |start| text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
    let counts: Vec<(&str, f64)> = line("events:")
        .split_whitespace()
        .zip(line("totals:").split_whitespace().map(|count| count.parse().unwrap_or(0.0)))
        .collect();
    let per_reply = |events: &[&str]| {
        let found = counts.iter().filter(|(event, _)| events.contains(event));
        found.map(|(_, count)| count).sum::<f64>() / REPLIES as f64
    };
    Price {
        outcome,
        instructions: per_reply(&["Ir"]),
        d1_misses: per_reply(&["D1mr", "D1mw"]),
        l2_misses: per_reply(&["DLmr", "DLmw"]),
    }
}

fn answer_everything() {
    let mut worker = Worker {
        records: fixture::cluster_with_crowd(SERVICES).records(),
        own: WorkerCounters::default(),
        buffers: vec![vec![0; 4096]; BATCH],
        room: AheadRoom::new(),
        entry: None,
    };
    let cases = fixture::cases(SERVICES);
    for (_, questions) in &cases {
        worker.measure(questions, 1);
    }
    for outcome in IN_BATCHES {
        let questions = cases.iter().find(|(name, _)| *name == outcome);
        worker.measure(&questions.expect("an outcome").1, BATCH);
    }
    let (questions, entry) = cached(&worker.records);
    worker.entry = Some(entry);
    worker.measure(&questions, 1);
}

/// What a thread that answers has.
struct Worker {
    records: std::sync::Arc<Records>,
    own: WorkerCounters,
    buffers: Vec<Vec<u8>>,
    room: AheadRoom,
    /// What the cache has for every question.
    entry: Option<Relayed>,
}

impl Worker {
    fn measure(&mut self, questions: &Questions, batch: usize) {
        self.answer(questions, batch);
        counted(self, questions, batch);
        ended(&mut self.buffers);
    }

    #[inline(always)]
    fn answer(&mut self, questions: &Questions, batch: usize) {
        let Worker { records, own, buffers, room, entry } = self;
        if let Some(entry) = entry {
            return (0..REPLIES).for_each(|turn| {
                ask_cached(records, entry, questions, own, &mut buffers[0], turn)
            });
        }
        if batch == 1 {
            return (0..REPLIES)
                .for_each(|turn| ask(records, questions, own, &mut buffers[0], turn));
        }
        for first in (0..REPLIES).step_by(batch) {
            let turns = first..REPLIES.min(first + batch);
            ask_batch(records, room, questions, own, buffers, turns);
        }
    }
}

/// The calls that valgrind counts; a function of its own, because it is found by its name.
#[inline(never)]
fn counted(worker: &mut Worker, questions: &Questions, batch: usize) {
    worker.answer(questions, batch);
}

/// Where the count of one outcome ends.
#[inline(never)]
fn ended(buffers: &mut Vec<Vec<u8>>) {
    std::hint::black_box(buffers);
}
