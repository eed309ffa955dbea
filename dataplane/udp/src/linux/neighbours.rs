//! Whether a datagram to a client can leave at once, as the kernel's tables of routes and neighbours say. Anyone may read them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Octets before the body of a message: length, type, flags, number, sender.
const HEADER: usize = 16;
/// Of the body: those of a route, of a neighbour, and of an interface.
const ROUTE: usize = 12;
const NEIGHBOUR: usize = 12;
const INTERFACE: usize = 16;
/// Far more than one route, neighbour or interface takes.
const ANSWER: usize = 16 << 10;

/// What an attribute of a route or neighbour is about.
const DESTINATION: u16 = libc::RTA_DST;
/// A router of the other family (`RTA_VIA`), which the libc crate does not name.
const VIA: u16 = 18;
/// States in which the kernel knows to which machine it sends.
const KNOWN: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE;
/// Interfaces on which no address is looked for.
const NO_NEIGHBOURS: u32 = (libc::IFF_NOARP | libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT) as u32;

/// Questions to the kernel.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Opened when it is needed first, and again after a failure.
    socket: Option<Socket>,
    number: u32,
}

impl Neighbours {
    /// Whether the kernel knows to which machine it sends what is for this peer: to a router, or to the peer's own. It does of
    /// each peer on the same link that has asked for our address before it sent, as every machine does. Where the system
    /// answers no such question, the peer counts as reached.
    pub(super) fn reach(&mut self, peer: SocketAddr) -> bool {
        let asked = self.ask_about(peer);
        if asked.is_err() {
            self.socket = None;
        }
        asked.unwrap_or(true)
    }

    fn ask_about(&mut self, peer: SocketAddr) -> io::Result<bool> {
        let ip = peer.ip();
        let (family, octets) = match ip {
            IpAddr::V4(ip) => (libc::AF_INET as u8, ip.octets().to_vec()),
            IpAddr::V6(ip) => (libc::AF_INET6 as u8, ip.octets().to_vec()),
        };
        let Some(interface) = self.link(peer, family, &octets)? else { return Ok(true) };
        let mut question = vec![family, 0, 0, 0];
        question.extend(interface.to_ne_bytes());
        question.resize(NEIGHBOUR, 0);
        attribute(&mut question, DESTINATION, &octets);
        if let Some(neighbour) = self.ask(libc::RTM_GETNEIGH, &question)? {
            let state = u16::from_ne_bytes(part(&neighbour, 8)?);
            return Ok(state & KNOWN != 0);
        }
        let mut question = vec![0; 4];
        question.extend(interface.to_ne_bytes());
        question.resize(INTERFACE, 0);
        let Some(found) = self.ask(libc::RTM_GETLINK, &question)? else { return Ok(true) };
        Ok(u32::from_ne_bytes(part(&found, 8)?) & NO_NEIGHBOURS != 0)
    }

    /// The interface at which the peer is a neighbour; none if it is ourselves, behind a router, or without a route.
    fn link(&mut self, peer: SocketAddr, family: u8, octets: &[u8]) -> io::Result<Option<u32>> {
        let mut question = vec![family, (octets.len() * 8) as u8];
        question.resize(ROUTE, 0);
        attribute(&mut question, DESTINATION, octets);
        if let SocketAddr::V6(peer) = peer
            && peer.scope_id() != 0
        {
            attribute(&mut question, libc::RTA_OIF, &peer.scope_id().to_ne_bytes());
        }
        let Some(route) = self.ask(libc::RTM_GETROUTE, &question)? else { return Ok(None) };
        let [kind] = part(&route, 7)?;
        let of_route = attributes(route.get(ROUTE..).unwrap_or_default());
        let has_router = of_route.iter().any(|(kind, _)| [libc::RTA_GATEWAY, VIA].contains(kind));
        if kind != libc::RTN_UNICAST || has_router {
            return Ok(None);
        }
        let interface = of_route.iter().find(|(kind, _)| *kind == libc::RTA_OIF);
        interface.map(|(_, value)| part(value, 0).map(u32::from_ne_bytes)).transpose()
    }

    /// The body of the answer to one question; none if what is asked for does not exist.
    fn ask(&mut self, kind: u16, question: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.number = self.number.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER + question.len());
        message.extend(((HEADER + question.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend(self.number.to_ne_bytes());
        message.resize(HEADER, 0);
        message.extend(question);
        let mut socket = match &self.socket {
            Some(socket) => socket,
            None => self.socket.insert(open()?),
        };
        socket.write_all(&message)?;
        // The kernel answers before it takes the next question. Older ones take a lock for that which changes of networks of
        // the node hold for a moment.
        let mut answer = vec![0; ANSWER];
        let octets = socket.read(&mut answer)?;
        answer.truncate(octets);
        if u32::from_ne_bytes(part(&answer, 8)?) != self.number {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if libc::c_int::from(u16::from_ne_bytes(part(&answer, 4)?)) != libc::NLMSG_ERROR {
            return Ok(Some(answer.split_off(HEADER)));
        }
        match -i32::from_ne_bytes(part(&answer, HEADER)?) {
            libc::ENOENT | libc::ENETUNREACH | libc::EHOSTUNREACH => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

fn open() -> io::Result<Socket> {
    let route = Protocol::from(libc::NETLINK_ROUTE);
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), Some(route))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The octets at this place.
fn part<const N: usize>(of: &[u8], at: usize) -> io::Result<[u8; N]> {
    let octets = of.get(at..at + N).and_then(|octets| octets.try_into().ok());
    octets.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Adds an attribute. The values of ours need no octets behind them.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

/// The attributes of a body, without its beginning.
fn attributes(mut of: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let (Ok(octets), Ok(kind)) = (part(of, 0), part(of, 2)) {
        let octets = usize::from(u16::from_ne_bytes(octets));
        let Some(value) = of.get(4..octets) else { break };
        all.push((u16::from_ne_bytes(kind), value));
        of = of.get(octets.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_and_those_without_a_route_are_reached() {
        let mut neighbours = Neighbours::default();
        for peer in ["127.0.0.1:53", "[::1]:53", "240.0.0.1:53"] {
            let peer: SocketAddr = peer.parse().expect("an address");
            assert!(neighbours.reach(peer), "{peer}");
        }
        let loopback = "127.0.0.1:53".parse().expect("an address");
        let route = neighbours.link(loopback, libc::AF_INET as u8, &[127, 0, 0, 1]);
        assert_eq!(route.expect("the kernel answers"), None);
    }

    #[test]
    fn attributes_end_where_they_contradict_themselves() {
        let mut body = Vec::new();
        attribute(&mut body, 1, &[10, 0, 0, 1]);
        attribute(&mut body, 4, &[7, 0, 0, 0]);
        assert_eq!(attributes(&body), [(1, &[10, 0, 0, 1][..]), (4, &[7, 0, 0, 0])]);
        for length in [0, 3, 200] {
            body[8] = length;
            assert_eq!(attributes(&body), [(1, &[10, 0, 0, 1][..])], "{length}");
        }
    }
}
