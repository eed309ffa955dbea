//! Small things that configurations of other servers write: durations, names, servers, zones.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crds::config::{Policy, Transport};
use crds::defaults;
use crds::v1alpha1::{Server, ServerTls};
use ipnet::IpNet;

use super::Text;
use super::literals::duration;

/// The zones of all reverse names.
pub(super) const REVERSE_TREES: [&str; 2] = ["in-addr.arpa", "ip6.arpa"];

/// Why a server cannot be asked.
const NO_ADDRESS: &str = "it is no IP address: write the address of the server";

/// Why a server with a link-local address cannot be asked; a text that begins with that address is in front.
pub(super) const LINK_LOCAL: &str = "is of one interface of a node, and the interfaces of a pod are others: write another address of \
                                     the server";

/// The names in the certificates of well-known public resolvers, for configurations that compare no name.
const PUBLIC_RESOLVERS: [(&str, &[&str]); 3] = [
    ("cloudflare-dns.com", &["1.1.1.1", "1.0.0.1", "2606:4700:4700::1111", "2606:4700:4700::1001"]),
    ("dns.google", &["8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844"]),
    ("dns.quad9.net", &["9.9.9.9", "149.112.112.112", "2620:fe::fe", "2620:fe::9"]),
];

/// A duration of Go, such as `5s`, `1m30s` or `1.5h`, in whole seconds, rounded up; none for a negative one.
pub(super) fn seconds(text: &str) -> Option<u32> {
    let seconds = (duration(text).filter(|it| *it >= 0.0)? / 1e9).ceil();
    (seconds <= f64::from(u32::MAX)).then_some(seconds as u32)
}

/// A name as a ClusterDNS has it: lower case, without a trailing dot.
pub(super) fn name(text: &str) -> String {
    text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()
}

/// A zone of a server block or directive: a name, `.`, or a range of addresses, which means its reverse names.
pub(super) fn zones(text: &str) -> Vec<String> {
    match text.parse::<IpNet>() {
        Ok(range) => reverse_zones(range),
        Err(_) if text == "." => vec![String::new()],
        Err(_) => vec![name(text)],
    }
}

/// The reverse zones of a range, cut at octets and nibbles as CoreDNS cuts them.
fn reverse_zones(range: IpNet) -> Vec<String> {
    let (step, longest) = match range {
        IpNet::V4(_) => (8, 32),
        IpNet::V6(_) => (4, 128),
    };
    let cut = range.prefix_len().div_ceil(step).clamp(1, longest / step) * step;
    let Ok(parts) = range.subnets(cut.max(range.prefix_len())) else { return Vec::new() };
    parts.map(|part| reverse_zone(&part, usize::from(cut / step))).collect()
}

