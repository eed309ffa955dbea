//! Promises kept between the packages: the harness that the tests of all rings share.

pub mod client;
pub mod control_plane;
pub mod crd;
pub mod fault_proxy;
pub mod fuzzing;
pub mod live;
pub mod mutate;
pub mod objects;
pub mod oracle;
pub mod process;
pub mod scenario;
pub mod scratch;
pub mod upstream;
