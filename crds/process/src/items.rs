//! The body of a list of the API server, cut into its objects while it arrives: of a page, however large, no more than one
//! object is held (K23).

/// An object in etcd has 1.5 MiB at most by default, which are 9 MiB if JSON writes each octet as six: `\u0001`, and `\u003c` for
/// `<`, which anyone may write into fields that are not checked.
pub const MAX_OBJECT: usize = 10 << 20;
/// Capacity that is kept for the next object; more is freed.
const KEPT: usize = 64 << 10;
/// `items` and `metadata` are the longest keys that are read.
const MAX_KEY: usize = 8;

/// A part of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// `metadata` of the list.
    Metadata(&'a [u8]),
    /// The JSON of one of `items`.
    Object(&'a [u8]),
    /// One of `items` that is longer than [`MAX_OBJECT`]; its octets are gone.
    TooLong,
}

/// These octets are not a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoList(pub &'static str);

/// Cuts octets into parts. It finds where objects begin and end; the caller decodes them, and reports what is not
/// JSON.
#[derive(Debug, Default)]
pub struct Items {
    /// Brackets that are open, outside of strings.
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// A key of the list follows, or is being read.
    is_key: bool,
    key: Vec<u8>,
    /// The list has `items`, even if `null`.
    has_items: bool,
    is_ended: bool,
    taken: Option<Taken>,
    /// What has arrived of the part that is being read.
    buffer: Vec<u8>,
}

/// The part that is being read.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// It ends when this many brackets are open again.
    depth: u32,
    is_object: bool,
    is_too_long: bool,
}

impl Items {
    /// Reads octets, and gives each part that ends in them to `to`.
    ///
    /// # Errors
    /// Brackets that do not fit, or the first error of `to`.
    pub fn add<E: From<NoList>>(
        &mut self,
        chunk: &[u8],
        mut to: impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Where in the chunk the part begins, if one is being read.
        let mut from = 0;
        let mut at = 0;
        while at < chunk.len() {
            if self.in_string && !self.is_escaped {
                at += self.skip_text(&chunk[at..]);
                if at == chunk.len() {
                    break;
                }
            }
            let octet = chunk[at];
            at += 1;
            if self.in_string {
                self.text(octet);
                continue;
            }
            match octet {
                b'"' => self.open_string(),
                b'{' | b'[' => from = if self.open(octet) { at - 1 } else { from },
                b'}' | b']' => {
                    if let Some(taken) = self.close()? {
                        self.keep(&chunk[from..at]);
                        self.give(taken, &mut to)?;
                    }
                }
                b',' if self.depth == 1 => {
                    self.is_key = true;
                    self.key.clear();
                }
                b':' if self.depth == 1 => {
                    self.is_key = false;
                    self.has_items |= self.key == b"items";
                }
                _ => {}
            }
        }
        if self.taken.is_some() {
            self.keep(&chunk[from..]);
        }
        Ok(())
    }

    /// The body has ended.
    ///
    /// # Errors
    /// In the middle, or it is no list.
    pub fn finish(&self) -> Result<(), NoList> {
        match self.is_ended && self.has_items {
            true => Ok(()),
            false => Err(NoList("a list that is not whole")),
        }
    }

