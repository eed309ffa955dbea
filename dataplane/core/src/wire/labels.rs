//! A name as it is looked up: lower case, with the place of each label.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use crate::wire::name::{MAX_LABEL, MAX_NAME, Name};

/// Room for a name, in whole [`WORD`]s.
const ROOM: usize = (MAX_NAME + 1).next_multiple_of(WORD);
/// Octets that a processor changes to lower case at once.
const WORD: usize = 16;

/// A name in lower case with the place of each label, so that suffixes are compared as slices.
#[derive(Clone)]
pub(crate) struct Labels {
    wire: [u8; ROOM],
    /// Where the root label is. A length would make a root that is not all zeros, which is slower to make.
    end: u8,
    starts: [u8; 128],
    count: u8,
}

impl Labels {
    /// The root; [`Labels::read`] overwrites it in place, because a name has nearly 400 octets, which should not be
    /// moved.
    pub(crate) const ROOT: Labels = Labels { wire: [0; ROOM], end: 0, starts: [0; 128], count: 0 };

    /// Reads an uncompressed name at `at`; `None` when it is unreadable (N4).
    pub(crate) fn read(&mut self, packet: &[u8], at: usize) -> Option<()> {
        let mut end = at;
        let mut count = 0;
        loop {
            let length = *packet.get(end)? as usize;
            // Compression pointers and label types 01 and 10 are all above 63.
            if length > MAX_LABEL {
                return None;
            }
            if length == 0 {
                break;
            }
            // A name with more labels than there are places is too long as well.
            *self.starts.get_mut(count)? = (end - at) as u8;
            count += 1;
            end += length + 1;
        }
        let from = packet.get(at..=end)?;
        if from.len() > MAX_NAME {
            return None;
        }
        // Whole words, with the octets that follow the name. Lengths are below 64 and so below 'A': lower-casing
        // everything touches letters only.
        let (words, _) = self.wire[..from.len().next_multiple_of(WORD)].as_chunks_mut::<WORD>();
        let (whole, _) = packet[at..].as_chunks::<WORD>();
        for (word, whole) in words.iter_mut().zip(whole) {
            *word = *whole;
            word.make_ascii_lowercase();
        }
        if let Some(last) = words.get_mut(whole.len()..).and_then(<[_]>::first_mut) {
            // The message ends within the last word of the name.
            let rest = &from[whole.len() * WORD..];
            last[..rest.len()].copy_from_slice(rest);
            last.make_ascii_lowercase();
        }
        (self.end, self.count) = ((end - at) as u8, count as u8);
        Some(())
    }

    /// The labels of a name.
    pub(crate) fn of(name: &Name) -> Labels {
        let mut labels = Labels::ROOT;
        // A `Name` is valid by construction; the root is an unreachable fallback.
        let _ = labels.read(name.wire(), 0);
        labels
    }

    /// Uncompressed wire form, lower case, with the root label.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire[..=usize::from(self.end)]
    }

    /// Number of labels without the root.
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Label number `index` from the left.
    pub(crate) fn label(&self, index: usize) -> &[u8] {
        let start = self.starts[index] as usize;
        &self.wire[start + 1..][..self.wire[start] as usize]
    }

    /// The length octet of label number `index` and the three octets that follow it, also where they belong to the next label; `None`
    /// where there is no such label, or its end is that of the longest name.
    #[inline(always)]
    pub(crate) fn beginning(&self, index: usize) -> Option<&[u8; 4]> {
        let start = *self.starts[..self.count()].get(index)?;
        self.wire[usize::from(start)..].first_chunk()
    }

    /// Where label number `index` starts; `count()` gives the root label.
    pub(crate) fn start(&self, index: usize) -> usize {
        if index < self.count() { self.starts[index] as usize } else { usize::from(self.end) }
    }

    /// Whether a label starts here; not the root label.
    pub(crate) fn is_start(&self, position: usize) -> bool {
        self.starts[..self.count()].iter().any(|&start| usize::from(start) == position)
    }

    /// The name without its first `index` labels, in wire form.
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        &self.wire()[self.start(index)..]
    }

    /// The wire form of labels `from..to`, without a root label.
    pub(crate) fn range(&self, from: usize, to: usize) -> &[u8] {
        &self.wire[self.start(from)..self.start(to)]
    }

    /// How many labels lie left of `ancestor`; `None` if the name is not at or below it.
    pub(crate) fn below(&self, ancestor: &[u8], ancestor_labels: usize) -> Option<usize> {
        let left = self.count().checked_sub(ancestor_labels)?;
        (self.suffix(left) == ancestor).then_some(left)
    }

    /// The name as a value of its own.
    pub(crate) fn to_name(&self) -> Name {
        Name::in_room(self.end, &self.wire)
    }
}
