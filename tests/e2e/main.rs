//! Against a real API server: one program, so that the tests that do not break it share one.

mod api_faults;
mod api_objects;
mod api_rbac;
mod api_scenarios;
mod api_start;
mod control_plane;
mod crd;
mod fault_proxy;
