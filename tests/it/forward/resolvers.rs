//! Upstreams that are not ours, where they are installed: Unbound over UDP, TCP, TLS and HTTPS, and dnsmasq over UDP and
//! TCP, each a process of its own on loopback.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crds::config::{self, CaBundle, Server, ServerTls};
use futures::future::join_all;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tests::control_plane::not_installed;
use tests::netns::inside;
use tests::scratch::Scratch;
use tests::upstream::Credentials;

use super::encrypted::{NAME, config_of, connections};
use super::stage::{Stage, answers, failure};

pub(super) const PLAIN: u16 = 5353;
const TLS: u16 = 5853;
const HTTPS: u16 = 5443;
/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is not ours; it ends with the test.
pub(super) struct Daemon {
    child: Child,
    pub(super) ip: IpAddr,
    _folder: Scratch,
}

/// An address of loopback that no other test process uses: ports on it are free.
fn own_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 0x80 | high, low, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

impl Daemon {
    /// Starts it with these arguments, and waits until it listens on these ports of this address; nothing where it is not
    /// installed.
    fn start(
        program: &str,
        (ip, ports): (IpAddr, &[u16]),
        arguments: impl Fn(&Scratch, IpAddr) -> Vec<String>,
    ) -> Option<Daemon> {
        let folder = Scratch::new(program).unwrap();
        let arguments = arguments(&folder, ip);
        let spawn = |program: &str| {
            let mut command = Command::new(program);
            command.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        };
        let Ok(child) = spawn(program).or_else(|_| spawn(&format!("/usr/sbin/{program}"))) else {
            not_installed(program);
            return None;
        };
        let mut daemon = Daemon { child, ip, _folder: folder };
        let start = Instant::now();
        let listens = |port: &u16| TcpStream::connect(SocketAddr::from((ip, *port))).is_ok();
        while !ports.iter().all(listens) {
            let ended = daemon.child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > PATIENCE {
                let _ = daemon.child.kill();
                let mut said = String::new();
                let _ = daemon.child.stderr.take().unwrap().read_to_string(&mut said);
                panic!("{program} does not listen: {said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(daemon)
    }

    fn server(&self, transport: config::Transport, port: u16) -> Server {
        Server { ip: self.ip, port, transport, tls: None }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unbound, with data of its own and the certificate of these credentials.
pub(super) fn unbound(credentials: &Credentials) -> Option<Daemon> {
    unbound_at(own_address(), credentials)
}

fn unbound_at(ip: IpAddr, credentials: &Credentials) -> Option<Daemon> {
    Daemon::start("unbound", (ip, &[PLAIN, TLS, HTTPS]), |folder, ip| {
        let certificate = folder.write("certificate.pem", &credentials.certificate_pem).unwrap();
        let key = folder.write("key.pem", &credentials.key_pem).unwrap();
        // More than a datagram may have: it is asked again over TCP.
        let text = format!("\"{}\" ", "x".repeat(200)).repeat(10);
        let config = format!(
            "server:
  directory: {folder:?}
  chroot: \"\"
  username: \"\"
  pidfile: \"\"
  use-syslog: no
  logfile: \"\"
  do-daemonize: no
  num-threads: 1
  incoming-num-tcp: 64
  interface: {ip}@{PLAIN}
  interface: {ip}@{TLS}
  interface: {ip}@{HTTPS}
  tls-port: {TLS}
  https-port: {HTTPS}
  tls-service-key: {key:?}
  tls-service-pem: {certificate:?}
  access-control: 127.0.0.0/8 allow
  access-control: ::1/128 allow
  module-config: \"iterator\"
  local-zone: \"example.\" static
  local-data: \"example. 600 IN SOA ns.example. h.example. 1 2 3 4 300\"
  local-data: \"www.example. 600 IN A 192.0.2.80\"
  local-data: 'huge.example. 600 IN TXT {text}'
  local-zone: \"many.example.\" redirect
  local-data: \"many.example. 600 IN A 192.0.2.7\"
remote-control:
  control-enable: no
",
            folder = folder.path(),
        );
        let config = folder.write("unbound.conf", config).unwrap();
        vec!["-d".into(), "-c".into(), config.to_str().unwrap().into()]
    })
}

pub(super) fn dnsmasq() -> Option<Daemon> {
    Daemon::start("dnsmasq", (own_address(), &[PLAIN]), |_, ip| {
        let flags = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--bind-interfaces",
            "--no-resolv",
            "--no-hosts",
            // In a namespace without these it does not start: it stays who it is.
            "--user=",
            "--group=",
            "--pid-file=",
            "--log-facility=-",
            "--address=/www.example/192.0.2.80",
            "--address=/many.example/192.0.2.7",
            "--address=/own.test/192.0.2.99",
            "--local=/example/",
        ];
        let own = [format!("--port={PLAIN}"), format!("--listen-address={ip}")];
        flags.map(str::to_owned).into_iter().chain(own).collect()
    })
}

fn stage(server: Server) -> Stage {
    Stage::of(BTreeMap::new(), &config_of(vec![server]))
}

/// What must work with every resolver, over each transport.
async fn is_asked(stage: &Stage) {
    let text = || stage.view().text();
    let www = stage.ask(0, "www.example", RecordType::A).await;
    assert_eq!(answers(&www), ["192.0.2.80"], "{}", text());
    let missing = stage.ask(0, "nothere.example", RecordType::A).await;
    assert_eq!(missing.metadata.response_code, ResponseCode::NXDomain, "{}", text());
    let ask = |n| async move { stage.ask(0, &format!("n{n}.many.example"), RecordType::A).await };
    let replies = join_all((0..64).map(ask)).await;
    assert!(replies.iter().all(|reply| answers(reply) == ["192.0.2.7"]), "{}", text());
    let server = &stage.view().groups[0].servers[0];
    assert_eq!((server.state, server.good, server.errors), ("healthy", 66, 0), "{}", text());
}

#[tokio::test]
async fn fw2_unbound_answers_over_udp_tcp_tls_and_https() {
    let credentials = Credentials::of(NAME).unwrap();
    let Some(unbound) = unbound(&credentials) else { return };
    answers_over_each_transport(&unbound, &credentials).await;
}

/// In a network of its own, as `::1` has no second address.
#[test]
fn fw2_unbound_answers_over_ipv6_by_each_transport() {
    inside(async || {
        let credentials = Credentials::of(NAME).unwrap();
        let ip = Ipv6Addr::LOCALHOST.into();
        let Some(unbound) = unbound_at(ip, &credentials) else { return };
        answers_over_each_transport(&unbound, &credentials).await;
    });
}

async fn answers_over_each_transport(unbound: &Daemon, credentials: &Credentials) {
    let ca_bundle = Some(CaBundle::Pem(credentials.authority.clone()));
    let tls = Some(ServerTls { server_name: NAME.to_owned(), ca_bundle });
    let transports = [
        (config::Transport::Udp, PLAIN),
        (config::Transport::Tcp, PLAIN),
        (config::Transport::Tls, TLS),
        (config::Transport::Https, HTTPS),
    ];
    for (transport, port) in transports {
        let of_tls = tls.clone().filter(|_| transport.is_encrypted());
        let stage = stage(Server { tls: of_tls, ..unbound.server(transport, port) });
        is_asked(&stage).await;
        let missing = stage.ask(0, "neither.example", RecordType::A).await;
        let [soa] = &missing.authorities[..] else { panic!("{missing}") };
        assert!((1..=300).contains(&soa.ttl), "Unbound may have it from before: {missing}");
        let huge = stage.ask(0, "huge.example", RecordType::TXT).await;
        // The client's 1,232 octets do not hold it; it came whole, over TCP where needed.
        assert!(huge.metadata.truncation && stage.forwarder.resolved() >= 68, "{transport:?}");
        let seen = connections(&stage);
        // A busy machine may be too late for a handshake.
        assert!(seen.failures.keys().all(|it| *it == "timeout"), "{transport:?}: {seen:?}");
        assert_eq!(seen.handshakes > 0, transport.is_encrypted(), "{seen:?}");
        // 64 queries at once, 32 on each; more only where the machine is silent for a second.
        assert!(seen.opened < 16, "{transport:?}: {seen:?}");
    }
}

#[tokio::test]
async fn f22_unbound_with_the_certificate_of_another_name_gets_no_query() {
    let credentials = Credentials::of("other.example").unwrap();
    let Some(unbound) = unbound(&credentials) else { return };
    let ca_bundle = Some(CaBundle::Pem(credentials.authority.clone()));
    let tls = Some(ServerTls { server_name: NAME.to_owned(), ca_bundle });
    let server = unbound.server(config::Transport::Tls, TLS);
    let stage = stage(Server { tls, ..server });
    let reply = stage.ask(0, "www.example", RecordType::A).await;
    let text = stage.view().text();
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)), "{text}");
    assert!(text.contains("gets no queries: its certificate is for other names"), "{text}");
}

#[tokio::test]
async fn fw2_dnsmasq_answers_over_udp_and_tcp() {
    let Some(dnsmasq) = dnsmasq() else { return };
    for transport in [config::Transport::Udp, config::Transport::Tcp] {
        is_asked(&stage(dnsmasq.server(transport, PLAIN))).await;
    }
}
