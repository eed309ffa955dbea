//! The upstream of a measurement. It runs inside the loop of the generator: as a program of its own it would wait for the
//! processor that the generator has, and that wait would be part of every forwarded question.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::echo::Datagrams;
use super::external;

/// Marks it among the sockets of a generator.
pub(super) const UPSTREAM: u64 = u64::MAX;
const HEADER: usize = 12;
/// An hour: nothing expires during a measurement.
const TTL_S: u32 = 3_600;
const A: u16 = 1;

/// Answers every A question with the address of [`external::address`], and says of other types that there are none.
#[derive(Debug)]
pub struct Upstream {
    socket: UdpSocket,
    datagrams: Datagrams,
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
        Upstream { socket, datagrams: Datagrams::new(), asked: 0 }
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
        loop {
            let count = self.datagrams.exchange(self.socket.as_raw_fd(), false, reply)?;
            self.asked += count as u64;
            if count == 0 {
                return Ok(());
            }
        }
    }
}

/// Makes a query of `length` octets into its reply, in place; returns its length, 0 for none.
pub fn reply(message: &mut [u8], length: usize) -> usize {
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

/// Where the question of a query ends; nothing if it is none.
fn question_end(query: &[u8]) -> Option<usize> {
    if query.get(2)? & 0x80 != 0 || query.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    while *query.get(at)? != 0 {
        at += 1 + usize::from(query[at]);
    }
    (at + 5 <= query.len()).then_some(at + 5)
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
    fn other_types_have_no_data_and_what_is_no_query_gets_nothing() {
        let reply = replied(&packet("www.example.com.", 28));
        assert_eq!((reply[3], reply[7], reply.len()), (0x80, 0, 33));
        assert!(replied(&reply).is_empty(), "a reply");
        for length in 0..33 {
            assert!(replied(&packet("www.example.com.", 1)[..length]).is_empty(), "{length}");
        }
    }
}
