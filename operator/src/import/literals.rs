//! Values as programs in Go read them, CoreDNS among them: durations, numbers, addresses with a port, ranges.

use ipnet::IpNet;

/// Nanoseconds of each unit of a duration.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
];
/// The longest duration, in nanoseconds: it has 64 bits.
const MAX_DURATION: f64 = 9.2e18;

/// A duration such as `5s`, `1m30s`, `-2h` or `1.5h`, in nanoseconds (`time.ParseDuration`).
pub(crate) fn duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds = 0.0;
    let is_number = |it: char| it.is_ascii_digit() || it == '.';
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|it| !is_number(it))?);
        let (unit, next) = behind.split_at(behind.find(is_number).unwrap_or(behind.len()));
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanoseconds += number.parse::<f64>().ok()? * factor;
        rest = next;
    }
    (nanoseconds <= MAX_DURATION).then_some(sign * nanoseconds)
}

/// A whole number, with or without a sign (`strconv.Atoi`).
pub(super) fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A whole number without a sign (`strconv.ParseUint`).
pub(super) fn unsigned(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// True and false (`strconv.ParseBool`).
pub(super) fn is_boolean(text: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"]
        .contains(&text)
}

/// Is it `HOST:PORT`, where each of the two may be empty and an IPv6 address is in brackets (`net.SplitHostPort`)?
pub(super) fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let inside = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inside) => inside,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !inside.contains(['[', ']']) && !port.contains(['[', ']'])
}

/// A range of addresses (`net.ParseCIDR`).
pub(super) fn range(text: &str) -> Option<IpNet> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("1m30s", Some(90e9)),
            (".5s", Some(5e8)),
            ("-5s", Some(-5e9)),
            ("0", Some(0.0)),
            ("5", None),
            ("", None),
            ("-", None),
            ("s", None),
            (".s", None),
            ("1h2", None),
            ("1000000h", Some(3.6e18)),
            ("10000000h", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
        for text in [":8080", "127.0.0.1:9153", "[::1]:53", "localhost:", "a:b"] {
            assert!(is_host_port(text), "{text}");
        }
        for text in ["8080", "::1:53", "[::1]", "[::1:53", "a[:53", ""] {
            assert!(!is_host_port(text), "{text}");
        }
        assert_eq!((integer("+5"), unsigned("+5"), unsigned("5")), (Some(5), None, Some(5)));
    }
}
