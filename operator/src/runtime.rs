//! What the process needs for every decision: the connection to the API server, the right to write, and what is shown of it.

pub mod shutdown;
mod renewal;
pub mod client;
pub mod patience;
mod managed_fields;
mod mend;
pub mod decode;
pub mod resources;
pub mod time_limit;
pub mod refusals;
pub mod write;
pub mod lease;
pub mod http;
pub mod metrics;
pub mod restored;
pub mod telemetry;
pub mod critical_tasks;
