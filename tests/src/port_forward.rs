//! The part of a kubelet that forwards a port: the API server connects it for a client of `pods/portforward`, and what
//! comes is carried to an address of the test. The test control plane has no kubelet.
//!
//! The WebSocket protocol of kubelets (`k8s.io/kubelet/pkg/cri/streaming/portforward`): the first octet of a message is its
//! channel, 0 for data and 1 for errors; each channel begins with the port, two octets, lowest first.

use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use crate::control_plane::authority::Authority;

/// The subprotocol that our client and kubelets use.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// Most octets of one message.
const PIECE: usize = 16 << 10;

/// Creates a Node of this name whose kubelet forwards every port of every pod to this address; it ends with the runtime.
///
/// # Panics
/// The API server does not take the Node.
pub async fn forward_from(client: &Client, node: &str, to: SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let authority = Authority::new("kubelet").expect("an authority");
    let tls = authority.acceptor(&["127.0.0.1"]).expect("a certificate");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(forwarded(stream, tls.clone(), to));
        }
    });
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let manifest = json!({"metadata": {"name": node}});
    let manifest = serde_json::from_value(manifest).expect("a Node");
    nodes.create(&PostParams::default(), &manifest).await.expect("the API server takes a Node");
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let patched = nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("the API server takes its status");
}

/// One forwarded port; any error ends it.
async fn forwarded(stream: TcpStream, tls: TlsAcceptor, to: SocketAddr) -> Option<()> {
    let stream = tls.accept(stream).await.ok()?;
    let mut port = 0;
    // The size of the error is that of the library.
    #[allow(clippy::result_large_err)]
    let agreed = |request: &Request, mut response: Response| {
        let asked = request.uri().query().and_then(|query| query.strip_prefix("port="));
        port = asked.and_then(|port| port.parse().ok()).unwrap_or(0);
        let protocol = PROTOCOL.parse().expect("a header");
        response.headers_mut().insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, agreed).await.ok()?;
    let [low, high] = u16::to_le_bytes(port);
    for channel in [0, 1] {
        socket.send(Message::binary(vec![channel, low, high])).await.ok()?;
    }
    let mut server = TcpStream::connect(to).await.ok()?;
    let mut buffer = vec![0; PIECE];
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(octets))) => server.write_all(octets.get(1..)?).await.ok()?,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            },
            read = server.read(&mut buffer) => match read {
                Ok(0) | Err(_) => {
                    socket.close(None).await.ok()?;
                    return Some(());
                }
                Ok(octets) => {
                    let message = [&[0], &buffer[..octets]].concat();
                    socket.send(Message::binary(message)).await.ok()?;
                }
            },
        }
    }
}
