//! The open ports of one server that queries share, by who reads them. A thread that answers clients draws among those that it
//! reads itself: so its replies do not wait behind those of a thread that is flooded (L2), and wake no second thread. Tasks draw
//! among those that tasks read: a thread that awaits no reply to a query of its own does not look at its sockets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::port::Port;
use crate::forward::ports::{Open, REST};

/// The number of the thread that reads a port; none where a task of the runtime does.
pub(super) type ReaderNumber = Option<u64>;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenPorts {
    of: Vec<OfReader>,
}

/// Those of one reader.
#[derive(Debug)]
struct OfReader {
    reader: ReaderNumber,
    /// The oldest first.
    open: Vec<Arc<Port>>,
    /// The ends of the rest of those that were closed.
    resting: VecDeque<Instant>,
}

impl OpenPorts {
    /// What a query finds that this reader sends.
    pub(super) fn found(&self, reader: ReaderNumber) -> Open {
        let has_none = self.of.iter().all(|of| of.reader != reader);
        Open {
            all: self.of.iter().map(|of| of.open.len()).sum(),
            to_draw: self.drawn_by(reader).map(|of| of.open.len()).sum(),
            readers: self.of.len() + usize::from(has_none),
        }
    }

    fn drawn_by(&self, reader: ReaderNumber) -> impl Iterator<Item = &OfReader> {
        self.of.iter().filter(move |of| of.reader == reader)
    }

    /// One of those among which this reader draws.
    pub(super) fn draw(&self, reader: ReaderNumber, random: u64) -> Option<Arc<Port>> {
        let among = self.found(reader).to_draw;
        // The upper half of random * length is uniform in 0..length.
        let place = ((u128::from(random) * among as u128) >> 64) as usize;
        self.drawn_by(reader).flat_map(|of| &of.open).nth(place).cloned()
    }

    /// One more, which this reader reads.
    pub(super) fn add(&mut self, reader: ReaderNumber, port: Arc<Port>) {
        match self.of.iter_mut().find(|of| of.reader == reader) {
            Some(of) => of.open.push(port),
            None => {
                self.of.push(OfReader { reader, open: vec![port], resting: VecDeque::new() });
            }
        }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.of.iter().flat_map(|of| &of.open)
    }

    /// Takes out those that no query used for a while, and those that are too old. They rest, and cannot be opened for this
    /// time: never more ports of a reader rest than its queries can draw, unless this many others can be opened.
    pub(super) fn take_over(&mut self, free: usize, now: Instant) -> Vec<Arc<Port>> {
        let is_over = |port: &mut Arc<Port>| {
            // This list and who reads it hold it; a query that drew it a moment ago does too.
            Arc::strong_count(port) <= 2 && port.is_over(now)
        };
        let mut over = Vec::new();
        for OfReader { open, resting, .. } in &mut self.of {
            while resting.front().is_some_and(|until| *until <= now) {
                resting.pop_front();
            }
            let half = ((open.len() + resting.len()) / 2).saturating_sub(resting.len());
            let may_close = half.max(free.saturating_sub(over.len()));
            let before = over.len();
            over.extend(open.extract_if(.., is_over).take(may_close));
            resting.extend((before..over.len()).map(|_| now + REST));
        }
        self.of.retain(|of| !of.open.is_empty() || !of.resting.is_empty());
        over
    }

    /// Takes out those that are cut off. They rest.
    pub(super) fn take_cut_off(&mut self, now: Instant) -> Vec<Arc<Port>> {
        let mut cut_off = Vec::new();
        for OfReader { open, resting, .. } in &mut self.of {
            let before = cut_off.len();
            cut_off.extend(open.extract_if(.., |port| port.is_cut_off()));
            resting.extend((before..cut_off.len()).map(|_| now + REST));
        }
        cut_off
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Port>> {
        std::mem::take(&mut self.of).into_iter().flat_map(|of| of.open).collect()
    }
}
