//! Promises kept between the packages: the harness that all tests share.

pub mod argo_cd;
pub mod client;
pub mod cluster;
pub mod control_plane;
pub mod crd;
pub mod data_plane;
pub mod fault_proxy;
pub mod fuzzing;
pub mod golden;
pub mod helm;
pub mod http;
mod in_process;
pub mod kstatus;
pub mod kubelet;
pub mod largest;
#[cfg(target_os = "linux")]
pub mod load;
pub mod live;
pub mod metrics_api;
pub mod mutate;
pub mod netns;
pub mod node;
pub mod objects;
pub mod operator;
pub mod oracle;
pub mod port_forward;
pub mod process;
pub mod scale;
pub mod scenario;
pub mod scratch;
pub mod scripted_api;
pub mod snapshot_file;
#[cfg(target_os = "linux")]
pub mod soak;
pub mod upstream;
pub mod usage;
