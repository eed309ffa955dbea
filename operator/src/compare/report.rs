//! What a comparison found, by class, as text for people and as JSON for programs. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hickory_proto::rr::Name;
use serde::Serialize;

use super::ask::Replies;
use super::known::Known;
use super::pair::{Pair, Said};
use crate::ask_pods::canary_analysis::reply::{NoReply, Reply, ede_codes};
use crate::offline::Severity;
use crate::printable::plain_value;

/// Examples of one class that are shown; all are counted.
const MAX_EXAMPLES: usize = 3;

/// Questions that the two servers answered differently in one way.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Class {
    /// The id in docs/dns.md, or what differs.
    pub(super) class: String,
    /// The sentence of the contract; absent where the difference is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) contract: Option<&'static str>,
    /// Number of questions.
    pub(super) count: usize,
    /// The first questions of this class.
    pub(super) examples: Vec<Example>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Example {
    pub(super) question: String,
    pub(super) with: String,
    pub(super) against: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    /// Questions that both servers were asked.
    pub(super) asked: usize,
    /// Questions that both answered, and alike.
    pub(super) alike: usize,
    /// Questions that neither answered.
    pub(super) unanswered: usize,
    /// Differences that the contract explains.
    pub(super) known: Vec<Class>,
    /// Differences that nothing explains.
    pub(super) unknown: Vec<Class>,
    /// Not all names of the cluster or questions of the files were asked: the two servers may differ in others.
    pub(super) is_cut: bool,
    /// What was not asked, or not read, and why.
    pub(super) notes: Vec<String>,
}

/// What was found so far. Of each reply it keeps no more than its class, and some lines of the first ones.
pub(super) struct Tally {
    domain: Name,
    report: Report,
    classes: BTreeMap<(bool, String), Counted>,
    /// Some name below the domain has records.
    is_domain_found: bool,
    is_heard: bool,
}

/// The questions of one class, the first of them with their numbers.
#[derive(Default)]
struct Counted {
    contract: Option<&'static str>,
    count: usize,
    examples: BTreeMap<usize, Example>,
}

impl Tally {
    /// Of no questions so far; the domain is that of the cluster.
    pub(super) fn new(domain: Name) -> Tally {
        let (report, classes) = (Report::default(), BTreeMap::new());
        Tally { domain, report, classes, is_domain_found: false, is_heard: false }
    }

    /// Adds what both replied to the question of this number; replies come in any order.
    pub(super) fn add(&mut self, number: usize, replies: &Replies) {
        self.report.asked += 1;
        self.is_heard |= replies.with.is_ok() || replies.against.is_ok();
        self.is_domain_found |= replies.is_found_below(&self.domain);
        let (class, contract) = match difference(replies, &self.domain) {
            Ok(()) => return self.report.alike += 1,
            Err(Differs::Unanswered) => return self.report.unanswered += 1,
            Err(Differs::In(class, contract)) => (class, contract),
        };
        let counted = self.classes.entry((contract.is_some(), class)).or_default();
        counted.contract = contract;
        counted.count += 1;
        let is_early = counted.examples.last_key_value().is_none_or(|(last, _)| number < *last);
        if counted.examples.len() < MAX_EXAMPLES || is_early {
            counted.examples.insert(number, example(replies));
            if counted.examples.len() > MAX_EXAMPLES {
                counted.examples.pop_last();
            }
        }
    }

    /// No server replied to anything.
    pub(super) fn is_unheard(&self) -> bool {
        !self.is_heard
    }

    /// Whether some name below the domain has records.
    pub(super) fn is_domain_found(&self) -> bool {
        self.is_domain_found
    }

    pub(super) fn report(self, notes: Vec<String>) -> Report {
        let mut report = Report { notes, ..self.report };
        for ((is_known, class), Counted { contract, count, examples }) in self.classes {
            let examples = examples.into_values().collect();
            let class = Class { class, contract, count, examples };
            if is_known { report.known.push(class) } else { report.unknown.push(class) }
        }
        report.known.sort_by_key(|class| std::cmp::Reverse(class.count));
        report.unknown.sort_by_key(|class| std::cmp::Reverse(class.count));
        report
    }
}

