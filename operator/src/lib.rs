//! The operator: ClusterDNS in, objects out, status back. It is never on the query path.
//!
//! [`reconcile::reconcile`] is the whole flow: `observe → ask_pods → check → decide → desired → apply → report`. Each stage
//! is a module here, except `check`, which is [`crds::check_resource`]. `observe`, `ask_pods`, `apply` and `report` talk to
//! the API server or to pods; `decide` and `desired` are pure: the time is an argument.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::unused_async)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::unchecked_time_subtraction))]
#![cfg_attr(not(test), warn(clippy::cloned_instead_of_copied, clippy::implicit_clone))]
#![cfg_attr(not(test), warn(clippy::manual_let_else, clippy::inefficient_to_string))]

pub mod args;
pub mod settings;
pub mod controller;
pub mod reconcile;
pub mod context;
pub mod observe;
pub mod ask_pods;
pub mod decide;
pub mod desired;
pub mod apply;
pub mod report;
pub mod lost_pods;
pub mod runtime;
pub mod offline;
pub mod import;
pub mod compare;
pub mod plugin;
pub mod names;
pub mod shortened;
mod printable;
mod output_loss;
#[cfg(test)]
mod fixtures;
