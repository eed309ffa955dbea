//! Promises kept in process and over loopback sockets. These tests need nothing but this machine.

mod wire;
mod tcp;
mod scenarios;
mod rotation;
mod rows;
mod tenants;
mod snapshot;
mod edits;
mod folder_memory;
mod forward;
mod counters;
mod metrics;
mod explain;
mod fields;
mod desired;
mod canary;
mod compare;
mod offline;
mod import;
mod plugin;
mod charts;
mod argo_cd;
mod architecture;
mod sizes;
mod image;
mod release;
mod advisories;
mod help;
mod log_lines;
#[cfg(target_os = "linux")]
mod restarts;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod large_pages;
mod memory_limit;
