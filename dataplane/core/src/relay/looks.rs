//! How much one message of an upstream may cost: what is looked at in it is counted, and bounded by its octets. A message
//! of many records, names of many labels and pointers from name to name could otherwise cost milliseconds (row L12).

use core::cell::Cell;

use crate::steps::step;

/// Steps that may be spent for each octet of a message: a record, a label or a pointer looked at, or eight octets that are
/// compared or copied. Messages of resolvers take less than four.
const MAX_PER_OCTET: usize = 8;

/// What may still be spent.
#[derive(Debug)]
pub(super) struct Looks {
    left: Cell<usize>,
}

impl Looks {
    /// For a message of this length.
    pub(super) fn of(octets: usize) -> Looks {
        Looks { left: Cell::new(octets * MAX_PER_OCTET) }
    }

    /// Takes this many steps; `None` when they are used up.
    pub(super) fn spend(&self, steps: usize) -> Option<()> {
        step(steps);
        self.left.set(self.left.get().checked_sub(steps)?);
        Some(())
    }

    /// The same for octets that are compared or copied.
    pub(super) fn spend_octets(&self, octets: usize) -> Option<()> {
        self.spend(1 + octets / 8)
    }
}
