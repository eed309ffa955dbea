//! One problem, and how lists of names are shortened in messages.

/// Objects, pods and upstreams that a message names.
pub(super) const MAX_NAMED: usize = 3;

/// One problem: a reason of `Degraded`.
pub(super) struct Problem {
    /// One CamelCase word.
    pub(super) reason: &'static str,
    /// What it is, and what to do.
    pub(super) message: String,
    /// It stays until a person changes something.
    pub(super) needs_a_person: bool,
}

/// A problem that may end without a person.
pub(super) fn problem(reason: &'static str, message: String) -> Option<Problem> {
    Some(Problem { reason, message, needs_a_person: false })
}

pub(super) fn named(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(MAX_NAMED);
    let mut text = all[..all.len().min(MAX_NAMED)].join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
