//! The upstream of a measurement. It runs inside the loop of the generator: as a program of its own it would wait for the
//! processor that the generator has, and that wait would be part of every forwarded question.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::echo::{Datagrams, OCTETS};
use super::external;
use super::generator::since_1970;

/// Marks it among the sockets of a generator.
pub(super) const UPSTREAM: u64 = u64::MAX;
const HEADER: usize = 12;
/// An hour: nothing expires during a measurement.
const TTL_S: u32 = 3_600;
const A: u16 = 1;
/// Replies of a slow upstream that wait at most; more questions get none.
const MAX_HELD: usize = 1 << 17;

/// Answers every A question with the address of [`external::address`], and says of other types that there are none.
#[derive(Debug)]
pub struct Upstream {
    socket: UdpSocket,
    datagrams: Datagrams,
    /// How late each reply is,
    late: Duration,
    /// and those that wait: when each is due, where it goes, and its octets.
    held: VecDeque<(Instant, SocketAddr, Vec<u8>)>,
    /// How many nanoseconds questions waited here, by their names and types, where that is wanted.
    waits: Option<HashMap<Vec<u8>, u64>>,
    /// Number of questions so far.
    pub asked: u64,
}

impl Upstream {
    /// One at a port of its own on 127.0.0.1.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Upstream> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        // A large buffer here, so that only the server loses datagrams.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
        Ok(Upstream::on(socket))
    }

    /// Its socket, for another one at the same address; only one may serve at a time.
    ///
    /// # Errors
    /// What the system says.
    pub fn shared(&self) -> io::Result<UdpSocket> {
        self.socket.try_clone()
    }

    /// On this socket, which must not block.
    pub fn on(socket: UdpSocket) -> Upstream {
        let (datagrams, held) = (Datagrams::new(), VecDeque::new());
        Upstream { socket, datagrams, late: Duration::ZERO, held, waits: None, asked: 0 }
    }

    /// The same, and it remembers how long each question waited until this loop had time for it. That is a wait for the
    /// generator, and not for the server that asked.
    ///
    /// # Errors
    /// What the system says.
    pub fn timed(self) -> io::Result<Upstream> {
        setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(Upstream { datagrams: Datagrams::stamped(), waits: Some(HashMap::new()), ..self })
    }

    /// Nanoseconds that the question of this message waited here when it was asked first; 0 if that is not known.
    pub fn waited(&self, message: &[u8]) -> u64 {
        let Some(waits) = &self.waits else { return 0 };
        let question = question_end(message).map(|end| &message[HEADER..end]);
        question.and_then(|question| waits.get(question)).copied().unwrap_or(0)
    }

    /// The same, but each reply leaves so much later, with a call of [`Upstream::send_due`].
    pub fn late(self, by: Duration) -> Upstream {
        Upstream { late: by, ..self }
    }

    /// Where it is asked.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Answers what waits now, without waiting for more.
    ///
    /// # Errors
    /// What the system says.
    pub fn serve(&mut self) -> io::Result<()> {
        if !self.late.is_zero() {
            return self.hold(Instant::now() + self.late);
        }
        let waits = &mut self.waits;
        let mut timed = |message: &mut [u8], length: usize, stamp: Option<u64>| {
            if let (Some(waits), Some(at)) = (waits.as_mut(), stamp)
                && let Some(end) = question_end(&message[..length])
            {
                let wait = since_1970().saturating_sub(at);
                waits.entry(message[HEADER..end].to_vec()).or_insert(wait);
            }
            reply(message, length)
        };
        loop {
            let count = self.datagrams.exchange(self.socket.as_raw_fd(), false, &mut timed)?;
            self.asked += count as u64;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Reads what waits now; the replies are due at this time.
    fn hold(&mut self, due: Instant) -> io::Result<()> {
        let mut message = [0; OCTETS];
        loop {
            let (octets, from) = match self.socket.recv_from(&mut message) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.asked += 1;
            let length = reply(&mut message, octets);
            if length > 0 && self.held.len() < MAX_HELD {
                self.held.push_back((due, from, message[..length].to_vec()));
            }
        }
    }

    /// Sends the late replies that are due.
    pub fn send_due(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, to, reply)) = self.held.front().filter(|(due, ..)| *due <= now) {
            // What the kernel does not take is lost, and counted by the client that asked.
            let _ = self.socket.send_to(reply, to);
            self.held.pop_front();
        }
    }
}

