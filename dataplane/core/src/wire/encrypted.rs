//! What encrypted transports need of whole messages: padding (WR14), and how long HTTP may keep a reply (RFC 8484 §5.1).
//!
//! These read octets of a message that is already written. One that cannot be read is left as it is.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::ops::Range;

use super::message::{HEADER, rtype};

/// Replies are padded to a multiple of this (RFC 8467 §4.1).
const BLOCK: usize = 468;
/// The padding option (RFC 7830 §3).
const OPTION_PADDING: u16 = 12;
/// The edns-tcp-keepalive option (RFC 7828 §3.1).
const OPTION_KEEPALIVE: u16 = 11;
/// Code and length of an option.
const OPTION_OCTETS: usize = 4;

/// Where one record of a message is.
struct Record {
    rtype: u16,
    ttl_s: u32,
    rdata: Range<usize>,
}

/// Whether this query has a padding option, so that its reply is padded (RFC 7830 §4).
pub fn wants_padding(query: &[u8]) -> bool {
    has_option(query, OPTION_PADDING)
}

/// Whether this query has an edns-tcp-keepalive option, which must not be sent over QUIC (RFC 9250 §5.5.2).
pub fn has_keepalive(query: &[u8]) -> bool {
    has_option(query, OPTION_KEEPALIVE)
}

fn has_option(query: &[u8], wanted: u16) -> bool {
    let Some(opt) = opt(query) else { return false };
    let mut options = &query[opt.rdata];
    while let Some((head, rest)) = options.split_first_chunk::<OPTION_OCTETS>() {
        let [code0, code1, length0, length1] = *head;
        if u16::from_be_bytes([code0, code1]) == wanted {
            return true;
        }
        let length = usize::from(u16::from_be_bytes([length0, length1]));
        options = rest.get(length..).unwrap_or_default();
    }
    false
}

/// Pads the reply in the first `octets` of `buffer` to a multiple of 468, as far as the buffer goes; returns its length.
/// A reply without an OPT record is not padded: there is no place for it.
pub fn pad(buffer: &mut [u8], octets: usize) -> usize {
    // Ours is the last record: options can only follow it at the end.
    let Some(opt) = opt(&buffer[..octets]).filter(|opt| opt.rdata.end == octets) else {
        return octets;
    };
    let room = buffer.len().min(usize::from(u16::MAX));
    let wanted = (octets + OPTION_OCTETS).next_multiple_of(BLOCK);
    let end = wanted.min(room);
    let Some(padding) = end.checked_sub(octets + OPTION_OCTETS) else { return octets };
    let rdlength = opt.rdata.len() + OPTION_OCTETS + padding;
    let at = opt.rdata.start - 2;
    buffer[at..at + 2].copy_from_slice(&(rdlength as u16).to_be_bytes());
    buffer[octets..octets + 2].copy_from_slice(&OPTION_PADDING.to_be_bytes());
    buffer[octets + 2..octets + 4].copy_from_slice(&(padding as u16).to_be_bytes());
    buffer[octets + OPTION_OCTETS..end].fill(0);
    end
}

/// For how many seconds HTTP may keep this reply: the smallest TTL of the answer section and, where the name or the type
/// does not exist, behind an alias too, the negative TTL of the SOA (RFC 2308 §5). Nothing else is kept, as a denial
/// without an SOA (CA3).
pub fn max_age_s(reply: &[u8]) -> u32 {
    let (Some(flags), Some(qtype)) = (reply.get(2..4), qtype(reply)) else { return 0 };
    let (rd, rcode) = (flags[0] & 1 == 1, flags[1] & 0x0f);
    let answers = || Records::of(reply, 0);
    let positive = answers().map(|record| record.ttl_s).min();
    // A DNAME or an RRSIG in front of a denial is no data of the type that was asked for.
    let found = rcode == 0 && answers().any(|record| qtype == rtype::ANY || record.rtype == qtype);
    let negative = Records::of(reply, 1).find_map(|record| negative_ttl(reply, &record));
    match (rcode, found, negative) {
        (0, true, _) => positive,
        (0 | 3, _, Some(negative)) => Some(positive.map_or(negative, |ttl_s| ttl_s.min(negative))),
        // RR43: without RD the client gets our CNAME alone, and follows it.
        (0, false, None) if !rd => positive,
        _ => None,
    }
    .unwrap_or(0)
}

/// QTYPE of the first question.
fn qtype(message: &[u8]) -> Option<u16> {
    let end = after_name(message, HEADER)?;
    message.get(end..)?.first_chunk::<2>().map(|octets| u16::from_be_bytes(*octets))
}

