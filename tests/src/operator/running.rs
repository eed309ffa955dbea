//! What the data planes run, as `/config` says it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// The container port `metrics`.
const PORT: u16 = 9153;
/// Generous: a busy machine is no sick pod.
const PATIENCE: Duration = Duration::from_secs(20);

/// `/config` of one pod.
///
/// # Errors
/// It has no address, or does not answer.
pub fn config_of(pod: &Pod) -> Result<Value> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let address: IpAddr = address.context("the pod has no address")?.parse()?;
    let server = SocketAddr::new(address, PORT);
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the end of the reply is the end of the connection.
    write!(stream, "GET /config HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (_, body) = reply.split_once("\r\n\r\n").context("no HTTP reply")?;
    serde_json::from_str(body).with_context(|| format!("/config of {server}: {reply}"))
}

/// The revisions that its log says it ran, in order.
pub fn revisions_in(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("configuration in use"));
    let revision = |line: &str| {
        let (_, rest) = line.split_once("\"revision\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    lines.filter_map(revision).collect()
}
