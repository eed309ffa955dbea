//! The control plane that is started here: which programs, with which flags, in which order, and when it is ready.

mod flags;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::Request;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use socket2::{Domain, Socket, Type};

use super::authority::Authority;
use super::programs::{Programs, path_of};
use super::{Setup, client_config, kubeconfig};
use crate::netns::{API_SERVER_ADDRESS, NODE_ADDRESS};
use crate::process::Process;
use crate::scratch::Scratch;

/// Static tokens: the users of an API server that only this machine reaches. Token, user, uid, groups.
const TOKENS: &str = "admin-token,admin,1,system:masters\n\
                      controller-manager-token,system:kube-controller-manager,2\n\
                      scheduler-token,system:kube-scheduler,3\n\
                      kube-proxy-token,system:kube-proxy,5\n\
                      node-1-token,system:node:node-1,11,system:nodes\n\
                      node-2-token,system:node:node-2,12,system:nodes\n\
                      node-3-token,system:node:node-3,13,system:nodes\n\
                      node-4-token,system:node:node-4,14,system:nodes\n";
/// One more token, which tests replace; a file holds the current one.
pub(super) const REPLACED_TOKEN: &str = "replaced.token";
/// Takes 3 s on two idle cores; ten times that and more when many tests start at once.
const READY_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// These programs collect garbage four times as rarely as by default, while memory is below 1 GiB: it is a fifth of their
/// processor time, and an API server takes 480 MiB instead of 360 (450 lists, 2026).
const RARE_GARBAGE_COLLECTION: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "1GiB")];

/// The running programs. Fields are dropped in order: what depends on something ends before it.
#[derive(Debug)]
pub(super) struct Ours {
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Option<Process>,
    etcd: Process,
    programs: Programs,
    setup: Setup,
    directory: PathBuf,
    kubeconfig: PathBuf,
    address: SocketAddr,
    renewals: u32,
    _port: Socket,
}

impl Ours {
    pub(super) async fn start(
        programs: Programs,
        setup: Setup,
        scratch: &Scratch,
    ) -> anyhow::Result<Ours> {
        let (port, address) = reserve_port(setup.listen)?;
        let kubeconfig = write_credentials(scratch, address)?;
        let directory = scratch.path().to_owned();
        let etcd = start_program(&programs.etcd, &flags::etcd(), &directory)?;
        let mut ours = Ours {
            scheduler: None,
            controller_manager: None,
            api_server: None,
            etcd,
            programs,
            setup,
            directory,
            kubeconfig,
            address,
            renewals: 0,
            _port: port,
        };
        ours.start_api_server().await?;
        if ours.setup.controllers {
            ours.start_controller_manager().await?;
        }
        if ours.setup.real_nodes {
            let scheduler =
                Process::start(&path_of("kube-scheduler"), &flags::SCHEDULER, &ours.directory)?;
            ours.scheduler = Some(scheduler);
        }
        Ok(ours)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn has_controllers(&self) -> bool {
        self.setup.controllers
    }

    pub(super) fn stop_api_server(&mut self) {
        if let Some(mut api_server) = self.api_server.take() {
            api_server.stop();
        }
    }

    pub(super) async fn start_api_server(&mut self) -> anyhow::Result<()> {
        let flags = flags::api_server(self.address, &self.setup);
        let mut api_server = start_program(&self.programs.api_server, &flags, &self.directory)?;
        let client = self.client().await?;
        let deadline = Instant::now() + READY_WITHIN;
        while !is_ready(&client).await {
            self.etcd.ensure_running()?;
            api_server.ensure_running()?;
            anyhow::ensure!(
                Instant::now() < deadline,
                "not ready in time; {}",
                api_server.log_tail()
            );
            tokio::time::sleep(POLL).await;
        }
        self.api_server = Some(api_server);
        Ok(())
    }

    /// No octet is written while etcd is stopped, and what it has written lies in order: as after a crash of it.
    pub(super) fn save_etcd(&mut self, to: &Path) -> anyhow::Result<()> {
        self.etcd.pause();
        let copied = copy(&self.directory.join(flags::ETCD_DATA), to);
        self.etcd.resume();
        copied
    }

    pub(super) async fn restore_etcd(&mut self, from: &Path) -> anyhow::Result<()> {
        self.stop_api_server();
        self.etcd.stop();
        let data = self.directory.join(flags::ETCD_DATA);
        std::fs::remove_dir_all(&data)?;
        copy(from, &data)?;
        self.etcd = start_program(&self.programs.etcd, &flags::etcd(), &self.directory)?;
        self.start_api_server().await
    }

    /// Another serving certificate, by another authority, and another token; the API server starts again with them.
    /// Every file that clients read is there already when it does.
    pub(super) async fn renew_credentials(&mut self, scratch: &Scratch) -> anyhow::Result<()> {
        self.stop_api_server();
        write_authority(scratch)?;
        self.renewals += 1;
        write_tokens(scratch, self.renewals)?;
        self.start_api_server().await
    }

    /// Ready when it has made the first ServiceAccount: without one no Pod can be created.
    async fn start_controller_manager(&mut self) -> anyhow::Result<()> {
        let program = &self.programs.controller_manager;
        let flags = flags::controller_manager(self.setup.real_nodes);
        let mut controller_manager = start_program(program, &flags, &self.directory)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        let deadline = Instant::now() + READY_WITHIN;
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            controller_manager.ensure_running()?;
            anyhow::ensure!(
                Instant::now() < deadline,
                "not ready in time; {}",
                controller_manager.log_tail()
            );
            tokio::time::sleep(POLL).await;
        }
        self.controller_manager = Some(controller_manager);
        Ok(())
    }

