//! Asking a Service as a client of the cluster does: through the endpoints that kube-proxy would choose from.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::Client;
use kube::api::{Api, ListParams};

use crate::client::{self, Names, Question, Text, Transport};

/// The port of DNS, as clients know it.
const DNS_PORT: i32 = 53;

/// Where kube-proxy sends a client of this Service's port 53 over UDP: to the ready endpoints, or where there is none,
/// to those that still serve while they end.
///
/// # Errors
/// There is no such Service, or it has no port 53 over UDP.
pub async fn endpoints(client: &Client, namespace: &str, name: &str) -> Result<Vec<SocketAddr>> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(name).await?;
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let is_dns = |protocol: &Option<String>| protocol.as_deref().unwrap_or("TCP") == "UDP";
    let port = ports.into_iter().find(|port| port.port == DNS_PORT && is_dns(&port.protocol));
    let port = port.with_context(|| format!("{namespace}/{name} has no port 53 over UDP"))?;
    let slices = slices_of(client, namespace, name).await?;
    let all = |which: &dyn Fn(&Endpoint) -> bool| {
        let mut found = Vec::new();
        for slice in &slices {
            let mut ports = slice.ports.iter().flatten();
            let target = ports.find(|target| {
                target.name.clone().unwrap_or_default() == port.name.clone().unwrap_or_default()
                    && is_dns(&target.protocol)
            });
            let Some(target) = target.and_then(|port| port.port?.try_into().ok()) else { continue };
            for endpoint in slice.endpoints.iter().filter(|endpoint| which(endpoint)) {
                let address =
                    endpoint.addresses.first().and_then(|address| address.parse::<IpAddr>().ok());
                found.extend(address.map(|address| SocketAddr::new(address, target)));
            }
        }
        found.sort();
        found.dedup();
        found
    };
    let ready = all(&is_ready);
    Ok(if ready.is_empty() { all(&still_serves) } else { ready })
}

/// Asks every endpoint of the Service over UDP: what each of them says.
///
/// # Errors
/// No reply comes from one.
pub async fn through_service(
    client: &Client,
    namespace: &str,
    name: &str,
    question: &str,
) -> Result<Vec<(SocketAddr, Text)>> {
    let endpoints = endpoints(client, namespace, name).await?;
    endpoints.into_iter().map(|server| Ok((server, ask(server, question)?))).collect()
}

/// Asks one endpoint over UDP.
///
/// # Errors
/// No reply comes.
pub fn ask(server: SocketAddr, question: &str) -> Result<Text> {
    let question = Question::parse(question)?;
    let reply = client::ask_udp(server, &question.packet, false)
        .with_context(|| format!("{} of {server}", question.text))?;
    // Programs have names and versions of their own, which only CHAOS questions show.
    let names = Names { version: String::new(), pod_name: String::new() };
    Ok(client::read(&question, reply.as_deref(), Transport::Udp, &names))
}

/// The slices of a Service.
async fn slices_of(client: &Client, namespace: &str, name: &str) -> Result<Vec<EndpointSlice>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_it = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    Ok(slices.list(&of_it).await?.items)
}

/// A condition that is not known counts as true (the API's rule).
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready.unwrap_or(true))
}

pub(super) fn still_serves(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else { return true };
    conditions.serving.unwrap_or_else(|| is_ready(endpoint)) && conditions.terminating == Some(true)
}
