//! The body of one HTTP reply. It goes out in small pieces, so that what a client does not read stays here, where it is
//! counted, and not in buffers of HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::super::requests::Work;

/// Octets given away at a time: about what a connection keeps for a client that reads nothing, times its streams.
const PIECE: usize = 4 << 10;

/// What is left of a reply, and its place among the work of its connection.
pub(super) struct Reply {
    rest: Bytes,
    work: Work,
}

impl Reply {
    pub(super) fn new(octets: Vec<u8>, mut work: Work) -> Reply {
        work.hold(octets.len());
        Reply { rest: Bytes::from(octets), work }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(piece);
        let left = self.rest.len();
        self.work.hold(left);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
