//! Codes of the Extended DNS Errors that we give (RFC 8914 §4).

/// An error without a code of its own.
pub(crate) const OTHER: u16 = 0;
/// The answer has expired, or comes from a snapshot.
pub(crate) const STALE_ANSWER: u16 = 3;
/// The data that the answer needs is not complete yet.
pub(crate) const NOT_READY: u16 = 14;
/// Rebind protection removed every address (FW43).
pub(crate) const BLOCKED: u16 = 15;
/// The type is withheld (FW45).
pub(crate) const FILTERED: u16 = 17;
/// The client is not in the list of those that may ask (N7).
pub(crate) const PROHIBITED: u16 = 18;
/// As [`STALE_ANSWER`], of a name that did not exist.
pub(crate) const STALE_NXDOMAIN: u16 = 19;
/// The name is not ours, and it cannot or must not be forwarded.
pub(crate) const NOT_AUTHORITATIVE: u16 = 20;
/// A class or type of query that we do not serve (N8).
pub(crate) const NOT_SUPPORTED: u16 = 21;
