//! Domain names as plain lists of labels: no packing, no sharing with the core.

use std::fmt;

/// An absolute domain name: labels from left to right, lower case, without the root.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub Vec<Vec<u8>>);

impl Name {
    /// Dotted text, with or without a trailing dot. Says nothing about validity.
    pub fn text(text: &str) -> Name {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Name(Vec::new());
        }
        Name(text.split('.').map(|label| label.to_ascii_lowercase().into_bytes()).collect())
    }

    /// The lower-case form of an uncompressed wire-form name.
    pub fn wire(mut wire: &[u8]) -> Name {
        let mut labels = Vec::new();
        while wire[0] != 0 {
            let (label, rest) = wire[1..].split_at(usize::from(wire[0]));
            labels.push(label.to_ascii_lowercase());
            wire = rest;
        }
        Name(labels)
    }

    /// A name of the settings.
    pub fn of(name: &dataplane_core::Name) -> Name {
        Name(name.labels().map(<[u8]>::to_ascii_lowercase).collect())
    }

    pub fn child(&self, label: &str) -> Name {
        let mut labels = vec![label.to_ascii_lowercase().into_bytes()];
        labels.extend(self.0.iter().cloned());
        Name(labels)
    }

    /// The labels left of `ancestor`, if this name is at or below it.
    pub fn left_of(&self, ancestor: &Name) -> Option<&[Vec<u8>]> {
        self.0.strip_suffix(&ancestor.0[..])
    }

    /// Whether this name lies strictly below `ancestor`.
    pub fn is_below(&self, ancestor: &Name) -> bool {
        self.left_of(ancestor).is_some_and(|labels| !labels.is_empty())
    }

    /// Length in uncompressed wire form.
    pub fn wire_len(&self) -> usize {
        1 + self.0.iter().map(|label| label.len() + 1).sum::<usize>()
    }

    /// Whether it is short enough to be a name at all (§3.1).
    pub fn fits(&self) -> bool {
        self.wire_len() <= 255
    }

    /// Uncompressed wire form.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for label in &self.0 {
            wire.push(label.len() as u8);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        wire
    }
}

/// Whether a text is a label that people may name hosts by: letters, digits and inner hyphens.
pub fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for label in &self.0 {
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
