//! How much one message of an upstream may cost: what is looked at in it is counted, and bounded by its octets. A message
//! of many records, names of many labels and pointers from name to name could otherwise cost milliseconds (row L12).

use core::cell::Cell;

use super::verdict::RelayError;
use crate::steps::step;

/// Steps that may be spent for each octet of a message: a record, a label or a pointer looked at, or eight octets that are
/// compared or copied. Messages of resolvers take less than four.
const MAX_PER_OCTET: usize = 8;

/// What may still be spent.
#[derive(Debug)]
pub(super) struct WorkBudget {
    /// None once more was wanted than was left.
    left: Cell<Option<usize>>,
}

impl WorkBudget {
    /// For a message of this length.
    pub(super) fn of(octets: usize) -> WorkBudget {
        WorkBudget { left: Cell::new(Some(octets * MAX_PER_OCTET)) }
    }

    /// Takes this many steps; `None` when they are used up.
    pub(super) fn spend(&self, steps: usize) -> Option<()> {
        step(steps);
        self.left.set(self.left.get().and_then(|left| left.checked_sub(steps)));
        self.left.get().map(|_| ())
    }

    /// The same for octets that are compared or copied.
    pub(super) fn spend_octets(&self, octets: usize) -> Option<()> {
        self.spend(1 + octets / 8)
    }

    /// Why something could not be read: it would cost too much, or it does not parse.
    pub(super) fn why_unread(&self) -> RelayError {
        match self.left.get() {
            None => RelayError::Chain,
            Some(_) => RelayError::Malformed,
        }
    }
}
