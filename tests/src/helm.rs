//! The real helm and kubectl against one cluster, with homes of their own: no repository, plugin or cache of the
//! machine is read or written.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::control_plane::path_of;
use crate::control_plane::programs::not_run;
use crate::scratch::Scratch;

/// Generous: on a busy machine the API server is slow.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(50);

/// helm and kubectl for one kubeconfig.
#[derive(Debug)]
pub struct Tools {
    helm: PathBuf,
    kubectl: PathBuf,
    kubeconfig: Option<PathBuf>,
    home: Scratch,
}

/// What a program printed, and whether it succeeded.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Exit code 0.
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Tools {
    /// With every right that the kubeconfig gives. None when they have not been built; this is printed.
    pub fn new(kubeconfig: &Path) -> Option<Tools> {
        Tools::find(Some(kubeconfig.to_owned()))
    }

    /// For `helm template`, `helm lint` and the like, which need no cluster.
    pub fn offline() -> Option<Tools> {
        Tools::find(None)
    }

    fn find(kubeconfig: Option<PathBuf>) -> Option<Tools> {
        let (helm, kubectl) = (path_of("helm"), path_of("kubectl"));
        if !helm.exists() || !kubectl.exists() {
            not_run("helm and kubectl; `make tools` builds both");
            return None;
        }
        let home = Scratch::new("helm").expect("a scratch directory");
        Some(Tools { helm, kubectl, kubeconfig, home })
    }

    /// The chart of this repository.
    pub fn chart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/clusterdns")
    }

    /// Where to write files for them, such as values.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Runs helm; blocks until it ends.
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        self.run(&self.helm, arguments)
    }

    /// Runs kubectl; blocks until it ends.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        self.run(&self.kubectl, arguments)
    }

    /// `kubectl apply --server-side` of a text with any number of documents.
    pub fn apply(&self, documents: &str) -> Ran {
        let file = self.home.write("apply.yaml", documents).expect("the folder is ours");
        let arguments = ["apply", "--server-side", "--filename"];
        self.kubectl(&[&arguments.map(OsStr::new)[..], &[file.as_os_str()]].concat())
    }

    /// Returns when the API server serves this kind, `crd/NAME`. `kubectl wait` is not asked for it: it fails at once
    /// where the CustomResourceDefinition has no status yet, as on a busy machine.
    ///
    /// # Panics
    /// When it takes longer than anything but a broken API server does.
    #[track_caller]
    pub fn wait_until_established(&self, crd: &str) {
        let path = r#"--output=jsonpath={.status.conditions[?(@.type=="Established")].status}"#;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = self.kubectl(&["get", crd, path]);
            if asked.success && asked.stdout == "True" {
                return;
            }
            assert!(Instant::now() < deadline, "{crd} is not established: {asked:?}");
            std::thread::sleep(POLL);
        }
    }

    fn run<A: AsRef<OsStr>>(&self, program: &Path, arguments: &[A]) -> Ran {
        let home = self.home.path();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(home).env("HOME", home);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, home.join(name));
        }
        for name in ["HELM_NAMESPACE", "HELM_KUBECONTEXT", "HELM_DRIVER", "HELM_PLUGINS"] {
            command.env_remove(name);
        }
        // A file that does not exist, so that neither program uses a cluster of the machine.
        let none = home.join("no-kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_deref().unwrap_or(&none));
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Ran {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Its standard output.
    ///
    /// # Panics
    /// With everything it printed, when it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success, "it failed\n{}\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Its standard error.
    ///
    /// # Panics
    /// When it succeeded.
    #[track_caller]
    pub fn refused(self) -> String {
        assert!(!self.success, "it succeeded\n{}\n{}", self.stdout, self.stderr);
        self.stderr
    }
}
