//! What the data planes run, as `/config` shows it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::http;

/// The container port `metrics`.
const PORT: u16 = 9153;

/// `/config` of one pod.
///
/// # Errors
/// It has no address, or does not answer.
pub fn config_of(pod: &Pod) -> Result<Value> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let address: IpAddr = address.context("the pod has no address")?.parse()?;
    let server = SocketAddr::new(address, PORT);
    let (_, body) = http::get(server, "/config")?;
    serde_json::from_str(&body).with_context(|| format!("/config of {server}: {body}"))
}

/// The revisions that it ran, by its log, in order.
pub fn revisions_in(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("configuration in use"));
    let revision = |line: &str| {
        let (_, rest) = line.split_once("\"revision\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    lines.filter_map(revision).collect()
}
