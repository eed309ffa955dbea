//! The listeners besides port 53 that the configuration asks for. They are opened while the process runs; to close or
//! move one takes a restart, which the operator brings about, as the ports are those of the pod's template.

use std::path::PathBuf;

use crds::Config;
use crds::config::TlsListener;

use crate::serve::Serving;

/// The listeners that were opened besides port 53.
#[derive(Debug)]
pub struct Listeners {
    /// Where the Secrets are mounted, each in a folder of its name.
    certificates: PathBuf,
    tls: Option<TlsListener>,
}

impl Listeners {
    /// Nothing is open yet.
    pub fn new(certificates: PathBuf) -> Self {
        Self { certificates, tls: None }
    }

    /// Opens what this configuration asks for and is not open. A port that cannot be had is reported, and tried again
    /// with the next configuration; UDP and TCP are served all the same.
    pub fn open(&mut self, serving: &Serving, config: &Config) {
        if self.tls == config.listeners.tls {
            return;
        }
        let Some(wanted) = config.listeners.tls.as_ref().filter(|_| self.tls.is_none()) else {
            tracing::warn!("the listener for TLS changes when this process starts again");
            return;
        };
        match serving.serve_tls(wanted.port, self.certificates.join(&wanted.certificate)) {
            Ok(addresses) => {
                tracing::info!(?addresses, "answering over TLS");
                self.tls = Some(wanted.clone());
            }
            Err(error) => tracing::error!("DNS over TLS is not served: {error:#}"),
        }
    }
}
