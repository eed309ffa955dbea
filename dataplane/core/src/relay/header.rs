//! Bits of a message's header (RFC 1035 §4.1.1, RFC 4035 §3), and the OPT record (RFC 6891 §6.1).

use crate::wire::message::rtype;

/// QR, in the third octet of the header.
pub(super) const QR: u8 = 0x80;
/// Opcode, in the third octet.
pub(super) const OPCODE: u8 = 0x78;
/// TC, in the third octet.
pub(super) const TC: u8 = 0x02;
/// RD, in the third octet.
pub(super) const RD: u8 = 0x01;
/// AD, in the fourth octet.
pub(super) const AD: u8 = 0x20;
/// CD, in the fourth octet.
pub(super) const CD: u8 = 0x10;
/// AA, in the third octet of the header.
pub(super) const AA: u8 = 0x04;
/// RA, in the fourth octet.
pub(super) const RA: u8 = 0x80;

/// Octets of an OPT record without options (RFC 6891 §6.1.2).
pub(super) const OPT: usize = 11;

/// An OPT record with this many octets of options behind it.
pub(super) fn opt_octets(payload: u16, dnssec: bool, options: u16) -> [u8; OPT] {
    let [kind, payload, options] = [rtype::OPT, payload, options].map(u16::to_be_bytes);
    let flags = if dnssec { 0x80 } else { 0 };
    // Root owner, type, class, then extended Rcode 0, version 0 and flags in place of a TTL.
    #[rustfmt::skip]
    let octets = [0, kind[0], kind[1], payload[0], payload[1], 0, 0, flags, 0, options[0], options[1]];
    octets
}
