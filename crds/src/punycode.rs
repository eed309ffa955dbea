//! Punycode (RFC 3492): how DNS writes names with letters beyond ASCII. Only so that a message can say what to write.

/// Parameters of RFC 3492 §5.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 128;

/// Characters of one label that are looked at: a label of DNS has 63 octets.
const MAX_LABEL: usize = 63;

/// The name as DNS writes it, in lower case; none: it is ASCII already, or has no such form.
pub(crate) fn to_ascii(name: &str) -> Option<String> {
    if name.is_ascii() {
        return None;
    }
    let labels: Option<Vec<String>> = name.split('.').map(label).collect();
    Some(labels?.join("."))
}

fn label(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let is_host = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_ascii() {
        return (text == "*" || text.chars().all(is_host)).then_some(text);
    }
    let is_letter = |c: char| if c.is_ascii() { is_host(c) } else { c.is_alphanumeric() };
    if text.chars().count() > MAX_LABEL || !text.chars().all(is_letter) {
        return None;
    }
    let encoded = format!("xn--{}", encode(&text)?);
    (encoded.len() <= MAX_LABEL).then_some(encoded)
}

/// Encodes one label (RFC 3492 §6.3); `None` where a number overflows.
fn encode(text: &str) -> Option<String> {
    let mut output: String = text.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(output.len()).ok()?;
    let length = u32::try_from(text.chars().count()).ok()?;
    if basic > 0 {
        output.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (INITIAL_N, 0_u32, INITIAL_BIAS, basic);
    while handled < length {
        let next = text.chars().map(u32::from).filter(|code| *code >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for code in text.chars().map(u32::from) {
            if code < n {
                delta = delta.checked_add(1)?;
            }
            if code == n {
                write_number(&mut output, delta, bias)?;
                bias = adapt(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(output)
}

fn write_number(output: &mut String, delta: u32, bias: u32) -> Option<()> {
    let mut rest = delta;
    let mut k = BASE;
    loop {
        let threshold = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
        if rest < threshold {
            break;
        }
        output.push(digit(threshold + (rest - threshold) % (BASE - threshold))?);
        rest = (rest - threshold) / (BASE - threshold);
        k += BASE;
    }
    output.push(digit(rest)?);
    Some(())
}

/// Letters are 0-25, digits 26-35.
fn digit(value: u32) -> Option<char> {
    match value {
        0..26 => char::from_u32(u32::from('a') + value),
        26..36 => char::from_u32(u32::from('0') + value - 26),
        _ => None,
    }
}

/// Adapts the bias after each delta (RFC 3492 §6.1).
fn adapt(delta: u32, points: u32, is_first: bool) -> u32 {
    let mut delta = if is_first { delta / DAMP } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_ascii_are_written_as_dns_has_them() {
        for (name, expected) in [
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("MÜNCHEN.example", Some("xn--mnchen-3ya.example")),
            ("*.例え.テスト", Some("*.xn--r8jz45g.xn--zckzah")),
            ("почта.рф", Some("xn--80a1acny.xn--p1ai")),
            ("corp.example", None),
            ("a b.é", None),
            ("☃.example", None),
        ] {
            assert_eq!(to_ascii(name).as_deref(), expected, "{name}");
        }
        assert_eq!(to_ascii(&"é".repeat(5_000)), None, "too long for a label");
    }
}
