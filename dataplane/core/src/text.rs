//! A short text on the stack, so that answers are formatted without allocating.

use std::fmt::{Error, Result, Write};

/// Octets of the longest text: an EDE text (WR15); IPv6 addresses and counters are shorter.
const CAPACITY: usize = 64;

/// At most 64 octets of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortText {
    octets: [u8; CAPACITY],
    len: u8,
}

impl ShortText {
    pub(crate) const EMPTY: ShortText = ShortText { octets: [0; CAPACITY], len: 0 };

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.octets[..self.len as usize]
    }
}

impl Write for ShortText {
    /// Fails when the text would become too long; what was written before stays.
    fn write_str(&mut self, text: &str) -> Result {
        let start = self.len as usize;
        let place = self.octets.get_mut(start..start + text.len()).ok_or(Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len() as u8;
        Ok(())
    }
}
