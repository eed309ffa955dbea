//! Promises kept between the packages: the harness that the tests of all rings share.

pub mod client;
pub mod control_plane;
pub mod crd;
pub mod fault_proxy;
pub mod fuzzing;
pub mod golden;
pub mod helm;
pub mod kubelet;
pub mod live;
pub mod mutate;
pub mod netns;
pub mod objects;
pub mod oracle;
pub mod process;
pub mod scenario;
pub mod scratch;
pub mod scripted_api;
pub mod snapshot_file;
pub mod upstream;
