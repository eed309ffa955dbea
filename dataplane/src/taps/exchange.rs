//! One query and its reply, and how they lie in a buffer between threads.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dataplane_core::Reason;

use crate::origin::{Answered, Origin, ServedOver};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    Client,
    /// A query of ours to an upstream.
    Forwarder,
}

/// One query and the reply it got.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    pub side: Side,
    /// When the query came, since the Unix epoch; set by [`Taps::show`](super::Taps::show).
    pub at: Duration,
    /// Time until the reply; set there too.
    pub took: Duration,
    /// The client; unspecified if it is not known, like the other address.
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub over: ServedOver,
    /// The origin of the reply.
    pub answered: Answered,
    /// The message that came, without a length prefix.
    pub query: &'a [u8],
    /// Whether only the beginning of it was kept.
    pub is_query_cut: bool,
    /// The message that came back; empty where none came.
    pub reply: &'a [u8],
}

impl Default for Exchange<'_> {
    /// Empty: no query, no reply, and the unspecified address for both sides.
    fn default() -> Self {
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        Exchange {
            side: Side::Client,
            at: Duration::ZERO,
            took: Duration::ZERO,
            client: unspecified,
            server: unspecified,
            over: ServedOver::Udp,
            answered: Answered { reason: Reason::Found, origin: Origin::Own },
            query: &[],
            is_query_cut: false,
            reply: &[],
        }
    }
}

/// Octets in front of the two messages.
const FIXED: usize = 8 + 8 + 2 * ADDRESS + 4 + 2 + 2;
/// An address as IPv6 and its port.
const ADDRESS: usize = 16 + 2;
/// Beside the side: only the beginning of the query is there.
const CUT: u8 = 128;

impl Exchange<'_> {
    /// Octets that [`write`](Self::write) needs.
    pub(super) fn octets(&self) -> usize {
        FIXED + self.query.len() + self.reply.len()
    }

    /// Appends it. Messages have at most 65,535 octets.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        to.extend(ns(self.at).to_be_bytes());
        to.extend(ns(self.took).to_be_bytes());
        for address in [self.client, self.server] {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            to.extend(ip.octets());
            to.extend(address.port().to_be_bytes());
        }
        let Answered { reason, origin } = self.answered;
        let side = self.side as u8 | if self.is_query_cut { CUT } else { 0 };
        to.extend([self.over as u8, reason as u8, origin as u8, side]);
        for message in [self.query, self.reply] {
            to.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
        to.extend(self.query);
        to.extend(self.reply);
    }
}

impl<'a> Exchange<'a> {
    /// How many were written to these octets.
    pub(super) fn count(mut octets: &'a [u8]) -> u64 {
        std::iter::from_fn(|| Exchange::read(&mut octets)).map(|_| 1).sum()
    }

    /// Reads the first one of `from` and moves behind it; `None` at the end.
    pub(super) fn read(from: &mut &'a [u8]) -> Option<Exchange<'a>> {
        let mut rest = *from;
        let at = Duration::from_nanos(u64::from_be_bytes(take(&mut rest)?));
        let took = Duration::from_nanos(u64::from_be_bytes(take(&mut rest)?));
        let mut address = || {
            let ip = IpAddr::from(take::<16>(&mut rest)?).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be_bytes(take(&mut rest)?)))
        };
        let (client, server) = (address()?, address()?);
        let [over, reason, origin, side] = take(&mut rest)?;
        let query = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let reply = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let (query, behind) = rest.split_at_checked(query)?;
        let (reply, behind) = behind.split_at_checked(reply)?;
        *from = behind;
        Some(Exchange {
            side: if side & !CUT == Side::Client as u8 { Side::Client } else { Side::Forwarder },
            is_query_cut: side & CUT != 0,
            at,
            took,
            client,
            server,
            over: *ServedOver::ALL.get(usize::from(over))?,
            answered: Answered {
                reason: *Reason::ALL.get(usize::from(reason))?,
                origin: *Origin::ALL.get(usize::from(origin))?,
            },
            query,
            reply,
        })
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_read_as_they_were_written() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut octets = Vec::new();
        for (over, origin) in ServedOver::ALL.into_iter().zip(Origin::ALL) {
            let exchange = Exchange {
                side: Side::Forwarder,
                at: Duration::new(1_700_000_000, 5),
                took: Duration::from_micros(7),
                client: address("10.0.0.1:5353"),
                server: address("[fd00::53]:53"),
                over,
                answered: Answered { reason: Reason::NxDomain, origin },
                query: b"a query",
                is_query_cut: over == ServedOver::Tcp,
                reply: &[9; 300],
            };
            let before = octets.len();
            exchange.write(&mut octets);
            assert_eq!(octets.len() - before, exchange.octets());
        }
        let mut rest = &octets[..];
        for (over, origin) in ServedOver::ALL.into_iter().zip(Origin::ALL) {
            let read = Exchange::read(&mut rest).unwrap();
            assert_eq!((read.over, read.answered.origin), (over, origin));
            assert_eq!(read.is_query_cut, over == ServedOver::Tcp);
            assert_eq!((read.side, read.answered.reason), (Side::Forwarder, Reason::NxDomain));
            assert_eq!((read.at, read.took.as_micros()), (Duration::new(1_700_000_000, 5), 7));
            assert_eq!(read.client, address("10.0.0.1:5353"));
            assert_eq!(read.server, address("[fd00::53]:53"));
            assert_eq!((read.query, read.reply), (&b"a query"[..], &[9; 300][..]));
        }
        assert!(rest.is_empty() && Exchange::read(&mut rest).is_none());
        for cut in 0..octets.len() / 5 {
            assert!(Exchange::read(&mut &octets[..cut]).is_none(), "{cut}");
        }
    }
}
