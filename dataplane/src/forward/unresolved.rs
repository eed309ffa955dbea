//! Why a lookup ended without an answer, and what its clients get (N16, N18, N20).

use crds::between_planes::{self, ede};
use dataplane_core::{ErrorCodes, ReplyHead};

use super::limits::Limit;

/// Why a lookup ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// N16: the group has no server that can be asked.
    NoServer,
    /// N18: no server replied.
    Silence,
    /// N18: there were replies, but no answer; with the Extended DNS Errors of the latest.
    Errors(ErrorCodes),
    /// N20: there was no place or no port to ask from.
    Limited(Limit),
}

/// The labels of [`Unresolved`] for metrics, in the order of [`Unresolved::place`].
pub(super) const LABELS: [&str; 4] = ["no_server", "silence", "errors", "limited"];

impl Unresolved {
    pub(super) const fn place(self) -> usize {
        match self {
            Unresolved::NoServer => 0,
            Unresolved::Silence => 1,
            Unresolved::Errors(_) => 2,
            Unresolved::Limited(_) => 3,
        }
    }

    /// The Extended DNS Error (RFC 8914, §5.2).
    const fn ede(self) -> u16 {
        match self {
            Unresolved::NoServer | Unresolved::Limited(_) => ede::OTHER,
            Unresolved::Silence => ede::NO_SERVER_REPLIED,
            Unresolved::Errors(_) => ede::ONLY_ERRORS,
        }
    }

    /// Writes the reply to a client; returns its length.
    pub(super) fn write(self, head: &ReplyHead<'_>, buffer: &mut [u8]) -> usize {
        let sent = match self {
            Unresolved::Errors(sent) => sent,
            Unresolved::NoServer | Unresolved::Silence | Unresolved::Limited(_) => {
                ErrorCodes::default()
            }
        };
        head.fail_behind(self.ede(), self.text(), sent, buffer)
    }

    /// The text of the Extended DNS Error; at most 64 octets.
    const fn text(self) -> &'static str {
        match self {
            Unresolved::NoServer => between_planes::NO_SERVER,
            Unresolved::Silence => between_planes::SILENCE,
            Unresolved::Errors(_) => between_planes::ERRORS,
            Unresolved::Limited(_) => between_planes::LIMIT,
        }
    }
}
