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

    /// Numbers in decimal with an octet between them; what does not fit is left out. Formatting costs ten times as much.
    pub(crate) fn push_decimals(&mut self, numbers: [u8; 4], between: u8) {
        for number in numbers {
            let (hundreds, tens) = (u32::from(number) / 100, u32::from(number) / 10);
            let (ones, tens) = (u32::from(number) - 10 * tens, tens - 10 * hundreds);
            let digits = hundreds | tens << 8 | ones << 16 | 0x30_3030;
            let leading = u8::from(number < 100) + u8::from(number < 10);
            // Three digits and what is between, in one piece: leading zeros are shifted out.
            let text = (digits | u32::from(between) << 24) >> (8 * leading);
            let room = self.octets.get_mut(usize::from(self.len)..);
            let Some(place) = room.and_then(|room| room.first_chunk_mut()) else {
                return;
            };
            *place = text.to_le_bytes();
            self.len += 4 - leading;
        }
        self.len -= 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_formatting_writes_them() {
        for number in 0..=255 {
            let mut text = ShortText::EMPTY;
            text.push_decimals([number, 0, number, number], b'-');
            assert_eq!(text.as_str(), format!("{number}-0-{number}-{number}"));
        }
        let mut text = ShortText::EMPTY;
        (0..9).for_each(|_| text.push_decimals([111; 4], b'.'));
        assert_eq!(text.as_bytes().len(), CAPACITY, "what does not fit is left out");
    }
}
