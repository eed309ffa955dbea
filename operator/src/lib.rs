//! The operator: ClusterDNS in, objects out, status back. It is never on the query path.
//!
//! `observe → check → admit → plan → desire → apply → report`: [`observed`] is what the API server and the pods show,
//! [`plan`] what was decided from it, [`desired`] the objects that follow. Everything between observing and applying is
//! pure: it is given `now`.

pub mod admit;
pub mod adoption;
pub mod answers;
pub mod apply;
pub mod args;
pub mod cluster;
pub mod compare;
pub mod context;
pub mod controller;
pub mod decide;
pub mod desired;
pub mod events;
#[cfg(test)]
mod fixtures;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod news;
pub mod observe;
pub mod observed;
pub mod offline;
pub mod plan;
pub mod pods;
pub mod probes;
pub mod read;
pub mod report;
pub mod resources;
pub mod rollout;
pub mod scale;
pub mod settings;
pub mod status;
pub mod telemetry;
pub mod text;
pub mod write;
