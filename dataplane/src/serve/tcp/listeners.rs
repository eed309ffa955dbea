//! Listeners besides that of TCP: what comes to them is behind a handshake.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

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
    pub(in super::super) sockets: Vec<Socket>,
    pub(in super::super) certificate: Arc<Certificate>,
    /// Path of DNS queries, for HTTPS only.
    pub(in super::super) http_path: Option<HttpPath>,
    /// Who waits to know whether they are served.
    pub(in super::super) outcome: SyncSender<io::Result<()>>,
}

/// One listening socket.
#[derive(Debug)]
pub(in super::super) enum Socket {
    /// For TLS, with HTTP in it or without.
    Tls(std::net::TcpListener),
    Quic(std::net::UdpSocket),
}

/// One that this thread can use.
enum Opened {
    Tls(TcpListener),
    Quic(Box<quic::Opened>),
}

impl Listeners {
    /// Serves them all, or none, says so, and looks at their certificate. Returns the tasks that accept connections of TCP.
    pub(super) fn open(
        self,
        server: &Rc<TcpServer>,
        limits: &watch::Receiver<Limits>,
        phase: &watch::Receiver<Phase>,
    ) -> Vec<JoinTask> {
        let Listeners { sockets, certificate, http_path, outcome } = self;
        let one = |socket| Socket::open(socket, server, &certificate, limits);
        let opened: io::Result<Vec<_>> = sockets.into_iter().map(one).collect();
        let (opened, said) = match opened {
            Ok(opened) => (opened, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let mut tasks = Vec::new();
        for socket in opened {
            let (server, certificate) = (Rc::clone(server), Arc::clone(&certificate));
            match socket {
                Opened::Tls(tcp) => {
                    let secured = Secured { certificate, http_path: http_path.clone() };
                    tasks.push(tokio::task::spawn_local(accept(server, tcp, Some(secured))));
                }
                // Not among those that end first: until its last connection is gone it refuses new ones.
                Opened::Quic(opened) => {
                    let seen = (limits.clone(), phase.clone());
                    tokio::task::spawn_local(quic::serve(server, *opened, certificate, seen));
                }
            }
        }
        if said.is_ok() {
            tokio::task::spawn_local(tls::follow(Rc::clone(server), certificate));
        }
        // Who asked waits, or is gone with the process.
        let _ = outcome.send(said);
        tasks
    }
}

impl Socket {
    fn open(
        self,
        server: &TcpServer,
        certificate: &Certificate,
        limits: &watch::Receiver<Limits>,
    ) -> io::Result<Opened> {
        Ok(match self {
            Socket::Tls(tcp) => Opened::Tls(TcpListener::from_std(tcp)?),
            Socket::Quic(socket) => {
                let deadlines = limits.borrow().deadlines.clone();
                Opened::Quic(Box::new(quic::open(server, socket, certificate, &deadlines)?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc::sync_channel;

    use super::super::super::certificate::testing::signed_there;
    use super::super::tests::{patient, with_handshake_thread};
    use super::*;

    fn listener() -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// What the kernel does not let a thread wait for.
    fn unusable() -> std::net::TcpListener {
        let path = std::env::current_exe().unwrap();
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        OwnedFd::from(file).into()
    }

    #[test]
    fn a_listener_that_cannot_be_served_is_an_error_and_leaves_no_other_open() {
        with_handshake_thread(patient(), async |server| {
            let (_limits, limits) = watch::channel(patient());
            let (_phase, phase) = watch::channel(Phase::Serving);
            let open = |second, certificate| {
                let (first, address) = listener();
                let (outcome, said) = sync_channel(1);
                let sockets = vec![Socket::Tls(first), Socket::Tls(second)];
                let certificate = Arc::new(Certificate::of(certificate));
                let listeners = Listeners { sockets, certificate, http_path: None, outcome };
                let tasks = listeners.open(&server, &limits, &phase).len();
                (tasks, said.recv().unwrap(), TcpStream::connect(address).is_ok())
            };
            let (tasks, said, is_open) = open(unusable(), signed_there(b"dot").0);
            assert_eq!((tasks, said.is_err(), is_open), (0, true, false));
            let (tasks, said, is_open) = open(listener().0, signed_there(b"dot").0);
            assert_eq!((tasks, said.is_ok(), is_open), (2, true, true), "{said:?}");
        });
    }
}
