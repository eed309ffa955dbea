//! The end of one connection: what its client has not taken, and lookups whose replies it does not get.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::super::super::counters::CloseReason;
use super::super::deadline::CLOSE_WITHIN;
use super::super::unread::Unread;
use super::super::untaken;
use super::Connection;

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Connection<S> {
    /// Ends it for this reason, which [`Connection::run`] has given.
    pub(in super::super) async fn end(&mut self, reason: CloseReason) {
        self.lookups.leave();
        let is_cut = untaken::is_cut(reason, &self.permit);
        if is_cut && untaken::discard(self.stream.socket()) {
            return;
        }
        if self.is_buffered || !is_cut && untaken::is_any(self.stream.socket()) {
            // With the alert of TLS that says that nothing was cut off. It is small: a client that does not take it gets none.
            let _ = tokio::time::timeout(CLOSE_WITHIN, self.stream.shutdown()).await;
        }
        // Of a process that ends, the kernel sends the rest.
        if !is_cut && !self.server.draining.get() {
            untaken::taken(self.stream.socket(), &self.permit, self.deadlines.write).await;
        }
    }
}
