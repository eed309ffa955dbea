//! The listeners besides port 53 that the configuration asks for. They are opened while the process runs; to close or
//! change one takes a restart. Another port or Secret changes the pod's template, which rolls the pods; another path, or
//! Secrets that change places, do not (docs/operating.md).

use std::path::PathBuf;

use crds::Config;
use crds::config;

use crate::serve::{Encrypted, Serving};

/// The listeners that were opened besides port 53.
#[derive(Debug)]
pub struct Listeners {
    /// Where the Secrets are mounted, each in a folder of its name.
    certificates: PathBuf,
    open: Vec<Listener>,
}

/// One listener, as a configuration asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    over: Encrypted,
    port: u16,
    certificate: String,
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
    });
    let https = https.as_ref().map(|https| Listener {
        over: Encrypted::Https { path: https.path.clone() },
        port: https.port,
        certificate: https.certificate.clone(),
    });
    let quic = quic.as_ref().map(|quic| Listener {
        over: Encrypted::Quic,
        port: quic.port,
        certificate: quic.certificate.clone(),
    });
    tls.into_iter().chain(https).chain(quic).collect()
}

impl Listeners {
    /// Nothing is open yet.
    pub fn new(certificates: PathBuf) -> Self {
        Self { certificates, open: Vec::new() }
    }

    /// Opens what this configuration asks for and is not open. A port that cannot be had is reported, and tried again
    /// with the next configuration; UDP and TCP are served all the same.
    pub fn open(&mut self, serving: &Serving, config: &Config) {
        let wanted = wanted(&config.listeners);
        for open in self.open.iter().filter(|open| !wanted.contains(open)) {
            let name = open.name();
            tracing::warn!("the listener for {name} changes when this process starts again");
        }
        for listener in wanted {
            if self.open.iter().any(|open| open.name() == listener.name()) {
                continue;
            }
            let (name, folder) = (listener.name(), self.certificates.join(&listener.certificate));
            match serving.serve_encrypted(&listener.over, listener.port, folder) {
                Ok(addresses) => {
                    tracing::info!(?addresses, "answering over {name}");
                    self.open.push(listener);
                }
                Err(error) => tracing::error!("DNS over {name} is not served: {error:#}"),
            }
        }
    }
}
