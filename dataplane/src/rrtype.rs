//! Record types as zone files write them (IANA DNS parameters; unknown ones as RFC 3597 §5 says).

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

/// `A`, or `TYPE1234` (RFC 3597).
pub fn text(rtype: u16) -> String {
    let known = KNOWN.iter().find(|(number, _)| *number == rtype);
    known.map_or_else(|| format!("TYPE{rtype}"), |(_, name)| (*name).to_owned())
}

/// The type of a text, in any case: a name, `TYPE` and a number, or a number.
pub fn parse(text: &str) -> Option<u16> {
    let text = text.to_ascii_uppercase();
    if let Some((number, _)) = KNOWN.iter().find(|(_, name)| *name == text) {
        return Some(*number);
    }
    text.strip_prefix("TYPE").unwrap_or(&text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        for rtype in [1, 28, 33, 255, 257, 999] {
            assert_eq!(parse(&text(rtype)), Some(rtype));
        }
        assert_eq!((parse("aaaa"), parse("65"), parse("type64")), (Some(28), Some(65), Some(64)));
        assert_eq!(
            (parse("B"), parse(""), parse("TYPE70000"), parse("-1")),
            (None, None, None, None)
        );
    }
}
