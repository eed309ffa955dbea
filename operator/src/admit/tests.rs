//! What is refused although the spec is valid, row by row.
