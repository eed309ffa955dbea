//! Servers that watch an API server, as in a cluster: ours, and CoreDNS with its plugin `kubernetes`.

use std::path::Path;

use anyhow::bail;

use super::check::Expected;
use super::servers::{Peer, Server, free_port, words};
use crate::scratch::Scratch;

/// The servers that can watch.
pub const WATCHING: [Peer; 2] = [Peer::Ours, Peer::CoreDns];

/// Starts a server that watches what a kubeconfig names, and waits until it answers this question as expected. Where
/// `snapshots` is a folder, ours keeps its snapshot there.
///
/// # Errors
/// It does not start, or does not answer, or cannot watch.
pub fn start(
    peer: Peer,
    program: &Path,
    kubeconfig: &Path,
    snapshots: Option<&Path>,
    question: (&[u8], Expected),
) -> anyhow::Result<Server> {
    let (dns, folder) = (free_port()?, Scratch::new("watching")?);
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = match peer {
        Peer::Ours => {
            let (dns, http) = (dns.to_string(), free_port()?.to_string());
            let mut all = words(&["--kubeconfig", &kubeconfig, "--workers", "1"]);
            all.extend(words(&["--listen", &dns, "--http", &http, "--log-level", "warn"]));
            if let Some(snapshots) = snapshots {
                all.extend(words(&["--state-dir", &snapshots.display().to_string()]));
            }
            all
        }
        Peer::CoreDns => {
            let conf = folder.write("server.conf", corefile(dns.port(), &kubeconfig))?;
            words(&["-conf", &conf.display().to_string()])
        }
        Peer::Echo
        | Peer::EchoPktinfo
        | Peer::Knot
        | Peer::Nsd
        | Peer::Dnsmasq
        | Peer::Unbound
        | Peer::Hickory => bail!("{} cannot watch an API server", peer.name()),
    };
    Server::start(peer, program, &arguments, dns, folder, question)
}

/// As kubeadm writes it, where the cache leaves out names of the cluster.
fn corefile(port: u16, kubeconfig: &str) -> String {
    format!(
        ".:{port} {{\n  bind 127.0.0.1\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    \
         kubeconfig {kubeconfig}\n    pods insecure\n    ttl 30\n  }}\n  \
         cache 30 {{\n    disable success cluster.local\n    disable denial cluster.local\n  }}\n}}\n"
    )
}
