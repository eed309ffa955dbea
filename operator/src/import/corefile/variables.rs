//! Environment variables in the words of a Corefile. Pure.

use std::collections::BTreeMap;

/// Does it name an environment variable whose value is not known?
pub(super) fn has_variable(text: &str) -> bool {
    ["{$", "{%"].iter().any(|opening| text.contains(opening))
}

/// The text with the values of the variables that are known.
///
/// `None`: it would have more octets than there is room for.
pub(super) fn expand(
    text: &str,
    open: &str,
    close: &str,
    variables: &BTreeMap<String, String>,
    room: usize,
) -> Option<String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(open) {
        let name_at = at + open.len();
        let Some(length) = rest[name_at..].find(close) else { break };
        let name = &rest[name_at..name_at + length];
        let end = name_at + length + close.len();
        let value = variables.get(name).map_or(&rest[at..end], String::as_str);
        if done.len() + at + value.len() > room {
            return None;
        }
        done.push_str(&rest[..at]);
        done.push_str(value);
        rest = &rest[end..];
    }
    (done.len() + rest.len() <= room).then(|| done + rest)
}
