//! A scenario's objects in the program `clusterdns-dataplane`, a process of its own: what a release gives people. The
//! program may be a given one, started by a given runner (see [`crate::kubelet::command`]).

use anyhow::Result;
use serde_json::Value;

use super::plane::{self, Upstreams};
use super::{Outcome, upstreams};
use crate::client::{Names, Transport};
use crate::data_plane::DataPlane;
use crate::in_process::identity;
use crate::scratch::Scratch;

/// A data plane that ends when dropped. Fields are dropped in order.
#[derive(Debug)]
pub struct Program {
    data_plane: DataPlane,
    upstreams: Upstreams,
    names: Names,
    _manifests: Scratch,
}

impl Program {
    /// Serves the objects from a folder of manifests.
    ///
    /// # Errors
    /// An upstream has no script, or loopback has no free port.
    ///
    /// # Panics
    /// The program does not start.
    pub fn start(from: &[Value]) -> Result<Program> {
        let upstreams = upstreams(from)?;
        let manifests = Scratch::new("program")?;
        plane::write(&manifests, from.to_vec(), &upstreams)?;
        let mut names = Names::of(&identity());
        // The version is that of the program; the pod's name is the one that it is given.
        env!("CARGO_PKG_VERSION").clone_into(&mut names.version);
        let flags = ["--pod-name", &names.pod_name];
        let data_plane = DataPlane::of_manifests_with(manifests.path(), &flags);
        data_plane.wait_until_ready();
        Ok(Program { data_plane, upstreams, names, _manifests: manifests })
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Asks one question; `silence` says that no reply is expected.
    ///
    /// # Errors
    /// The sockets fail, or an expected reply does not come.
    pub fn ask(&self, packet: &[u8], over: Transport, silence: bool) -> Result<Outcome> {
        plane::ask(self.data_plane.address(), &self.upstreams, packet, over, silence)
    }
}
