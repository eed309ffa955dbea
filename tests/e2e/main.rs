//! Against a real API server: one program, so that the tests that do not break it share one.

mod api_faults;
mod api_golden;
mod api_golden_changes;
mod api_load;
mod api_objects;
mod api_process;
mod api_rbac;
mod api_scenarios;
mod api_scripted;
mod api_servers;
mod api_start;
mod control_plane;
mod crd;
mod fault_proxy;
mod helm;
mod kubelet;
