//! One TCP connection (RFC 7766): pipelined queries in, replies out as they are ready.
//!
//! It owns no buffer while it is idle. Everything it waits for is polled in one place, and everything it does in
//! between is done at once.

mod due;
mod end;
mod lookups;

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::super::Deadlines;
use super::super::counters::{CloseReason, add};
use super::super::responder::{Asker, Room};
use super::deadline::{FIRST_QUERY_WITHIN, lifetime};
use super::frame::{self, Frame, PREFIX, WAITING_OCTETS};
use super::late::{self, LateReply};
use super::table::Permit;
use super::unread::Unread;
use super::{TcpAction, TcpServer};
use lookups::Lookups;

/// Octets of unwritten replies with which reading pauses, and the writing of replies of upstreams: one full reply. So a client
/// that does not read holds at most two of them, besides what upstreams sent for its earlier queries.
const UNWRITTEN_OCTETS: usize = 64 << 10;
/// Octets read at a time.
const READ_OCTETS: usize = 16 << 10;

/// One client's connection over TCP or TLS: reads messages, writes replies in any order.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    asker: Asker,
    server: Rc<TcpServer>,
    permit: Rc<Permit>,
    /// The stream may keep written octets until it is flushed.
    is_buffered: bool,
    deadlines: Deadlines,
    /// Read and not yet answered.
    input: Vec<u8>,
    /// Answered and not yet written, from `written` on.
    output: Vec<u8>,
    written: usize,
    lookups: Lookups,
    /// No more is read: it ends for this reason once everything is answered.
    ending: Option<CloseReason>,
    /// Whether any query was answered, or could have come: a drain lets a new connection ask once.
    asked: bool,
    /// Input waits for a limit, not for the client.
    held_back: bool,
    /// Its client has used its share of this turn.
    waits_for_turn: bool,
    /// Reading pauses until other connections hold less.
    held_back_since: Option<Instant>,
    message_since: Option<Instant>,
    write_since: Option<Instant>,
    opened: Instant,
    old: Instant,
    timer: Pin<Box<Sleep>>,
    /// The deadline that had passed when the socket was looked at again.
    overdue: Option<Instant>,
}

