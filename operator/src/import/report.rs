//! What became of each directive, flag and key: one line each, with file and line.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::printable::plain_value;

/// Characters of a directive that a line of the report shows.
const MAX_SHOWN: usize = 120;
/// Characters of what became of it that a line shows: it may list all zones of a Corefile.
const MAX_MESSAGE: usize = 2_000;
/// Octets of a whole report: some hundred thousand lines. A server block may read one hosts file, and there may be thousands of
/// them.
pub(super) const MAX_OCTETS: usize = 128 << 20;
/// Octets of a line in memory besides its texts.
const LINE_OCTETS: usize = size_of::<Line>() + 32;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, as people named it, or the path of a key of a ConfigMap where pods have it.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The ClusterDNS does the same.
    Kept,
    /// The ClusterDNS does it in another way.
    Changed,
    /// It is done without a setting, or does not apply here.
    NotNeeded,
    /// The ClusterDNS does not do it.
    NotPossible,
}

impl Outcome {
    const ALL: [Outcome; 4] =
        [Outcome::Kept, Outcome::Changed, Outcome::NotNeeded, Outcome::NotPossible];
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Kept => "kept",
            Outcome::Changed => "changed",
            Outcome::NotNeeded => "not needed",
            Outcome::NotPossible => "not possible",
        })
    }
}

/// One thing that was written, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    pub outcome: Outcome,
    /// As it was written, shortened.
    pub what: String,
    /// How, why, or what to do instead.
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: Vec<Line>,
    /// Octets of the lines.
    octets: usize,
    /// There was no room for a line.
    is_full: bool,
}

impl Report {
    pub fn add(&mut self, place: &Place, outcome: Outcome, what: &str, message: impl Into<String>) {
        let Place { file, line } = place.clone();
        let message = shortened(message.into());
        self.push(Line { file, line, outcome, what: shown(what), message });
    }

    fn push(&mut self, line: Line) {
        let octets = LINE_OCTETS + line.file.len() + line.what.len() + line.message.len();
        self.is_full |= self.octets + octets > MAX_OCTETS;
        if !self.is_full {
            self.octets += octets;
            self.lines.push(line);
        }
    }

    /// Adds the lines of another one.
    pub(super) fn append(&mut self, other: Report) {
        self.is_full |= other.is_full;
        other.lines.into_iter().for_each(|line| self.push(line));
    }

    /// There was no room for a line: what is reported is not all.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The lines of each file that something is reported of.
    pub(super) fn places(&self) -> HashMap<String, BTreeSet<usize>> {
        let mut places: HashMap<String, BTreeSet<usize>> = HashMap::new();
        for line in &self.lines {
            match places.get_mut(&line.file) {
                Some(lines) => _ = lines.insert(line.line),
                None => _ = places.insert(line.file.clone(), [line.line].into()),
            }
        }
        places
    }

    /// In the order of the files, as they were read, and of their lines.
    pub fn lines(&self) -> Vec<&Line> {
        let mut files: HashMap<&str, usize> = HashMap::new();
        for line in &self.lines {
            let next = files.len();
            files.entry(&line.file).or_insert(next);
        }
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| (files.get(line.file.as_str()).copied(), line.line));
        lines
    }

    /// For people: file:line: outcome: the text: the explanation.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Line { file, line, outcome, what, message } in self.lines() {
            let _ = writeln!(
                text,
                "{}:{line}: {outcome}: {what}: {}",
                shown(file),
                plain_value(message)
            );
        }
        let count = |outcome| self.lines.iter().filter(|line| line.outcome == outcome).count();
        let counts = Outcome::ALL.map(|outcome| format!("{} {outcome}", count(outcome)));
        let _ = writeln!(text, "{}", counts.join(", "));
        text
    }

    /// The report as JSON, for programs.
    pub fn json(&self) -> Value {
        json!({"lines": self.lines()})
    }
}

fn shortened(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        None => message,
        Some((at, _)) => format!("{}...", &message[..at]),
    }
}

/// What people wrote, without control characters and not too long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => plain_value(text),
        Some((at, _)) => format!("{}...", plain_value(&text[..at])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_and_says_where_a_line_is_cut() {
        let mut report = Report::default();
        let place = Place { file: "Corefile".to_owned(), line: 7 };
        let zones = "z".repeat(10 * MAX_MESSAGE);
        let mut added = 0;
        while !report.is_full() {
            report.add(&place, Outcome::Kept, "log", zones.as_str());
            added += 1;
            assert!(added <= MAX_OCTETS / MAX_MESSAGE, "{added}");
        }
        let line = &report.lines[0];
        assert!(line.message.ends_with("z...") && line.message.len() == MAX_MESSAGE + 3);
        assert!(report.octets <= MAX_OCTETS);
    }
}
