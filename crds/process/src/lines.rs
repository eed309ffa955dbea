//! The chunks of a watch of the API server, cut into lines, one event each.

use crate::items::MAX_OBJECT;

/// Longest line of a watch: one object and its envelope, in octets.
const MAX_LINE: usize = MAX_OBJECT + 1024;
/// Octets of the buffer for lines that are kept between events.
const KEPT_ROOM: usize = 64 << 10;

/// A line is longer than any object and its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is too long")]
pub struct TooLong;

/// Octets of a watch that were read and not used yet.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    taken: usize,
    /// Up to here there is no end of a line behind `taken`.
    searched: usize,
}

impl Lines {
    /// Appends octets of the body.
    ///
    /// # Errors
    /// A line is longer than the limit.
    pub fn add(&mut self, chunk: &[u8]) -> Result<(), TooLong> {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        // After a large event the buffer shrinks again; otherwise each stream would keep that memory forever.
        if self.buffer.capacity() > KEPT_ROOM && self.buffer.len() < KEPT_ROOM / 2 {
            self.buffer.shrink_to(KEPT_ROOM);
        }
        self.buffer.extend_from_slice(chunk);
        match self.buffer.len() > MAX_LINE + chunk.len() {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    /// The next whole line; what has no end yet stays.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.buffer[self.searched..];
        let Some(end) = rest.iter().position(|&octet| octet == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + end;
        let line = self.buffer[self.taken..end].to_vec();
        self.taken = end + 1;
        self.searched = self.taken;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_chunks() {
        let mut lines = Lines::default();
        lines.add(b"{\"a\":1}\n{\"b\"").unwrap();
        assert_eq!(lines.next_line().unwrap(), b"{\"a\":1}");
        assert_eq!(lines.next_line(), None);
        lines.add(b":2}\n").unwrap();
        assert_eq!(lines.next_line().unwrap(), b"{\"b\":2}");
        assert_eq!(lines.next_line(), None);
    }

    #[test]
    fn k23_a_large_event_leaves_no_room_behind() {
        let mut lines = Lines::default();
        lines.add(&vec![b'x'; 4 << 20]).unwrap();
        assert_eq!(lines.next_line(), None);
        lines.add(b"\n{}\n").unwrap();
        assert_eq!(lines.next_line().map(|line| line.len()), Some(4 << 20));
        assert_eq!(lines.next_line().unwrap(), b"{}");
        lines.add(b"{}").unwrap();
        assert!(lines.buffer.capacity() <= KEPT_ROOM, "{} octets", lines.buffer.capacity());
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..20).any(|_| lines.add(&chunk).is_err());
        assert!(refused);
    }
}
