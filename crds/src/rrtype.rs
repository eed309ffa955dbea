//! Record types as zone files write them (IANA DNS parameters; unknown ones as RFC 3597 §5 says).

use serde::{Deserialize, Serialize};

/// The types that have a name here.
const KNOWN: [(u16, &str); 23] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (28, "AAAA"),
    (33, "SRV"),
    (35, "NAPTR"),
    (39, "DNAME"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (52, "TLSA"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
    (257, "CAA"),
];

/// A record type by its number; as text `AAAA`, or `TYPE1234` where it has no name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RrType(pub u16);

impl TryFrom<String> for RrType {
    type Error = String;

    fn try_from(written: String) -> Result<RrType, String> {
        read(&written).map(RrType).ok_or_else(|| format!("{written:?} is no record type"))
    }
}

impl From<RrType> for String {
    fn from(RrType(number): RrType) -> String {
        text(number)
    }
}

/// `A`, or `TYPE1234` (RFC 3597).
pub fn text(rtype: u16) -> String {
    let known = KNOWN.iter().find(|(number, _)| *number == rtype);
    known.map_or_else(|| format!("TYPE{rtype}"), |(_, name)| (*name).to_owned())
}

/// The type of a text, in any case: a name, `TYPE` and a number, or a number.
pub fn parse(text: &str) -> Option<u16> {
    let text = text.to_ascii_uppercase();
    read(&text).or_else(|| number(&text))
}

/// The type of a text as a ClusterDNS writes it: a name in upper case, or `TYPE` and a number.
pub fn read(text: &str) -> Option<u16> {
    let known = KNOWN.iter().find(|(_, name)| *name == text);
    known.map(|(number, _)| *number).or_else(|| number(text.strip_prefix("TYPE")?))
}

fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|octet| octet.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Why servers must be asked for this type, so that it cannot be withheld (FW45); none where it can.
pub const fn why_needed(rtype: u16) -> Option<&'static str> {
    match rtype {
        // NS, CNAME, SOA, DNAME.
        2 | 5 | 6 | 39 => Some("resolvers need it to find names"),
        // DS, RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM.
        43 | 46..=48 | 50 | 51 => Some("validating resolvers need it"),
        // OPT, and the range of types of questions (RFC 6895 §3.1).
        0 | 41 | 128..=255 => Some("no record has it"),
        _ => None,
    }
}

/// The names of all types that can be withheld.
pub fn withholdable() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter(|(number, _)| why_needed(*number).is_none()).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        for rtype in [1, 28, 33, 255, 257, 999] {
            assert_eq!((parse(&text(rtype)), read(&text(rtype))), (Some(rtype), Some(rtype)));
        }
        assert_eq!((parse("aaaa"), parse("65"), parse("type64")), (Some(28), Some(65), Some(64)));
        for text in ["B", "", "TYPE70000", "-1", "TYPE", "TYPE+1"] {
            assert_eq!((parse(text), read(text)), (None, None), "{text}");
        }
        assert_eq!((read("aaaa"), read("65"), read("TYPE28")), (None, None, Some(28)));
    }

    #[test]
    fn fw45_types_that_resolution_needs_are_not_withheld() {
        for needed in
            ["NS", "CNAME", "SOA", "DNAME", "DS", "RRSIG", "NSEC", "DNSKEY", "ANY", "AXFR"]
        {
            assert!(!withholdable().any(|name| name == needed), "{needed}");
        }
        for possible in ["A", "AAAA", "HTTPS", "SVCB", "HINFO", "PTR", "TXT", "CAA"] {
            assert!(withholdable().any(|name| name == possible), "{possible}");
        }
        // TSIG and TKEY, which have no name here.
        assert!([249, 250].iter().all(|rtype| why_needed(*rtype).is_some()));
    }
}
