//! What a store does not keep of a list. Pure.

use super::held::Octets;

/// What the last list, and the events since, did not keep. Nothing is taken back before the next list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacks {
    /// Of the smallest object that is not kept whole, and of the smallest stub that is not kept.
    pub(super) least: Octets,
    /// An object is not kept at all.
    pub(super) has_incomplete: bool,
    /// One has no name in the books.
    pub(super) has_unnamed: bool,
}

impl Lacks {
    pub(super) const NOTHING: Lacks = Lacks {
        least: Octets { whole: usize::MAX, stubs: usize::MAX, needed: 0 },
        has_incomplete: false,
        has_unnamed: false,
    };

    pub(super) fn and(self, other: Lacks) -> Lacks {
        let (one, two) = (self.least, other.least);
        let least =
            Octets { whole: one.whole.min(two.whole), stubs: one.stubs.min(two.stubs), needed: 0 };
        let has_incomplete = self.has_incomplete || other.has_incomplete;
        let has_unnamed = self.has_unnamed || other.has_unnamed;
        Lacks { least, has_incomplete, has_unnamed }
    }
}
