//! What became of each directive, flag and key: one line each, with file and line.

use std::fmt::{self, Display, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

/// Characters of a directive that a line of the report shows.
const MAX_SHOWN: usize = 120;

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
}

impl Report {
    pub fn add(&mut self, place: &Place, outcome: Outcome, what: &str, message: impl Into<String>) {
        let Place { file, line } = place.clone();
        let line = Line { file, line, outcome, what: shown(what), message: message.into() };
        self.lines.push(line);
    }

    /// Adds the lines of another one.
    pub(super) fn append(&mut self, other: Report) {
        self.lines.extend(other.lines);
    }

    /// Is something of these lines reported?
    pub(super) fn has_line(&self, file: &str, lines: std::ops::Range<usize>) -> bool {
        self.lines.iter().any(|it| it.file == file && lines.contains(&it.line))
    }

    /// In the order of the files, as they were read, and of their lines.
    pub fn lines(&self) -> Vec<&Line> {
        let mut files: Vec<&str> = Vec::new();
        for line in &self.lines {
            if !files.contains(&line.file.as_str()) {
                files.push(&line.file);
            }
        }
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| (files.iter().position(|file| *file == line.file), line.line));
        lines
    }

    /// For people: file:line: outcome: the text: the explanation.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Line { file, line, outcome, what, message } in self.lines() {
            let _ = writeln!(text, "{}:{line}: {outcome}: {what}: {}", shown(file), plain(message));
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

/// What people wrote, without control characters and not too long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => plain(text),
        Some((at, _)) => format!("{}...", plain(&text[..at])),
    }
}

pub(super) fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}
