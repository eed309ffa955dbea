//! The images of the node, as tars that containerd imports: our programs as the Dockerfile lays them out, CoreDNS, and
//! busybox, which clients are made of and which holds the network of each Pod. Nothing is pulled from anywhere.
//!
//! Ours has the development build with the libraries that it loads, where the Dockerfile has a static release: that is
//! built already for every other test, where a static one means all dependencies for another target. A release that is
//! given is taken as it is.

mod given;
mod suite;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::control_plane::path_of;
use crate::kubelet::program;
use crate::scratch::Scratch;
pub use given::{Earlier, Release};
pub use suite::{AGNHOST, GLIBC};

/// The image of our programs, without its tag.
pub const OURS_NAME: &str = "clusterdns.test/clusterdns";
pub const OURS_TAG: &str = "node";
/// The tag of the same programs of an earlier commit, where one is given.
pub const EARLIER_TAG: &str = "earlier";
/// An image with a shell and `nslookup`.
pub const BUSYBOX: &str = "clusterdns.test/busybox:1";
/// The DNS server that a cluster has had so far.
pub const COREDNS: &str = "clusterdns.test/coredns:1";
pub(super) const BUSYBOX_PROGRAM: &str = "/usr/bin/busybox";
/// The name of it in the second image.
const APPLETS: [&str; 8] = ["sh", "sleep", "cat", "nslookup", "wget", "id", "ls", "grep"];

/// A folder with a `NAME.image.tar` for each, for all nodes of a test.
#[derive(Debug)]
pub struct Images(Scratch);

impl Images {
    /// # Errors
    /// A program is missing, or does not run.
    pub fn new() -> Result<Images> {
        let scratch = Scratch::new("images")?;
        write(scratch.path(), &path_of("coredns"))?;
        Ok(Images(scratch))
    }

    /// With those that the DNS tests of Kubernetes start.
    ///
    /// # Errors
    /// As [`Images::new`].
    pub fn with_suite() -> Result<Images> {
        let images = Images::new()?;
        suite::write(images.path())?;
        Ok(images)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

fn write(directory: &Path, coredns: &Path) -> Result<()> {
    let old = Root::new(directory, "coredns")?;
    old.copy(coredns, Path::new("coredns"))?;
    old.pack(COREDNS, &json!({"Entrypoint": ["/coredns"]}))?;

    match Release::given() {
        // The machine gives it its name.
        Some(release) => tar(&directory.join("ours.release.image.tar"), &release.image())?,
        None => write_ours(directory, OURS_TAG, program)?,
    }
    if let Some(earlier) = Earlier::given() {
        write_ours(directory, EARLIER_TAG, |name| earlier.program(name))?;
    }

    let busybox = Root::new(directory, "busybox")?;
    busybox.copy(Path::new(BUSYBOX_PROGRAM), Path::new("bin/busybox"))?;
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", busybox.path.join("bin").join(applet))?;
    }
    fs::create_dir(busybox.path.join("etc"))?;
    let path = "PATH=/bin";
    busybox.pack(BUSYBOX, &json!({"Cmd": ["/bin/sleep", "2147483647"], "Env": [path]}))
}

/// The image of our programs, which are where this says.
fn write_ours(directory: &Path, tag: &str, source: impl Fn(&str) -> PathBuf) -> Result<()> {
    let ours = Root::new(directory, &format!("ours-{tag}"))?;
    for name in ["clusterdns-operator", "clusterdns-dataplane"] {
        let source = source(name);
        for library in libraries(&source)? {
            ours.copy(&library, library.strip_prefix("/")?)?;
        }
        // Without what only a debugger reads it is a third of the size.
        let stripped = ours.path.join(name);
        run(
            "strip",
            &[OsStr::new("--strip-debug"), source.as_ref(), "-o".as_ref(), stripped.as_ref()],
        )?;
    }
    let config =
        json!({"User": "65532:65532", "Entrypoint": ["/clusterdns-operator"], "Cmd": ["run"]});
    ours.pack(&format!("{OURS_NAME}:{tag}"), &config)
}

/// The file system of an image to be.
struct Root {
    directory: PathBuf,
    name: String,
    path: PathBuf,
}

impl Root {
    fn new(directory: &Path, name: &str) -> Result<Root> {
        let path = directory.join(format!("{name}.root"));
        fs::create_dir(&path)?;
        Ok(Root { directory: directory.to_owned(), name: name.to_owned(), path })
    }

    fn copy(&self, source: &Path, to: &Path) -> Result<()> {
        let to = self.path.join(to);
        fs::create_dir_all(to.parent().context("a file in a folder")?)?;
        fs::copy(source, &to).with_context(|| source.display().to_string())?;
        Ok(())
    }

    /// One layer, a configuration and the list of both, as `docker save` writes them.
    fn pack(&self, reference: &str, config: &Value) -> Result<()> {
        let folder = self.directory.join(format!("{}.image", self.name));
        fs::create_dir(&folder)?;
        let layer = folder.join("layer.tar");
        tar(&layer, &self.path)?;
        let digest = run("sha256sum", &[layer.as_os_str()])?;
        let digest = digest.split(' ').next().context("a digest")?;
        let config = json!({"architecture": architecture(), "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}});
        fs::write(folder.join("config.json"), config.to_string())?;
        let list =
            json!([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]);
        fs::write(folder.join("manifest.json"), list.to_string())?;
        tar(&self.directory.join(format!("{}.image.tar", self.name)), &folder)
    }
}

fn tar(file: &Path, folder: &Path) -> Result<()> {
    let owners = ["--owner=0", "--group=0", "--create", "--file"].map(OsStr::new);
    let what = [file.as_os_str(), "--directory".as_ref(), folder.as_os_str(), ".".as_ref()];
    run("tar", &[&owners[..], &what[..]].concat())?;
    Ok(())
}

/// Where the loader finds each library of a program, and the loader itself.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = run("ldd", &[program.as_os_str()])?;
    let paths =
        listed.lines().filter_map(|line| line.split_whitespace().find(|it| it.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} {arguments:?}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
