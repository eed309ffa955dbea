//! Domain names in uncompressed wire form, lower case, at most 255 octets, on the stack.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use core::fmt;

/// Longest name in wire form, root label included (RFC 1035 §3.1).
pub(crate) const MAX_NAME: usize = 255;
/// Longest label (RFC 1035 §3.1).
pub(crate) const MAX_LABEL: usize = 63;

/// An absolute domain name, lower case.
#[derive(Clone)]
pub struct Name {
    len: u8,
    wire: [u8; MAX_NAME],
}

/// Why a text is not a domain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// An empty label before the last dot.
    EmptyLabel,
    /// A label of more than 63 octets.
    LabelTooLong,
    /// More than 255 octets in wire form.
    NameTooLong,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::EmptyLabel => "a label is empty",
            NameError::LabelTooLong => "a label is longer than 63 octets",
            NameError::NameTooLong => "the name is longer than 255 octets",
        })
    }
}

impl core::error::Error for NameError {}

impl Name {
    /// `.`: one octet, the empty label.
    pub const ROOT: Name = Name { len: 1, wire: [0; MAX_NAME] };

    /// Reads dotted text; a trailing dot makes no difference, letters become lower case. There are no escapes: every
    /// octet is taken literally, except the dot.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn from_text(text: &str) -> Result<Name, NameError> {
        let mut name = Name::ROOT;
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Ok(name);
        }
        let mut at = 0;
        for label in text.split('.') {
            let label = label.as_bytes();
            if label.is_empty() {
                return Err(NameError::EmptyLabel);
            }
            if label.len() > MAX_LABEL {
                return Err(NameError::LabelTooLong);
            }
            // One octet of length, the label, and the root label still to come.
            if at + label.len() + 2 > MAX_NAME {
                return Err(NameError::NameTooLong);
            }
            name.wire[at] = label.len() as u8;
            name.wire[at + 1..][..label.len()].copy_from_slice(label);
            name.wire[at + 1..][..label.len()].make_ascii_lowercase();
            at += label.len() + 1;
        }
        name.wire[at] = 0;
        name.len = (at + 1) as u8;
        Ok(name)
    }

    /// Copies a valid uncompressed wire-form name, lower-casing it; `None` if it is not one.
    pub fn from_wire(wire: &[u8]) -> Option<Name> {
        let mut at = 0;
        loop {
            let length = *wire.get(at)? as usize;
            if length > MAX_LABEL {
                return None;
            }
            at += length + 1;
            if at > MAX_NAME {
                return None;
            }
            if length == 0 {
                break;
            }
        }
        let mut name = Name::ROOT;
        name.wire[..at].copy_from_slice(wire.get(..at)?);
        name.wire[..at].make_ascii_lowercase();
        name.len = at as u8;
        Some(name)
    }

    /// The parts in a row, which together are a lower-case name with its root label; `None` if
    /// that exceeds 255 octets.
    pub(crate) fn compose(parts: &[&[u8]]) -> Option<Name> {
        let mut name = Name::ROOT;
        let mut at = 0;
        for part in parts {
            name.wire.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        name.len = at as u8;
        Some(name)
    }

    /// The lower-case name at the start of this room, whose root label is at `end`. The rest of the room is copied too,
    /// and not read: as many octets as the compiler knows are moved with a dozen instructions.
    pub(crate) fn in_room(end: u8, room: &[u8; MAX_NAME + 1]) -> Name {
        let mut wire = [0; MAX_NAME];
        wire.copy_from_slice(&room[..MAX_NAME]);
        Name { len: end + 1, wire }
    }

    /// Uncompressed wire form with the root label.
    pub fn wire(&self) -> &[u8] {
        &self.wire[..self.len as usize]
    }

    /// Whether `self` equals `ancestor` or lies below it, on a label boundary.
    pub fn is_at_or_below(&self, ancestor: &Name) -> bool {
        let (own, other) = (self.wire(), ancestor.wire());
        let mut at = 0;
        while own.len() - at > other.len() {
            at += own[at] as usize + 1;
        }
        &own[at..] == other
    }

    /// The labels from left to right, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.wire();
        core::iter::from_fn(move || {
            let (&length, tail) = rest.split_first()?;
            if length == 0 {
                return None;
            }
            let (label, tail) = tail.split_at(length as usize);
            rest = tail;
            Some(label)
        })
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.wire() == other.wire()
    }
}

impl Eq for Name {}

impl core::hash::Hash for Name {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        // No length is needed: the root label ends a name, so no name begins with another.
        state.write(self.wire());
    }
}

impl fmt::Display for Name {
    /// Dotted text with a trailing dot; dots and backslashes inside labels are escaped with a
    /// backslash, octets outside printable ASCII as `\DDD` (RFC 1035 §5.1).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len == 1 {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' => write!(f, "\\{}", octet as char)?,
                    0x21..=0x7e => write!(f, "{}", octet as char)?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_wire_agree() {
        let name = Name::from_text("Cart.shop.SVC.cluster.local").unwrap();
        assert_eq!(name.wire(), b"\x04cart\x04shop\x03svc\x07cluster\x05local\x00");
        assert_eq!(name.to_string(), "cart.shop.svc.cluster.local.");
        assert_eq!(Name::from_wire(name.wire()).unwrap(), name);
        assert_eq!(Name::from_text(".").unwrap(), Name::ROOT);
    }

    #[test]
    fn bad_names_say_why() {
        assert_eq!(Name::from_text("a..b"), Err(NameError::EmptyLabel));
        assert_eq!(Name::from_text(&"a".repeat(64)), Err(NameError::LabelTooLong));
        let longest =
            format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
        assert_eq!(Name::from_text(&longest).unwrap().wire().len(), 255);
        assert_eq!(Name::from_text(&format!("{longest}d")), Err(NameError::NameTooLong));
    }

    #[test]
    fn suffixes_match_on_label_boundaries() {
        let name = |text| Name::from_text(text).unwrap();
        assert!(name("a.corp.example").is_at_or_below(&name("corp.example")));
        assert!(name("corp.example").is_at_or_below(&name("corp.example")));
        assert!(!name("xcorp.example").is_at_or_below(&name("corp.example")));
        assert!(!name("example").is_at_or_below(&name("corp.example")));
        assert!(name("example").is_at_or_below(&Name::ROOT));
    }
}
