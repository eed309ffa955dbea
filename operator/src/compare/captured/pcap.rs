//! A capture as tcpdump writes it (draft-ietf-opsawg-pcap): a header of 24 octets, then records. By hand, as these two
//! headers and a few of the network need no library.

use super::cursor::Cursor;
use super::found::Captured;

/// The largest packet that is read; tcpdump writes no larger ones.
pub(super) const MAX_PACKET: usize = 262_144;
/// The port of DNS.
const PORT: u16 = 53;

/// How the numbers of a capture are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Little,
    Big,
}

impl Form {
    /// By its first four octets: times in microseconds or nanoseconds.
    pub(super) fn of(magic: [u8; 4]) -> Option<Form> {
        match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => Some(Form::Little),
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => Some(Form::Big),
            _ => None,
        }
    }
}

/// Reads all packets of a pcap file (its header gives byte order and link type).
pub(super) fn read(octets: &[u8], captured: &mut Captured) -> Result<(), String> {
    let mut cursor = Cursor::new(octets);
    let magic = cursor.take(4)?.first_chunk().copied().unwrap_or_default();
    let is_little = Form::of(magic) == Some(Form::Little);
    cursor.take(16)?;
    // The upper bits say how frames end (FCS), which nothing here reads.
    let link = cursor.u32(is_little)? & 0xffff;
    while !cursor.is_empty() {
        let at = cursor.at();
        cursor.take(8)?;
        let length = cursor.u32(is_little)? as usize;
        cursor.u32(is_little)?;
        if length > MAX_PACKET {
            return Err(format!("the record at octet {at} has {length} octets: it is damaged"));
        }
        packet(link, cursor.take(length)?, captured);
    }
    Ok(())
}

/// One packet of a link of this type (<https://www.tcpdump.org/linktypes.html>).
pub(super) fn packet(link: u32, octets: &[u8], captured: &mut Captured) {
    match ip(link, octets).and_then(datagram) {
        Some(message) => captured.message(message),
        None => captured.passed_over += 1,
    }
}

/// The IP packet in a frame.
fn ip(link: u32, frame: &[u8]) -> Option<&[u8]> {
    match link {
        // NULL, LOOP: the family in four octets.
        0 | 108 => frame.get(4..),
        1 => {
            let mut at = 12;
            // Tags of VLANs.
            while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
                at += 4;
            }
            matches!(frame.get(at..at + 2)?, [0x08, 0x00] | [0x86, 0xdd])
                .then(|| frame.get(at + 2..))?
        }
        // RAW, and its IPv4 and IPv6.
        12 | 101 | 228 | 229 => Some(frame),
        // LINUX_SLL and LINUX_SLL2, as `tcpdump -i any` writes.
        113 => frame.get(16..),
        276 => frame.get(20..),
        _ => None,
    }
}

/// What a UDP datagram to port 53 holds. Fragments and TCP are passed over.
fn datagram(packet: &[u8]) -> Option<&[u8]> {
    let (protocol, at) = match packet.first()? >> 4 {
        4 => {
            let is_fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff != 0;
            let header = usize::from(packet.first()? & 0x0f) * 4;
            (!is_fragment).then_some((*packet.get(9)?, header))?
        }
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let udp = packet.get(at..)?;
    let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    (protocol == 17 && port == PORT).then(|| udp.get(8..length))?
}
