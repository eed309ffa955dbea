//! What a query over TLS costs beside one over UDP, to upstreams of one kind: connections are kept, and handshakes are
//! counted.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use crds::config::{
    CaBundle, Config, Group, GroupOptions, Server, ServerTls, Transport, Upstreams as Wanted,
};
use dataplane::forward::{Forwarder, Upstreams};
use dataplane::serve::{Limits, Listen, Serving, worker_counters};
use dataplane::state::{Published, State};
use dataplane_core::{Identity, Index};
use tests::load::check::{Verdict, judge};
use tests::load::generator::Generator;
use tests::load::processor::{Family, pinned};
use tests::load::schedule::Pace;
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::upstream::reply;
use tests::process::Process;
use tests::scratch::Scratch;
use tests::upstream::Credentials;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::measure::{GENERATOR, SERVER};

const NAME: &str = "dns.example";
const RATES: [u32; 3] = [1_000, 5_000, 20_000];
const SOCKETS: usize = 64;
const WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP_PACE: Pace = Pace::Window(16);
/// More than the warm-up asks.
const WARM_UP_QUESTIONS: usize = 100_000;
const LARGEST: usize = 4_096;
/// Queries of one client that may wait: all questions come from one address.
const IN_FLIGHT: u32 = 20_000;
const PATIENCE: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 200;

/// Prints the table.
pub(crate) fn compare(lasting: Duration) -> anyhow::Result<()> {
    let upstream = Beside::start()?;
    let folder = Scratch::new("encrypted")?;
    let authority = folder.write("authority.pem", &upstream.authority)?;
    let mut servers = Vec::new();
    for over in [Over::Udp, Over::Tls] {
        servers.push(pinned(SERVER, || Asking::start(over, &upstream, &authority, &folder))?);
    }
    println!("| q/s | upstream over | processor time, µs | p50 / p99, µs | handshakes | lost |");
    println!("|---|---|---|---|---|---|");
    let mut seed = 0;
    for rate in RATES {
        for at in [0, 1, 1, 0] {
            seed += 1;
            let count = WARM_UP_QUESTIONS + (f64::from(rate) * lasting.as_secs_f64()) as usize;
            let trace = Trace::misses(count, seed);
            let server = &mut servers[at];
            server.process.ensure_running()?;
            let (outcome, processor, handshakes) = pinned(GENERATOR, || -> anyhow::Result<_> {
                let mut generator = Generator::new(Udp::open(server.dns, SOCKETS)?);
                generator.run(&trace, WARM_UP_PACE, WARM_UP)?;
                let (before, handshakes) = (server.family.processor(), upstream.handshakes());
                let outcome = generator.run(&trace, Pace::Rate(rate), lasting)?;
                let processor = server.family.processor().saturating_sub(before);
                Ok((outcome, processor, upstream.handshakes() - handshakes))
            })?;
            println!(
                "| {rate} | {:?} | {:.1} | {:.0} / {:.0} | {handshakes} | {} |",
                server.over,
                processor.as_secs_f64() * 1e6 / outcome.answered.max(1) as f64,
                outcome.latency_us(0.5),
                outcome.latency_us(0.99),
                outcome.lost,
            );
        }
    }
    Ok(())
}

/// What the upstream is asked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Over {
    Udp,
    Tls,
}

/// A data plane that forwards everything to one upstream, in a process of its own: this program, see [`serve`].
struct Asking {
    over: Over,
    dns: SocketAddr,
    family: Family,
    process: Process,
}

impl Asking {
    fn start(
        over: Over,
        upstream: &Beside,
        authority: &Path,
        folder: &Scratch,
    ) -> anyhow::Result<Asking> {
        let (dns, to) = (free_port()?, upstream.address.to_string());
        let name = format!("{over:?}").to_lowercase();
        let authority = authority.display().to_string();
        let arguments = ["forward-to", &dns.to_string(), &to, &name, &authority];
        let mut process = Process::start(&std::env::current_exe()?, &arguments, folder.path())?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(dns)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let outside = Trace::external(1, 1, 1);
        let (question, expected) = outside.get(0);
        let mut buffer = [0; LARGEST];
        for _ in 0..ATTEMPTS {
            process.ensure_running()?;
            // Refused while nothing listens there yet.
            let _ = socket.send(question);
            let Ok(octets) = socket.recv(&mut buffer) else {
                std::thread::sleep(PATIENCE);
                continue;
            };
            if judge(question, &buffer[..octets], expected).0 == Verdict::Right {
                let family = Family::of(process.pid().context("its process")?);
                return Ok(Asking { over, dns, family, process });
            }
        }
        anyhow::bail!("nothing is forwarded over {over:?}\n{}", process.log_tail())
    }
}

