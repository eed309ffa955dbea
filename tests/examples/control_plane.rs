//! Starts the tests' control plane and keeps it until Ctrl-C, for trying things by hand:
//!
//!     cargo run -p tests --example control_plane
//!     KUBECONFIG=... kubectl get services -A
#![allow(clippy::print_stdout, reason = "a program that people run")]

use tests::control_plane::{ControlPlane, Setup};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return Ok(()) };
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    tokio::signal::ctrl_c().await
}
