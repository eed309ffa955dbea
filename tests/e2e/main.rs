//! Against a real API server: one program, so that the tests that do not break it share one.

mod control_plane;
mod crd;
mod fault_proxy;
