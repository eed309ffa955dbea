//! Response codes as `dig` and log lines write them.

/// The codes that have a name here.
const KNOWN: [(u16, &str); 8] = [
    (0, "NOERROR"),
    (1, "FORMERR"),
    (2, "SERVFAIL"),
    (3, "NXDOMAIN"),
    (4, "NOTIMP"),
    (5, "REFUSED"),
    (6, "YXDOMAIN"),
    (16, "BADVERS"),
];

/// The name of a code (RFC 1035 §4.1.1, RFC 2136 §2.2, RFC 6891 §9), else `RCODE` and the number (RFC 6895 §2.3).
pub fn text(rcode: u16) -> String {
    let known = KNOWN.iter().find(|(number, _)| *number == rcode);
    known.map_or_else(|| format!("RCODE{rcode}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn codes_without_a_name_have_their_number() {
        assert_eq!([0, 3, 6, 16].map(text), ["NOERROR", "NXDOMAIN", "YXDOMAIN", "BADVERS"]);
        assert_eq!([7, 15, u16::MAX].map(text), ["RCODE7", "RCODE15", "RCODE65535"]);
    }
}
