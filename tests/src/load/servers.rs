//! The servers that are measured, each as a process of its own: one thread that answers, no log of queries, the same
//! records, the same upstream. One that is not installed is named and left out.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use operator::desired::LARGE_PAGES;

use super::check::{Expected, Verdict, judge};
use super::fixture::{Fixture, REVERSE_ZONE, ZONE};
use super::processor::Family;
use crate::kubelet::program;
use crate::process::Process;
use crate::scratch::Scratch;

/// Where Debian has servers, which is not in the path of every user.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
/// A hundred thousand Services take some servers that long to read.
const PATIENCE: Duration = Duration::from_secs(180);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Ports tried until one is free for datagrams and streams.
const PORT_ATTEMPTS: usize = 64;

/// A server that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// Sets QR in the query and sends it back.
    Echo,
    /// Flips a bit, over our own socket on the wildcard address.
    EchoPktinfo,
    /// `clusterdns-dataplane`.
    Ours,
    /// Knot DNS with a static zone.
    Knot,
    /// NSD with a static zone.
    Nsd,
    /// dnsmasq with a hosts file.
    Dnsmasq,
    /// Unbound, which only forwards here.
    Unbound,
    /// CoreDNS with its `file` plugin, or forwarding with its cache.
    CoreDns,
    Hickory,
}

