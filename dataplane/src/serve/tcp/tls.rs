//! DNS over TLS (RFC 7858): a connection of the TCP side behind a handshake, with its limits and deadlines.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::task::AbortOnDropHandle;

use super::super::certificate::{Certificate, LOOK_EVERY, LOOK_WITHIN};
use super::super::counters::CloseReason;
use super::super::responder::Asker;
use super::TcpServer;
use super::connection::Connection;
use super::deadline::FIRST_QUERY_WITHIN;
use super::handshakes::{HANDSHAKE_OCTETS, Measured, Session};
use super::https::{self, HttpPath};
use super::reads::InTurns;
use super::table::Permit;

/// Octets that a session counts as: about what rustls keeps for it.
pub(super) const SESSION_OCTETS: usize = 16 << 10;
/// Octets that rustls keeps of what a client does not read.
const SEND_OCTETS: usize = 16 << 10;

/// The protocol of a connection after its handshake.
#[derive(Clone, Debug)]
pub(super) struct Secured {
    pub(super) certificate: Arc<Certificate>,
    /// DNS over HTTPS at this path; else DNS over TLS.
    pub(super) http_path: Option<HttpPath>,
}

/// Looks at a certificate's files for as long as its listener is there.
pub(super) async fn follow(server: Rc<TcpServer>, certificate: Arc<Certificate>) {
    follow_by(&server.runtime, certificate, Certificate::refresh).await;
}

/// The same with another way to look, which may hang.
async fn follow_by(
    runtime: &Handle,
    certificate: Arc<Certificate>,
    look: impl Fn(&Certificate) + Clone + Send + 'static,
) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (look, looked_at) = (look.clone(), Arc::clone(&certificate));
        // Files on a slow disk must not delay connections.
        let mut looking = runtime.spawn_blocking(move || look(&looked_at));
        if tokio::time::timeout(LOOK_WITHIN, &mut looking).await.is_err() {
            certificate.is_late();
            // It cannot be ended. A second one would hang too, and each would hold a thread.
            let _ = looking.await;
        }
    }
}

/// One connection from its handshake to its end.
pub(super) async fn attend(
    server: Rc<TcpServer>,
    stream: TcpStream,
    asker: Asker,
    permit: Permit,
    secured: Secured,
) -> CloseReason {
    let Secured { certificate, http_path } = secured;
    // Without a certificate no handshake can begin; this is reported where the certificate is read.
    let Some(config) = certificate.config() else { return CloseReason::Refused };
    let mut session = match handshake(&server, stream, asker.client.ip(), &permit, config).await {
        Ok(session) => session,
        Err(reason) => return reason,
    };
    if let Some(path) = http_path {
        return Box::pin(https::attend(server, session, asker, permit, path)).await;
    }
    // The rest of a reply stays with us, where each part that is written counts as progress of its client (WR42).
    session.get_mut().1.set_buffer_limit(Some(SEND_OCTETS));
    let permit = Rc::new(permit);
    let reads = server.turns.reads(permit.share());
    let session = InTurns::new(session, reads, Rc::clone(&permit));
    let mut connection = Connection::behind(server, session, asker, permit, true);
    let reason = connection.run().await;
    connection.end(reason).await;
    reason
}

/// A handshake has the time of a message (WR42), gives way like an idle connection (WR44), and to newer ones where there
/// are too many. It is computed on a thread of its own.
async fn handshake(
    server: &TcpServer,
    stream: TcpStream,
    client: IpAddr,
    permit: &Permit,
    config: Arc<ServerConfig>,
) -> Result<Session, CloseReason> {
    let within = server.table.deadlines().message;
    let place = server.handshakes.begin(client);
    let stream = Measured::new(stream, HANDSHAKE_OCTETS);
    let accepted = server.handshake_thread.spawn(TlsAcceptor::from(config).accept(stream));
    let accepted = tokio::time::timeout(within, AbortOnDropHandle::new(accepted));
    tokio::select! {
        reason = must_close(permit) => Err(reason),
        () = place.gave_way() => Err(CloseReason::Evicted),
        accepted = accepted => match accepted {
            Ok(Ok(Ok(mut session))) => {
                session.get_mut().0.unbounded();
                Ok(session)
            }
            Ok(Ok(Err(_)) | Err(_)) => Err(CloseReason::Failed),
            Err(_) => Err(CloseReason::SlowMessage),
        },
    }
}