    /// Octets that this reader holds: the buffer and the key.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.buffer.capacity() + self.key.capacity()
    }

    /// How many octets are plain text of a string.
    fn skip_text(&mut self, rest: &[u8]) -> usize {
        let end = rest.iter().position(|&octet| octet == b'"' || octet == b'\\');
        let length = end.unwrap_or(rest.len());
        if self.is_key && self.depth == 1 && self.key.len() <= MAX_KEY {
            // One octet more than any key that is read: it is another key.
            self.key.extend(rest[..length].iter().take(MAX_KEY + 1 - self.key.len()));
        }
        length
    }

    /// An octet of a string that may end or escape.
    fn text(&mut self, octet: u8) {
        match octet {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn open_string(&mut self) {
        self.in_string = true;
    }

    /// A bracket opens. Returns whether a part begins with it.
    fn open(&mut self, octet: u8) -> bool {
        let before = self.depth;
        self.depth += 1;
        self.is_key = before == 0;
        if octet != b'{' || self.taken.is_some() {
            return false;
        }
        let is_object = before == 2 && self.key == b"items";
        let is_metadata = before == 1 && self.key == b"metadata";
        if is_object || is_metadata {
            self.taken = Some(Taken { depth: before, is_object, is_too_long: false });
            self.buffer.clear();
        }
        is_object || is_metadata
    }

    /// A bracket closes. Returns the part that ends with it.
    fn close(&mut self) -> Result<Option<Taken>, NoList> {
        let depth = self.depth.checked_sub(1);
        self.depth = depth.ok_or(NoList("more brackets close than open"))?;
        self.is_ended |= self.depth == 0;
        Ok(self.taken.filter(|taken| taken.depth == self.depth))
    }

    fn keep(&mut self, octets: &[u8]) {
        let Some(taken) = &mut self.taken else { return };
        taken.is_too_long |= self.buffer.len() + octets.len() > MAX_OBJECT;
        match taken.is_too_long {
            true => self.buffer = Vec::new(),
            false => self.buffer.extend_from_slice(octets),
        }
    }

    fn give<E: From<NoList>>(
        &mut self,
        taken: Taken,
        to: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_too_long = self.taken.take().is_some_and(|taken| taken.is_too_long);
        let given = match (is_too_long, taken.is_object) {
            (false, true) => to(Part::Object(&self.buffer)),
            (false, false) => to(Part::Metadata(&self.buffer)),
            (true, true) => to(Part::TooLong),
            (true, false) => Err(NoList("the metadata of a list is too long").into()),
        };
        self.buffer.clear();
        self.buffer.shrink_to(KEPT);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a body that comes in chunks of this size.
    fn parts(body: &str, size: usize) -> Result<Vec<String>, NoList> {
        let (mut items, mut parts) = (Items::default(), Vec::new());
        for chunk in body.as_bytes().chunks(size) {
            items.add(chunk, |part| {
                parts.push(match part {
                    Part::Metadata(text) => format!("list {}", String::from_utf8_lossy(text)),
                    Part::Object(text) => String::from_utf8_lossy(text).into_owned(),
                    Part::TooLong => "too long".into(),
                });
                Ok::<(), NoList>(())
            })?;
        }
        items.finish().map(|()| parts)
    }

    #[test]
    fn k23_a_list_is_cut_into_its_objects_wherever_chunks_end() {
        let body = r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7","x":{}},
            "items":[{"a":"}\"]{","b":[{"items":[1]}]},{"metadata":{"name":"\\"}} , {}],"more":[{"no":1}]}"#;
        let expected = [
            r#"list {"resourceVersion":"7","x":{}}"#,
            r#"{"a":"}\"]{","b":[{"items":[1]}]}"#,
            r#"{"metadata":{"name":"\\"}}"#,
            "{}",
        ];
        for size in 1..=body.len() {
            assert_eq!(parts(body, size).unwrap(), expected, "chunks of {size}");
        }
    }

    #[test]
    fn an_empty_list_may_be_null_and_metadata_may_come_last() {
        let body = r#"{"items":null,"metadata":{"resourceVersion":"7"}}"#;
        assert_eq!(parts(body, 5).unwrap(), [r#"list {"resourceVersion":"7"}"#]);
    }

    #[test]
    fn what_is_no_whole_list_is_refused() {
        let texts = ["", "{}", "{\"metadata\":{}}", "{\"items\":[", "[]", "}", "<html></html>"];
        for text in texts {
            assert!(parts(text, 3).is_err(), "{text}");
        }
    }

    #[test]
    fn k23_of_a_page_of_large_objects_one_is_held_at_a_time() {
        let object = format!(r#"{{"metadata":{{"name":"{}"}}}},"#, "x".repeat(1_400_000));
        let (mut items, mut count, mut most) = (Items::default(), 0, 0);
        let mut add = |items: &mut Items, octets: &[u8]| {
            for chunk in octets.chunks(16 << 10) {
                let counted = items.add(chunk, |part| {
                    count += usize::from(matches!(part, Part::Object(_)));
                    Ok::<(), NoList>(())
                });
                counted.unwrap();
                most = most.max(items.held());
            }
        };
        add(&mut items, br#"{"metadata":{},"items":["#);
        (0..500).for_each(|_| add(&mut items, object.as_bytes()));
        add(&mut items, b"{}]}");
        assert_eq!(count, 501);
        assert!(most < 3 << 20, "{most} octets held");
        assert!(items.held() <= KEPT + 64, "{} octets held for nothing", items.held());
    }

    #[test]
    fn k23_an_object_longer_than_any_is_passed_over_and_the_others_are_read() {
        let long = "x".repeat(MAX_OBJECT);
        let body = format!(r#"{{"items":[{{"a":1}},{{"b":"{long}"}},{{"c":3}}]}}"#);
        assert_eq!(parts(&body, 60_000).unwrap(), [r#"{"a":1}"#, "too long", r#"{"c":3}"#]);
    }
}
