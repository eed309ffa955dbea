//! A real Kubernetes control plane for one test: etcd, kube-apiserver and, unless not wanted,
//! kube-controller-manager, on loopback, with certificates of its own, which starts in seconds and ends with the test.
//!
//! `CLUSTERDNS_TEST_KUBECONFIG=FILE` lets the same tests run against any other cluster; only those that must stop or
//! configure the API server still start their own.

pub(crate) mod programs;
mod ours;
pub(crate) mod authority;
pub(crate) mod kubeconfig;
mod namespace;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::sync::OnceCell;

use crate::scratch::Scratch;
pub use namespace::TestNamespace;
use ours::Ours;
use programs::Programs;
pub use programs::{is_before, not_allowed, not_installed, not_run, path_of};

/// Names a cluster to test against instead of starting one.
pub const GIVEN_CLUSTER: &str = "CLUSTERDNS_TEST_KUBECONFIG";

/// What a control plane started here consists of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whether kube-controller-manager runs: without it no EndpointSlices, ServiceAccounts (so no Pods) or
    /// garbage collection come by themselves, and the start takes 3 s instead of 8.
    pub controllers: bool,
    /// Whether kubelets run: then kube-scheduler gives them pods, and the controllers run that give up a silent node.
    pub real_nodes: bool,
    /// More flags for kube-apiserver, such as `--feature-gates=WatchList=false`.
    pub api_server_flags: Vec<String>,
    /// Where kube-apiserver listens: loopback, unless pods with networks of their own must reach it.
    pub listen: IpAddr,
}

impl Default for Setup {
    fn default() -> Setup {
        let listen = Ipv4Addr::LOCALHOST.into();
        Setup { controllers: true, real_nodes: false, api_server_flags: Vec::new(), listen }
    }
}

impl Setup {
    /// One that the pods of [`crate::kubelet`] reach at 10.96.0.1. Only [`inside`](crate::netns::inside) a network
    /// namespace, where "every address" belongs to this test.
    pub fn for_pods() -> Setup {
        Setup { listen: Ipv4Addr::UNSPECIFIED.into(), ..Setup::default() }
    }
}

/// A cluster to test against; one that was started here ends when this is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    kubeconfig: PathBuf,
    ours: Option<Ours>,
    scratch: Scratch,
}

