//! The process that serves: objects from a source, records in memory, answers on sockets.

pub mod args;
pub mod drain;
pub mod forward;
pub mod histogram;
pub mod identity;
pub mod listeners;
pub mod metrics;
pub mod names;
pub mod origin;
pub mod probes;
pub mod rcode;
pub mod serve;
pub mod settings;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod status;
pub mod telemetry;
