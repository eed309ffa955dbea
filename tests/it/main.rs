//! Ring 1: promises kept in process and over loopback sockets. Needs nothing but this machine.

mod architecture;
mod argo_cd;
mod canary;
mod charts;
mod counters;
mod desired;
mod explain;
mod fields;
mod forward;
mod image;
mod import;
#[cfg(target_os = "linux")]
mod load;
mod metrics;
mod offline;
mod release;
mod rotation;
mod rows;
mod scenarios;
mod sizes;
mod snapshot;
mod tcp;
mod wire;
