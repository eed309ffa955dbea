//! What a server block serves: `[SCHEME://]ZONE[:PORT]`.

use ipnet::IpNet;

use super::parse::{Directive, ServerBlock, has_variable};
use super::scope::Scope;
use super::{forward, front};
use crate::import::report::Outcome;
use crate::import::values::{is_reverse, list, zones};

/// One key of a server block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// `dns`, `tls`, `https`, `quic` or `grpc`.
    pub(super) scheme: String,
    /// The zones; the root is the empty text.
    pub(super) zones: Vec<String>,
    /// The port, as written in the key.
    pub(super) port: Option<String>,
}

impl Key {
    /// Reads one key of a server block: `[SCHEME://]ZONE[:PORT]`.
    pub(super) fn of(text: &str) -> Key {
        let (scheme, rest) = text.split_once("://").unwrap_or(("dns", text));
        let (zone, port) = match rest.rsplit_once(':') {
            // An IPv6 range has colons of its own.
            Some((zone, port))
                if !port.is_empty()
                    && port.bytes().all(|it| it.is_ascii_digit())
                    && (!zone.contains(':') || zone.parse::<IpNet>().is_ok()) =>
            {
                (zone, Some(port.to_owned()))
            }
            _ => (rest, None),
        };
        let zones = if zone.is_empty() { vec![String::new()] } else { zones(zone) };
        Key { scheme: scheme.to_ascii_lowercase(), zones, port }
    }
}

/// Reports what becomes of the keys of a server block.
pub(super) fn convert(block: &ServerBlock, scope: &mut Scope<'_>) {
    for text in &block.keys {
        let key = Key::of(text);
        let (outcome, message) = of_scheme(&key, scope);
        scope.note(&block.place, outcome, text, message);
        if key.scheme == "dns" && !front::is_never_asked(scope) {
            not_forwarded(block, text, &key, scope);
        }
    }
}

/// Without `forward` CoreDNS asks no server for the names of a zone.
fn not_forwarded(block: &ServerBlock, text: &str, key: &Key, scope: &mut Scope<'_>) {
    // The names of CHAOS are no names of a zone; `kubernetes` and `view` have lines of their own.
    let has_other_line =
        |it: &Directive| ["chaos", "kubernetes", "view"].contains(&it.name.as_str());
    if block.directives.iter().any(has_other_line) {
        return;
    }
    let is_other = |zone: &&String| !zone.is_empty() && !scope.draft.is_ours(zone);
    let is_lost = |zone: &&String| !block.directives.iter().any(|it| forward::is_for(it, zone));
    let lost: Vec<String> = key.zones.iter().filter(is_other).filter(is_lost).cloned().collect();
    if lost.is_empty() {
        return;
    }
    let message = format!(
        "names in {} that no line below has are for spec.upstreams here; without forward CoreDNS asked no other server",
        list(&lost)
    );
    scope.note(&block.place, Outcome::Changed, text, message);
}

/// Can it be a key? Environment variables may be anything.
pub(super) fn is_key(text: &str) -> bool {
    has_variable(text) || !text.contains(['"', '{', '}'])
}

/// Reports the key of a listener with encryption.
pub(super) fn of_listener(block: &ServerBlock, text: &str, key: &Key, scope: &mut Scope<'_>) {
    let (outcome, message) = of_scheme(key, scope);
    scope.note(&block.place, outcome, text, message);
}

fn of_scheme(key: &Key, scope: &Scope<'_>) -> (Outcome, String) {
    let listener = match key.scheme.as_str() {
        "dns" => return of_zone(key, scope),
        "tls" => "spec.listeners.tls",
        "https" => "spec.listeners.https",
        "quic" => "spec.listeners.quic",
        _ => {
            let message = "clients ask over UDP, TCP, TLS, HTTPS or QUIC";
            return (Outcome::NotPossible, message.to_owned());
        }
    };
    let message = format!(
        "make its certificate a Secret of type kubernetes.io/tls and name that in {listener}, which answers as port 53 does"
    );
    (Outcome::NotPossible, message)
}

fn of_zone(key: &Key, scope: &Scope<'_>) -> (Outcome, String) {
    let port = match key.port.as_deref() {
        None | Some("53") => "",
        Some(_) => {
            "; pods listen on 53, and the Service keeps its port (spec.service.podPort changes that of the pods)"
        }
    };
    let (outcome, message) = match key.zones.first().map(String::as_str) {
        None | Some("") => (Outcome::Kept, "everything that is asked"),
        Some(zone) if is_answered_elsewhere(zone, scope) => (
            Outcome::Changed,
            "in the cluster domain, whose names are answered from memory, where CoreDNS answered these as the lines below say",
        ),
        Some(zone) if scope.draft.is_ours(zone) => {
            (Outcome::Kept, "the cluster domain, answered from memory")
        }
        Some(zone) if is_reverse(zone) => {
            (Outcome::Kept, "reverse names; those of the cluster are answered from memory")
        }
        Some(_) => (Outcome::Kept, "as the lines below say"),
    };
    let outcome = if port.is_empty() { outcome } else { Outcome::Changed };
    (outcome, format!("{message}{port}"))
}

/// Does CoreDNS answer names of this zone below the cluster domain by other servers or files than those of the cluster?
fn is_answered_elsewhere(zone: &str, scope: &Scope<'_>) -> bool {
    let is_below = scope.draft.is_ours(zone) && zone != scope.draft.spec.domain;
    let servers = || scope.directives.iter().flat_map(forward::servers);
    let has_cluster = scope.directives.iter().any(|it| it.name == "kubernetes")
        || servers().next().is_some() && servers().all(|it| forward::is_replaced(&it, scope.draft));
    is_below && !has_cluster
}

/// Is it a word of YAML, which neither a zone nor a directive can be?
pub(super) fn is_yaml(word: &str) -> bool {
    word.ends_with(':') || ["-", "---", "|", "|-", "|+", ">", ">-", ">+"].contains(&word)
}

/// Is a directive another server block, inside of one?
pub(super) fn is_block(directive: &Directive) -> bool {
    let name = &directive.name;
    let is_zone = name == "." || name.contains(':') || directive.has_braces && name.contains('.');
    is_zone && !has_variable(name)
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn a_key_is_a_scheme_a_zone_and_a_port() {
        for (text, scheme, zone, port) in [
            (".:53", "dns", "", Some("53")),
            ("Corp.Example.", "dns", "corp.example", None),
            ("tls://.:853", "tls", "", Some("853")),
            ("10.96.0.0/16:5353", "dns", "96.10.in-addr.arpa", Some("5353")),
            ("fd00::/8", "dns", "d.f.ip6.arpa", None),
            ("fd00::/8:53", "dns", "d.f.ip6.arpa", Some("53")),
            (":53", "dns", "", Some("53")),
        ] {
            let key = Key::of(text);
            assert_eq!((key.scheme.as_str(), key.zones[0].as_str()), (scheme, zone), "{text}");
            assert_eq!(key.port.as_deref(), port, "{text}");
        }
    }
}