fn reverse_zone(part: &IpNet, labels: usize) -> String {
    match part.addr() {
        IpAddr::V4(ip) => {
            let octets = ip.octets();
            let labels: Vec<String> = octets[..labels].iter().rev().map(u8::to_string).collect();
            format!("{}.in-addr.arpa", labels.join("."))
        }
        IpAddr::V6(ip) => {
            let nibbles = ip.octets().map(|octet| [octet >> 4, octet & 15]).concat();
            let labels: Vec<String> =
                nibbles[..labels].iter().rev().map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

/// The reverse name of an address.
pub(super) fn reverse_name(ip: IpAddr) -> String {
    let labels = if ip.is_ipv4() { 4 } else { 32 };
    reverse_zone(&IpNet::from(ip), labels)
}

/// Is this the zone of a reverse name?
pub(super) fn is_reverse(zone: &str) -> bool {
    REVERSE_TREES.iter().any(|arpa| is_at_or_below(zone, arpa))
}

/// Is a name at or below a zone? The root is the empty text.
pub(super) fn is_at_or_below(name: &str, zone: &str) -> bool {
    zone.is_empty() || crds::names::is_at_or_below(name, zone)
}

/// What to add of a group that may have this many queries in progress, where the limit of all groups is reached first (FW52).
pub(super) fn shared_places(number: u32) -> String {
    let all = defaults::IN_FLIGHT;
    match number > all / 2 {
        true => format!(
            "; spec.limits.inFlight is {all} by default, and with stub domains each group gets at most half of that"
        ),
        false => String::new(),
    }
}

/// A server with its port, such as `10.0.0.1`, `10.0.0.1:5353`, `[fd00::1]:53` or `tls://1.1.1.1`. An encrypted
/// server needs the name of its certificate: `name`, or that of a well-known resolver; otherwise it is refused.
pub(super) fn server(text: &str, name: Option<&str>) -> Result<Server, ServerError> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("dns", text));
    let transport = match scheme {
        "dns" => Transport::Udp,
        "tls" => Transport::Tls,
        "https" => Transport::Https,
        "quic" => Transport::Quic,
        _ => return Err(ServerError::Transport(scheme.to_owned())),
    };
    let (ip, port) = address(&without_zone(rest)?).ok_or(ServerError::NoAddress)?;
    // The port of the transport is not written.
    let port = port.filter(|port| *port != transport.default_port());
    let mut server = Server { address: ip.to_string(), port, transport, tls: None };
    if transport.is_encrypted() {
        server.tls = Some(certificate(&ip, name)?);
    }
    Ok(server)
}

/// Whom to expect at an encrypted server.
pub(super) fn certificate(ip: &IpAddr, name: Option<&str>) -> Result<ServerTls, ServerError> {
    let text = ip.to_string();
    let known = PUBLIC_RESOLVERS.iter().find(|(_, ips)| ips.contains(&text.as_str()));
    let name = name.or(known.map(|(name, _)| *name)).ok_or(ServerError::NoName)?;
    Ok(ServerTls { server_name: self::name(name), ca_bundle: None })
}

/// The servers of a text in the form of resolv.conf, and a sentence for each one that is no address.
pub(super) fn name_servers(text: &Text) -> (Vec<Server>, Vec<String>) {
    let (mut servers, mut lost) = (Vec::new(), Vec::new());
    for (at, line) in text.text.lines().enumerate() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let word = words.next().unwrap_or_default();
        match server(word, None) {
            Ok(server) => servers.push(server),
            Err(why) => {
                let (file, line, why) = (&text.file, text.line + at, no_address(&why));
                lost.push(format!("{file}:{line}: nameserver {word}: {why}"));
            }
        }
    }
    (servers, lost)
}

/// Why a text is no server of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerError {
    /// It is not an address.
    NoAddress,
    /// A link-local address with the interface on which it is.
    LinkLocal,
    /// The name in its certificate is not known.
    NoName,
    /// A transport that is not spoken.
    Transport(String),
}

/// Why a text that should be an address is not one that can be asked.
pub(super) fn no_address(why: &ServerError) -> String {
    match why {
        ServerError::LinkLocal => format!("it {LINK_LOCAL}"),
        ServerError::NoAddress | ServerError::NoName | ServerError::Transport(_) => {
            NO_ADDRESS.to_owned()
        }
    }
}

/// A text without the zone of an IPv6 address in it, such as `%eth0`: the zone says nothing of a global address.
///
/// # Errors
/// The address is link-local, or there is none.
pub(super) fn without_zone(text: &str) -> Result<Cow<'_, str>, ServerError> {
    let Some((before, zone)) = text.split_once('%') else { return Ok(Cow::Borrowed(text)) };
    let behind = zone.find(']').map_or("", |at| &zone[at..]);
    match before.trim_start_matches('[').parse::<Ipv6Addr>() {
        Ok(ip) if ip.is_unicast_link_local() => Err(ServerError::LinkLocal),
        Ok(_) => Ok(Cow::Owned(format!("{before}{behind}"))),
        Err(_) => Err(ServerError::NoAddress),
    }
}

