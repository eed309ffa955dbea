//! A scripted upstream: a DNS server on loopback that answers what a text says, well or badly,
//! and remembers each question, so that a test can say "10.0.0.2 was never asked".
//!
//! It runs in a thread of its own and can be used from tests with and without a runtime.

mod encrypted;
mod reply;
mod script;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;

use encrypted::Handshakes;
pub use encrypted::{Credentials, Encrypted};
use reply::{Reaction, react};
pub use script::Script;
use script::{Decoy, Stream};

/// Queries remembered; later ones are answered but not kept.
const MAX_REMEMBERED: usize = 200_000;
/// What a forwarder asks on its own to find loops is answered and not remembered: it comes at any time.
const LOOP_ZONE: &str = "clusterdns-loop.";
/// Ports tried before giving up: one must be free for UDP and TCP alike.
const PORT_ATTEMPTS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamTransport {
    Udp,
    Tcp,
    Tls,
    /// A request of HTTP/2.
    Https,
    Quic,
}

/// One query that the upstream received.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The name as written in the question, with a trailing dot.
    pub name: String,
    /// The type in the question.
    pub qtype: RecordType,
    pub transport: UpstreamTransport,
    pub from: SocketAddr,
    pub packet: Vec<u8>,
}

/// A running upstream; it stops when dropped.
#[derive(Debug)]
pub struct ScriptedUpstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    script: RwLock<Script>,
    asked: Mutex<Vec<Asked>>,
    handshakes: Handshakes,
}

impl ScriptedUpstream {
    /// Starts a server on a free port of 127.0.0.1, UDP and TCP.
    ///
    /// # Errors
    /// No port is free, or no thread can be started.
    pub fn start(script: Script) -> Result<ScriptedUpstream> {
        ScriptedUpstream::start_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// Starts a server on this address, UDP and TCP; port 0 is one that is free.
    ///
    /// # Errors
    /// The port is taken, or no thread can be started.
    pub fn start_at(at: SocketAddr, script: Script) -> Result<ScriptedUpstream> {
        // Bound here and now, without a runtime: the caller may have one of its own.
        let (udp, tcp) = bind(at)?;
        let address = udp.local_addr()?;
        ScriptedUpstream::launch(address, script, move |shared: Arc<Shared>| async move {
            let udp = UdpSocket::from_std(udp).expect("a socket that does not block");
            let tcp = TcpListener::from_std(tcp).expect("a socket that does not block");
            tokio::select! {
                () = serve_udp(&shared, udp) => {}
                () = serve_tcp(&shared, tcp) => {}
            }
        })
    }

    /// Runs this in a thread of its own until the upstream is dropped.
    fn launch<F: Future<Output = ()>>(
        address: SocketAddr,
        script: Script,
        serve: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
    ) -> Result<ScriptedUpstream> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (script, asked) = (RwLock::new(script), Mutex::default());
        let shared = Arc::new(Shared { script, asked, handshakes: Handshakes::default() });
        let (stop, stopped) = oneshot::channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("upstream".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(of_thread) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(ScriptedUpstream { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers by another script from now on.
    pub fn play(&self, script: Script) {
        *self.shared.script.write().expect("no panic while writing") = script;
    }

    /// Every query received so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no panic while pushing").clone()
    }

    /// How often a name was asked, with any type, case and transport.
    pub fn times_asked(&self, name: &str) -> usize {
        self.count(|asked| asked.name.eq_ignore_ascii_case(name))
    }

    /// How often a name was asked over one transport.
    pub fn times_asked_over(&self, name: &str, transport: UpstreamTransport) -> usize {
        self.count(|asked| asked.transport == transport && asked.name.eq_ignore_ascii_case(name))
    }

    fn count(&self, matches: impl Fn(&Asked) -> bool) -> usize {
        let asked = self.shared.asked.lock().expect("no panic while pushing");
        asked.iter().filter(|asked| matches(asked)).count()
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed; the test fails on missing replies.
            let _ = thread.join();
        }
    }
}

impl Script {
    /// The last reply over UDP, without sockets and time; `None` is silence.
    pub fn reply(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let anyone = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        react(self, packet, &asked(packet, anyone, UpstreamTransport::Udp)?)?.reply
    }
}

/// UDP and TCP on one port.
fn bind(at: SocketAddr) -> Result<(std::net::UdpSocket, std::net::TcpListener)> {
    for _ in 0..PORT_ATTEMPTS {
        let tcp = std::net::TcpListener::bind(at)?;
        if let Ok(udp) = std::net::UdpSocket::bind(tcp.local_addr()?) {
            udp.set_nonblocking(true)?;
            tcp.set_nonblocking(true)?;
            return Ok((udp, tcp));
        }
    }
    anyhow::bail!("no port of {at} is free for UDP and TCP")
}

impl Shared {
    /// Remembers a query and says what to do about it.
    fn receive(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: UpstreamTransport,
    ) -> Option<Reaction> {
        let asked = asked(packet, from, transport)?;
        let reaction = react(&self.script.read().expect("no panic while writing"), packet, &asked);
        if asked.name.to_ascii_lowercase().ends_with(LOOP_ZONE) {
            return reaction;
        }
        let mut log = self.asked.lock().expect("no panic while pushing");
        if log.len() < MAX_REMEMBERED {
            log.push(asked);
        }
        reaction
    }
}

/// What a message asks; `None` if it has no question that can be read.
fn asked(packet: &[u8], from: SocketAddr, transport: UpstreamTransport) -> Option<Asked> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?;
    Some(Asked {
        name: question.name().to_ascii(),
        qtype: question.query_type(),
        transport,
        from,
        packet: packet.to_vec(),
    })
}

async fn serve_udp(shared: &Arc<Shared>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; 65_535];
    loop {
        // An ICMP error of an earlier reply: the client has gone, the next may be there.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let Some(reaction) = shared.receive(&buffer[..length], from, UpstreamTransport::Udp) else {
            continue;
        };
        let socket = socket.clone();
        tokio::spawn(async move {
            for (kind, decoy) in &reaction.decoys {
                let _ = match elsewhere(*kind, &socket).await {
                    Some(other) => other.send_to(decoy, from).await,
                    None => socket.send_to(decoy, from).await,
                };
            }
            tokio::time::sleep(reaction.delay).await;
            if let Some(reply) = &reaction.reply {
                let _ = socket.send_to(reply, from).await;
            }
        });
    }
}

