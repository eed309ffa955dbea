//! The images that the DNS tests of Kubernetes start, under the names that the pinned tests expect. Elsewhere they are pulled
//! from a registry; here they are made of the pinned sources and of programs of this machine.
//!
//! One thing differs from the published images: `dig` and `getent` of agnhost are Debian's, with glibc, where Alpine's are made
//! with musl. What is asked is the same.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::{BUSYBOX_PROGRAM, Root, libraries};
use crate::control_plane::path_of;

/// Kubernetes' own test program, with a shell, `dig` and CoreDNS, which some tests use as an upstream server.
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";
/// Clients that resolve with glibc.
pub const GLIBC: &str = "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0";
/// Where the programs of an image are.
const PROGRAMS: &str = "bin";
/// What busybox is called in agnhost.
const APPLETS: [&str; 6] = ["sh", "sleep", "seq", "cat", "test", "hostname"];
/// What the clients of both images ask with.
const CLIENTS: [&str; 2] = ["/usr/bin/dig", "/usr/bin/getent"];
/// The shell of the second image, and what its scripts call.
const SHELL: [&str; 4] = ["/bin/sh", "/usr/bin/seq", "/usr/bin/sleep", "/usr/bin/cat"];

pub(super) fn write(directory: &Path) -> Result<()> {
    let environment = json!(["PATH=/bin"]);

    let agnhost = Root::new(directory, "agnhost")?;
    agnhost.copy(&path_of("agnhost"), Path::new("agnhost"))?;
    agnhost.copy(&path_of("coredns"), Path::new("coredns"))?;
    agnhost.copy(Path::new(BUSYBOX_PROGRAM), &Path::new(PROGRAMS).join("busybox"))?;
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", agnhost.path.join(PROGRAMS).join(applet))?;
    }
    with_clients(&agnhost, &CLIENTS)?;
    let config = json!({"Entrypoint": ["/agnhost"], "Cmd": ["pause"], "Env": environment});
    agnhost.pack(AGNHOST, &config)?;

    let glibc = Root::new(directory, "glibc-dns-testing")?;
    with_clients(&glibc, &CLIENTS)?;
    with_clients(&glibc, &SHELL)?;
    glibc.pack(GLIBC, &json!({"Cmd": ["/bin/sh"], "Env": environment}))
}

/// Programs of this machine with the libraries that they load, and the file that says how names are resolved.
fn with_clients(root: &Root, programs: &[&str]) -> Result<()> {
    for program in programs.iter().map(Path::new) {
        for library in libraries(program)? {
            root.copy(&library, library.strip_prefix("/")?)?;
        }
        let name = program.file_name().unwrap_or_default();
        root.copy(program, &Path::new(PROGRAMS).join(name))?;
    }
    for folder in ["etc", "tmp"] {
        fs::create_dir_all(root.path.join(folder))?;
    }
    fs::write(root.path.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    Ok(())
}
