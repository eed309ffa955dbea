//! Why a message from an upstream is not relayed.

/// Why a message from an upstream is not the reply we wait for (FW12, FW13): counted and waited past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// Not a response, another opcode, or it does not parse.
    Malformed,
    /// The id is not that of our query.
    Id,
    /// The question is not ours.
    Question,
    /// The question in other letter case than it was sent in (FW14).
    Case,
}

impl Discard {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Discard; 4] =
        [Discard::Malformed, Discard::Id, Discard::Question, Discard::Case];

    /// Value of the label `reason` of `clusterdns_upstream_discarded_total`.
    pub const fn label(self) -> &'static str {
        match self {
            Discard::Malformed => "malformed",
            Discard::Id => "id",
            Discard::Question => "question",
            Discard::Case => "case",
        }
    }
}

/// Why a valid reply cannot be relayed: it counts as a failure of that attempt (FW20, FW21, FW26, FW41).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayError {
    /// TC=1: ask again over TCP.
    Truncated,
    /// An Rcode that is no answer; above 15 with the upper bits of the OPT record.
    Rcode(u16),
    /// NS records of a zone below and no answer: we do not iterate.
    Referral,
    /// More than 16 CNAMEs, or a loop.
    Chain,
    /// NOERROR with records, none of which answers the question; or NXDOMAIN with records that answer it.
    Unrelated,
}
