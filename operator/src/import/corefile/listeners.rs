//! Which server blocks the clients of the Service ask. CoreDNS may listen on more ports, and with encryption; a ClusterDNS
//! answers the same on all of its listeners, so only the blocks behind port 53 of the Service are converted.

use std::net::IpAddr;

use super::forward;
use super::keys::Key;
use super::parse::{Directive, Parsed, ServerBlock};
use super::scope::Scope;
use super::{block_zones, convert_directive, shown};
use crate::import::Refused;
use crate::import::report::Outcome::{NotNeeded, NotPossible};
use crate::import::values::{address, list};

/// The port of CoreDNS where a key has none.
const DNS_PORT: &str = "53";
/// Directives about the process or its listeners, which have the same line in every server block.
const OF_PROCESS: [&str; 11] = [
    "debug",
    "errors",
    "health",
    "loop",
    "pprof",
    "prometheus",
    "ready",
    "reload",
    "root",
    "timeouts",
    "tls",
];

/// Scheme and port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    scheme: String,
    port: String,
}

impl Listener {
    fn of(key: &str) -> Listener {
        let Key { scheme, port, .. } = Key::of(key);
        Listener { scheme, port: port.unwrap_or_else(|| DNS_PORT.to_owned()) }
    }

    fn is_plain(&self) -> bool {
        self.scheme == "dns"
    }
}

/// Moves what clients of the Service do not ask out of `blocks`: whole server blocks, and single keys of others.
pub(super) fn split(parsed: &mut Parsed) {
    let Some(asked) = asked(&parsed.blocks) else { return };
    let has_more = |block: &ServerBlock| !is_loopback(block) && block.has(&asked);
    let is_one_left = parsed.blocks.iter().any(has_more);
    for mut block in std::mem::take(&mut parsed.blocks) {
        if is_loopback(&block) && is_one_left {
            block.other_keys = std::mem::take(&mut block.keys);
            parsed.apart.push(block);
            continue;
        }
        let keys = std::mem::take(&mut block.keys);
        (block.keys, block.other_keys) =
            keys.into_iter().partition(|key| Listener::of(key) == asked);
        match block.keys.is_empty() {
            true => parsed.apart.push(block),
            false => parsed.blocks.push(block),
        }
    }
}

/// Pods ask the port that has the cluster domain: 53 where more have it, or none has.
fn asked(blocks: &[ServerBlock]) -> Option<Listener> {
    let all = || blocks.iter().flat_map(|block| block.keys.iter().map(move |key| (block, key)));
    let listeners = all().map(|(block, key)| {
        let listener = Listener::of(key);
        let has_cluster = block.directives.iter().any(|it| it.name == "kubernetes");
        let rank =
            (!listener.is_plain(), is_loopback(block), !has_cluster, listener.port != DNS_PORT);
        (rank, listener)
    });
    listeners.min_by_key(|(rank, _)| *rank).map(|(_, listener)| listener)
}

/// Is it for programs in the pod of CoreDNS only?
fn is_loopback(block: &ServerBlock) -> bool {
    let binds = block.directives.iter().filter(|it| it.name == "bind");
    let addresses: Vec<&String> = binds.flat_map(|it| &it.args).collect();
    let is_own = |text: &&String| text.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !addresses.is_empty() && addresses.iter().all(is_own)
}

impl ServerBlock {
    fn has(&self, asked: &Listener) -> bool {
        self.keys.iter().any(|key| Listener::of(key) == *asked)
    }
}

/// Why the keys of other listeners are not converted.
pub(super) fn other_keys(block: &ServerBlock, asked: &[ServerBlock], scope: &mut Scope<'_>) {
    let port = asked_port(asked);
    for text in &block.other_keys {
        let key = Key::of(text);
        if !Listener::of(text).is_plain() {
            super::keys::of_listener(block, text, &key, scope);
            continue;
        }
        if let Some(message) = for_own_forward(&Listener::of(text), asked) {
            scope.note(&block.place, NotPossible, text, message);
            continue;
        }
        if is_loopback(block) {
            let message = "it is for programs in the pod of CoreDNS only, and the Service does not lead there";
            scope.note(&block.place, NotPossible, text, message);
            continue;
        }
        let zone = list(&key.zones.iter().map(|zone| shown(zone).to_owned()).collect::<Vec<_>>());
        let has_zone = asked.iter().flat_map(block_zones).any(|it| key.zones.contains(&it));
        let message = match has_zone {
            true => format!(
                "port {port} has another block for this zone, and one port of the Service is answered: write a second \
                 ClusterDNS with a Service of its own for this one"
            ),
            false => format!(
                "who asks port {port} never comes to this block: if {zone} is meant for all clients, give it port {port} and \
                 import again"
            ),
        };
        scope.note(&block.place, NotPossible, text, message);
    }
}

/// What to do with a server block that a `forward` of the same process asks, as for encrypted servers with different names.
fn for_own_forward(listener: &Listener, asked: &[ServerBlock]) -> Option<String> {
    let leads_here = |server: &String| {
        let server = server.strip_prefix("dns://").unwrap_or(server);
        address(server).is_some_and(|(ip, port)| {
            let port = port.map_or_else(|| DNS_PORT.to_owned(), |port| port.to_string());
            ip.is_loopback() && port == listener.port
        })
    };
    let mut all = asked.iter().flat_map(|block| block.directives.iter().map(move |it| (block, it)));
    let (block, line) = all.find(|(_, it)| forward::servers(it).iter().any(leads_here))?;
    let is_root = |zone: &str| zone.is_empty() || zone == ".";
    let is_for_all = line.args.first().is_some_and(|from| is_root(from))
        && block_zones(block).iter().any(|zone| is_root(zone));
    let field = if is_for_all { "spec.upstreams.servers" } else { "spec.stubDomains" };
    Some(format!(
        "the line {} asks this block: write the servers of this block's forward in {field}, each with its transport and \
         tls.serverName",
        line.text()
    ))
}

/// Reports the directives of a server block of another listener.
///
/// # Errors
/// What CoreDNS would refuse.
pub(super) fn directives(
    block: &ServerBlock,
    asked: &[ServerBlock],
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    let port = asked_port(asked);
    let zones: Vec<String> = block.other_keys.iter().flat_map(|key| Key::of(key).zones).collect();
    let same = asked.iter().find(|it| zones.iter().all(|zone| block_zones(it).contains(zone)));
    for directive in &block.directives {
        let is_there =
            same.is_some_and(|same| same.directives.iter().any(|it| is_same(it, directive)));
        if OF_PROCESS.contains(&directive.name.as_str()) && !is_there {
            convert_directive(directive, block, scope)?;
            continue;
        }
        let (outcome, message) = match is_there {
            true => (NotNeeded, format!("the block of port {port} has the same")),
            false => (NotPossible, format!("all clients get what the blocks of port {port} say")),
        };
        scope.say_all(directive, outcome, &message);
    }
    Ok(())
}

/// The same words, wherever they are written.
fn is_same(one: &Directive, other: &Directive) -> bool {
    one.text() == other.text()
        && one.body.len() == other.body.len()
        && one.body.iter().zip(&other.body).all(|(one, other)| is_same(one, other))
}

/// The port of the server blocks that are converted.
fn asked_port(asked: &[ServerBlock]) -> String {
    let key = asked.iter().flat_map(|block| &block.keys).next();
    key.map_or_else(|| DNS_PORT.to_owned(), |key| Listener::of(key).port)
}
