//! How many octets the words of a Corefile have: a few may become gigabytes by imports and environment variables.

use std::cell::Cell;

use super::lexer::Token;
use crate::import::Refused;
use crate::import::report::Place;

/// Octets of all words, with imports and with the values of environment variables written out.
const MAX_OCTETS: usize = 16 << 20;

/// The octets so far.
pub(super) struct Octets(Cell<usize>);

impl Octets {
    pub(super) fn of<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Octets {
        Octets(Cell::new(octets(tokens)))
    }

    /// How many more there may be.
    pub(super) fn room(&self) -> usize {
        MAX_OCTETS.saturating_sub(self.0.get())
    }

    /// Counts more.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn hold(&self, octets: usize, at: &Place) -> Result<(), Refused> {
        self.0.set(self.0.get().saturating_add(octets));
        if self.0.get() <= MAX_OCTETS {
            return Ok(());
        }
        let most = MAX_OCTETS >> 20;
        let message = format!("more than {most} MiB with its imports and environment variables");
        Err(Refused::at(at, message))
    }
}

/// Octets of these words.
pub(super) fn octets<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> usize {
    tokens.into_iter().map(|token| token.text.len()).sum()
}
