//! Listeners besides that of TCP: what comes to them is behind a handshake.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::certificate::Certificate;
use super::super::{Limits, Phase};
use super::https::HttpPath;
use super::tls::{self, Secured};
use super::{JoinTask, TcpServer, accept, quic};

/// More listeners, with one certificate.
#[derive(Debug)]
pub(in super::super) struct Listeners {
    pub(in super::super) opened: Vec<Socket>,
    pub(in super::super) certificate: Arc<Certificate>,
    /// Path of DNS queries, for HTTPS only.
    pub(in super::super) http_path: Option<HttpPath>,
}

/// One listening socket.
#[derive(Debug)]
pub(in super::super) enum Socket {
    /// For TLS, with HTTP in it or without.
    Tls(std::net::TcpListener),
    Quic(std::net::UdpSocket),
}

impl Listeners {
    /// Serves them, and looks at their certificate.
    pub(super) fn open(
        self,
        server: &Rc<TcpServer>,
        limits: &watch::Receiver<Limits>,
        phase: &watch::Receiver<Phase>,
    ) -> io::Result<Vec<JoinTask>> {
        let Listeners { opened, certificate, http_path } = self;
        let mut tasks = Vec::new();
        for socket in opened {
            let (server, certificate) = (Rc::clone(server), Arc::clone(&certificate));
            match socket {
                Socket::Tls(tcp) => {
                    let tcp = TcpListener::from_std(tcp)?;
                    let secured = Secured { certificate, http_path: http_path.clone() };
                    tasks.push(tokio::task::spawn_local(accept(server, tcp, Some(secured))));
                }
                // Not among those that end first: until its last connection is gone it refuses new ones.
                Socket::Quic(socket) => {
                    let seen = (limits.clone(), phase.clone());
                    tokio::task::spawn_local(quic::serve(server, socket, certificate, seen));
                }
            }
        }
        tasks.push(tokio::task::spawn_local(tls::follow(Rc::clone(server), certificate)));
        Ok(tasks)
    }
}
