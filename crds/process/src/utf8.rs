//! Texts of the API server that are not UTF-8. Anyone who may edit an object may write any octets into `fieldsV1` of its managed
//! fields; the API server stores them, and shows them as they are. serde_json refuses such a text as a whole.

use std::borrow::Cow;

/// The same text in UTF-8: each octet that is not in it becomes U+FFFD. For texts that could not be read as they are.
pub fn utf8(text: &[u8]) -> Cow<'_, [u8]> {
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
