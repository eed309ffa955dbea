//! The body of one HTTP reply. Its place among the work of its connection is freed with its octets: what a client does not
//! read counts wherever hyper keeps it, until it is written.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Buf, Bytes, Frame, SizeHint};

use super::super::requests::Work;

/// A reply until hyper takes it, all of it at once.
pub(in super::super) struct Reply(Option<Octets>);

/// The unwritten rest of a reply, and its place among the work of its connection.
pub(in super::super) struct Octets {
    rest: Bytes,
    work: Work,
}

impl Reply {
    pub(in super::super) fn new(octets: Vec<u8>, mut work: Work) -> Reply {
        work.hold(octets.len());
        Reply(Some(Octets { rest: Bytes::from(octets), work }))
    }

    fn octets(&self) -> usize {
        self.0.as_ref().map_or(0, Octets::remaining)
    }
}

impl Body for Reply {
    type Data = Octets;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Octets>, Infallible>>> {
        let octets = self.0.take_if(|octets| octets.has_remaining());
        Poll::Ready(octets.map(|octets| Ok(Frame::data(octets))))
    }

    fn is_end_stream(&self) -> bool {
        self.octets() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.octets() as u64)
    }
}

impl Buf for Octets {
    fn remaining(&self) -> usize {
        self.rest.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.rest.chunk()
    }

    fn advance(&mut self, octets: usize) {
        self.rest.advance(octets);
        self.work.moves();
    }
}