impl Peer {
    pub const ALL: [Peer; 9] = [
        Peer::Echo,
        Peer::EchoPktinfo,
        Peer::Ours,
        Peer::Knot,
        Peer::Nsd,
        Peer::Dnsmasq,
        Peer::Unbound,
        Peer::CoreDns,
        Peer::Hickory,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Echo => "echo",
            Peer::EchoPktinfo => "echo, IP_PKTINFO",
            Peer::Ours => "ClusterDNS",
            Peer::Knot => "Knot",
            Peer::Nsd => "NSD",
            Peer::Dnsmasq => "dnsmasq",
            Peer::Unbound => "Unbound",
            Peer::CoreDns => "CoreDNS",
            Peer::Hickory => "hickory-server",
        }
    }

    /// Its program; nothing where it is not installed. `own` is the program that runs the measurement, which is the echo
    /// and hickory-server too.
    pub fn program(self, own: &Path) -> Option<PathBuf> {
        match self {
            Peer::Echo | Peer::EchoPktinfo | Peer::Hickory => Some(own.to_owned()),
            Peer::Ours => Some(program("clusterdns-dataplane")),
            Peer::Knot => installed("knotd"),
            Peer::Nsd => installed("nsd"),
            Peer::Dnsmasq => installed("dnsmasq"),
            Peer::Unbound => installed("unbound"),
            Peer::CoreDns => built("coredns").or_else(|| installed("coredns")),
        }
    }

    /// What it calls its version.
    pub fn version(self, program: &Path) -> String {
        let flag = match self {
            Peer::Echo | Peer::EchoPktinfo => return "of this repository".into(),
            Peer::Hickory => return "hickory-server 0.26".into(),
            Peer::Ours | Peer::Knot | Peer::Dnsmasq => "--version",
            Peer::Nsd => "-v",
            Peer::Unbound => "-V",
            Peer::CoreDns => "-version",
        };
        let Ok(output) = Command::new(program).arg(flag).output() else { return "unknown".into() };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown");
        // dnsmasq names its authors in the same line.
        line.split("  ").next().unwrap_or(line).trim().to_owned()
    }

    /// Arguments that make it answer `dns`, after its files were written to `folder`.
    fn arguments(
        self,
        fixture: &Fixture,
        upstream: SocketAddr,
        dns: SocketAddr,
        tls: Option<SocketAddr>,
        folder: &Scratch,
    ) -> anyhow::Result<Vec<String>> {
        let (dns_text, port, workers) = (dns.to_string(), dns.port(), fixture.shape.workers);
        let (certificate, key) = fixture.certificate_and_key();
        let (certificate, key) = (certificate.display(), key.display());
        let (zone, reverse) = (fixture.zone(), fixture.reverse_zone());
        let (zone, reverse) = (zone.display(), reverse.display());
        let own = folder.path().display();
        let file = |text: String| -> anyhow::Result<String> {
            Ok(folder.write("server.conf", text)?.display().to_string())
        };
        let all: Vec<String> = match self {
            Peer::Echo => words(&["echo", &dns_text, &workers.to_string()]),
            Peer::EchoPktinfo => words(&["echo-pktinfo", &port.to_string()]),
            Peer::Hickory => {
                words(&["hickory", &dns_text, &zone.to_string(), &reverse.to_string()])
            }
            Peer::Ours => {
                let manifests = fixture.manifests().display().to_string();
                let http = free_port()?.to_string();
                let certificates = fixture.certificates().display().to_string();
                let mut all =
                    words(&["--manifests", &manifests, "--workers", &workers.to_string()]);
                all.extend(words(&["--certificates-dir", &certificates]));
                all.extend(words(&["--listen", &dns_text, "--http", &http, "--log-level", "warn"]));
                all
            }
            Peer::Knot => {
                let tls = tls.map_or_else(String::new, |tls| {
                    let port = tls.port();
                    format!(
                        "  listen-tls: 127.0.0.1@{port}\n  cert-file: \"{certificate}\"\n  key-file: \"{key}\"\n"
                    )
                });
                let conf = file(format!(
                    "server:\n  rundir: \"{own}\"\n  listen: 127.0.0.1@{port}\n  udp-workers: {workers}\n  \
                     tcp-workers: {workers}\n  background-workers: 1\n{tls}database:\n  storage: \"{own}\"\nlog:\n- target: stderr\n  any: error\n\
                     zone:\n- domain: {ZONE}\n  file: \"{zone}\"\n- domain: {REVERSE_ZONE}\n  file: \"{reverse}\"\n"
                ))?;
                words(&["-c", &conf])
            }
            Peer::Nsd => {
                let reuse = if workers > 1 { "yes" } else { "no" };
                let tls = tls.map_or_else(String::new, |tls| {
                    let port = tls.port();
                    format!(
                        "  ip-address: 127.0.0.1@{port}\n  tls-port: {port}\n  \
                         tls-service-pem: \"{certificate}\"\n  tls-service-key: \"{key}\"\n"
                    )
                });
                let conf = file(format!(
                    "server:\n  server-count: {workers}\n  reuseport: {reuse}\n  ip-address: 127.0.0.1@{port}\n{tls}  username: \"\"\n  chroot: \"\"\n  \
                     zonesdir: \"{own}\"\n  database: \"\"\n  pidfile: \"\"\n  xfrdfile: \"{own}/xfrd.state\"\n  \
                     zonelistfile: \"{own}/zone.list\"\n  rrl-ratelimit: 0\nremote-control:\n  control-enable: no\n\
                     zone:\n  name: {ZONE}\n  zonefile: \"{zone}\"\nzone:\n  name: {REVERSE_ZONE}\n  zonefile: \"{reverse}\"\n"
                ))?;
                words(&["-d", "-c", &conf])
            }
            Peer::Dnsmasq => {
                let hosts = fixture.hosts();
                let (hosts, up) = (hosts.display(), upstream.port());
                let conf = file(format!(
                    "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\naddn-hosts={hosts}\n\
                     local=/{ZONE}/\nlocal=/{REVERSE_ZONE}/\nserver=127.0.0.1#{up}\ncache-size=10000\nlocal-ttl=5\n\
                     dns-forward-max=10000\nuser=root\npid-file=\n"
                ))?;
                vec!["--keep-in-foreground".into(), format!("--conf-file={conf}")]
            }
            Peer::Unbound => {
                let up = upstream.port();
                let tls = tls.map_or_else(String::new, |tls| {
                    let port = tls.port();
                    format!(
                        "  interface: 127.0.0.1@{port}\n  tls-port: {port}\n  \
                         tls-service-pem: \"{certificate}\"\n  tls-service-key: \"{key}\"\n"
                    )
                });
                let conf = file(format!(
                    "server:\n  directory: \"{own}\"\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  \
                     interface: 127.0.0.1@{port}\n  port: {port}\n  num-threads: {workers}\n  incoming-num-tcp: 256\n{tls}  do-daemonize: no\n  use-syslog: no\n  \
                     verbosity: 0\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n  \
                     access-control: 127.0.0.0/8 allow\n  msg-cache-size: 32m\n  rrset-cache-size: 32m\n  so-rcvbuf: 4m\n  \
                     outgoing-range: 4096\n  num-queries-per-thread: 2048\nremote-control:\n  control-enable: no\n\
                     forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{up}\n"
                ))?;
                words(&["-d", "-c", &conf])
            }
            // Its threads are as many as the processors that it may use.
            Peer::CoreDns => {
                // `prefer_udp`: it would forward what came over a connection over TCP, which the upstream here does not have.
                let blocks = |scheme: &str, port: u16, tls: &str| {
                    format!(
                        "{scheme}{ZONE}:{port} {scheme}{REVERSE_ZONE}:{port} {{\n  bind 127.0.0.1\n{tls}  \
                         file {zone} {ZONE}\n  file {reverse} {REVERSE_ZONE}\n}}\n\
                         {scheme}.:{port} {{\n  bind 127.0.0.1\n{tls}  cache 30\n  \
                         forward . {upstream} {{\n    prefer_udp\n  }}\n}}\n"
                    )
                };
                let mut text = blocks("", port, "");
                if let Some(tls) = tls {
                    let files = format!("  tls {certificate} {key}\n");
                    text.push_str(&blocks("tls://", tls.port(), &files));
                }
                let conf = file(text)?;
                words(&["-conf", &conf])
            }
        };
        Ok(all)
    }

    /// Starts it and waits until it answers this question as expected; an echo only has to answer.
    ///
    /// # Errors
    /// It does not start, or does not answer.
    pub fn start(
        self,
        program: &Path,
        fixture: &Fixture,
        upstream: SocketAddr,
        (question, expected): (&[u8], Expected),
    ) -> anyhow::Result<Server> {
        let dns = free_port()?;
        let folder = Scratch::new("server")?;
        let own = || {
            Ok::<_, anyhow::Error>(SocketAddr::from((
                [127, 0, 0, 1],
                fixture.own_tls_port().context("its port")?,
            )))
        };
        let tls = match (fixture.shape.has_tls, self) {
            (false, _) => None,
            (true, Peer::Ours) => Some(own()?),
            (true, _) => Some(free_port()?),
        };
        let arguments = self.arguments(fixture, upstream, dns, tls, &folder)?;
        let is_echo = matches!(self, Peer::Echo | Peer::EchoPktinfo);
        let expected = if is_echo { Expected::ANY } else { expected };
        let mut server =
            Server::start(self, program, &arguments, dns, folder, (question, expected))?;
        server.tls = tls;
        Ok(server)
    }
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    pub peer: Peer,
    pub dns: SocketAddr,
    /// Where it answers over TLS, where it was started so.
    pub tls: Option<SocketAddr>,
    /// From its start to the first right answer.
    pub ready_after: Duration,
    pub family: Family,
    process: Process,
    _folder: Scratch,
}

