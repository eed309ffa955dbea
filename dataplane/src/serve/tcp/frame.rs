//! Messages in a stream: two octets of length, then the message (RFC 1035 section 4.2.2).

use super::MESSAGE_OCTETS;

/// Octets of a length prefix.
pub(super) const PREFIX: usize = 2;

/// What a late reply may take, and is counted as until it comes.
pub(super) const LATE_OCTETS: usize = PREFIX + MESSAGE_OCTETS;

/// Less than a header is no message (N1, WR43).
const HEADER_OCTETS: usize = 12;

/// The start of what was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'i> {
    /// More must be read.
    Incomplete,
    /// The length says that no query follows.
    TooShort,
    Message(&'i [u8]),
}

/// The first message of the input.
pub(super) fn first(input: &[u8]) -> Frame<'_> {
    let Some((prefix, rest)) = input.split_first_chunk::<PREFIX>() else {
        return Frame::Incomplete;
    };
    let octets = usize::from(u16::from_be_bytes(*prefix));
    if octets < HEADER_OCTETS {
        return Frame::TooShort;
    }
    match rest.get(..octets) {
        Some(message) => Frame::Message(message),
        None => Frame::Incomplete,
    }
}

/// The length prefix of a message.
pub(super) fn prefix(octets: usize) -> [u8; PREFIX] {
    u16::try_from(octets).expect("a buffer of 65,535 octets holds no more").to_be_bytes()
}

/// Makes a buffer with a message behind the place of its prefix the two of them, and no more.
pub(super) fn seal(buffer: &mut Vec<u8>, octets: usize) {
    buffer[..PREFIX].copy_from_slice(&prefix(octets));
    buffer.truncate(PREFIX + octets);
    buffer.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_complete_or_not() {
        let mut two = vec![0, 12];
        two.extend([7; 12]);
        two.extend([0, 13, 1]);
        for cut in 0..14 {
            assert_eq!(first(&two[..cut]), Frame::Incomplete, "{cut}");
        }
        assert_eq!(first(&two), Frame::Message(&[7; 12]));
        assert_eq!(first(&two[14..]), Frame::Incomplete);
    }

    #[test]
    fn wr43_less_than_a_header_is_no_message() {
        for octets in 0..12 {
            assert_eq!(first(&[0, octets]), Frame::TooShort, "{octets}");
        }
    }

    #[test]
    fn a_sealed_reply_is_a_message() {
        let mut buffer = vec![9; LATE_OCTETS];
        seal(&mut buffer, 300);
        assert_eq!(buffer.len(), 302);
        assert_eq!(first(&buffer), Frame::Message(&[9; 300]));
        let mut largest = vec![1; LATE_OCTETS];
        seal(&mut largest, MESSAGE_OCTETS);
        assert_eq!(first(&largest), Frame::Message(&[1; MESSAGE_OCTETS]));
    }
}
