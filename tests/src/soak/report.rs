//! What a soak counted, and what it found.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::health::{Sample, windows};
use super::schedule::{Kind, PODS, Part};

/// Events that a find shows.
const EVENTS: usize = 60;
/// The figures of a run.
#[derive(Debug)]
pub struct Report {
    pub part: Part,
    pub seed: u64,
    pub took: Duration,
    pub cycles: usize,
    pub rounds: usize,
    pub changes: u64,
    pub marks: u64,
    pub starts: u64,
    /// Starts of operators, those of the beginning among them.
    pub operator_starts: u64,
    /// The most memory that an operator had.
    pub operator_mib: f64,
    /// Changes that the API server refused.
    pub refused: u64,
    pub faults: BTreeMap<Kind, u64>,
    /// Faults that could not be made.
    pub left_out: BTreeMap<Kind, u64>,
    pub questions: BTreeMap<&'static str, u64>,
    /// The longest time until every change was seen: in a quiet cycle, and after faults.
    pub longest: [Duration; 2],
    pub samples: Vec<Sample>,
    pub finds: Vec<String>,
    most_finds: usize,
    events: VecDeque<String>,
    place: String,
}

impl Report {
    pub fn new(part: Part, seed: u64, most_finds: usize) -> Report {
        Report {
            part,
            seed,
            took: Duration::ZERO,
            cycles: 0,
            rounds: 0,
            changes: 0,
            marks: 0,
            starts: PODS as u64,
            operator_starts: 0,
            operator_mib: 0.0,
            refused: 0,
            faults: BTreeMap::new(),
            left_out: BTreeMap::new(),
            questions: BTreeMap::new(),
            longest: [Duration::ZERO; 2],
            samples: Vec::new(),
            finds: Vec::new(),
            most_finds,
            events: VecDeque::new(),
            place: String::new(),
        }
    }

    /// What follows happens here.
    pub fn at(&mut self, cycle: usize, round: usize) {
        self.place = format!("{cycle}.{round}");
    }

    /// Remembers what happened, for finds.
    pub fn event(&mut self, event: &str) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(format!("  {} {event}", self.place));
    }

    pub fn count(&mut self, outcome: &'static str) {
        *self.questions.entry(outcome).or_default() += 1;
    }

    /// Something that must never be.
    pub fn find(&mut self, what: &str) {
        let events: Vec<&str> = self.events.iter().map(String::as_str).collect();
        let text = format!(
            "FIND {} at {} of seed {}: {what}\nbefore it:\n{}",
            self.finds.len() + 1,
            self.place,
            self.seed,
            events.join("\n")
        );
        self.finds.push(text);
    }

    /// Whether there is no sense in more.
    pub fn is_full(&self) -> bool {
        self.finds.len() >= self.most_finds
    }

    /// Replies that were judged.
    pub fn replies(&self) -> u64 {
        self.questions.values().sum()
    }

    /// Lines for people.
    pub fn table(&self) -> Vec<String> {
        let seconds = self.took.as_secs();
        let mut lines = vec![
            format!("| Control plane, seed | {:?}, {} |", self.part, self.seed),
            format!("| Time | {} h {} min {} s |", seconds / 3600, seconds / 60 % 60, seconds % 60),
            format!("| Cycles, rounds | {}, {} |", self.cycles, self.rounds),
            format!(
                "| Changes of objects and configurations; refused | {}; {} |",
                self.changes, self.refused
            ),
            format!("| Times that a pod had seen everything | {} |", self.marks),
            format!(
                "| Starts of data planes, operators | {}, {} |",
                self.starts, self.operator_starts
            ),
            format!("| Replies | {} |", self.replies()),
        ];
        lines.extend(self.questions.iter().map(|(of, count)| format!("| {of} | {count} |")));
        for kind in Kind::of(self.part) {
            let made = self.faults.get(&kind).copied().unwrap_or(0);
            let left_out = self.left_out.get(&kind).copied().unwrap_or(0);
            let besides =
                if left_out > 0 { format!(" ({left_out} left out)") } else { String::new() };
            lines.push(format!("| fault: {} | {made}{besides} |", kind.name()));
        }
        let [quiet, after] = self.longest.map(|time| time.as_secs_f64());
        lines.push(format!(
            "| Longest until all was seen: quiet, after faults | {quiet:.1} s, {after:.1} s |"
        ));
        lines.push(match windows(&self.samples) {
            Some((first, last)) => format!(
                "| Memory, descriptors without those of queries over UDP: after the warm-up, at the end | {:.1} MiB, {}; {:.1} MiB, {} |",
                first.mib,
                first.lasting(),
                last.mib,
                last.lasting()
            ),
            None => format!("| Memory, descriptors | {} samples are too few |", self.samples.len()),
        });
        let of_queries = self.samples.iter().map(|sample| sample.descriptors.udp_towards_peers());
        let most = of_queries.max().unwrap_or(0);
        lines.push(format!("| Most sockets of queries over UDP | {most} |"));
        if let Some(last) = self.samples.last() {
            lines.push(format!("| Descriptors of the last sample | {} |", last.descriptors));
        }
        if self.part == Part::Real {
            lines.push(format!("| Most memory of an operator | {:.1} MiB |", self.operator_mib));
        }
        lines.push(format!("| Finds | {} |", self.finds.len()));
        lines
    }
}
