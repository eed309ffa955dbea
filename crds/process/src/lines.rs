//! The chunks of a watch of the API server, cut into lines, one event each.

use crate::items::MAX_OBJECT;

/// Longest line of a watch: one object and its envelope, in octets.
const MAX_LINE: usize = MAX_OBJECT + 1024;
/// Octets of the buffer for lines that are kept between events.
const KEPT_ROOM: usize = 64 << 10;

/// A line is longer than any object and its envelope; its octets are gone. Who may write such an object must not stop the
/// events of others, so the lines behind it are read.
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
    /// The octets up to the next end of a line belong to one that is too long.
    skips: bool,
    /// One that was too long has ended, and was not given yet.
    skipped: bool,
}

impl Lines {
    /// Appends octets of the body, behind what [`Lines::next_line`] gave.
    pub fn add(&mut self, mut chunk: &[u8]) {
        if self.skips {
            let Some(end) = chunk.iter().position(|&octet| octet == b'\n') else { return };
            (self.skips, self.skipped) = (false, true);
            chunk = &chunk[end + 1..];
        }
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        // After a large event the buffer shrinks again; otherwise each stream would keep that memory forever.
        if self.buffer.capacity() > KEPT_ROOM && self.buffer.len() < KEPT_ROOM / 2 {
            self.buffer.shrink_to(KEPT_ROOM);
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line; what has no end yet stays. Anyone who may edit an object may write any octets into `fieldsV1` of its
    /// managed fields, and the API server shows them as they are: what is not UTF-8 becomes U+FFFD, or serde_json would refuse
    /// the whole line.
    pub fn next_line(&mut self) -> Option<Result<String, TooLong>> {
        if std::mem::take(&mut self.skipped) {
            return Some(Err(TooLong));
        }
        let rest = &self.buffer[self.searched..];
        let Some(end) = rest.iter().position(|&octet| octet == b'\n') else {
            self.searched = self.buffer.len();
            if self.buffer.len() - self.taken > MAX_LINE {
                *self = Self { skips: true, ..Self::default() };
            }
            return None;
        };
        let end = self.searched + end;
        let line = &self.buffer[self.taken..end];
        let line = if line.len() > MAX_LINE {
            Err(TooLong)
        } else {
            Ok(String::from_utf8_lossy(line).into_owned())
        };
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
        lines.add(b"{\"a\":1}\n{\"b\"");
        assert_eq!(lines.next_line().unwrap().unwrap(), "{\"a\":1}");
        assert_eq!(lines.next_line(), None);
        lines.add(b":2}\n");
        assert_eq!(lines.next_line().unwrap().unwrap(), "{\"b\":2}");
        assert_eq!(lines.next_line(), None);
    }

    #[test]
    fn k23_a_large_event_leaves_no_room_behind() {
        let mut lines = Lines::default();
        lines.add(&vec![b'x'; 4 << 20]);
        assert_eq!(lines.next_line(), None);
        lines.add(b"\n{}\n");
        assert_eq!(lines.next_line().unwrap().map(|line| line.len()), Ok(4 << 20));
        assert_eq!(lines.next_line().unwrap().unwrap(), "{}");
        lines.add(b"{}");
        assert!(lines.buffer.capacity() <= KEPT_ROOM, "{} octets", lines.buffer.capacity());
    }

    #[test]
    fn l18_a_line_that_is_too_long_is_passed_over_and_the_next_ones_are_read() {
        for size in [1 << 20, (1 << 20) + 7, 3 << 20] {
            let mut lines = Lines::default();
            let (mut read, mut most) = (Vec::new(), 0);
            let mut add = |octets: &[u8]| {
                for chunk in octets.chunks(size) {
                    lines.add(chunk);
                    while let Some(line) = lines.next_line() {
                        read.push(line);
                    }
                    most = most.max(lines.buffer.capacity());
                }
            };
            add(b"{\"a\":1}\n");
            (0..8).for_each(|_| add(&vec![b'x'; MAX_LINE / 2]));
            add(b"x\n{\"b\":2}\n{\"c\"");
            add(b":3}\n");
            let line = |text: &str| Ok(text.to_owned());
            let expected = [line("{\"a\":1}"), Err(TooLong), line("{\"b\":2}"), line("{\"c\":3}")];
            assert_eq!(read, expected, "chunks of {size}");
            assert!(most < 3 * MAX_LINE, "{most} octets held");
        }
    }

    #[test]
    fn a_line_in_one_chunk_has_the_same_limit() {
        let mut lines = Lines::default();
        lines.add(&[vec![b'x'; MAX_LINE], b"\n".to_vec(), vec![b'x'; MAX_LINE + 1]].concat());
        lines.add(b"\n{}\n");
        let lengths: Vec<_> = std::iter::from_fn(|| lines.next_line())
            .map(|line| line.map(|line| line.len()))
            .collect();
        assert_eq!(lengths, [Ok(MAX_LINE), Err(TooLong), Ok(2)]);
    }
}
