//! The queries of one connection for which upstreams are asked (WR41): some at a time, the others in the order in which they
//! came. What waits for its turn keeps no query behind it from an answer that needs no upstream (FW53).

use std::collections::VecDeque;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

use super::super::super::responder::Room;
use super::super::frame::{LATER_OCTETS, WAITING_OCTETS};
use super::super::late::{self, AT_ONCE, Late, LateReply, Later};

/// Queries that wait for their turn, with which reading pauses.
const LATER: usize = 1024;

#[derive(Default)]
pub(super) struct Lookups {
    late: JoinSet<LateReply>,
    /// Those that have come and are not written yet.
    ready: VecDeque<LateReply>,
    later: VecDeque<Later>,
}

impl Lookups {
    /// Whether no query waits for its reply.
    pub(super) fn are_done(&self) -> bool {
        self.in_progress() == 0 && self.later.is_empty()
    }

    /// Whether not even one more may wait for its turn.
    pub(super) fn are_full(&self) -> bool {
        self.later.len() >= LATER
    }

    /// Lookups, with those whose reply is not written.
    fn in_progress(&self) -> usize {
        self.late.len() + self.ready.len()
    }

    /// Whether one more may begin: not before those that wait.
    pub(super) fn room(&self) -> Room {
        match self.in_progress() < AT_ONCE && self.later.is_empty() {
            true => Room::Now,
            false => Room::Later,
        }
    }

    pub(super) fn begin(&mut self, late: Late, on: &Handle) {
        self.late.spawn_on(late, on);
    }

    pub(super) fn wait(&mut self, later: Later) {
        self.later.push_back(later);
    }

    /// Begins those whose turn has come.
    pub(super) fn begin_next(&mut self, on: &Handle) {
        while self.in_progress() < AT_ONCE
            && let Some(later) = self.later.pop_front()
        {
            self.begin(later(), on);
        }
    }

    /// A lookup that has ended; or how it failed, which is a defect of ours.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<LateReply, JoinError>> {
        match self.late.poll_join_next(cx) {
            Poll::Ready(Some(ended)) => Poll::Ready(ended),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    pub(super) fn came(&mut self, reply: LateReply) {
        self.ready.push_back(reply);
    }

    pub(super) fn has_reply(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn next_reply(&mut self) -> Option<LateReply> {
        self.ready.pop_front()
    }

    /// The octets that all of them count as.
    pub(super) fn held(&self) -> usize {
        let ready: usize = self.ready.iter().map(late::held).sum();
        self.late.len() * WAITING_OCTETS + ready + self.later.len() * LATER_OCTETS
    }

    /// Lookups end by themselves, and are then counted and shown. No other one begins.
    pub(super) fn leave(&mut self) {
        self.late.detach_all();
        self.later.clear();
    }
}
