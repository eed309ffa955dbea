//! From when to when a certificate is valid: the one field of X.509 that nothing else here reads (RFC 5280 §4.1).
//!
//! By hand, as the path to it is fixed and eight steps long; a parser of all of X.509 is a crate with several below it.

use jiff::Timestamp;
use jiff::civil::DateTime;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`, around the version.
const VERSION: u8 = 0xa0;

/// Beginning and end of the validity of a certificate in DER, in seconds since the Unix epoch; `None` where it cannot be
/// read.
pub(super) fn validity_s(certificate: &[u8]) -> Option<(i64, i64)> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = after(fields)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = after(fields)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    Some((time_s(validity)?, time_s(after(validity)?)?))
}

/// The first element, which is a time.
fn time_s(from: &[u8]) -> Option<i64> {
    match *from.first()? {
        UTC_TIME => {
            let (time, _) = element(from, UTC_TIME)?;
            let text = std::str::from_utf8(time).ok()?;
            let year: u8 = text.get(..2)?.parse().ok()?;
            // Two digits of a year are of 1950 to 2049 (RFC 5280 §4.1.2.5.1).
            let century = if year >= 50 { "19" } else { "20" };
            seconds(&format!("{century}{text}"))
        }
        GENERALIZED_TIME => {
            let (time, _) = element(from, GENERALIZED_TIME)?;
            seconds(std::str::from_utf8(time).ok()?)
        }
        _ => None,
    }
}

/// `YYYYMMDDHHMMSSZ`, the only form that is allowed.
fn seconds(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z')?;
    let time = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    // Past the last time that is known: 99991231235959Z means no end (RFC 5280 §4.1.2.5).
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp());
    Some(zoned.unwrap_or(Timestamp::MAX).as_second())
}

/// Content of the first element, which has this tag, and what follows it.
fn element(from: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = from.split_first()?;
    if first != tag {
        return None;
    }
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // This many octets of length follow: a certificate has less than 16 MiB.
        0x81..=0x83 => {
            let (octets, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (octets.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// What follows the first element.
fn after(from: &[u8]) -> Option<&[u8]> {
    element(from, *from.first()?).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(year: i32) -> Vec<u8> {
        until(year, 3, 4)
    }

    fn until(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["dns.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 2);
        params.not_after = rcgen::date_time_ymd(year, month, day);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_validity_of_a_certificate_is_read_in_both_forms_of_time() {
        for (year, expected) in [(2031, "2031-03-04T00:00:00Z"), (2060, "2060-03-04T00:00:00Z")] {
            let seconds = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
            let expected = (seconds("2020-01-02T00:00:00Z"), seconds(expected));
            assert_eq!(validity_s(&made(year)), Some(expected), "{year}");
        }
    }

    #[test]
    fn a_certificate_without_an_end_is_valid_until_the_last_time_that_is_known() {
        let (begin, end) = validity_s(&until(9999, 12, 31)).expect("it is read");
        assert!(begin < end && end == Timestamp::MAX.as_second(), "{begin} {end}");
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let whole = made(2031);
        for cut in 0..40 {
            assert_eq!(validity_s(&whole[..cut]), None, "{cut}");
        }
        for octets in [&[][..], b"not DER", &[0x30; 80], &[0x30, 0x84, 1, 1, 1, 1]] {
            assert_eq!(validity_s(octets), None, "{octets:?}");
        }
    }
}
