//! Messages in a stream: two octets of length, then the message (RFC 1035 section 4.2.2).

/// Octets of a length prefix.
pub(super) const PREFIX: usize = 2;

/// Octets that a query that waits for an upstream counts as: about what its lookup takes. Its reply has no buffer
/// before it is written, and counts with its own length then.
pub(super) const WAITING_OCTETS: usize = 4 << 10;

/// The same of a query whose lookup has not begun, because others of its connection come first.
pub(super) const LATER_OCTETS: usize = 1 << 10;

/// Less than a header is no message (N1, WR43).
const HEADER_OCTETS: usize = 12;

/// The result of parsing the start of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'i> {
    /// The message is not complete: read more.
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
}
