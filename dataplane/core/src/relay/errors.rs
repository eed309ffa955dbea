//! Extended DNS Errors that an upstream sent with its error (RFC 8914): the client gets their codes after ours (N18).
//! Their texts are not kept, because anyone could have written them.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::read::{rdata_at, skip_name};
use crate::wire::message::{HEADER, OPTION_EDE, rtype};

/// Codes that are kept of one message (N18).
const MAX_CODES: usize = 3;
/// Records of a message in which its OPT record is looked for: errors have few.
const MAX_RECORDS: usize = 64;

/// The codes of one message, each once, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCodes {
    codes: [u16; MAX_CODES],
    count: usize,
}

impl ErrorCodes {
    /// Those of a reply that was [judged](crate::LookupKey::judge) to be an error. What cannot be read has none.
    pub fn of(reply: &[u8]) -> ErrorCodes {
        let mut found = ErrorCodes::default();
        // Codes that were read before a wrong octet count.
        let _ = found.read(reply);
        found
    }

    /// Extended DNS Error codes in the order of the reply (RFC 8914).
    pub fn as_slice(&self) -> &[u16] {
        self.codes.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, code: u16) {
        if !self.as_slice().contains(&code)
            && let Some(place) = self.codes.get_mut(self.count)
        {
            *place = code;
            self.count += 1;
        }
    }

    fn read(&mut self, reply: &[u8]) -> Option<()> {
        let header = reply.first_chunk::<HEADER>()?;
        let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let mut at = HEADER;
        for _ in 0..count(4).min(1) {
            at = skip_name(reply, at)? + 4;
        }
        let records = count(6) + count(8) + count(10);
        for _ in 0..records.min(MAX_RECORDS) {
            let name_end = skip_name(reply, at)?;
            let kind = reply.get(name_end..name_end + 2)?;
            let rdata = rdata_at(reply, name_end)?;
            at = rdata.end;
            if kind == rtype::OPT.to_be_bytes() {
                return self.options(reply.get(rdata)?);
            }
        }
        None
    }

    fn options(&mut self, mut options: &[u8]) -> Option<()> {
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let length = u16::from_be_bytes([head[2], head[3]]);
            let (data, rest) = rest.split_at_checked(length.into())?;
            if head[..2] == OPTION_EDE.to_be_bytes() {
                self.push(u16::from_be_bytes(*data.first_chunk()?));
            }
            options = rest;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// An error with an OPT record that has these options.
    fn reply(options: &[u8]) -> Vec<u8> {
        let header = [0, 9, 0x80, 2, 0, 1, 0, 0, 0, 0, 0, 1];
        let question = b"\x03www\0\0\x01\0\x01";
        let opt = [&[0, 0, 41, 4, 208, 0, 0, 0, 0], &(options.len() as u16).to_be_bytes()[..]];
        [&header[..], question, opt[0], opt[1], options].concat()
    }

    #[test]
    fn n18_the_first_three_codes_of_an_error_are_kept_each_once() {
        let option =
            |code: u8, text: &[u8]| [&[0, 15, 0, 2 + text.len() as u8, 0, code][..], text].concat();
        let other = [0, 10, 0, 1, 7].to_vec();
        let rows: [(&[Vec<u8>], &[u16]); 4] = [
            (&[], &[]),
            (&[other.clone(), option(6, b"bogus"), other], &[6]),
            (&[option(9, b""), option(9, b"again"), option(22, b""), option(6, b"")], &[9, 22, 6]),
            (&[option(1, b""), option(2, b""), option(3, b""), option(4, b"")], &[1, 2, 3]),
        ];
        for (options, codes) in rows {
            assert_eq!(ErrorCodes::of(&reply(&options.concat())).as_slice(), codes);
        }
    }

    #[test]
    fn n18_errors_that_cannot_be_read_have_the_codes_before_that() {
        let whole = reply(&[0, 15, 0, 2, 0, 6, 0, 15, 0, 2, 0, 7]);
        for cut in 0..whole.len() {
            assert!(ErrorCodes::of(&whole[..cut]).as_slice().is_empty(), "no OPT record: {cut}");
        }
        for (options, codes) in [
            (&[0, 15, 0, 2, 0, 6, 0, 15, 0, 9, 0, 7][..], &[6][..]),
            (&[0, 15, 0, 2, 0, 6, 0, 15, 0, 1, 0], &[6]),
            (&[0, 15, 0], &[]),
        ] {
            assert_eq!(ErrorCodes::of(&reply(options)).as_slice(), codes);
        }
        let mut many = whole.clone();
        many[6..8].fill(0xff);
        assert_eq!(ErrorCodes::of(&many).as_slice(), [6, 7], "the counts are wrong");
    }
}