fn negative_ttl(reply: &[u8], record: &Record) -> Option<u32> {
    if record.rtype != rtype::SOA {
        return None;
    }
    // MINIMUM is the last field (RFC 1035 §3.3.13).
    let minimum = reply[record.rdata.clone()].last_chunk::<4>()?;
    Some(record.ttl_s.min(u32::from_be_bytes(*minimum)))
}

fn opt(message: &[u8]) -> Option<Record> {
    Records::of(message, 2).find(|record| record.rtype == rtype::OPT)
}

/// The records of one section, as far as the message can be read.
struct Records<'m> {
    message: &'m [u8],
    at: usize,
    left: u16,
}

impl<'m> Records<'m> {
    /// 0 is the answer section, 1 the authority section, 2 the additional section.
    fn of(message: &'m [u8], section: usize) -> Records<'m> {
        let nothing = Records { message, at: message.len(), left: 0 };
        let count = |place: usize| {
            let octets = message.get(4 + 2 * place..6 + 2 * place)?.first_chunk::<2>()?;
            Some(u16::from_be_bytes(*octets))
        };
        let mut at = HEADER;
        for _ in 0..count(0).unwrap_or(0) {
            match after_name(message, at) {
                Some(end) => at = end + 4,
                None => return nothing,
            }
        }
        for before in 1..=section {
            let mut records = Records { message, at, left: count(before).unwrap_or(0) };
            while records.left > 0 {
                if records.next().is_none() {
                    return nothing;
                }
            }
            at = records.at;
        }
        Records { message, at, left: count(section + 1).unwrap_or(0) }
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.left = self.left.checked_sub(1)?;
        let fields = after_name(self.message, self.at)?;
        let head = self.message.get(fields..)?.first_chunk::<10>()?;
        let [type0, type1, _, _, ttl @ .., length0, length1] = *head;
        let start = fields + head.len();
        let end = start + usize::from(u16::from_be_bytes([length0, length1]));
        self.message.get(start..end)?;
        self.at = end;
        Some(Record {
            rtype: u16::from_be_bytes([type0, type1]),
            ttl_s: u32::from_be_bytes(ttl),
            rdata: start..end,
        })
    }
}

/// Where the name at `at` ends; a compression pointer ends it.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x01a\x00\0\x01\0\x01";
    const OPT: &[u8] = b"\x00\0\x29\x04\xd0\0\0\0\0";

    fn message(rcode: u8, counts: [u8; 3], parts: &[&[u8]]) -> Vec<u8> {
        let [an, ns, ar] = counts;
        let header = [0, 7, 0x84, rcode, 0, 1, 0, an, 0, ns, 0, ar];
        [&header[..], QUESTION, &parts.concat()].concat()
    }

    fn record(rtype: u8, ttl_s: u8, rdata: &[u8]) -> Vec<u8> {
        let head = [0xc0, 12, 0, rtype, 0, 1, 0, 0, 0, ttl_s, 0, rdata.len() as u8];
        [&head[..], rdata].concat()
    }

    #[test]
    fn wr14_a_query_asks_for_padding_by_its_option() {
        let rows: [(&[u8], bool); 6] = [
            (b"\0\0", false),
            (b"\0\x04\0\x0c\0\0", true),
            (b"\0\x09\0\x03\0\x01x\0\x0c\0\0", true),
            (b"\0\x05\0\x03\0\x01x", false),
            (b"\0\x05\0\x03\0\xff\0", false),
            (b"\0\xff\0\x0c\0\0", false),
        ];
        for (options, wanted) in rows {
            let query = message(0, [0, 0, 1], &[OPT, options]);
            assert_eq!(wants_padding(&query), wanted, "{options:?}");
        }
        assert!(!wants_padding(&message(0, [0, 0, 0], &[])) && !wants_padding(&[0; 3]));
        let keepalive = message(0, [0, 0, 1], &[OPT, b"\0\x04\0\x0b\0\0"]);
        assert!(has_keepalive(&keepalive) && !wants_padding(&keepalive));
    }