impl Report {
    #[cfg(test)]
    fn of(replies: &[Replies], domain: &Name, notes: Vec<String>) -> Report {
        let mut tally = Tally::new(domain.clone());
        // Backwards: replies come in any order.
        replies.iter().enumerate().rev().for_each(|(number, it)| tally.add(number, it));
        tally.report(notes)
    }

    /// What a pipeline makes of it: alike only where something was asked and each question was answered.
    pub(super) fn severity(&self) -> Severity {
        match (self.unknown_count(), self.asked, self.unanswered) {
            (0, 0, _) => Severity::Unreadable,
            (0, _, 0) if !self.is_cut => Severity::Fine,
            (0, _, _) => Severity::Unreadable,
            (_, _, _) => Severity::Wrong,
        }
    }

    /// Differences that nothing explains.
    fn unknown_count(&self) -> usize {
        self.unknown.iter().map(|class| class.count).sum()
    }

    pub(super) fn text(&self) -> String {
        let known: usize = self.known.iter().map(|class| class.count).sum();
        let mut text = format!(
            "{} questions: {} answered alike, {known} differ on purpose, {} differ and nothing explains it\n",
            self.asked,
            self.alike,
            self.unknown_count()
        );
        if self.unanswered > 0 {
            let _ = writeln!(text, "{} of them had no reply from either server", self.unanswered);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", plain_value(note));
        }
        classes(&mut text, "Unknown", &self.unknown);
        classes(&mut text, "On purpose (docs/dns.md)", &self.known);
        text
    }
}

fn classes(text: &mut String, title: &str, classes: &[Class]) {
    if classes.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    for class in classes {
        let Class { class: name, contract, count, examples } = class;
        let words = contract.map(|words| format!(": {words}")).unwrap_or_default();
        let _ = writeln!(text, "  {name} ({count}){words}");
        for Example { question, with, against } in examples {
            let _ = writeln!(text, "    {}", plain_value(question));
            let _ = writeln!(text, "      with:    {}", plain_value(with));
            let _ = writeln!(text, "      against: {}", plain_value(against));
        }
    }
}

enum Differs {
    Unanswered,
    /// The class, and the sentence of the contract if it is known.
    In(String, Option<&'static str>),
}

fn difference(replies: &Replies, domain: &Name) -> Result<(), Differs> {
    let (with, against, ede) = match (&replies.with, &replies.against) {
        (Ok(with), Ok(against)) => (Said::of(with), Said::of(against), ede_codes(with)),
        (Err(_), Err(_)) => return Err(Differs::Unanswered),
        (Ok(_), Err(_)) => return Err(Differs::In("no reply of --against".to_owned(), None)),
        (Err(_), Ok(_)) => return Err(Differs::In("no reply of --with".to_owned(), None)),
    };
    if with == against {
        return Ok(());
    }
    let (domain, asked) = (domain.clone(), replies.asked.clone());
    let pair = Pair { domain, asked, with, against, ede };
    Err(match Known::of(&pair) {
        Some(known) => Differs::In(known.id.to_owned(), Some(known.words)),
        None => Differs::In(unknown(&pair), None),
    })
}

/// What differs, in a few words.
fn unknown(pair: &Pair) -> String {
    let Pair { with, against, .. } = pair;
    if with.rcode != against.rcode {
        return format!("{} in place of {}", with.rcode, against.rcode);
    }
    match (with.answer.is_empty(), against.answer.is_empty()) {
        (true, false) => "no records in place of some".to_owned(),
        (false, true) => "records in place of none".to_owned(),
        _ if with.records() == against.records() => "the SOA of a denial".to_owned(),
        _ => format!("other {} records", pair.asked.kind),
    }
}

fn example(replies: &Replies) -> Example {
    Example {
        question: replies.asked.to_string(),
        with: text(&replies.with),
        against: text(&replies.against),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Ok(reply) => Said::of(reply).text(),
        Err(NoReply::Silent(why) | NoReply::Closed(why) | NoReply::Unsent(why)) => why.clone(),
    }
}

#[cfg(test)]
mod tests;
