//! What is wrong with a spec: where, what kind of mistake, what to write instead. Bounded, because it goes into a status.

use std::fmt::{self, Display};

use crate::bounds;
use crate::v1alpha1;

/// What kind of mistake, for programs; the text is the variant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// CNAME next to other data at one owner (A32).
    AliasBesideOtherData,
    /// An owner below that of a DNAME (RR85).
    BelowDname,
    /// Two entries for one key (A32, A33).
    Duplicate,
    /// Something that cannot change was changed.
    Immutable,
    /// Not an IP address (A34).
    InvalidAddress,
    /// Not a label, label key or label value of Kubernetes.
    InvalidLabel,
    /// Not a domain name, or not the name of an object.
    InvalidName,
    /// The text is no absolute URL path (`/dns-query`).
    InvalidPath,
    /// The text is no Kubernetes quantity (`100m`, `64Mi`).
    InvalidQuantity,
    /// The text is no CIDR range (`10.0.0.0/8`).
    InvalidRange,
    /// The label selector breaks the rules of the API (unknown operator, values missing).
    InvalidSelector,
    /// No record type, or none that can be withheld (FW45).
    InvalidType,
    /// A smallest number above the largest.
    MinAboveMax,
    /// Something that is needed is not there.
    Missing,
    /// A union with more than one member.
    MoreThanOneMember,
    /// A number outside its range.
    OutOfRange,
    /// An upstream that is ourselves (A34).
    OwnAddress,
    /// A CNAME whose target is its own owner.
    PointsToItself,
    /// A port with another use.
    PortTaken,
    /// A label or annotation key that the operator sets itself.
    ReservedLabel,
    /// A name of the cluster domain's own (A30), or of the operator's.
    ReservedName,
    /// A name that is answered locally or follows from addresses (A31).
    SpecialName,
    /// A serialised configuration that is too large.
    TooLarge,
    /// Text that is too long.
    TooLong,
    /// A list that is too long (A2, A34).
    TooMany,
    /// At or below the cluster domain (A30, A33).
    UnderClusterDomain,
    /// At or below a reverse zone of ours (A33).
    UnderReverseZone,
    /// A field that has no effect in this place.
    Unused,
    /// A wildcard in the cluster domain (A30).
    WildcardInClusterDomain,
    /// A wildcard with fewer than two labels (A32).
    WildcardTooWide,
    /// An address of the wrong family.
    WrongFamily,
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a path such as `spec.stubDomains[1].domain`.
    pub field: String,
    /// The kind of the mistake, as programs match on it.
    pub reason: Reason,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.reason, self.message)
    }
}

impl From<&Violation> for v1alpha1::Violation {
    fn from(violation: &Violation) -> Self {
        Self {
            field: violation.field.clone(),
            reason: violation.reason.to_string(),
            message: violation.message.clone(),
        }
    }
}

/// What is wrong: the first ones in full, and how many in all. Displayed with one on each line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<Violation>,
    count: usize,
}

impl Violations {
    /// Adds a violation of this field.
    pub(crate) fn add(
        &mut self,
        field: impl Into<String>,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.count += 1;
        if self.listed.len() < bounds::REPORTED {
            let message = shortened(message.into(), bounds::MESSAGE);
            self.listed.push(Violation {
                field: shortened(field.into(), bounds::MESSAGE),
                reason,
                message,
            });
        }
    }

    /// Adds all of another list.
    pub(crate) fn append(&mut self, other: Self) {
        let room = bounds::REPORTED - self.listed.len();
        self.count += other.count;
        self.listed.extend(other.listed.into_iter().take(room));
    }

    /// Each of those that are listed, changed.
    pub(super) fn map(mut self, change: impl FnMut(Violation) -> Violation) -> Self {
        self.listed = self.listed.into_iter().map(change).collect();
        self
    }

    /// Those that are listed and kept; the others are not counted.
    pub(super) fn retain(mut self, keep: impl FnMut(&Violation) -> bool) -> Self {
        let before = self.listed.len();
        self.listed.retain(keep);
        self.count -= before - self.listed.len();
        self
    }

    /// The value, unless something is wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// True if no violation was added, listed or only counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are, listed or not.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first ones, at most [`bounds::REPORTED`].
    pub fn listed(&self) -> &[Violation] {
        &self.listed
    }
}

impl Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, violation) in self.listed.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{violation}")?;
        }
        match self.count - self.listed.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Violations {}

/// Text that a user wrote, in a message: quoted, escaped and not too long.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", shortened(text.to_owned(), 80))
}

fn shortened(mut text: String, octets: usize) -> String {
    if text.len() > octets {
        let mut end = octets - 3;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_says_how_much_is_missing() {
        let mut violations = Violations::default();
        for index in 0..25 {
            violations.add(
                format!("spec.hosts[{index}].name"),
                Reason::Duplicate,
                "x".repeat(5_000),
            );
        }
        assert_eq!((violations.listed().len(), violations.count()), (bounds::REPORTED, 25));
        assert!(violations.to_string().ends_with("\nand 5 more"));
        assert!(
            violations.listed().iter().all(|violation| violation.message.len() <= bounds::MESSAGE)
        );
    }
}