/// What a connection waited for.
enum Event {
    Read(usize),
    Wrote(usize),
    /// Everything that was written was sent; a session of TLS may keep some.
    Flushed,
    Reply(LateReply),
    /// Work that waited may continue.
    Resumed,
    /// A lookup ended without a reply: a defect of ours.
    NoReply,
    Failed,
    Close(CloseReason),
}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Connection<S> {
    pub(super) fn new(server: Rc<TcpServer>, stream: S, asker: Asker, permit: Permit) -> Self {
        Self::behind(server, stream, asker, Rc::new(permit), false)
    }

    /// A connection whose stream may keep written octets, such as TLS.
    pub(super) fn behind(
        server: Rc<TcpServer>,
        stream: S,
        asker: Asker,
        permit: Rc<Permit>,
        is_buffered: bool,
    ) -> Self {
        let deadlines = server.table.deadlines();
        let seed = server.seeds.borrow_mut().next();
        let now = Instant::now();
        Self {
            stream,
            asker,
            server,
            permit,
            is_buffered,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            lookups: Lookups::default(),
            ending: None,
            asked: false,
            held_back: false,
            waits_for_turn: false,
            held_back_since: None,
            message_since: None,
            write_since: None,
            opened: now,
            old: now + lifetime(deadlines.age, seed),
            timer: Box::pin(tokio::time::sleep(deadlines.idle)),
            overdue: None,
            deadlines,
        }
    }

    /// Serves the connection to its end; returns why it ended.
    pub(super) async fn run(&mut self) -> CloseReason {
        loop {
            self.take_ready();
            self.lookups.begin_next(&self.server.runtime);
            self.answer();
            self.note();
            if let Some(reason) = self.over() {
                return reason;
            }
            match std::future::poll_fn(|cx| self.poll_event(cx)).await {
                Event::Read(0) => self.ending = Some(CloseReason::Client),
                Event::Read(_) => self.permit.set_quiet_since(None),
                Event::Wrote(octets) => self.wrote(octets),
                Event::Flushed => self.flushed(),
                Event::Reply(reply) => self.lookups.came(reply),
                Event::Resumed => {}
                Event::NoReply => add(&self.server.counters.panics, 1),
                Event::Failed => return CloseReason::Failed,
                Event::Close(reason) => return reason,
            }
        }
    }

    /// Answers the complete messages of the input, as far as limits let it.
    fn answer(&mut self) {
        let server = Rc::clone(&self.server);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        self.waits_for_turn = false;
        while self.may_read() {
            match frame::first(rest) {
                Frame::Incomplete => break,
                Frame::TooShort => self.ending = Some(CloseReason::NotAQuery),
                Frame::Message(_) if !server.turns.has_share(self.permit.share()) => {
                    self.waits_for_turn = true;
                    break;
                }
                Frame::Message(message) => {
                    rest = &rest[PREFIX + message.len()..];
                    self.message_since = None;
                    self.permit.message_came(Instant::now());
                    self.asked = true;
                    let mut buffer = server.scratch.borrow_mut();
                    let room = match self.permit.has_room(WAITING_OCTETS) {
                        true => self.lookups.room(),
                        false => Room::None,
                    };
                    let begun = std::time::Instant::now();
                    let action = (server.answer)(message, self.asker, room, &mut buffer);
                    let within = begun.elapsed();
                    match action {
                        TcpAction::Reply(written) => {
                            server.turns.answered(self.permit.share(), written.octets, within);
                            self.push(&buffer[..written.octets]);
                        }
                        TcpAction::Close | TcpAction::Failed => {
                            self.ending = Some(CloseReason::NotAQuery);
                        }
                        TcpAction::Late(late) => {
                            server.turns.answered(self.permit.share(), 0, within);
                            self.lookups.begin(late, &server.runtime);
                        }
                        TcpAction::Later(later) => {
                            server.turns.answered(self.permit.share(), 0, within);
                            self.lookups.wait(later);
                        }
                    }
                    self.hold(rest.len());
                }
            }
        }
        if self.ending.is_none() && !rest.is_empty() {
            self.input = if rest.len() == input.len() { input } else { rest.to_vec() };
        }
    }

    /// Writes replies that have come, as many as a turn of this client has and as there is room for.
    fn take_ready(&mut self) {
        let server = Rc::clone(&self.server);
        while self.unwritten() < UNWRITTEN_OCTETS
            && server.turns.has_share(self.permit.share())
            && let Some(reply) = self.lookups.next_reply()
        {
            let mut buffer = server.scratch.borrow_mut();
            let begun = std::time::Instant::now();
            let written = late::write(reply, &mut buffer, &server.counters);
            let Some(written) = written else { continue };
            server.turns.answered(self.permit.share(), written.octets, begun.elapsed());
            self.push(&buffer[..written.octets]);
            self.hold(self.input.capacity());
        }
    }

    /// Whether more queries may be taken: WR41, WR42, WR44.
    fn may_read(&self) -> bool {
        self.ending.is_none()
            && !self.permit.must_close()
            && !self.lookups.are_full()
            && self.unwritten() < UNWRITTEN_OCTETS
            && !self.permit.is_paused()
    }

    fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Adds a message behind what must be written. Its length does not get a small buffer of its own first.
    fn push(&mut self, message: &[u8]) {
        if self.output.is_empty() {
            self.write_since = Some(Instant::now());
        }
        self.output.reserve(PREFIX + message.len());
        self.output.extend_from_slice(&frame::prefix(message.len()));
        self.output.extend_from_slice(message);
    }

    fn wrote(&mut self, octets: usize) {
        self.written += octets;
        self.write_since = Some(Instant::now());
        if self.written >= UNWRITTEN_OCTETS {
            self.output.drain(..self.written);
            self.written = 0;
        }
        // Usually there is nothing to wait for, and this costs nothing.
        if self.unwritten() == 0 && !self.is_buffered {
            self.flushed();
        }
    }

    fn flushed(&mut self) {
        (self.output, self.written) = (Vec::new(), 0);
        self.write_since = None;
    }

    /// Accounts for what is held: buffers as allocated, and what waits for upstreams.
    fn hold(&self, input: usize) {
        self.permit.hold(input + self.output.capacity() + self.lookups.held());
    }

    /// Notes what is waited for from now on.
    fn note(&mut self) {
        self.hold(self.input.capacity());
        let now = Instant::now();
        let unfinished = !self.input.is_empty() && self.may_read() && !self.waits_for_turn;
        self.held_back = !self.input.is_empty() && !unfinished;
        self.message_since = match self.message_since {
            Some(since) if unfinished => Some(since),
            None if unfinished => Some(now),
            _ => None,
        };
        let waits_for_others = self.held_back && self.is_done();
        self.held_back_since = self.held_back_since.or(Some(now)).filter(|_| waits_for_others);
        let since = match self.permit.quiet_since() {
            _ if !self.input.is_empty() || !self.is_done() => None,
            None => Some(now),
            since => since,
        };
        self.permit.set_quiet_since(since);
        // A message begun does not count as work of ours: only the client can end it.
        let waits = self.is_done() && !self.held_back;
        self.permit.set_waits_since(self.permit.waits_since().or(Some(now)).filter(|_| waits));
    }

    /// Every query taken is answered and every answer written.
    fn is_done(&self) -> bool {
        self.lookups.are_done() && self.output.is_empty()
    }

    /// Whether it is time to go, because all is answered and there was a reason to end.
    fn over(&self) -> Option<CloseReason> {
        if self.ending.is_some() && self.is_done() {
            return self.ending;
        }
        self.permit.quiet_since()?;
        let reason = if self.server.draining.get() && !self.is_new() {
            CloseReason::Drain
        } else if self.old <= Instant::now() {
            CloseReason::Age
        } else if self.asked && self.permit.is_surplus() {
            CloseReason::Evicted
        } else {
            return None;
        };
        // What its client has sent meanwhile is answered first.
        (!self.stream.has_unread()).then_some(reason)
    }

    fn is_new(&self) -> bool {
        !self.asked && Instant::now() < self.opened + FIRST_QUERY_WITHIN
    }

    /// Writing comes first, since it frees what the rest needs.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self.permit.poll_close(cx) {
            // It was taken for idle. It ends once this is answered, or was no query yet.
            // Its first query may be on its way, or a part of it: it has a short time for that.
            Poll::Ready(CloseReason::Drain) if self.is_new() => {
                self.old = self.old.min(self.opened + FIRST_QUERY_WITHIN);
                self.permit.stay(cx);
            }
            Poll::Ready(CloseReason::Drain) if self.stream.has_unread() => {
                self.asked = true;
                self.permit.stay(cx);
            }
            Poll::Ready(reason) => return Poll::Ready(Event::Close(reason)),
            Poll::Pending => {}
        }
        if self.unwritten() > 0 {
            let stream = Pin::new(&mut self.stream);
            match stream.poll_write(cx, &self.output[self.written..]) {
                Poll::Ready(Ok(octets)) if octets > 0 => return Poll::Ready(Event::Wrote(octets)),
                Poll::Ready(_) => return Poll::Ready(Event::Failed),
                Poll::Pending => {}
            }
        }
        if self.unwritten() == 0 && !self.output.is_empty() {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Event::Flushed),
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Failed),
                Poll::Pending => {}
            }
        }
        if self.lookups.has_reply()
            && self.unwritten() < UNWRITTEN_OCTETS
            && self.server.turns.poll_share(self.permit.share(), cx).is_ready()
        {
            return Poll::Ready(Event::Resumed);
        }
        // Also if much is unwritten: a reply that has come takes memory, and must be counted.
        match self.lookups.poll(cx) {
            Poll::Ready(Ok(reply)) => return Poll::Ready(Event::Reply(reply)),
            Poll::Ready(Err(_)) => return Poll::Ready(Event::NoReply),
            Poll::Pending => {}
        }
        if self.may_read() {
            let may_continue = match self.waits_for_turn {
                true => self.server.turns.poll_share(self.permit.share(), cx).is_ready(),
                false => true,
            };
            if self.held_back && may_continue {
                return Poll::Ready(Event::Resumed);
            }
            if !self.held_back
                && let Poll::Ready(octets) = self.poll_read(cx)
            {
                return Poll::Ready(octets.map_or(Event::Failed, Event::Read));
            }
        }
        // What was to be read was half a record of TLS.
        if self.is_buffered
            && let Some(reason) = self.over()
        {
            return Poll::Ready(Event::Close(reason));
        }
        self.poll_due(cx).map(Event::Close)
    }

    /// Reads through the shared buffer, so that waiting for a client needs none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = self.server.scratch.borrow_mut();
        let mut read = ReadBuf::new(&mut scratch[..READ_OCTETS]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        self.input.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

#[cfg(test)]
mod tests;
