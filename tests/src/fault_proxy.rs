//! A proxy between a client and a real API server that breaks the connection between them when a test asks for it.
//!
//! Two layers can fail. The **link** is cut or hangs for everything at once, as when a node or a network goes. A
//! **fault** touches the requests that it names, also those whose watch streams are open already: it refuses, delays,
//! stops, slows, cuts or ends them. What went through is recorded, so that a test can count lists and read the
//! resourceVersions they asked for.
//!
//! The client reaches it with [`FaultProxy::kubeconfig`]. A bearer token of the client's is passed on; a client
//! without one gets every right, because the proxy has them.

mod connection;
mod forward;
mod relay;
mod rules;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::control_plane::authority::Authority;
use crate::control_plane::{ControlPlane, kubeconfig};
use crate::scratch::Scratch;
use forward::Upstream;
use rules::Rules;
pub(crate) use rules::status_object;
pub use rules::{Answered, Requests, Seen};

/// What happens to a request, or to a watch stream that is open.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Answers with this status and a Kubernetes `Status` object, without asking the API server.
    Answer {
        /// The HTTP status, such as 403, 410, 429, 500 or 503.
        status: u16,
        /// The `Retry-After` header, and `retryAfterSeconds` of the object.
        retry_after_s: Option<u32>,
    },
    /// Answers with this status as an API server does for which it is too much: a sentence, and the time to wait in a header.
    Overload {
        /// The HTTP status: 429, or 503.
        status: u16,
        /// The `Retry-After` header, in seconds.
        retry_after_s: u32,
    },
    /// Never answers; an open stream stops. Both continue when the fault is healed.
    Hang,
    /// The request is lost on its way: the API server never gets it and no answer comes, also after healing.
    LoseRequest,
    /// The API server does what it is asked, and its reply is lost: no answer comes, also after healing.
    LoseReply,
    /// Resets the connection (RST), in the middle of a stream where one is open.
    Reset,
    /// Ends the body in order, as an API server ends a watch whose time is over.
    End,
    /// Passes on half of the next chunk of the body, then ends it.
    Truncate,
    /// Puts an event of the test's own into a watch stream, once per stream.
    Event(serde_json::Value),
    /// Lets this many bytes of each body through per second.
    Throttle {
        /// Bytes per second, at least 10.
        bytes_per_s: usize,
    },
}

impl Fault {
    /// Answers with this status and no `Retry-After`.
    pub fn status(status: u16) -> Fault {
        Fault::Answer { status, retry_after_s: None }
    }

    /// The event by which a watch learns that its resourceVersion is too old: `410 Gone` inside a stream.
    pub fn expired() -> Fault {
        let status = rules::status_object(410, "too old resource version (said the test)");
        Fault::Event(serde_json::json!({"type": "ERROR", "object": status}))
    }
}

/// The whole connection to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// All traffic passes.
    Up,
    /// Open connections are reset, and so is each new one.
    Cut,
    /// Connections are accepted and stay open; nothing moves on them until the link is up again.
    Hung,
}

/// The running proxy; it ends when dropped, and its connections with it.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    kubeconfig: PathBuf,
    scratch: Scratch,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts one in front of this control plane, on a thread of its own: a test that blocks does not stop it.
    pub async fn start(plane: &ControlPlane) -> FaultProxy {
        FaultProxy::before(plane.kubeconfig()).await
    }

    /// The same before the API server that a kubeconfig file names.
    pub async fn before(target: &Path) -> FaultProxy {
        FaultProxy::start_before(target).await.expect("a fault proxy starts")
    }

    async fn start_before(target: &Path) -> anyhow::Result<FaultProxy> {
        let scratch = Scratch::new("fault-proxy")?;
        let authority = Authority::new("fault proxy")?;
        let tls = authority.acceptor(&["127.0.0.1", "localhost"])?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let authority_file = scratch.write("ca.pem", authority.pem())?;
        let cluster = kubeconfig::cluster(&format!("https://{address}"), &authority_file);
        let kubeconfig = scratch.write("kubeconfig", kubeconfig::document(&cluster, None))?;
        let rules = Arc::new(Rules::default());
        let (end, ended) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let (target, shared) = (target.to_owned(), Arc::clone(&rules));
        let thread = std::thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                // Made here: a client of kube has tasks on the runtime that it is made on.
                match Upstream::new(&target).await {
                    Ok(upstream) => {
                        let _ = ready.send(Ok(()));
                        serve(listener, tls, upstream, shared, ended).await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        })?;
        is_ready.await??;
        Ok(FaultProxy { address, rules, kubeconfig, scratch, end: Some(end), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig file that leads here, with every right.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig file that leads here, with this bearer token.
    pub fn kubeconfig_with_token(&self, token: &str) -> PathBuf {
        let cluster =
            kubeconfig::cluster_of(&self.kubeconfig).expect("our own kubeconfig names a cluster");
        let document = kubeconfig::document(&cluster, Some(token));
        self.scratch.write("token.kubeconfig", document).expect("the scratch directory is ours")
    }

    /// Changes the whole link, at once.
    pub fn link(&self, link: Link) {
        self.rules.set_link(link);
    }

    /// Lets matching requests fail like this until [`FaultProxy::heal`]. A later fault comes before an earlier one.
    pub fn fault(&self, requests: Requests, fault: Fault) {
        self.rules.add(requests, fault, None);
    }

    /// The same for the next `times` matching requests (or open streams) only.
    pub fn fault_times(&self, times: usize, requests: Requests, fault: Fault) {
        self.rules.add(requests, fault, Some(times));
    }

    /// The same from the `first` matching request on that is still to come.
    pub fn fault_from(&self, first: usize, requests: Requests, fault: Fault) {
        self.rules.add_after(first, requests, fault, None);
    }

    /// The same for nothing but the `number`th matching request that is still to come.
    pub fn fault_at(&self, number: usize, requests: Requests, fault: Fault) {
        self.rules.add_after(number, requests, fault, Some(1));
    }

    /// Takes every fault back and brings the link up.
    pub fn heal(&self) {
        self.rules.heal();
    }

    /// The requests so far that match, oldest first.
    pub fn seen(&self, requests: &Requests) -> Vec<Seen> {
        self.rules.seen(requests)
    }

    /// The matching requests that the API server itself has answered, oldest first: with its status, also where the
    /// reply was lost afterwards.
    pub fn answered(&self, requests: &Requests) -> Vec<Answered> {
        self.rules.answered(requests)
    }

    /// How many matching requests were lost, or their replies, since the last [`FaultProxy::heal`].
    pub fn lost(&self, requests: &Requests) -> usize {
        self.rules.lost(requests)
    }

    /// How many requests so far match.
    pub fn count(&self, requests: &Requests) -> usize {
        self.rules.count(requests)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the proxy has been printed; a second one here would hide what the test itself says.
            let _ = thread.join();
        }
    }
}

/// Accepts until the other end of `ended` is dropped. Dropping the runtime then ends every connection.
async fn serve(
    listener: std::net::TcpListener,
    tls: TlsAcceptor,
    upstream: Upstream,
    rules: Arc<Rules>,
    ended: oneshot::Receiver<()>,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    let upstream = Arc::new(upstream);
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            tokio::spawn(connection::serve(
                stream,
                tls.clone(),
                Arc::clone(&upstream),
                Arc::clone(&rules),
            ));
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = ended => {}
    }
}
