//! The rules of the module above, as tables.
