//! Whether a reply is the right one (pure). It is done for every reply, at hundreds of thousands a second, so what is
//! expected is two numbers and a digest, and nothing is allocated.

use std::net::IpAddr;

const HEADER: usize = 12;
const A: u16 = 1;
const AAAA: u16 = 28;
/// Expects only that a reply is one to this question.
const ANY_RCODE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    rcode: u8,
    answers: u16,
    digest: u64,
}

impl Expected {
    /// Anything, as for recorded questions.
    pub const ANY: Expected = Expected { rcode: ANY_RCODE, answers: 0, digest: 0 };
    /// The name exists, the type does not (RFC 2308).
    pub const NO_DATA: Expected = Expected { rcode: 0, answers: 0, digest: 0 };
    /// The name does not exist.
    pub const NX_DOMAIN: Expected = Expected { rcode: 3, answers: 0, digest: 0 };

    /// These addresses, in any order.
    pub fn addresses(addresses: impl IntoIterator<Item = IpAddr>) -> Expected {
        let mut expected = Expected::NO_DATA;
        for address in addresses {
            let digest = match address {
                IpAddr::V4(address) => of_record(A, &address.octets()),
                IpAddr::V6(address) => of_record(AAAA, &address.octets()),
            };
            expected.answers += 1;
            expected.digest = expected.digest.wrapping_add(digest);
        }
        expected
    }

    /// This many records of a type whose data has names, which are written in more than one way.
    pub fn records(rtype: u16, count: u16) -> Expected {
        let digest = of_record(rtype, &[]).wrapping_mul(count.into());
        Expected { rcode: 0, answers: count, digest }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// A reply to this question with another content.
    Wrong,
    /// No reply to this question at all.
    Foreign,
}

/// Judges a reply to `query`, whose id has been compared already. Returns the rcode too.
pub fn judge(query: &[u8], reply: &[u8], expected: Expected) -> (Verdict, u8) {
    let (Some(header), Some(question)) = (reply.get(..HEADER), reply.get(HEADER..query.len()))
    else {
        return (Verdict::Foreign, 0);
    };
    let is_response = header[2] & 0x80 != 0 && u16_at(reply, 4) == 1;
    if !is_response || !question.eq_ignore_ascii_case(&query[HEADER..]) {
        return (Verdict::Foreign, 0);
    }
    let rcode = header[3] & 15;
    if expected.rcode == ANY_RCODE {
        return (Verdict::Right, rcode);
    }
    let is_right = rcode == expected.rcode
        && u16_at(reply, 6) == expected.answers
        && digest(reply, query.len(), expected.answers) == Some(expected.digest);
    (if is_right { Verdict::Right } else { Verdict::Wrong }, rcode)
}

/// The digest of the answer section, which begins at an offset; nothing where it is malformed.
fn digest(reply: &[u8], mut at: usize, answers: u16) -> Option<u64> {
    let mut digest = 0_u64;
    for _ in 0..answers {
        at = after_name(reply, at)?;
        let fixed = reply.get(at..at + 10)?;
        let (rtype, octets) = (u16_at(fixed, 0), usize::from(u16_at(fixed, 8)));
        let data = reply.get(at + 10..at + 10 + octets)?;
        let data = if matches!(rtype, A | AAAA) { data } else { &[] };
        digest = digest.wrapping_add(of_record(rtype, data));
        at += 10 + octets;
    }
    Some(digest)
}

/// Where the name at an offset ends: after its root label, or after a pointer (RFC 1035, section 4.1.4).
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

/// Sums of these do not depend on the order of records, which servers change.
fn of_record(rtype: u16, data: &[u8]) -> u64 {
    let mut digest = u64::from(rtype).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for part in data.chunks(8) {
        let word = part.iter().fold(0_u64, |word, octet| word << 8 | u64::from(*octet));
        digest = (digest ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        digest ^= digest >> 32;
    }
    digest
}

fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::load::trace::packet;

    fn query() -> Vec<u8> {
        packet("web.shop.svc.cluster.local.", 1)
    }

    fn reply(rcode: u8, addresses: &[[u8; 4]]) -> Vec<u8> {
        let mut reply = query();
        reply[2] |= 0x84;
        reply[3] = rcode;
        reply[7] = addresses.len() as u8;
        for address in addresses {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
            reply.extend(address);
        }
        reply
    }

    fn judged(reply: &[u8], expected: Expected) -> Verdict {
        judge(&query(), reply, expected).0
    }

    fn expected(addresses: &[[u8; 4]]) -> Expected {
        Expected::addresses(addresses.iter().map(|octets| Ipv4Addr::from(*octets).into()))
    }

    #[test]
    fn addresses_are_right_in_any_order_and_wrong_when_one_differs() {
        let both = expected(&[[10, 0, 0, 1], [10, 0, 0, 2]]);
        assert_eq!(judged(&reply(0, &[[10, 0, 0, 2], [10, 0, 0, 1]]), both), Verdict::Right);
        for wrong in [
            [[10, 0, 0, 1]].as_slice(),
            &[[10, 0, 0, 1], [10, 0, 0, 1]],
            &[[10, 0, 0, 1], [10, 0, 0, 3]],
            &[[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]],
            &[],
        ] {
            assert_eq!(judged(&reply(0, wrong), both), Verdict::Wrong, "{wrong:?}");
        }
    }

    #[test]
    fn denials_differ_by_their_rcode() {
        for (rcode, expected) in [(0, Expected::NO_DATA), (3, Expected::NX_DOMAIN)] {
            assert_eq!(judge(&query(), &reply(rcode, &[]), expected), (Verdict::Right, rcode));
            assert_eq!(judged(&reply(2, &[]), expected), Verdict::Wrong);
            assert_eq!(judged(&reply(3 - rcode, &[]), expected), Verdict::Wrong);
            assert_eq!(judged(&reply(rcode, &[[10, 0, 0, 1]]), expected), Verdict::Wrong);
        }
    }

    #[test]
    fn what_answers_another_question_or_is_cut_is_no_reply() {
        let right = reply(0, &[[10, 0, 0, 1]]);
        let expected = expected(&[[10, 0, 0, 1]]);
        assert_eq!(judged(&query(), expected), Verdict::Foreign, "a query");
        let mut other = right.clone();
        other[14] ^= 1;
        assert_eq!(judged(&other, expected), Verdict::Foreign);
        let mut upper = right.clone();
        upper[13..16].make_ascii_uppercase();
        assert_eq!(judged(&upper, expected), Verdict::Right, "case means nothing");
        for length in 0..right.len() {
            assert_ne!(judged(&right[..length], expected), Verdict::Right, "{length} octets");
        }
    }

    #[test]
    fn names_in_data_count_by_type_only() {
        let srv = Expected::records(33, 2);
        let mut both = reply(0, &[]);
        both[7] = 2;
        for _ in 0..2 {
            both.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 5, 0, 8, 0, 0, 0, 100, 0, 80, 0xc0, 12]);
        }
        assert_eq!(judged(&both, srv), Verdict::Right);
        both[7] = 1;
        assert_eq!(judged(&both, srv), Verdict::Wrong);
    }
}
