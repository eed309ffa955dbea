//! The cluster of a measurement as each server reads it: manifests for ours, zone files and a hosts file with the same
//! records for the others; and the certificate of those that answer over TLS.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::scale::{Cluster, Kind};
use crate::scratch::Scratch;
use crate::upstream::Credentials;

/// The zone of all Services.
pub const ZONE: &str = "cluster.local";
/// The zone of their addresses.
pub const REVERSE_ZONE: &str = "10.in-addr.arpa";
const TTL_S: u32 = 5;
/// Questions that may wait for an upstream, as in the configuration of dnsmasq.
const CLIENT_QUERIES: usize = 10_000;
const SERVICES_IN_A_FILE: usize = 100;

/// How servers run, where that is not as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads or processes that answer.
    pub workers: usize,
    /// Whether they answer over TLS too.
    pub has_tls: bool,
    /// Whether ours keeps its default limits of queries for upstreams. Otherwise it has those of the others, and one
    /// client may use them all.
    pub has_default_limits: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { workers: 1, has_tls: false, has_default_limits: false }
    }
}

/// Files that servers read, removed when dropped, and how servers run.
#[derive(Debug)]
pub struct Fixture {
    folder: Scratch,
    pub shape: Shape,
    tls: Option<Tls>,
}

/// The name, certificate and key of all servers, and the port of ours, which its configuration has.
#[derive(Debug)]
struct Tls {
    port: u16,
    authority: String,
}

/// What the certificate names.
const NAME: &str = "dns.example";
/// The Secret of the certificate, as a folder.
const SECRET: &str = "dns-tls";

impl Fixture {
    /// Writes them. Ours forwards to `upstream`; the others are given it when they start.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(cluster: &Cluster, upstream: SocketAddr) -> anyhow::Result<Fixture> {
        Fixture::write_for(cluster, upstream, Shape::default())
    }

    /// The same for servers that run so.
    ///
    /// # Errors
    /// A file cannot be written, or no port is free.
    pub fn write_for(
        cluster: &Cluster,
        upstream: SocketAddr,
        shape: Shape,
    ) -> anyhow::Result<Fixture> {
        let folder = Scratch::new("load")?;
        let tls = if shape.has_tls { Some(certificate(&folder)?) } else { None };
        let fixture = Fixture { folder, shape, tls };
        let manifests = fixture.manifests();
        fs::create_dir(&manifests)?;
        let mut first = cluster.namespace_objects();
        first.push(configuration(upstream, fixture.tls.as_ref(), shape.has_default_limits));
        write_list(&manifests.join("namespaces.json"), first)?;
        for (number, start) in (0..cluster.services).step_by(SERVICES_IN_A_FILE).enumerate() {
            let services = start..(start + SERVICES_IN_A_FILE).min(cluster.services);
            let objects = services.flat_map(|service| {
                [Some(cluster.service_object(service)), cluster.slice_object(service)]
            });
            let file = manifests.join(format!("services-{number}.json"));
            write_list(&file, objects.flatten().collect())?;
        }
        fs::write(fixture.zone(), zone(cluster))?;
        fs::write(fixture.reverse_zone(), reverse_zone(cluster))?;
        fs::write(fixture.hosts(), hosts(cluster))?;
        Ok(fixture)
    }

    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// The zone file of [`ZONE`].
    pub fn zone(&self) -> PathBuf {
        self.folder.path().join("cluster.zone")
    }

    /// The zone file of [`REVERSE_ZONE`].
    pub fn reverse_zone(&self) -> PathBuf {
        self.folder.path().join("reverse.zone")
    }

    /// The folder of certificates, as ours reads it.
    pub fn certificates(&self) -> PathBuf {
        self.folder.path().join("certificates")
    }

    /// The certificate and its key, in PEM.
    pub fn certificate_and_key(&self) -> (PathBuf, PathBuf) {
        let secret = self.certificates().join(SECRET);
        (secret.join("tls.crt"), secret.join("tls.key"))
    }

    /// Where ours answers over TLS, where it does.
    pub fn own_tls_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|tls| tls.port)
    }

    /// What clients must trust, and the name that they expect.
    ///
    /// # Errors
    /// The servers have no TLS.
    pub fn trust(&self) -> anyhow::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let tls = self.tls.as_ref().context("servers without TLS")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(tls.authority.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok((Arc::new(config), ServerName::try_from(NAME)?))
    }

    /// Addresses and names, as in `/etc/hosts`.
    pub fn hosts(&self) -> PathBuf {
        self.folder.path().join("hosts")
    }
}

fn write_list(file: &Path, items: Vec<Value>) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Ok(fs::write(file, serde_json::to_vec(&list)?)?)
}

/// Writes a certificate and its key.
fn certificate(folder: &Scratch) -> anyhow::Result<Tls> {
    let credentials = Credentials::of(NAME)?;
    let secret = folder.path().join("certificates").join(SECRET);
    fs::create_dir_all(&secret)?;
    fs::write(secret.join("tls.crt"), &credentials.certificate_pem)?;
    fs::write(secret.join("tls.key"), &credentials.key_pem)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(Tls { port, authority: credentials.authority })
}

