//! What the operator cannot list or watch, and who must do something about it.

/// Kinds that cannot be listed or watched: that failed several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// What they have in common.
    pub cause: Cause,
    /// The first of them (its plural).
    pub kind: String,
    /// How many other kinds there are, for the same cause.
    pub others: usize,
    /// The error for the first.
    pub why: String,
}

/// Who must do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The API server says that the operator may not list it, or that it does not exist.
    Refused,
    /// There is no answer, or another error: it says nothing about the namespace.
    Fails,
}
