//! A stream that notes whether a request has begun. The library ends a connection that is idle by the same timer as one whose
//! request comes too slowly, and says the same of both.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether octets came after the last that were written: those of a request without a reply.
#[derive(Clone, Debug, Default)]
pub(super) struct HasBegun(Arc<AtomicBool>);

impl HasBegun {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, has_begun: bool) {
        self.0.store(has_begun, Ordering::Relaxed);
    }
}

/// The stream.
#[derive(Debug)]
pub(super) struct Noted<S> {
    stream: S,
    has_begun: HasBegun,
}

impl<S> Noted<S> {
    pub(super) fn new(stream: S) -> (Noted<S>, HasBegun) {
        let has_begun = HasBegun::default();
        (Noted { stream, has_begun: has_begun.clone() }, has_begun)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, to))?;
        if to.filled().len() > before {
            self.has_begun.set(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, from))?;
        self.has_begun.set(false);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, from))?;
        self.has_begun.set(false);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
