//! One warning of `check`, as the rules make it and the report shows it.

/// One thing that is legal and unwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Path of the field in the spec.
    pub field: String,
    /// One CamelCase word.
    pub reason: &'static str,
    /// What may happen, and what to write instead.
    pub message: String,
}

pub(super) fn warning(
    field: impl Into<String>,
    reason: &'static str,
    message: impl Into<String>,
) -> Warning {
    Warning { field: field.into(), reason, message: message.into() }
}
