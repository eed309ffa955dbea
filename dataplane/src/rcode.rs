//! Names of response codes: those that resolvers see, with one name for the rest in metrics.

/// Names by place; the last is that of every other code.
pub const LABELS: [&str; 8] =
    ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "BADVERS", "other"];

/// The place of a response code in [`LABELS`] (RFC 1035 §4.1.1, RFC 6891 §9).
pub const fn place(rcode: u16) -> usize {
    match rcode {
        0..=5 => rcode as usize,
        16 => 6,
        _ => LABELS.len() - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name() {
        for (rcode, name) in [(0, "NOERROR"), (3, "NXDOMAIN"), (5, "REFUSED"), (16, "BADVERS")] {
            assert_eq!(LABELS[place(rcode)], name);
            assert_eq!(crds::rcode::text(rcode), name);
        }
        for rcode in [6, 15, 17, u16::MAX] {
            assert_eq!(LABELS[place(rcode)], "other", "{rcode}");
        }
    }
}
