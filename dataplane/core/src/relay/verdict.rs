//! Why a message from an upstream is not relayed.

/// Why a message from an upstream is not the reply we wait for (FW12, FW13): counted and waited past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// Not a response, another opcode, or it does not parse. Where it is only the records that do not, the verdict is
    /// [`RelayError::Malformed`], and datagrams are counted here.
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

/// Why a reply to our question is no answer, though its Rcode is no error and it parses (FW21): counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// It refers to other servers.
    Referral,
    /// Its chain of CNAMEs is too long, a loop, or too much work.
    Chain,
    /// Its records do not belong to the question, or contradict its Rcode.
    Unrelated,
}

impl Unusable {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Unusable; 3] = [Unusable::Referral, Unusable::Chain, Unusable::Unrelated];

    /// Value of the label `reason` of `clusterdns_upstream_unusable_replies_total`.
    pub const fn label(self) -> &'static str {
        match self {
            Unusable::Referral => "referral",
            Unusable::Chain => "chain",
            Unusable::Unrelated => "unrelated",
        }
    }
}

/// Why the reply to our question cannot be relayed: it counts as a failure of that attempt (FW20, FW21, FW26, FW41).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayError {
    /// TC=1: ask again over TCP.
    Truncated,
    /// An Rcode that is no answer; above 15 with the upper bits of the OPT record.
    Rcode(u16),
    /// NS records of a zone below and no answer: we do not iterate.
    Referral,
    /// More than 16 CNAMEs, a loop, or more work than the octets of the message allow (row L12).
    Chain,
    /// NOERROR with records, none of which is at the name of the question; or NXDOMAIN with records that answer it.
    Unrelated,
    /// Header and question are those of the reply, but its answer or authority section does not parse (FW12). A datagram of
    /// this kind is no reply: it is waited past (FW13).
    Malformed,
}

impl RelayError {
    /// Which of them a reply is whose Rcode is no error. One that does not parse is a [`Discard`].
    pub const fn unusable(self) -> Option<Unusable> {
        match self {
            RelayError::Referral => Some(Unusable::Referral),
            RelayError::Chain => Some(Unusable::Chain),
            RelayError::Unrelated => Some(Unusable::Unrelated),
            RelayError::Truncated | RelayError::Rcode(_) | RelayError::Malformed => None,
        }
    }
}
