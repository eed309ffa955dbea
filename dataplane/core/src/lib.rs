//! All DNS decisions of the data plane: no I/O, no clock, no unsafe, no runtime.
//!
//! Kubernetes objects go in as [`Change`]s to the [`Index`], which publishes immutable [`Records`];
//! [`respond`] turns one query and one `Records` into an [`Action`].

#![forbid(unsafe_code)]

mod address;
mod answer;
mod buckets;
mod cache;
mod chaos;
mod chunks;
mod counters;
mod endpoints;
mod extra;
mod few;
#[cfg(test)]
mod hostile_tests;
mod index;
mod message;
mod name;
mod object;
mod random;
mod reads;
mod records;
mod relay;
mod reply;
mod resolution;
mod respond;
mod reverse;
mod route;
mod schema;
mod settings;
mod slots;
mod steps;
#[cfg(test)]
mod testing;
mod text;
mod zone;

pub use cache::{Age, CacheRules, Decision, decide, lifetime_s};
pub use counters::{CacheCounters, Reason, ServerCounters, WorkerCounters};
pub use index::{Applied, Export, Index};
pub use message::{Query, Transport};
pub use name::{Name, NameError};
pub use object::{
    Change, Endpoint, Key, Namespace, Object, Pod, Problem, Protocol, Resource, Service,
    ServiceKind, ServicePort, Slice, SlicePort, TargetRef,
};
pub use reads::{Reads, Relist};
pub use records::{DataSource, Records};
pub use relay::{
    Cnames, Discard, Freshness, LookupKey, OwnedHead, QueryForm, RelayError, Relayed, ReplyForm,
    ReplyHead, TtlCaps, UpstreamQuery, Verdict, write_chain,
};
pub use resolution::{Resolution, Step, Surroundings};
pub use respond::{Action, Counters, Forward, Identity, Waiting, respond};
pub use settings::{
    EndpointNames, Exposure, ExtraData, ExtraRecord, PodRecords, Requirement, Selector,
    SelectorOperator, ServiceAddresses, Settings, SrvData,
};
#[cfg(feature = "steps")]
pub use steps::count_steps;
