//! The language people write to ClusterDNS in, and what it means.
//!
//! [`v1alpha1::ClusterDNS`] is what people write; [`check()`] turns its spec into a [`Config`], which is what a data plane
//! runs: typed, versioned, with a content revision.

// Others build on this package: everything that they see says what it is.
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::unused_async)]
#![warn(clippy::semicolon_if_nothing_returned, clippy::redundant_closure_for_method_calls)]
#![warn(clippy::implicit_clone)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::unchecked_time_subtraction))]

pub mod v1alpha1;
pub mod defaults;
pub mod bounds;
pub mod names;
pub mod rrtype;
pub mod rcode;
pub mod between_planes;
pub mod image;
mod punycode;
pub mod check;
pub mod without_effect;
pub mod config;
pub mod document;
pub mod manifest;

pub use check::{check, check_config, check_local, check_resource, check_update};
pub use config::Config;
pub use v1alpha1::{ClusterDNS, ClusterDNSSpec};

/// The API group of every resource of ours.
pub const GROUP: &str = "clusterdns.dev";