/// Forwards everything to one upstream, until the process is killed.
pub(crate) fn serve(
    dns: SocketAddr,
    upstream: SocketAddr,
    over: Over,
    authority: &Path,
) -> anyhow::Result<()> {
    let ca_bundle = Some(CaBundle::Pem(std::fs::read_to_string(authority)?));
    let (transport, tls) = match over {
        Over::Udp => (Transport::Udp, None),
        Over::Tls => (Transport::Tls, Some(ServerTls { server_name: NAME.into(), ca_bundle })),
    };
    let server = Server { ip: upstream.ip(), port: upstream.port(), transport, tls };
    let mut options = GroupOptions::default();
    options.limits.in_flight = IN_FLIGHT;
    let upstreams = Wanted::Servers(Group { servers: vec![server], options });
    let mut config = Config { upstreams, ..Config::default() };
    (config.limits.in_flight, config.limits.in_flight_per_client) = (IN_FLIGHT, IN_FLIGHT);
    let settings = dataplane::settings::of(&config).map_err(|why| anyhow::anyhow!("{why:?}"))?;
    let upstreams = Arc::new(Upstreams::of(&config, &PathBuf::new()));
    let state = State {
        published: ArcSwap::from_pointee(Published {
            records: Index::new(settings).records(),
            upstreams,
        }),
        counters: worker_counters(1, 1),
        identity: Identity::default(),
        taps: Arc::default(),
        inspections: Arc::default(),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (limits, handle) = (Limits::default(), runtime.handle().clone());
    let _serving =
        Serving::start(&Listen::at([dns]), 1, Arc::new(state), Forwarder::new(), limits, handle)?;
    loop {
        std::thread::park();
    }
}

/// An upstream over UDP and TLS at one port, in a thread of this process.
struct Beside {
    address: SocketAddr,
    authority: String,
    handshakes: Arc<AtomicU64>,
}

impl Beside {
    /// It ends with the process.
    fn start() -> anyhow::Result<Beside> {
        let credentials = Credentials::of(NAME)?;
        let acceptor = TlsAcceptor::from(Arc::new(credentials.server_config(b"dot")?));
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let address = tcp.local_addr()?;
        let udp = UdpSocket::bind(address)?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        let handshakes = Arc::<AtomicU64>::default();
        let count = Arc::clone(&handshakes);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = async move {
            let udp = tokio::net::UdpSocket::from_std(udp)?;
            let tcp = tokio::net::TcpListener::from_std(tcp)?;
            tokio::try_join!(datagrams(udp), streams(tcp, acceptor, count)).map(drop)
        };
        std::thread::spawn(move || {
            pinned(GENERATOR, || {
                let ended: io::Result<()> = runtime.block_on(serve);
                println!("the upstream has ended: {ended:?}");
            });
        });
        Ok(Beside { address, authority: credentials.authority, handshakes })
    }

    fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::Relaxed)
    }
}

async fn datagrams(socket: tokio::net::UdpSocket) -> io::Result<()> {
    let mut message = [0; LARGEST];
    loop {
        let (octets, from) = socket.recv_from(&mut message).await?;
        let length = reply(&mut message, octets);
        if length > 0 {
            socket.send_to(&message[..length], from).await?;
        }
    }
}

async fn streams(
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    handshakes: Arc<AtomicU64>,
) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, handshakes) = (acceptor.clone(), Arc::clone(&handshakes));
        // A connection that breaks ends alone.
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await?;
            handshakes.fetch_add(1, Ordering::Relaxed);
            messages(stream).await
        });
    }
}

/// Answers all that has come, then sends the replies together.
async fn messages(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
) -> io::Result<()> {
    let (mut received, mut replies, mut message) = (Vec::new(), Vec::new(), [0; LARGEST]);
    while stream.read_buf(&mut received).await? > 0 {
        let mut rest = &received[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((query, after)) = after.split_at_checked(length) else { break };
            let Some(room) = message.get_mut(..length) else { return Ok(()) };
            room.copy_from_slice(query);
            let octets = reply(&mut message, length);
            replies.extend((octets as u16).to_be_bytes());
            replies.extend(&message[..octets]);
            rest = after;
        }
        received = rest.to_vec();
        stream.write_all(&replies).await?;
        stream.flush().await?;
        replies.clear();
    }
    Ok(())
}

fn free_port() -> io::Result<SocketAddr> {
    UdpSocket::bind("127.0.0.1:0")?.local_addr()
}
