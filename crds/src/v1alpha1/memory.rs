//! [`Memory`]: a number of bytes as Kubernetes writes it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::bounds;

/// A number of bytes: `16Mi`, or a plain number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Memory {
    /// An integer: bytes.
    Bytes(u64),
    /// As Kubernetes writes quantities: whole numbers with k, M, G, Ki, Mi or Gi.
    Text(String),
}

/// Digits of a number, in the pattern too.
const DIGITS: usize = 12;
/// What the text may be. Fractions and larger units would only be typing errors here.
const MEMORY_PATTERN: &str = "^[0-9]{1,12}(k|M|G|Ki|Mi|Gi)?$";

impl Memory {
    /// The quantity with this text.
    pub fn of(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// The number of bytes, or nothing when it is not a quantity.
    pub fn bytes(&self) -> Option<u64> {
        let text = match self {
            Self::Bytes(bytes) => return Some(*bytes),
            Self::Text(text) => text,
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        if !(1..=DIGITS).contains(&digits) {
            return None;
        }
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit {
            "" => 1,
            "k" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(factor)
    }
}

impl JsonSchema for Memory {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Memory".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": MEMORY_PATTERN,
            "minimum": 0,
            "maxLength": bounds::QUANTITY,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_kubernetes_reads_quantities() {
        for (text, bytes) in
            [("16Mi", Some(16 << 20)), ("0", Some(0)), ("5k", Some(5_000)), ("1Gi", Some(1 << 30))]
        {
            assert_eq!(Memory::of(text).bytes(), bytes, "{text}");
        }
        for text in ["", "Mi", "1.5Gi", "16MiB", "-1", "16 Mi", "0000000000001"] {
            assert_eq!(Memory::of(text).bytes(), None, "{text}");
        }
        assert_eq!(Memory::Bytes(7).bytes(), Some(7));
    }
}