/// Returns when a handshake must end for others. In a drain one that has just begun may be followed by a query (E45).
async fn must_close(permit: &Permit) -> CloseReason {
    let opened = Instant::now();
    poll_fn(|cx| permit.poll_close_unless(cx, opened.elapsed() < FIRST_QUERY_WITHIN)).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::net::TcpListener;

    use super::super::super::certificate::Use;
    use super::super::super::certificate::testing::{made, mount, signed_there, trusting};
    use super::super::super::traffic::ServedOver;
    use super::super::tests::{local, patient, server, with_handshake_thread};
    use super::*;

    #[test]
    fn t8_signatures_of_tls_are_computed_off_the_thread_of_tcp() {
        let (config, certificate, threads) = signed_there(b"dot");
        with_handshake_thread(patient(), async move |server| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let connector =
                tokio_rustls::TlsConnector::from(Arc::new(trusting(&certificate, b"dot")));
            let address = listener.local_addr().unwrap();
            let client = tokio::task::spawn_local(async move {
                let stream = TcpStream::connect(address).await.unwrap();
                connector.connect("dns.example".try_into().unwrap(), stream).await.is_ok()
            });
            let (stream, peer) = listener.accept().await.unwrap();
            let permit = server.table.admit_session(peer.ip(), SESSION_OCTETS).unwrap();
            let asker = Asker { client: peer, server: address, over: ServedOver::Tls };
            let config = Arc::new(Certificate::of(config));
            let secured = Secured { certificate: config, http_path: None };
            let served = tokio::task::spawn_local(attend(server, stream, asker, permit, secured));
            assert!(client.await.unwrap(), "a session");
            let _ = served.await;
        });
        assert_eq!(*threads.lock().unwrap(), ["handshakes"]);
    }

    #[test]
    fn t8_a_look_that_hangs_is_reported_after_30_s_until_it_returns() {
        local(async {
            let folder = std::env::temp_dir().join(format!("hanging-look-{}", std::process::id()));
            let (chain, key) = made();
            mount(&folder, &chain, &key);
            let certificate = Arc::new(Certificate::new(folder.clone(), Use::Tls));
            let trouble = || certificate.state().trouble;
            let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
            let (let_go, held) = std::sync::mpsc::channel::<()>();
            let held = Arc::new(Mutex::new(held));
            let look = move |certificate: &Certificate| {
                begins.send(()).unwrap();
                let _ = held.lock().unwrap().recv();
                certificate.refresh();
            };
            let followed = Arc::clone(&certificate);
            let following = tokio::task::spawn_local(async move {
                follow_by(&Handle::current(), followed, look).await;
            });
            begun.recv().await.unwrap();
            // Time stands still during a look, except for these steps.
            passes(LOOK_WITHIN - Duration::from_secs(1)).await;
            assert_eq!(trouble(), None, "it may be slow");
            passes(Duration::from_secs(2)).await;
            let late = trouble().expect("it is reported");
            assert!(late.contains("cannot be read in time"), "{late}");
            assert!(certificate.config().is_some(), "the last good one");
            passes(10 * LOOK_WITHIN).await;
            assert!(begun.try_recv().is_err(), "no second look beside one that hangs");
            let_go.send(()).unwrap();
            begun.recv().await.unwrap();
            assert_eq!(trouble(), None, "the first look has ended, and was a good one");
            following.abort();
            drop(let_go);
            std::fs::remove_dir_all(&folder).unwrap();
        });
    }

    /// Time passes, and what it wakes runs.
    async fn passes(time: Duration) {
        tokio::time::advance(time).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn e45_a_drain_waits_for_a_handshake_that_has_just_begun() {
        local(async {
            let (server, _) = server(patient());
            let permit = server.table.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
            permit.set_quiet_since(Some(Instant::now()));
            let mut closing = pin!(must_close(&permit));
            assert!(closing.as_mut().now_or_never().is_none());
            server.drain();
            assert!(closing.as_mut().now_or_never().is_none(), "it was just opened");
            tokio::time::sleep(FIRST_QUERY_WITHIN).await;
            assert!(closing.as_mut().now_or_never().is_none(), "its time to end is its own");
            server.drain();
            assert_eq!(closing.await, CloseReason::Drain);
        });
    }
}
