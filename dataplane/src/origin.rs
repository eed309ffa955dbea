//! Where an answer came from: one value for each reply, for metrics and for the query log.

use dataplane_core::Reason;

/// Where a reply came from; also the label in metrics and in the query log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Origin {
    /// Our own records, or our own refusal of the query.
    Own,
    /// The cache: a reply that has not expired, or a failure that is remembered.
    Cache,
    /// The cache: a reply that has expired (CA40).
    Stale,
    /// An upstream that was asked for this query, or for another one with the same question at the same time.
    Upstream,
    /// No upstream gave an answer, or a limit was reached: the SERVFAIL is ours.
    Failed,
}

impl Origin {
    /// Every origin, in the order of their discriminants.
    pub const ALL: [Origin; 5] =
        [Origin::Own, Origin::Cache, Origin::Stale, Origin::Upstream, Origin::Failed];

    /// The metrics label: lower case.
    pub const fn label(self) -> &'static str {
        match self {
            Origin::Own => "own",
            Origin::Cache => "cache",
            Origin::Stale => "stale",
            Origin::Upstream => "upstream",
            Origin::Failed => "failed",
        }
    }
}

/// How one query came to its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Why it was decided so.
    pub reason: Reason,
    /// Where the reply came from.
    pub origin: Origin,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_is_at_its_own_place() {
        for (place, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!(origin as usize, place, "{}", origin.label());
        }
    }
}
