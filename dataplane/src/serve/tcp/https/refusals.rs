//! What the library of HTTP/2 refuses by itself, before a request reaches us: a request whose headers are too large, a
//! stream, or the connection. It reports none of it but in the frames that it writes (RFC 9113 §4), so [`Watched`] reads
//! these on their way to the client.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::super::counters::{CloseReason, ServeCounters};

/// Octets of the head of a frame: length, type, flags, stream (RFC 9113 §4.1).
const HEAD: usize = 9;
/// Octets of a header block that are looked at. A block with a status and nothing else is shorter.
const LONE_STATUS: usize = 16;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Counts the refusals of one connection.
#[derive(Debug)]
pub(super) struct Refusals {
    counters: Arc<ServeCounters>,
    is_connection_refused: Cell<bool>,
}

impl Refusals {
    pub(super) fn new(counters: Arc<ServeCounters>) -> Rc<Refusals> {
        Rc::new(Refusals { counters, is_connection_refused: Cell::new(false) })
    }

    /// Why the connection ended: to hyper, a protocol error is a failure like any other.
    pub(super) fn ended(&self, reason: CloseReason) -> CloseReason {
        match reason {
            CloseReason::Failed if self.is_connection_refused.get() => CloseReason::NotAQuery,
            reason => reason,
        }
    }

    fn add(&self, refusal: Refusal) {
        match refusal {
            Refusal::LoneStatus => self.counters.encrypted.add_https(431),
            Refusal::Stream(code) => self.counters.encrypted.add_http2_reset(code),
            Refusal::Connection => self.is_connection_refused.set(true),
        }
    }
}

/// A session whose written frames are read.
#[derive(Debug)]
pub(super) struct Watched<S> {
    session: S,
    frames: Frames,
    refusals: Rc<Refusals>,
}

impl<S> Watched<S> {
    pub(super) fn new(session: S, refusals: Rc<Refusals>) -> Watched<S> {
        Watched { session, frames: Frames::default(), refusals }
    }

    fn wrote(&mut self, octets: &[u8]) {
        self.frames.read(octets, |refusal| self.refusals.add(refusal));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_read(cx, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.session).poll_write(cx, from))?;
        self.wrote(&from[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.session).poll_write_vectored(cx, from))?;
        let mut left = written;
        for slice in from {
            let now = left.min(slice.len());
            self.wrote(&slice[..now]);
            left -= now;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.session.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_shutdown(cx)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// A response that is a status and nothing else. Ours have a date. The library has one such response: 431.
    LoneStatus,
    /// A stream was reset, with this error code (RFC 9113 §7).
    Stream(u32),
    /// The connection ends because of what the client sent.
    Connection,
}

/// Reads frames as they are written, in pieces of any size.
#[derive(Debug, Default)]
struct Frames {
    /// The first octets of the present frame.
    first: [u8; HEAD + LONE_STATUS],
    /// How much of the present frame was written.
    seen: usize,
}

impl Frames {
    fn read(&mut self, octets: &[u8], mut refused: impl FnMut(Refusal)) {
        let mut rest = octets;
        while !rest.is_empty() {
            let end = if self.seen < HEAD { HEAD } else { self.octets() };
            let (now, later) = rest.split_at(rest.len().min(end - self.seen));
            rest = later;
            if let Some(to) = self.first.get_mut(self.seen..) {
                let kept = to.len().min(now.len());
                to[..kept].copy_from_slice(&now[..kept]);
            }
            self.seen += now.len();
            if self.seen >= HEAD && self.seen == self.octets() {
                if let Some(refusal) = self.refusal() {
                    refused(refusal);
                }
                self.seen = 0;
            }
        }
    }

    /// Octets of the present frame with its head, once that is here.
    fn octets(&self) -> usize {
        let [high, middle, low, ..] = self.first;
        HEAD + u32::from_be_bytes([0, high, middle, low]) as usize
    }

    fn refusal(&self) -> Option<Refusal> {
        let (kind, flags) = (self.first[3], self.first[4]);
        let payload = self.first.get(HEAD..self.octets());
        match kind {
            HEADERS if flags & (END_STREAM | PADDED | PRIORITY) == END_STREAM => {
                is_one_field(payload?)?.then_some(Refusal::LoneStatus)
            }
            RST_STREAM => Some(Refusal::Stream(u32::from_be_bytes(*payload?.first_chunk()?))),
            // It begins with the last stream. Its text may be long.
            GOAWAY => {
                let code = self.first[HEAD..].get(4..8)?;
                (code != [0; 4]).then_some(Refusal::Connection)
            }
            _ => None,
        }
    }
}

/// Does this header block have one field? `None` if it cannot be read. A status is the first field of any response.
fn is_one_field(mut block: &[u8]) -> Option<bool> {
    // Updates of the table's size come first (RFC 7541 §4.2).
    while block.first()? & 0xe0 == 0x20 {
        block = integer(block, 5)?.1;
    }
    let first = *block.first()?;
    let rest = match first {
        0x80.. => integer(block, 7)?.1,
        0x40.. => string(integer(block, 6)?.1)?,
        _ => string(integer(block, 4)?.1)?,
    };
    Some(rest.is_empty())
}

/// What follows a string (RFC 7541 §5.2).
fn string(octets: &[u8]) -> Option<&[u8]> {
    let (length, rest) = integer(octets, 7)?;
    rest.get(length..)
}

/// An integer with a prefix of this many bits, and what follows (RFC 7541 §5.1). No field that is looked at needs one beyond
/// 14 bits more.
fn integer(octets: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = octets.split_first()?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    for shift in [0, 7] {
        let (octet, later) = rest.split_first()?;
        rest = later;
        value += usize::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &[0, 0, 0, 1]].concat();
        [&head, payload].concat()
    }

    fn read(written: &[u8], piece: usize) -> Vec<Refusal> {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        written.chunks(piece).for_each(|octets| frames.read(octets, |it| found.push(it)));
        found
    }

    #[test]
    fn t8_what_is_refused_is_read_from_frames_in_pieces_of_any_size() {
        let written = [
            frame(4, 0, &[0; 18]),
            // Statuses and nothing else: a literal 431, the same from the table, and after an update of its size.
            frame(HEADERS, 0x5, b"\x48\x83\x68\xcc\x05"),
            frame(HEADERS, 0x5, b"\xbe"),
            frame(HEADERS, 0x5, b"\x3f\xe1\x1f\xbe"),
            // A status with a date, one before a body, and a long block.
            frame(HEADERS, 0x5, b"\xbe\xbf"),
            frame(HEADERS, 0x4, b"\x88"),
            frame(HEADERS, 0x5, &[0x88; 40]),
            frame(0, 0x1, &[7; 3000]),
            frame(RST_STREAM, 0, &[0, 0, 0, 1]),
            frame(6, 0x1, &[3; 8]),
            frame(GOAWAY, 0, &[0; 8]),
            frame(GOAWAY, 0, &[&[0, 0, 0, 1, 0, 0, 0, 11], &b"calm"[..], &[b'x'; 90]].concat()),
            frame(4, 0x1, b""),
        ]
        .concat();
        let lone = Refusal::LoneStatus;
        let expected = [lone, lone, lone, Refusal::Stream(1), Refusal::Connection];
        for piece in [1, 2, 7, 9, 10, 1000, written.len()] {
            assert_eq!(read(&written, piece), expected, "{piece}");
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_is_no_refusal() {
        for block in [&b""[..], b"\x20", b"\xff\xff\xff\xff", b"\x48\x83\x68", b"\x48"] {
            assert_eq!(is_one_field(block), None, "{block:?}");
        }
    }
}
