//! A short text on the stack, so that answers are formatted without allocating.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::fmt::{Error, Result, Write};

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

    /// The age of the snapshot behind an answer (E42); ten digits are three hundred years.
    pub(crate) fn of_snapshot(age_s: u64) -> ShortText {
        let mut text = ShortText::EMPTY;
        let _ = write!(text, "snapshot {age_s}s");
        text
    }

    /// What was written, as text.
    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// A number in decimal; what does not fit is left out. Formatting costs ten times as much.
    pub(crate) fn push_decimal(&mut self, number: u8) {
        if number >= 100 {
            self.push(b'0' + number / 100);
        }
        if number >= 10 {
            self.push(b'0' + number / 10 % 10);
        }
        self.push(b'0' + number % 10);
    }

    /// One octet, if there is room.
    pub(crate) fn push(&mut self, octet: u8) {
        if let Some(place) = self.octets.get_mut(usize::from(self.len)) {
            *place = octet;
            self.len += 1;
        }
    }

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
