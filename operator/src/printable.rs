//! Text of others for a terminal: objects of tenants, files, replies of servers.

/// Text without what a terminal would obey in place of showing it: sequences that move the cursor, name the window or write
/// the clipboard, and marks that turn the direction of what follows.
pub(crate) fn plain(text: &str) -> String {
    text.replace(is_obeyed, "\u{fffd}")
}

/// The same for a value that stands within a line: it has no line breaks and no tabs either.
pub(crate) fn plain_value(text: &str) -> String {
    text.replace(|character| is_obeyed(character) || matches!(character, '\n' | '\t'), "\u{fffd}")
}

/// A value as JSON, with a newline at its end.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("strings and numbers only");
    let mut shown = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        match is_obeyed(character) {
            // In JSON, such characters are in strings only, and the standard leaves them unescaped above U+001F.
            true => shown.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown.push('\n');
    shown
}

/// Does a terminal obey this character? Line breaks and tabs are ours: values of others must not have them.
pub(crate) fn is_obeyed(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::{plain, plain_value};

    #[test]
    fn a_terminal_obeys_nothing_that_is_left() {
        let hostile = "a\u{1b}]52;c;cm0=\u{7}\u{9b}2J\u{7f}\r\u{202e}b\n\tc";
        assert_eq!(
            plain(hostile),
            "a\u{fffd}]52;c;cm0=\u{fffd}\u{fffd}2J\u{fffd}\u{fffd}\u{fffd}b\n\tc"
        );
        assert_eq!(plain_value("a\u{1b}\n\tb\u{202e}"), "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}");
    }
}
