//! What a stream of QUIC must hold (RFC 9250 §4.2): one message, with its length in front.

use dataplane_core::has_keepalive;

use super::PREFIX;

/// The one message of a stream: its id is 0 (RFC 9250 §4.2.1), and it has no edns-tcp-keepalive (§5.5.2).
pub(super) fn message(framed: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = framed.split_first_chunk::<PREFIX>()?;
    let is_whole = usize::from(u16::from_be_bytes(*prefix)) == message.len();
    (is_whole && message.get(..2)? == [0, 0] && !has_keepalive(message)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_whole_message_with_id_0() {
        let rows: [(&[u8], Option<&[u8]>); 6] = [
            (b"\0\x03\0\0x", Some(b"\0\0x")),
            (b"\0\x03\0\x01x", None),
            (b"\0\x04\0\0x", None),
            (b"\0\x02\0\0x", None),
            (b"\0\x01\0", None),
            (b"\0", None),
        ];
        for (framed, expected) in rows {
            assert_eq!(message(framed), expected, "{framed:?}");
        }
    }
}
