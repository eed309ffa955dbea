//! The open descriptors of a process by what they are, as Linux shows them in `/proc`: sockets by their peers, and files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a TCP socket that accepts, in `/proc/net/tcp`.
const LISTENS: &str = "0A";
/// What the inode of a socket follows in a link of `/proc/PID/fd`.
const SOCKET: &str = "socket:[";

/// What a descriptor is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A UDP socket with one peer, as queries to upstreams have.
    UdpTowards(SocketAddr),
    /// A UDP socket for everyone who asks here.
    UdpAt(SocketAddr),
    TcpListener(SocketAddr),
    /// A TCP connection that was accepted here.
    TcpAcceptedAt(SocketAddr),
    /// One that the process made.
    TcpTowards(SocketAddr),
    /// A socket of another family, or of TCP without a connection.
    OtherSocket,
    /// As the link says it: a file, a pipe, what waits for events.
    File(String),
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Kind::UdpTowards(peer) => write!(f, "UDP towards {peer}"),
            Kind::UdpAt(local) => write!(f, "UDP at {local}"),
            Kind::TcpListener(local) => write!(f, "TCP listener at {local}"),
            Kind::TcpAcceptedAt(local) => write!(f, "TCP accepted at {local}"),
            Kind::TcpTowards(peer) => write!(f, "TCP towards {peer}"),
            Kind::OtherSocket => f.write_str("another socket"),
            Kind::File(link) => f.write_str(link),
        }
    }
}

/// How many descriptors are of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors(pub BTreeMap<Kind, usize>);

impl Descriptors {
    /// Those that a process has open now; none where there is no such process.
    pub fn of(pid: u32) -> Descriptors {
        let of_process = |file: &str| format!("/proc/{pid}/{file}");
        let table = |name: &str| {
            let text = fs::read_to_string(of_process(&format!("net/{name}"))).unwrap_or_default();
            rows(&text)
        };
        let udp = ["udp", "udp6"].map(table).into_iter().flatten().collect();
        let tcp: HashMap<String, Row> = ["tcp", "tcp6"].map(table).into_iter().flatten().collect();
        let accepting = tcp.values().filter(|row| row.listens).map(|row| row.local.port());
        let tables = Tables { accepting: accepting.collect(), udp, tcp };
        let open = fs::read_dir(of_process("fd")).into_iter().flatten().flatten();
        // A descriptor may be closed while the others are read.
        let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        let mut kinds = BTreeMap::new();
        for link in links {
            *kinds.entry(tables.kind(&link.display().to_string())).or_default() += 1;
        }
        Descriptors(kinds)
    }

    /// All of them.
    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// UDP sockets with one peer.
    pub fn udp_towards_peers(&self) -> usize {
        let of_peers = self.0.iter().filter(|(kind, _)| matches!(kind, Kind::UdpTowards(_)));
        of_peers.map(|(_, count)| count).sum()
    }
}

impl Display for Descriptors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kinds = self.0.iter().map(|(kind, count)| format!("{count} {kind}"));
        f.write_str(&kinds.collect::<Vec<_>>().join(", "))
    }
}

/// Sockets of the network of a process, by inode.
struct Tables {
    udp: HashMap<String, Row>,
    tcp: HashMap<String, Row>,
    /// Ports of listeners.
    accepting: BTreeSet<u16>,
}

struct Row {
    local: SocketAddr,
    peer: SocketAddr,
    listens: bool,
}

impl Tables {
    fn kind(&self, link: &str) -> Kind {
        let Some(inode) = link.strip_prefix(SOCKET).and_then(|rest| rest.strip_suffix(']')) else {
            return Kind::File(link.to_owned());
        };
        if let Some(Row { local, peer, .. }) = self.udp.get(inode) {
            return match peer.port() {
                0 => Kind::UdpAt(*local),
                _ => Kind::UdpTowards(*peer),
            };
        }
        let Some(Row { local, peer, listens }) = self.tcp.get(inode) else {
            return Kind::OtherSocket;
        };
        match listens {
            true => Kind::TcpListener(*local),
            false if self.accepting.contains(&local.port()) => Kind::TcpAcceptedAt(*local),
            false => Kind::TcpTowards(*peer),
        }
    }
}

/// The rows of a file such as `/proc/net/udp`, by inode.
fn rows(text: &str) -> Vec<(String, Row)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, peer) = (address(fields.get(1)?)?, address(fields.get(2)?)?);
        let listens = *fields.get(3)? == LISTENS;
        Some(((*fields.get(9)?).to_owned(), Row { local, peer, listens }))
    };
    text.lines().skip(1).filter_map(row).collect()
}

/// An address as `0100007F:0035`: words of the machine, whose octets are in the order of the network.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(words.get(at..at + 8)?, 16).ok();
    let octets = |at| word(at).map(u32::to_ne_bytes);
    let ip = match words.len() {
        8 => IpAddr::from(Ipv4Addr::from(octets(0)?)),
        32 => {
            let all = [octets(0)?, octets(8)?, octets(16)?, octets(24)?].concat();
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(all).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn each_descriptor_of_this_process_is_known_by_its_peer() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let towards: Vec<UdpSocket> = (0..3)
            .map(|_| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(at).unwrap();
                socket
            })
            .collect();
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let listens_at = listener.local_addr().unwrap();
        let client = TcpStream::connect(listens_at).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let open = Descriptors::of(std::process::id());
        let of = |kind: Kind| open.0.get(&kind).copied().unwrap_or(0);
        assert_eq!(of(Kind::UdpTowards(at)), towards.len(), "{open}");
        assert_eq!(of(Kind::UdpAt(at)), 1, "{open}");
        assert_eq!(of(Kind::TcpListener(listens_at)), 1, "{open}");
        assert_eq!(of(Kind::TcpAcceptedAt(listens_at)), 1, "{open}");
        assert_eq!(of(Kind::TcpTowards(listens_at)), 1, "{open}");
        assert!(open.udp_towards_peers() >= towards.len(), "{open}");
        assert!(open.to_string().contains(&format!("3 UDP towards {at}")), "{open}");
        drop((client, accepted));
        assert_eq!(Descriptors::of(u32::MAX).count(), 0);
    }
}