impl ControlPlane {
    /// The cluster that `CLUSTERDNS_TEST_KUBECONFIG` names, or one with controllers that this test process starts
    /// once: for tests that keep to a [`ControlPlane::namespace`] of their own.
    ///
    /// None when the programs have not been built: this is printed, and the test returns. With CI set it panics.
    pub async fn shared() -> Option<&'static ControlPlane> {
        // Never dropped; it still ends with the process, see `Process`.
        static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
        let shared = SHARED.get_or_init(async || match std::env::var_os(GIVEN_CLUSTER) {
            Some(kubeconfig) => Some(ControlPlane::given(kubeconfig.into())),
            None => ControlPlane::start_if_built(Setup::default()).await,
        });
        match shared.await {
            Some(plane) => Some(plane),
            None => {
                programs::report_not_run();
                None
            }
        }
    }

    /// One started now, also if the environment names a cluster: for tests that need it set up so, or break it.
    ///
    /// None as with [`ControlPlane::shared`].
    pub async fn start(setup: Setup) -> Option<ControlPlane> {
        let started = ControlPlane::start_if_built(setup).await;
        if started.is_none() {
            programs::report_not_run();
        }
        started
    }

    async fn start_if_built(setup: Setup) -> Option<ControlPlane> {
        let programs = Programs::find()?;
        let scratch = Scratch::new("control-plane").expect("a scratch directory");
        let ours = match Ours::start(programs, setup, &scratch).await {
            Ok(ours) => ours,
            Err(error) => panic!("the control plane did not start: {error:#}"),
        };
        Some(ControlPlane { kubeconfig: ours.kubeconfig().to_owned(), ours: Some(ours), scratch })
    }

    fn given(kubeconfig: PathBuf) -> ControlPlane {
        let scratch = Scratch::new("control-plane").expect("a scratch directory");
        ControlPlane { kubeconfig, ours: None, scratch }
    }

    /// A kubeconfig file with every right.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig with this bearer token, for a program that has the API server at this address of [`Setup::listen`].
    pub fn kubeconfig_at(&self, address: &str, token: &str) -> String {
        let mut cluster =
            kubeconfig::cluster_of(&self.kubeconfig).expect("the kubeconfig names a cluster");
        cluster["server"] = format!("https://{address}:{}", self.port()).into();
        kubeconfig::document(&cluster, Some(token))
    }

    /// A kubeconfig file with this bearer token.
    pub fn kubeconfig_with_token(&self, token: &str) -> PathBuf {
        let cluster =
            kubeconfig::cluster_of(&self.kubeconfig).expect("the kubeconfig names a cluster");
        let name = format!("token-{:x}.kubeconfig", fingerprint(token));
        self.scratch
            .write(&name, kubeconfig::document(&cluster, Some(token)))
            .expect("the scratch directory is ours")
    }

    /// A kubeconfig file that names a file with a token, which [`ControlPlane::renew_credentials`] replaces.
    pub fn kubeconfig_with_token_file(&self) -> PathBuf {
        let cluster =
            kubeconfig::cluster_of(&self.kubeconfig).expect("the kubeconfig names a cluster");
        let file = self.scratch.path().join(ours::REPLACED_TOKEN);
        let document = kubeconfig::document_with_token_file(&cluster, &file);
        self.scratch
            .write("token-file.kubeconfig", document)
            .expect("the scratch directory is ours")
    }

    /// A client with every right.
    pub async fn client(&self) -> kube::Client {
        client(&self.kubeconfig).await
    }

    /// Ends the API server, as in an outage. It keeps its address for [`ControlPlane::start_api_server`].
    pub fn stop_api_server(&mut self) {
        self.ours_or_panic().stop_api_server();
    }

    /// Starts it again on the same address and data; returns when it is ready.
    pub async fn start_api_server(&mut self) {
        let started = self.ours_or_panic().start_api_server().await;
        started.unwrap_or_else(|error| panic!("the API server did not start again: {error:#}"));
    }

    /// Copies the data of etcd into this folder, which is new. etcd stops meanwhile, so that the copy is of one moment.
    pub fn save_etcd(&mut self, to: &Path) {
        let saved = self.ours_or_panic().save_etcd(to);
        saved.unwrap_or_else(|error| panic!("the data of etcd cannot be copied: {error:#}"));
    }

    /// Puts such a copy in place of the data of etcd, as from a backup: every version goes back. etcd and the API server
    /// start again; returns when they are ready.
    pub async fn restore_etcd(&mut self, from: &Path) {
        let restored = self.ours_or_panic().restore_etcd(from).await;
        restored.unwrap_or_else(|error| panic!("etcd did not start with older data: {error:#}"));
    }

    /// The port of its API server, on every address it listens on.
    pub fn port(&self) -> u16 {
        self.ours.as_ref().expect("a control plane from `start`").port()
    }

    /// Replaces what the API server and its clients know each other by: its certificate, the authority behind it, and
    /// the token in [`ControlPlane::kubeconfig_with_token_file`]. Returns when it is ready again.
    pub async fn renew_credentials(&mut self) {
        let ours = self.ours.as_mut().expect("only a control plane from `start` can be changed");
        let renewed = ours.renew_credentials(&self.scratch).await;
        renewed.unwrap_or_else(|error| panic!("the API server did not start again: {error:#}"));
    }

    fn is_given(&self) -> bool {
        self.ours.is_none()
    }

    fn has_controllers(&self) -> bool {
        self.ours.as_ref().is_none_or(Ours::has_controllers)
    }

    fn ours_or_panic(&mut self) -> &mut Ours {
        self.ours.as_mut().expect("only a control plane from `start` can be stopped")
    }
}

/// A client for what a kubeconfig file names.
pub async fn client(kubeconfig: &Path) -> kube::Client {
    let config = client_config(kubeconfig)
        .await
        .unwrap_or_else(|error| panic!("{}: {error:#}", kubeconfig.display()));
    kube::Client::try_from(config).expect("a client for this configuration")
}

/// The configuration of such a client. Failures reach the test at once instead of being retried for minutes.
pub(crate) async fn client_config(kubeconfig: &Path) -> anyhow::Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(config)
}

/// Enough to keep files of different tokens apart.
fn fingerprint(token: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    token.hash(&mut hasher);
    hasher.finish()
}