    #[test]
    fn wr14_replies_are_padded_to_a_multiple_of_468_octets() {
        for data in [0, 1, 300, 432, 433, 434, 435, 436, 437, 900] {
            let rdata = vec![9; data];
            let option = [&[0, 3][..], &(data as u16).to_be_bytes(), &rdata].concat();
            let length = (option.len() as u16).to_be_bytes();
            let reply = message(0, [0, 0, 1], &[OPT, &length, &option]);
            let mut buffer = vec![7; 65_535];
            buffer[..reply.len()].copy_from_slice(&reply);
            let octets = pad(&mut buffer, reply.len());
            assert_eq!(octets % BLOCK, 0, "{data}");
            assert!(octets - reply.len() < BLOCK + OPTION_OCTETS, "{data}");
            let opt = opt(&buffer[..octets]).unwrap();
            assert_eq!(opt.rdata.end, octets, "{data}");
            let options = &buffer[opt.rdata];
            assert_eq!(options[..option.len()], option, "what was there stays");
            let padding = &options[option.len()..];
            assert_eq!(padding[..2], [0, 12]);
            assert_eq!(
                usize::from(u16::from_be_bytes([padding[2], padding[3]])),
                padding.len() - 4
            );
            assert!(padding[4..].iter().all(|octet| *octet == 0));
        }
    }

    #[test]
    fn wr14_what_has_no_opt_or_no_room_stays_as_it_is() {
        let plain = message(0, [1, 0, 0], &[&record(1, 5, &[10, 0, 0, 1])]);
        let mut buffer = vec![7; 65_535];
        buffer[..plain.len()].copy_from_slice(&plain);
        assert_eq!(pad(&mut buffer, plain.len()), plain.len());
        let reply = message(0, [0, 0, 1], &[OPT, b"\0\0"]);
        for room in 0..OPTION_OCTETS {
            let mut tight = reply.clone();
            tight.resize(reply.len() + room, 7);
            assert_eq!(pad(&mut tight, reply.len()), reply.len());
            assert_eq!(tight[..reply.len()], reply);
        }
        let mut tight = reply.clone();
        tight.resize(reply.len() + 10, 7);
        assert_eq!(pad(&mut tight, reply.len()), reply.len() + 10, "as far as there is room");
    }

    #[test]
    fn http_keeps_a_reply_for_its_smallest_ttl() {
        let soa = record(6, 30, b"\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05");
        let (a, b) = (record(1, 60, &[10, 0, 0, 1]), record(1, 7, &[10, 0, 0, 2]));
        let alias = record(5, 90, b"\x01a\0");
        let (dname, signature) = (record(39, 95, b"\x01a\0"), record(46, 95, b"\0\x05"));
        let recursive = |mut reply: Vec<u8>| {
            reply[2] |= 1;
            reply
        };
        let rows = [
            (message(0, [2, 0, 0], &[&a, &b]), 7),
            (message(0, [1, 1, 1], &[&a, &soa, OPT, b"\0\0"]), 60),
            (message(3, [0, 1, 0], &[&soa]), 5),
            (message(3, [1, 1, 0], &[&alias, &soa]), 5),
            (message(0, [1, 1, 0], &[&alias, &soa]), 5),
            (message(0, [2, 1, 0], &[&alias, &a, &soa]), 60),
            (message(0, [0, 1, 0], &[&b]), 0),
            // The denial follows records other than a CNAME.
            (message(3, [2, 1, 0], &[&dname, &alias, &soa]), 5),
            (message(0, [2, 1, 0], &[&dname, &alias, &soa]), 5),
            (message(3, [2, 1, 0], &[&alias, &signature, &soa]), 5),
            // Without an SOA nothing says for how long it may be kept (CA3). Then our CNAME alone, for a client that
            // follows it (RR43).
            (message(3, [1, 0, 0], &[&alias]), 0),
            (recursive(message(0, [2, 0, 0], &[&dname, &alias])), 0),
            (message(0, [1, 0, 0], &[&alias]), 90),
            (message(2, [2, 0, 0], &[&a, &b]), 0),
            (message(0, [0, 0, 0], &[]), 0),
            (vec![0; 3], 0),
        ];
        for (place, (reply, max_age)) in rows.into_iter().enumerate() {
            assert_eq!(max_age_s(&reply), max_age, "row {place}");
        }
    }

    #[test]
    fn every_cut_of_a_message_is_read_without_harm() {
        let soa = record(6, 30, &[1; 22]);
        let whole =
            message(0, [1, 1, 1], &[&record(1, 5, &[10, 0, 0, 1]), &soa, OPT, b"\0\x04\0\x0c\0\0"]);
        for cut in 0..whole.len() {
            let mut buffer = [7; 1024];
            buffer[..cut].copy_from_slice(&whole[..cut]);
            max_age_s(&whole[..cut]);
            assert!(!wants_padding(&whole[..cut]));
            assert_eq!(pad(&mut buffer, cut), cut);
        }
        assert!(wants_padding(&whole));
    }
}
