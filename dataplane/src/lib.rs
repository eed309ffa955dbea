//! The process that serves: objects from a source, records in memory, answers on sockets.
//!
//! The modules in reading order: how the process starts and ends, where objects come from, what is published of
//! them, how queries are answered from that, and what people see of it all.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
#![warn(clippy::explicit_iter_loop, clippy::cloned_instead_of_copied, clippy::implicit_clone)]
#![warn(clippy::wildcard_imports, clippy::unused_async)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(not(test), warn(clippy::manual_let_else, clippy::inefficient_to_string))]

pub mod args;
pub mod drain;
pub mod background;
pub mod first_thread;
mod restarting;

pub mod source;
pub mod settings;
pub mod snapshot;
pub mod inspection;
pub mod state;

pub mod serve;
pub mod listeners;
pub mod forward;
mod quic_sockets;
pub mod origin;
pub mod rcode;
pub use crds::rrtype;
pub mod identity;
pub mod names;
pub mod explain;

pub mod status;
pub mod readiness;
pub mod http_port;
pub mod metrics;
pub mod sidecar_probe;
pub mod kube_dns;
pub mod taps;
pub mod telemetry;
