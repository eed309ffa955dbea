//! What a server sends at once is read in parts, so that tasks of its streams run in between: HTTP/2 keeps each
//! informational response (1xx, RFC 9113 §8.1) for the task of its stream, as a map that takes a hundred times the octets
//! that came, and counts none of them against a window.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Octets that are read before other tasks run.
const PART: usize = 32 << 10;

/// A connection that is read so.
#[derive(Debug)]
pub(super) struct InParts<T> {
    io: T,
    /// Octets of the present part.
    read: usize,
}

impl<T> InParts<T> {
    pub(super) fn new(io: T) -> InParts<T> {
        InParts { io, read: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for InParts<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= PART {
            self.read = 0;
            // Behind the tasks that were woken by this part.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = to.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, to);
        self.read = if read.is_ready() { self.read + to.filled().len() - before } else { 0 };
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for InParts<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker_ref;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn fw54_other_tasks_run_before_more_is_read_of_a_server() {
        let (mut near, far) = tokio::io::duplex(8 * PART);
        near.write_all(&[0; 3 * PART]).await.unwrap();
        let mut reads = InParts::new(far);
        let mut parts = Vec::new();
        let (mut buffer, mut context) = ([0; 1_000], Context::from_waker(noop_waker_ref()));
        for _ in 0..6 {
            let mut octets = 0;
            loop {
                let mut to = ReadBuf::new(&mut buffer);
                match Pin::new(&mut reads).poll_read(&mut context, &mut to) {
                    Poll::Ready(read) => read.unwrap(),
                    Poll::Pending => break,
                }
                octets += to.filled().len();
            }
            parts.push(octets);
        }
        assert_eq!(parts.iter().sum::<usize>(), 3 * PART, "nothing is lost");
        assert!(parts[..2].iter().all(|part| (PART..PART + 1_000).contains(part)), "{parts:?}");
    }
}
