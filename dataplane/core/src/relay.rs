//! Between client and upstream: the query we send, which replies we believe, what of them the client gets (docs/dns.md
//! §3.5, §5, §6.1-§6.4). Plain functions over octets: no socket, clock or randomness.
//!
//! `respond` gives a [`LookupKey`], which is what to ask and what lookups and cached replies are found by, and a
//! [`ReplyHead`], which is what this client's reply needs. The forwarder sends [`LookupKey::upstream_query`], shows every
//! message that comes back to [`LookupKey::judge`], and answers each client with [`Relayed::write`] or
//! [`ReplyHead::fail`].

// What to ask: the key of a lookup, and the query made of it.
mod key;
mod query;

// What came back: read, judged, and what of it may be relayed.
mod errors;
mod judge;
mod work_budget;
mod private_addresses;
mod protect;
mod rdata;
mod read;
mod relayed;
mod select;
mod selected;
mod verdict;

// When a kept reply may be served.
pub(crate) mod cache;

// What the client gets.
mod aliases;
mod compress;
mod head;
mod header;
mod shifted_names;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use aliases::MAX_OWN_CNAMES;
pub use aliases::{Alias, Cnames};
pub use errors::ErrorCodes;
pub(crate) use head::MAX_UDP;
pub use head::{OwnedHead, ReplyForm, ReplyHead, Written};
pub use judge::Verdict;
pub use key::LookupKey;
pub use private_addresses::OwnRanges;
pub use query::{QueryForm, UpstreamQuery};
pub use relayed::{Freshness, Relayed};
pub use select::TtlCaps;
pub use verdict::{Discard, RelayError, Unusable};
pub use write::write_chain;
