//! The deadlines of one connection. Each counts at a second look only, because what the client sent may not be seen yet.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::super::super::counters::CloseReason;
use super::super::deadline::Waiting;
use super::super::unread::Unread;
use super::Connection;

/// After a deadline, the time in which the runtime surely looks at the socket once more. Where the process stood still, its
/// timers run before it has seen what came meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Connection<S> {
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let waiting = Waiting {
            quiet: self.permit.quiet_since(),
            message: self.message_since,
            held_back: self.held_back_since,
            write: self.write_since,
            old: self.old,
        };
        let Some((at, reason)) = waiting.due(&self.deadlines) else {
            return Poll::Pending;
        };
        // The timer moves only when it must come earlier, or came too early: not for every query.
        if at < self.timer.deadline() && self.overdue != Some(at) {
            self.timer.as_mut().reset(at);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let is_second_look = at <= now && self.overdue == Some(at);
            if is_second_look && !self.client_has_done_its_part(reason) {
                let is_drain = reason == CloseReason::Age && self.server.draining.get();
                return Poll::Ready(if is_drain { CloseReason::Drain } else { reason });
            }
            self.overdue = (at <= now).then_some(at);
            self.timer.as_mut().reset(at.max(now + LOOK_AGAIN));
        }
        Poll::Pending
    }

    /// Whether what is waited for has come, and is read in the next turn.
    fn client_has_done_its_part(&self, reason: CloseReason) -> bool {
        let waits_for_octets =
            matches!(reason, CloseReason::Idle | CloseReason::Age | CloseReason::SlowMessage);
        waits_for_octets && self.may_read() && self.stream.has_unread()
    }
}
