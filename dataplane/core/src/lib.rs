//! All DNS decisions of the data plane: no I/O, no clock, no unsafe, no runtime.
//!
//! Kubernetes objects go in as [`Change`]s to the [`Index`], which publishes immutable [`Records`];
//! [`respond`] turns one query and one `Records` into an [`Action`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
// Others build on this package: everything that they see says what it is.
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
// An index that is wrong is a panic. Each file that uses indices says why its own are right.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
// Without the standard library there is no socket, file, clock, thread or lock to use by mistake.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

// In reading order: what goes in,
mod object;
mod settings;

// how it is held,
mod index;
mod records;
mod trees;

// what a query is and what becomes of it,
mod decide;
mod relay;
mod wire;

// and what all of them use.
mod counters;
mod identity;
mod random;
mod steps;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod testing;

pub use counters::{CacheCounters, Counters, QuestionType, Reason, ServerCounters, WorkerCounters};
pub use decide::ahead::{Ahead, AheadRoom};
pub use decide::loop_probe::is_loop_answer;
pub use decide::resolution::{Resolution, Step, Surroundings};
pub use decide::respond::{Action, Forward, Waiting, respond};
pub use decide::trace::{Hop, Place, Rule, Source, trace};
pub use identity::Identity;
pub use index::reads::{KeptAs, Reads, Relist};
pub use index::{Applied, Export, Identified, Index};
pub use object::{
    Change, Endpoint, Key, Namespace, Object, Pod, Problem, Protocol, Resource, Service,
    ServiceKind, ServicePort, Slice, SlicePort, TargetRef,
};
pub use records::{DataSource, Records};
pub use relay::cache::{Age, CLIENT_TIMER_MS, CacheAction, CacheRules, cache_action, lifetime_s};
pub use relay::{
    Alias, Cnames, Discard, ErrorCodes, Freshness, LookupKey, OwnRanges, OwnedHead, QueryForm,
    RelayError, Relayed, ReplyForm, ReplyHead, TtlCaps, Unusable, UpstreamQuery, Verdict, Written,
    write_chain,
};
pub use settings::{
    EndpointNames, Exposure, ExtraData, ExtraRecord, Federation, PodRecords, Requirement, Selector,
    SelectorOperator, ServiceAddresses, Settings, SrvData,
};
#[cfg(feature = "steps")]
pub use steps::count_steps;
pub use wire::dname::Dname;
pub use wire::encrypted::{has_keepalive, max_age_s, pad, wants_padding};
pub use wire::message::{Query, Transport};
pub use wire::name::{Name, NameError};