/// Makes a query of `length` octets into its reply, in place; returns its length, 0 for none.
pub fn reply(message: &mut [u8], length: usize) -> usize {
    if length < HEADER || message[2] & 0x80 != 0 {
        return 0;
    }
    let Some(end) = question_end(&message[..length]) else { return 0 };
    let rtype = u16::from_be_bytes([message[end - 4], message[end - 3]]);
    // A response, and recursion is available; the other bits are the query's.
    message[2] |= 0x80;
    message[3] = 0x80;
    // No answer, no authority, and the additional section (EDNS) is cut off: allowed, and the same for every server.
    message[6..HEADER].fill(0);
    if rtype != A {
        return end;
    }
    message[7] = 1;
    let address = external::address(&message[HEADER..end]);
    let ttl = TTL_S.to_be_bytes();
    let mut record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    record[6..10].copy_from_slice(&ttl);
    record[12..].copy_from_slice(&address.octets());
    let Some(space) = message.get_mut(end..end + record.len()) else { return 0 };
    space.copy_from_slice(&record);
    end + record.len()
}

/// Where the question of a message ends; nothing if it has not exactly one.
fn question_end(message: &[u8]) -> Option<usize> {
    if message.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    while *message.get(at)? != 0 {
        at += 1 + usize::from(message[at]);
    }
    (at + 5 <= message.len()).then_some(at + 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::check::{Verdict, judge};
    use crate::load::trace::{Trace, packet};

    fn replied(query: &[u8]) -> Vec<u8> {
        let mut message = query.to_vec();
        message.resize(512, 0);
        let length = reply(&mut message, query.len());
        message[..length].to_vec()
    }

    #[test]
    fn every_question_of_a_trace_gets_the_answer_that_the_trace_expects() {
        for trace in [Trace::external(50, 200, 1), Trace::misses(200, 1)] {
            for at in 0..trace.len() {
                let (query, expected) = trace.get(at);
                assert_eq!(judge(query, &replied(query), expected), (Verdict::Right, 0));
            }
        }
    }

    #[test]
    fn a_late_reply_leaves_when_it_is_due_and_not_before() {
        let mut upstream = Upstream::open().unwrap().late(Duration::from_millis(1));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_nonblocking(true).unwrap();
        client.send_to(&packet("www.example.com.", 1), upstream.address().unwrap()).unwrap();
        while upstream.asked == 0 {
            upstream.serve().unwrap();
        }
        upstream.held[0].0 = Instant::now() + Duration::from_secs(3600);
        upstream.send_due();
        let mut message = [0; OCTETS];
        assert_eq!(client.recv(&mut message).unwrap_err().kind(), ErrorKind::WouldBlock);
        upstream.held[0].0 = Instant::now();
        upstream.send_due();
        assert!(upstream.held.is_empty());
        client.set_nonblocking(false).unwrap();
        assert_eq!(client.recv(&mut message).unwrap(), 49);
    }

    #[test]
    fn the_wait_of_a_question_is_known_by_its_name_and_type_where_it_is_wanted() {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for is_timed in [false, true] {
            let upstream = Upstream::open().unwrap();
            let mut upstream = if is_timed { upstream.timed().unwrap() } else { upstream };
            client.send_to(&packet("www.example.com.", 1), upstream.address().unwrap()).unwrap();
            while upstream.asked == 0 {
                upstream.serve().unwrap();
            }
            let mut message = [0; OCTETS];
            let length = client.recv(&mut message).unwrap();
            assert_eq!(upstream.waited(&message[..length]) > 0, is_timed);
            assert_eq!(upstream.waited(&packet("www.example.com.", 28)), 0, "another type");
        }
    }

    #[test]
    fn other_types_have_no_data_and_what_is_no_query_gets_nothing() {
        let reply = replied(&packet("www.example.com.", 28));
        assert_eq!((reply[3], reply[7], reply.len()), (0x80, 0, 33));
        assert!(replied(&reply).is_empty(), "a reply");
        for length in 0..33 {
            assert!(replied(&packet("www.example.com.", 1)[..length]).is_empty(), "{length}");
        }
    }
}