/// Where a decoy comes from, if not from the server itself.
async fn elsewhere(kind: Decoy, server: &UdpSocket) -> Option<UdpSocket> {
    let own = server.local_addr().expect("it is bound");
    let address = match kind {
        Decoy::OtherPort => SocketAddr::new(own.ip(), 0),
        // All of 127.0.0.0/8 is this machine.
        Decoy::OtherAddress => SocketAddr::new(Ipv4Addr::new(127, 66, 66, 66).into(), own.port()),
        Decoy::WrongId
        | Decoy::WrongQuestion
        | Decoy::WrongCase
        | Decoy::Query
        | Decoy::Garbage
        | Decoy::Half
        | Decoy::Guess => return None,
    };
    // Decoys of several queries come from there at the same time.
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option of sockets");
    socket.set_nonblocking(true).expect("an option of sockets");
    socket.bind(&address.into()).expect("a port of this machine");
    Some(UdpSocket::from_std(socket.into()).expect("tokio runs"))
}

async fn serve_tcp(shared: &Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, from)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        tokio::spawn(async move {
            // The client closes, or breaks off: both end the connection.
            let _ = serve_stream(&shared, stream, from).await;
        });
    }
}

async fn serve_stream(shared: &Shared, stream: TcpStream, from: SocketAddr) -> Result<()> {
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    loop {
        let length = reader.read_u16().await?;
        let mut packet = vec![0; length as usize];
        reader.read_exact(&mut packet).await?;
        let reaction =
            shared.receive(&packet, from, UpstreamTransport::Tcp).context("not a query: close")?;
        let Some(reply) = reaction.reply else { continue };
        let length = u16::try_from(reply.len())?;
        if reaction.stream == Stream::Answer && !reaction.delay.is_zero() {
            // What comes meanwhile does not wait for it (RFC 7766 section 6.2.1.1).
            let writer = writer.clone();
            tokio::spawn(async move {
                tokio::time::sleep(reaction.delay).await;
                // The client may have gone.
                let _ = writer.lock().await.write_all(&framed(length, &reply)).await;
            });
            continue;
        }
        tokio::time::sleep(reaction.delay).await;
        match reaction.stream {
            Stream::Answer => writer.lock().await.write_all(&framed(length, &reply)).await?,
            Stream::Close => return Ok(()),
            Stream::Hang => std::future::pending().await,
            Stream::Half => {
                let half = framed(length, &reply[..reply.len() / 2]);
                return Ok(writer.lock().await.write_all(&half).await?);
            }
            Stream::Once => {
                return Ok(writer.lock().await.write_all(&framed(length, &reply)).await?);
            }
        }
    }
}

/// A message behind a length, which is its own unless it is cut.
fn framed(length: u16, message: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes(), message].concat()
}