/// An IP address, with or without a port.
pub(super) fn address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip(), Some(address.port())));
    }
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inside.parse().ok().map(|ip| (ip, None))
}

/// A policy by the name that CoreDNS has for it.
pub(super) fn policy(text: &str) -> Option<Policy> {
    match text {
        "random" => Some(Policy::Random),
        "round_robin" => Some(Policy::RoundRobin),
        "sequential" => Some(Policy::Sequential),
        _ => None,
    }
}

/// A list as people read it.
pub(super) fn list(words: &[String]) -> String {
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_seconds() {
        for (text, expected) in [
            ("5s", Some(5)),
            ("1m30s", Some(90)),
            ("1500ms", Some(2)),
            ("1.5h", Some(5_400)),
            ("0", Some(0)),
            ("10us", Some(1)),
            ("1.2.3s", None),
            ("24h", Some(86_400)),
            ("", None),
            ("5", None),
            ("5d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn ranges_mean_their_reverse_zones() {
        assert_eq!(zones("10.96.0.0/16"), ["96.10.in-addr.arpa"]);
        assert_eq!(zones("10.0.0.0/24"), ["0.0.10.in-addr.arpa"]);
        assert_eq!(zones("10.96.0.0/15"), ["96.10.in-addr.arpa", "97.10.in-addr.arpa"]);
        assert_eq!(zones("fd00::/8"), ["d.f.ip6.arpa"]);
        assert_eq!(zones("Corp.Example."), ["corp.example"]);
        assert_eq!(zones("."), [""]);
        assert_eq!(reverse_name([10, 1, 2, 3].into()), "3.2.1.10.in-addr.arpa");
        let of_ipv6 = reverse_name("fd00::1".parse().unwrap());
        assert!(
            of_ipv6.starts_with("1.0.0.") && of_ipv6.ends_with(".0.0.d.f.ip6.arpa"),
            "{of_ipv6}"
        );
        assert_eq!(of_ipv6.matches('.').count(), 33);
    }

    #[test]
    fn servers_have_an_address_a_port_and_a_transport() {
        let read = |text| server(text, None).map(|it| (it.address, it.port, it.transport));
        let address = |text: &str| text.to_owned();
        assert_eq!(read("10.0.0.1"), Ok((address("10.0.0.1"), None, Transport::Udp)));
        assert_eq!(read("dns://10.0.0.1:53"), Ok((address("10.0.0.1"), None, Transport::Udp)));
        assert_eq!(read("[fd00::1]:5353"), Ok((address("fd00::1"), Some(5353), Transport::Udp)));
        assert_eq!(read("tls://9.9.9.9"), Ok((address("9.9.9.9"), None, Transport::Tls)));
        assert_eq!(read("tls://9.9.9.9:53"), Ok((address("9.9.9.9"), Some(53), Transport::Tls)));
        assert_eq!(read("tls://9.9.9.9:853"), Ok((address("9.9.9.9"), None, Transport::Tls)));
        assert_eq!(read("10.0.0.1:853"), Ok((address("10.0.0.1"), Some(853), Transport::Udp)));
        assert_eq!(read("tls://192.0.2.1"), Err(ServerError::NoName));
        assert_eq!(read("dns.example"), Err(ServerError::NoAddress));
        let global = Ok((address("2001:db8::53"), None, Transport::Udp));
        assert_eq!(read("2001:db8::53%eth0"), global);
        assert_eq!(read("[2001:db8::53%eth0]:53"), global);
        assert_eq!(read("fe80::1%eth0"), Err(ServerError::LinkLocal));
        assert_eq!(read("[fe80::1%eth0]:53"), Err(ServerError::LinkLocal));
        assert_eq!(read("dns%eth0"), Err(ServerError::NoAddress));
        assert_eq!(read("grpc://10.0.0.1"), Err(ServerError::Transport(address("grpc"))));
    }
}
