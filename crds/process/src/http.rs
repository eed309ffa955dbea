//! The port of HTTP: opened on every address of the pod, and served in bounds (L14).

mod bind;
mod connections;
mod begun_request;
mod places;
mod rebinding;

pub use bind::{bind, candidates};
pub use connections::{Client, refusals, serve};