fn configuration(upstream: SocketAddr, tls: Option<&Tls>, has_default_limits: bool) -> Value {
    let server = json!({"address": upstream.ip(), "port": upstream.port()});
    let mut resource = json!({
        "apiVersion": "clusterdns.dev/v1alpha1",
        "kind": "ClusterDNS",
        "metadata": {"name": "load"},
        "spec": {
            "upstreams": {"servers": [server]},
            "cache": {"memory": "64Mi", "entries": 65536},
        },
    });
    if !has_default_limits {
        // All questions come from one address, which is no client that needs a bound then.
        resource["spec"]["upstreams"]["limits"] = json!({"inFlight": CLIENT_QUERIES});
        resource["spec"]["limits"] =
            json!({"inFlight": CLIENT_QUERIES, "inFlightPerClient": CLIENT_QUERIES});
    }
    if let Some(Tls { port, .. }) = tls {
        let listener = json!({"port": port, "certificate": {"name": SECRET}});
        resource["spec"]["listeners"] = json!({"tls": listener});
    }
    resource
}

fn head(zone: &str) -> String {
    format!(
        "$ORIGIN {zone}.\n$TTL {TTL_S}\n\
         @ SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 {TTL_S}\n\
         @ NS ns.dns.cluster.local.\n"
    )
}

/// The records of the cluster as the Kubernetes DNS specification has them.
fn zone(cluster: &Cluster) -> String {
    let mut text = head(ZONE);
    text.push_str("ns.dns A 10.96.0.10\n");
    for service in 0..cluster.services {
        let name = format!("{}.svc", cluster.below_svc(service));
        let mut line = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(format_args!("{line}\n")).expect("a string takes everything");
        };
        match cluster.kind(service) {
            Kind::ClusterIp | Kind::TwoPorts => {
                line(format_args!("{name} A {}", cluster.address(service)));
                line(format_args!("_http._tcp.{name} SRV 0 100 80 {name}"));
                if cluster.kind(service) == Kind::TwoPorts {
                    line(format_args!("_grpc._tcp.{name} SRV 0 100 81 {name}"));
                }
            }
            Kind::Headless { .. } => {
                for (at, address) in cluster.addresses(service).enumerate() {
                    let own = format!("{}.{name}", cluster.endpoint_label(service, at));
                    line(format_args!("{name} A {address}"));
                    line(format_args!("{own} A {address}"));
                    line(format_args!("_http._tcp.{name} SRV 0 100 8080 {own}"));
                }
            }
            Kind::ExternalName => {
                line(format_args!("{name} CNAME {}.", cluster.external(service)));
            }
        }
    }
    text
}

fn reverse_zone(cluster: &Cluster) -> String {
    let mut text = head(REVERSE_ZONE);
    for (address, name) in named_addresses(cluster) {
        let [_, b, c, d] = address.octets();
        writeln!(text, "{d}.{c}.{b} PTR {name}.").expect("a string takes everything");
    }
    text
}

fn hosts(cluster: &Cluster) -> String {
    let mut text = String::new();
    for (address, name) in named_addresses(cluster) {
        // An endpoint has two names; the reverse one is the first.
        let service = name.split_once('.').map_or("", |(_, rest)| rest);
        let also =
            if service.starts_with("service-") { format!(" {service}") } else { String::new() };
        writeln!(text, "{address} {name}{also}").expect("a string takes everything");
    }
    text
}

/// Every address that has a PTR record, and what that says.
fn named_addresses(cluster: &Cluster) -> impl Iterator<Item = (Ipv4Addr, String)> + use<'_> {
    (0..cluster.services).flat_map(|service| {
        let name = format!("{}.svc.{ZONE}", cluster.below_svc(service));
        let own: Vec<_> = match cluster.kind(service) {
            Kind::ClusterIp | Kind::TwoPorts => vec![(cluster.address(service), name)],
            Kind::Headless { .. } => {
                let named = |(at, address)| {
                    (address, format!("{}.{name}", cluster.endpoint_label(service, at)))
                };
                cluster.addresses(service).enumerate().map(named).collect()
            }
            Kind::ExternalName => Vec::new(),
        };
        own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|found| found == line)
    }

    #[test]
    fn every_kind_of_service_is_in_the_zone_as_the_specification_says() {
        let zone = zone(&Cluster::new(100, "ns"));
        for line in [
            "service-0.ns-0.svc A 10.96.1.0",
            "_http._tcp.service-0.ns-0.svc SRV 0 100 80 service-0.ns-0.svc",
            "_grpc._tcp.service-98.ns-0.svc SRV 0 100 81 service-98.ns-0.svc",
            "service-80.ns-0.svc A 10.128.3.192",
            "service-80-0.service-80.ns-0.svc A 10.128.3.192",
            "_http._tcp.service-80.ns-0.svc SRV 0 100 8080 service-80-0.service-80.ns-0.svc",
            "service-95.ns-0.svc CNAME service-95.example.com.",
        ] {
            assert!(has(&zone, line), "{line}");
        }
    }

    #[test]
    fn addresses_lead_back_to_one_name_and_names_to_all_addresses() {
        let cluster = Cluster::new(100, "ns");
        let reverse = reverse_zone(&cluster);
        assert!(has(&reverse, "0.1.96 PTR service-0.ns-0.svc.cluster.local."));
        assert!(has(&reverse, "192.3.128 PTR service-80-0.service-80.ns-0.svc.cluster.local."));
        let hosts = hosts(&cluster);
        assert!(has(&hosts, "10.96.1.0 service-0.ns-0.svc.cluster.local"));
        let name = " service-80.ns-0.svc.cluster.local";
        assert_eq!(hosts.lines().filter(|line| line.ends_with(name)).count(), 12);
    }
}
