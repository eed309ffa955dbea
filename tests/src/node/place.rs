//! Where a node is: alone in the test's own network namespace, or one of several in namespaces of their own, on one switch
//! with the control plane.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::CLUSTER_DNS;
use crate::netns::{NODE_ADDRESS, ip};

/// The Service in the other family, where nodes have both.
pub const CLUSTER_DNS_V6: &str = "fd00:96::a";
/// As many as the API server knows tokens for.
pub const MOST_NODES: u8 = 4;
const SCRIPT: &str = "src/node/network.sh";

/// What differs between nodes.
#[derive(Clone, Debug)]
pub struct Place {
    /// From 1 to [`MOST_NODES`].
    number: u8,
    /// A zone, where the node is one of several.
    zone: Option<&'static str>,
}

/// Makes the switch; once, before [`Place::among_others`].
pub fn make_switch() -> Result<()> {
    script(&["switch"])
}

fn script(words: &[&str]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    let output = Command::new("sh").arg(file).args(words).output().context("sh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{SCRIPT} {words:?}: {said}");
    Ok(())
}

impl Place {
    /// The only node, where the test is.
    pub fn alone() -> Place {
        Place { number: 1, zone: None }
    }

    /// One of several: makes its network.
    pub fn among_others(number: u8, zone: &'static str) -> Result<Place> {
        anyhow::ensure!((1..=MOST_NODES).contains(&number), "no token for node-{number}");
        script(&["node", &number.to_string()])?;
        Ok(Place { number, zone: Some(zone) })
    }

    pub fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// Whether it has addresses of both families.
    pub fn is_dual_stack(&self) -> bool {
        self.zone.is_some()
    }

    /// The namespace for `nsenter`; none if it is that of the test.
    pub fn network(&self) -> Option<String> {
        self.zone.map(|_| format!("/run/netns/{}", self.name()))
    }

    /// Those of the node itself, IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let last = 10 + self.number;
        match self.zone {
            None => vec![NODE_ADDRESS.parse().expect("an address")],
            Some(_) => vec![
                Ipv4Addr::new(192, 0, 2, last).into(),
                // As network.sh writes it: the digits of IPv4, read as hexadecimal.
                Ipv6Addr::new(0xfd00, 0x192, 0, 0, 0, 0, 0, 0x10 + u16::from(self.number)).into(),
            ],
        }
    }

    /// The DNS server that kubelet gives to pods.
    pub(super) fn cluster_dns(&self) -> String {
        match self.zone {
            None => CLUSTER_DNS.to_owned(),
            Some(_) => format!("{CLUSTER_DNS}, '{CLUSTER_DNS_V6}'"),
        }
    }

    /// Of all pods of the cluster, for kube-proxy.
    pub(super) fn cluster_cidr(&self) -> &'static str {
        match self.zone {
            None => "10.244.0.0/16",
            Some(_) => "10.244.0.0/16,fd00:244::/32",
        }
    }

    pub(super) fn labels(&self) -> String {
        self.zone.map(|zone| format!("topology.kubernetes.io/zone={zone}")).unwrap_or_default()
    }

    /// Gives pods their addresses and routes (CNI).
    pub(super) fn network_of_pods(&self) -> Value {
        let number = self.number;
        let (mut ranges, mut routes) = (
            vec![json!([{"subnet": format!("10.244.{number}.0/24")}])],
            vec![json!({"dst": "0.0.0.0/0"})],
        );
        if self.zone.is_some() {
            ranges.push(json!([{"subnet": format!("fd00:244:{number}::/64")}]));
            routes.push(json!({"dst": "::/0"}));
        }
        json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp",
            "ipam": {"type": "host-local", "ranges": ranges, "routes": routes}}]})
    }

    /// Plugs its cable in or out, at the switch.
    ///
    /// # Panics
    /// It is no node among others.
    pub(super) fn set_link(&self, state: &str) {
        assert!(self.zone.is_some(), "a node alone has no cable");
        ip(&["link", "set", &format!("to-{}", self.name()), state]).expect("its cable");
    }
}