impl Server {
    /// Starts a program in its folder, and waits until it answers this question as expected.
    pub(super) fn start(
        peer: Peer,
        program: &Path,
        arguments: &[String],
        dns: SocketAddr,
        folder: Scratch,
        (question, expected): (&[u8], Expected),
    ) -> anyhow::Result<Server> {
        let begun = Instant::now();
        // As in a pod.
        let environment = if peer == Peer::Ours { &[LARGE_PAGES][..] } else { &[] };
        let process = Process::start_with(program, arguments, environment, folder.path())?;
        let mut server = Server {
            peer,
            dns,
            tls: None,
            ready_after: Duration::ZERO,
            family: Family::default(),
            process,
            _folder: folder,
        };
        server.wait_until_right(question, expected)?;
        server.ready_after = begun.elapsed();
        server.family = Family::of(server.process.pid().context("its process")?);
        Ok(server)
    }

    fn wait_until_right(&mut self, question: &[u8], expected: Expected) -> anyhow::Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(self.dns)?;
        socket.set_read_timeout(Some(ASK_AGAIN))?;
        let (begun, mut buffer) = (Instant::now(), [0; 4096]);
        while begun.elapsed() < PATIENCE {
            self.process.ensure_running()?;
            // Refused while nothing listens there yet.
            let _ = socket.send(question);
            match socket.recv(&mut buffer) {
                Ok(octets) if judge(question, &buffer[..octets], expected).0 == Verdict::Right => {
                    return Ok(());
                }
                Ok(_) => std::thread::sleep(ASK_AGAIN),
                Err(_) => {}
            }
        }
        bail!("{} does not answer rightly\n{}", self.peer.name(), self.process.log_tail())
    }

    /// Fails with the end of its log when it has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        self.process.ensure_running()
    }
}

pub(super) fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

fn installed(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|program| program.is_file())
}

/// A program that `tests/tools/build` has built.
fn built(name: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let output = Command::new(script).args(["--where", name]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_file().then_some(path)
}

/// An address that is free for datagrams and streams now.
pub(super) fn free_port() -> anyhow::Result<SocketAddr> {
    let attempt = || -> io::Result<SocketAddr> {
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let address = tcp.local_addr()?;
        UdpSocket::bind(address)?;
        Ok(address)
    };
    (0..PORT_ATTEMPTS).find_map(|_| attempt().ok()).context("no free port on 127.0.0.1")
}
