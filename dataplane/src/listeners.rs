//! The listeners besides port 53 that the configuration asks for. They are opened while the process runs, and use
//! another path or Secret at once. To close one, or to change its port, takes a restart: both change the pod's template
//! once all pods have the document, which replaces them. So does a Secret that pods do not have mounted (docs/operating.md).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crds::Config;
use crds::config;
use tokio::sync::watch;

use crate::serve::{ClosedListener, Encrypted, Serving};
use crate::settings;

/// Between two attempts to open a port that could not be opened: another process may hold it for a moment, as one that this
/// process takes over from.
const OPEN_AGAIN: Duration = Duration::from_secs(10);

/// The listeners that were opened besides port 53.
#[derive(Debug)]
pub struct Listeners {
    /// Where the Secrets are mounted, each in a folder of its name.
    certificates: PathBuf,
    open: Vec<Listener>,
    /// Those that could not be opened.
    closed: Vec<ClosedListener>,
}

/// One listener, as a configuration asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    over: Encrypted,
    port: u16,
    certificate: String,
    /// Where it is served, once it is open.
    addresses: Vec<SocketAddr>,
}

impl Listener {
    fn name(&self) -> &'static str {
        match self.over {
            Encrypted::Tls => "TLS",
            Encrypted::Https { .. } => "HTTPS",
            Encrypted::Quic => "QUIC",
        }
    }
}

/// What a configuration asks for.
fn wanted(listeners: &config::Listeners) -> Vec<Listener> {
    let config::Listeners { tls, https, quic } = listeners;
    let tls = tls.as_ref().map(|tls| Listener {
        over: Encrypted::Tls,
        port: tls.port,
        certificate: tls.certificate.clone(),
        addresses: Vec::new(),
    });
    let https = https.as_ref().map(|https| Listener {
        over: Encrypted::Https { path: https.path.clone() },
        port: https.port,
        certificate: https.certificate.clone(),
        addresses: Vec::new(),
    });
    let quic = quic.as_ref().map(|quic| Listener {
        over: Encrypted::Quic,
        port: quic.port,
        certificate: quic.certificate.clone(),
        addresses: Vec::new(),
    });
    tls.into_iter().chain(https).chain(quic).collect()
}

impl Listeners {
    /// Starts with no open listener; certificates are read below this folder.
    pub fn new(certificates: PathBuf) -> Self {
        Self { certificates, open: Vec::new(), closed: Vec::new() }
    }

    /// Where each is served: TLS, HTTPS or QUIC.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, &[SocketAddr])> {
        self.open.iter().map(|open| (open.name(), open.addresses.as_slice()))
    }

    /// Serves under every configuration that takes over. The newest one counts at once: it may have come after the one that
    /// `serving` was started with.
    pub async fn follow(
        mut self,
        serving: &Serving,
        mut configs: watch::Receiver<Arc<Config>>,
    ) -> Infallible {
        loop {
            let config = configs.borrow_and_update().clone();
            serving.set_limits(settings::limits(&config, dataplane_udp::most_descriptors()));
            self.open(serving, &config);
            loop {
                let again_in = if self.closed.is_empty() { Duration::MAX } else { OPEN_AGAIN };
                match tokio::time::timeout(again_in, configs.changed()).await {
                    Ok(Ok(())) => break,
                    // The source has ended, as the process does.
                    Ok(Err(_)) => return std::future::pending().await,
                    Err(_) => self.open_again(serving, &config),
                }
            }
        }
    }

    /// Opens the listeners of this configuration that are not open, and updates those that are. A port that cannot be
    /// opened is reported; UDP and TCP are served in any case.
    pub fn open(&mut self, serving: &Serving, config: &Config) {
        let wanted = wanted(&config.listeners);
        let is_wanted = |open: &Listener| wanted.iter().any(|it| it.name() == open.name());
        for open in self.open.iter().filter(|open| !is_wanted(open)) {
            tracing::warn!("the listener for {} ends when this process starts again", open.name());
        }
        self.open_wanted(serving, wanted);
    }

    fn open_again(&mut self, serving: &Serving, config: &Config) {
        let mut missing = wanted(&config.listeners);
        missing.retain(|wanted| self.open.iter().all(|open| open.name() != wanted.name()));
        self.open_wanted(serving, missing);
    }

    fn open_wanted(&mut self, serving: &Serving, wanted: Vec<Listener>) {
        let mut closed = Vec::new();
        for listener in wanted {
            let folder = self.certificates.join(&listener.certificate);
            let is_same = |open: &&mut Listener| open.name() == listener.name();
            match self.open.iter_mut().find(is_same) {
                Some(open) => open.change(serving, listener, folder),
                None => match opened(serving, listener, folder) {
                    Ok(listener) => self.open.push(listener),
                    Err(listener) => {
                        if !self.closed.contains(&listener) {
                            let ClosedListener { listener, why, .. } = &listener;
                            tracing::error!("DNS over {listener} is not served for now: {why}");
                        }
                        closed.push(listener);
                    }
                },
            }
        }
        serving.counters().set_closed_listeners(closed.clone());
        self.closed = closed;
    }
}

impl Listener {
    fn change(&mut self, serving: &Serving, wanted: Listener, folder: PathBuf) {
        let name = self.name();
        if self.port != wanted.port {
            tracing::warn!("the port for {name} changes when this process starts again");
        }
        if self.over != wanted.over || self.certificate != wanted.certificate {
            serving.change_encrypted(&wanted.over, folder);
            tracing::info!(certificate = wanted.certificate, "the listener for {name} has changed");
        }
        (self.over, self.certificate) = (wanted.over, wanted.certificate);
    }
}

fn opened(
    serving: &Serving,
    listener: Listener,
    folder: PathBuf,
) -> Result<Listener, ClosedListener> {
    let (name, port) = (listener.name(), listener.port);
    match serving.serve_encrypted(&listener.over, listener.port, folder) {
        Ok(addresses) => {
            tracing::info!(?addresses, "answering over {name}");
            Ok(Listener { addresses, ..listener })
        }
        Err(error) => Err(ClosedListener { listener: name, port, why: format!("{error:#}") }),
    }
}
