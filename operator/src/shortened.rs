//! Shortens text for people to the room that there is.

/// At most this many octets of the text (at least three); an ellipsis shows that some are missing.
pub fn shortened(text: &str, octets: usize) -> String {
    if text.len() <= octets {
        return text.to_owned();
    }
    let end = (0..=octets - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn what_is_left_out_shows_and_no_character_is_cut() {
        assert_eq!(shortened("eight ch", 8), "eight ch");
        assert_eq!(shortened("nine char", 8), "nine ...");
        assert_eq!(shortened("näine char", 5), "n...", "ä has two octets");
    }
}
