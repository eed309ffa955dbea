//! A scripted upstream over TLS, HTTPS or QUIC. It remembers what comes to its port in clear text, so that a
//! test can say that nothing did.

mod credentials;
mod tls;
mod https;
mod quic;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::net::{TcpListener, UdpSocket};

pub use credentials::Credentials;

use super::{Script, ScriptedUpstream, Shared, UpstreamTransport, bind, serve_udp};

/// The transport, certificate and faults of an encrypted upstream.
#[derive(Debug)]
pub struct Encrypted {
    /// `Tls`, `Https` or `Quic`.
    pub over: UpstreamTransport,
    /// The address of the server.
    pub ip: IpAddr,
    /// The certificate and key of the server.
    pub credentials: Credentials,
    /// Handshakes begin and do not end.
    pub stalls: bool,
    /// The query after this many ends its connection; neither it nor others in progress get a reply.
    pub queries_per_connection: Option<usize>,
    /// Streams of QUIC that a client may have open at a time on one connection.
    pub streams: Option<u32>,
    /// Clients may send early data (0-RTT) when they resume a session.
    pub takes_early_data: bool,
}

/// What happened to the connections of an upstream.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    full: AtomicUsize,
    resumed: AtomicUsize,
    /// With early data, or the wish to send some.
    early: AtomicUsize,
    /// Connections of TCP that began with something else than a handshake.
    clear: AtomicUsize,
}

impl Handshakes {
    fn count(&self, is_resumed: bool) {
        let of = if is_resumed { &self.resumed } else { &self.full };
        of.fetch_add(1, Ordering::Relaxed);
    }

    fn count_early(&self) {
        self.early.fetch_add(1, Ordering::Relaxed);
    }

    fn count_clear(&self) {
        self.clear.fetch_add(1, Ordering::Relaxed);
    }
}

impl Encrypted {
    /// An upstream at 127.0.0.1 that does nothing wrong, with a certificate for this name.
    ///
    /// # Errors
    /// No certificate can be made.
    pub fn named(over: UpstreamTransport, name: &str) -> Result<Encrypted> {
        let credentials = Credentials::of(name)?;
        Ok(Encrypted {
            over,
            ip: Ipv4Addr::LOCALHOST.into(),
            credentials,
            stalls: false,
            queries_per_connection: None,
            streams: None,
            takes_early_data: false,
        })
    }

    fn ends(&self, queries: usize) -> bool {
        self.queries_per_connection.is_some_and(|most| queries > most)
    }
}

impl ScriptedUpstream {
    /// Starts an encrypted server on a free port of its address.
    ///
    /// # Errors
    /// No port is free, or no thread can be started.
    pub fn start_encrypted(encrypted: Encrypted, script: Script) -> Result<ScriptedUpstream> {
        let (udp, tcp) = bind((encrypted.ip, 0).into())?;
        let address = udp.local_addr()?;
        let over = encrypted.over;
        let protocol: &[u8] = match over {
            UpstreamTransport::Udp | UpstreamTransport::Tcp => {
                anyhow::bail!("{over:?} is not encrypted")
            }
            UpstreamTransport::Tls => b"dot",
            UpstreamTransport::Https => b"h2",
            UpstreamTransport::Quic => b"doq",
        };
        let mut config = encrypted.credentials.server_config(protocol)?;
        if encrypted.takes_early_data {
            // QUIC allows no other value (RFC 9001 §4.6.1).
            config.max_early_data_size = u32::MAX;
        }
        let config = Arc::new(config);
        let encrypted = Arc::new(encrypted);
        ScriptedUpstream::launch(address, script, move |shared: Arc<Shared>| async move {
            let tcp = TcpListener::from_std(tcp).expect("a socket that does not block");
            match over {
                UpstreamTransport::Quic => tokio::select! {
                    () = quic::serve(&shared, &encrypted, config, udp) => {}
                    () = tls::refuse(&shared, tcp) => {}
                },
                UpstreamTransport::Tls
                | UpstreamTransport::Https
                | UpstreamTransport::Udp
                | UpstreamTransport::Tcp => {
                    let udp = UdpSocket::from_std(udp).expect("a socket that does not block");
                    tokio::select! {
                        () = serve_udp(&shared, udp) => {}
                        () = tls::serve(&shared, &encrypted, config, tcp) => {}
                    }
                }
            }
        })
    }

    /// Handshakes that ended well: full ones, and those that resumed a session. QUIC counts all as full.
    pub fn handshakes(&self) -> (usize, usize) {
        let Handshakes { full, resumed, .. } = &self.shared.handshakes;
        (full.load(Ordering::Relaxed), resumed.load(Ordering::Relaxed))
    }

    /// Connections of TCP on which something came in clear text. Over UDP [`ScriptedUpstream::asked`] has it, but not where
    /// QUIC has the port.
    pub fn in_clear_text(&self) -> usize {
        self.shared.handshakes.clear.load(Ordering::Relaxed)
    }

    /// Handshakes, or streams of QUIC, with early data.
    pub fn early(&self) -> usize {
        self.shared.handshakes.early.load(Ordering::Relaxed)
    }
}
