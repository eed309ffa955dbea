//! Reads numbers and pieces of octets one after the other; each says where the file ends too early.

/// The rest of a file.
pub(super) struct Cursor<'a> {
    octets: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Cursor<'a> {
        Cursor { octets, at: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.octets.len()
    }

    /// The next octets, this many.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.octets.len());
        let Some(end) = end else {
            return Err(format!("it ends at octet {}, within a record", self.octets.len()));
        };
        let taken = self.octets.get(self.at..end).unwrap_or_default();
        self.at = end;
        Ok(taken)
    }

    /// A number of 32 bits.
    pub(super) fn u32(&mut self, is_little: bool) -> Result<u32, String> {
        let octets = self.take(4)?.first_chunk().copied().unwrap_or_default();
        Ok(if is_little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) })
    }

    /// The octet at which it is.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}