    async fn client(&self) -> anyhow::Result<kube::Client> {
        Ok(kube::Client::try_from(client_config(&self.kubeconfig).await?)?)
    }
}

fn start_program(program: &Path, flags: &[String], directory: &Path) -> anyhow::Result<Process> {
    Process::start_with(program, flags, &RARE_GARBAGE_COLLECTION, directory)
}

/// Copies a folder with everything in it; holes stay holes.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let output = Command::new("cp").args(["-a", "--sparse=always"]).args([from, to]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "cp: {errors}");
    Ok(())
}

/// A free port that stays ours, also while no API server runs: bound here with SO_REUSEPORT and never listened on,
/// so that every connection goes to the API server, which shares it with `--permit-port-sharing`.
fn reserve_port(on: IpAddr) -> anyhow::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::from((on, 0)).into())?;
    let bound = socket.local_addr()?.as_socket().context("an IPv4 socket has an address")?;
    // Its own clients use loopback, wherever else it listens.
    Ok((socket, SocketAddr::from((Ipv4Addr::LOCALHOST, bound.port()))))
}

/// Writes keys, certificates, tokens and a kubeconfig for each program; returns the one with every right.
fn write_credentials(scratch: &Scratch, address: SocketAddr) -> anyhow::Result<PathBuf> {
    let accounts = rcgen::KeyPair::generate()?;
    let authority_file = write_authority(scratch)?;
    write_tokens(scratch, 0)?;
    scratch.write("accounts.pub", accounts.public_key_pem())?;
    scratch.write("accounts.key", accounts.serialize_pem())?;
    let cluster = kubeconfig::cluster(&format!("https://{address}"), &authority_file);
    let write = |user: &str| {
        let document = kubeconfig::document(&cluster, Some(&format!("{user}-token")));
        scratch.write(&format!("{user}.kubeconfig"), document)
    };
    write("controller-manager")?;
    write("scheduler")?;
    Ok(write("admin")?)
}

/// An authority, and a serving certificate by it; returns what clients read.
fn write_authority(scratch: &Scratch) -> anyhow::Result<PathBuf> {
    let authority = Authority::new("control plane under test")?;
    let server = authority.issue(&[
        "127.0.0.1",
        "localhost",
        "kubernetes.default.svc",
        API_SERVER_ADDRESS,
        NODE_ADDRESS,
    ])?;
    scratch.write("server.pem", server.certificate.pem())?;
    scratch.write("server.key", server.key.serialize_pem())?;
    Ok(scratch.write("ca.pem", authority.pem())?)
}

fn write_tokens(scratch: &Scratch, renewals: u32) -> anyhow::Result<()> {
    let replaced = format!("replaced-token-{renewals}");
    scratch.write("tokens.csv", format!("{TOKENS}{replaced},replaced,6,system:masters\n"))?;
    scratch.write(REPLACED_TOKEN, replaced)?;
    Ok(())
}

/// The API server makes its own Service some time after it says that it is ready; what lists Services counts on it.
async fn is_ready(client: &kube::Client) -> bool {
    let own_service = "/api/v1/namespaces/default/services/kubernetes";
    for path in ["/readyz", own_service] {
        let request = Request::get(path).body(Vec::new()).expect("a well-formed request");
        if client.request_text(request).await.is_err() {
            return false;
        }
    }
    true
}
