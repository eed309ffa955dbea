//! Bounds of the values of maps, for which schemars has no attribute.

use schemars::Schema;
use serde_json::json;

use crate::bounds;

/// Bounds the values of a map of labels.
pub(super) fn bounded_values(schema: &mut Schema) {
    schema.insert(
        "additionalProperties".to_owned(),
        json!({"type": "string", "maxLength": bounds::LABEL}),
    );
}

/// Bounds the values of a map of annotations.
pub(super) fn bounded_annotations(schema: &mut Schema) {
    schema.insert(
        "additionalProperties".to_owned(),
        json!({"type": "string", "maxLength": bounds::ANNOTATION}),
    );
}
