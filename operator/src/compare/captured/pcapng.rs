//! A capture as Wireshark writes it (draft-ietf-opsawg-pcapng). It consists of blocks; those with packets, and those
//! that describe interfaces, are read.

use super::cursor::Cursor;
use super::found::Captured;
use super::pcap::{MAX_PACKET, packet};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
/// Interfaces of a section that are known; packets of further ones are passed over.
const MAX_INTERFACES: usize = 1024;
/// The byte-order magic, as a big-endian file has it.
const BIG: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// Reads all blocks of a pcapng file.
pub(super) fn read(octets: &[u8], captured: &mut Captured) -> Result<(), String> {
    let mut cursor = Cursor::new(octets);
    let mut links: Vec<u32> = Vec::new();
    let mut is_little = true;
    while !cursor.is_empty() {
        let at = cursor.at();
        let kind = cursor.u32(is_little)?;
        if kind == SECTION {
            // Its type reads the same from both ends; what follows says how numbers are written.
            let order = octets.get(at + 8..at + 12).unwrap_or_default();
            is_little = order != BIG;
            links.clear();
        }
        let length = cursor.u32(is_little)? as usize;
        if !(12..=MAX_PACKET + 4096).contains(&length) || !length.is_multiple_of(4) {
            return Err(format!("the block at octet {at} has {length} octets: it is damaged"));
        }
        let body = cursor.take(length - 12)?;
        cursor.take(4)?;
        block(kind, body, is_little, &mut links, captured);
    }
    Ok(())
}

fn block(kind: u32, body: &[u8], is_little: bool, links: &mut Vec<u32>, captured: &mut Captured) {
    let number = |at: usize| Cursor::new(body.get(at..).unwrap_or_default()).u32(is_little).ok();
    let link = |interface: u32| links.get(interface as usize).copied();
    let found = match kind {
        INTERFACE if links.len() < MAX_INTERFACES => {
            let link = body.first_chunk::<2>().copied().unwrap_or_default();
            let link = if is_little { u16::from_le_bytes(link) } else { u16::from_be_bytes(link) };
            return links.push(link.into());
        }
        PACKET => number(0).and_then(link).zip(number(12)).map(|(link, length)| (link, length, 20)),
        SIMPLE_PACKET => link(0).zip(number(0)).map(|(link, length)| (link, length, 4)),
        _ => return,
    };
    let octets = found.and_then(|(link, length, at)| {
        let rest = body.get(at..)?;
        Some((link, rest.get(..rest.len().min(length as usize))?))
    });
    match octets {
        Some((link, octets)) => packet(link, octets, captured),
        None => captured.passed_over += 1,
    }
}
