//! HTTP probes, asked from outside the Pod as a kubelet does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Generous: on a busy machine Pods are slow.
const PATIENCE: Duration = Duration::from_secs(10);
/// As much of a reply as its status line may take.
const STATUS_OCTETS: usize = 64;

/// Whether it passes. A container without this probe always does.
pub(super) async fn passes(container: &Container, probe: Option<&Probe>, pod: IpAddr) -> bool {
    let Some(get) = probe.and_then(|probe| probe.http_get.as_ref()) else { return true };
    let Some(port) = number(container, &get.port) else { return false };
    let path = get.path.as_deref().unwrap_or("/");
    let asked = tokio::time::timeout(PATIENCE, status((pod, port).into(), path)).await;
    matches!(asked, Ok(Ok(200..=399)))
}

fn number(container: &Container, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_deref() == Some(name))?.container_port
        }
    };
    number.try_into().ok()
}

async fn status(server: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.take(STATUS_OCTETS as u64).read_to_end(&mut reply).await?;
    let line = String::from_utf8_lossy(&reply);
    let code = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    code.ok_or_else(|| std::io::Error::other("no HTTP status"))
}
