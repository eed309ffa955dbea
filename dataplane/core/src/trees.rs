//! Persistent trees: a clone is cheap, shares every part that did not change, and keeps its state when the original is
//! edited. The published records are made of them.

pub(crate) mod slots;
pub(crate) mod buckets;
pub(crate) mod chunks;
pub(crate) mod few;
