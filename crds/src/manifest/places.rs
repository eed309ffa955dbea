//! Where in a file each field of a ClusterDNS is written: a mistake is found after the text has become a value, and
//! values have no lines.

use std::collections::HashMap;
use std::fmt::{self, Display};

use serde_saphyr::granit_parser::{Event, Marker, Parser};

use super::names_us;

/// Fields of one document whose places are kept; a ClusterDNS at its limits has a quarter of them.
const MAX_PLACES: usize = 100_000;
/// The field of a list with its documents.
const ITEMS: &str = "items";
/// The key whose value is a mapping with further fields of this one.
const MERGE: &str = "<<";
/// Octets of the path of one of them. A key is a part of the path of everything below it, and may be as long as the file.
const MAX_PATH: usize = 1_024;

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The places of the fields of one ClusterDNS.
#[derive(Clone, Debug, Default)]
pub struct Places(HashMap<String, Place>);

impl Places {
    /// Where this field is written, by a path such as `spec.stubDomains[1].domain`; where it is absent, the field it
    /// would be in.
    pub fn of(&self, field: &str) -> Option<Place> {
        let mut path = field;
        loop {
            if let Some(place) = self.0.get(path) {
                return Some(*place);
            }
            path = match path.rfind(['.', '[']) {
                Some(end) => &path[..end],
                None if path.is_empty() => return None,
                None => "",
            };
        }
    }
}

/// The places of every ClusterDNS of a text, and of what is meant to be one, also of those in a `List`, in their order. A
/// text that is not YAML has those before the mistake.
pub fn places(text: &str) -> Vec<Places> {
    places_of(text, names_us)
}

/// The same for every document that has a top-level field with this name and this text; a list of documents is not one.
pub fn places_of(text: &str, is_one: fn(&str, &str) -> bool) -> Vec<Places> {
    let mut found = Vec::new();
    let new = || Document { is_one: Some(is_one), ..Document::default() };
    let mut document = new();
    for next in Parser::new_from_str(text) {
        let Ok((event, span)) = next else { break };
        match event {
            Event::Scalar(text, _, anchor, _) => document.scalar(&text, anchor, span.start),
            Event::Alias(anchor) => document.alias(anchor, span.start),
            Event::MappingStart(_, anchor, _) => document.begin(false, anchor, span.start),
            Event::SequenceStart(_, anchor, _) => document.begin(true, anchor, span.start),
            Event::MappingEnd | Event::SequenceEnd => document.end(),
            Event::DocumentEnd => {
                found.extend(std::mem::replace(&mut document, new()).configurations());
            }
            _ => {}
        }
    }
    found
}

/// One document while it is read.
#[derive(Default)]
struct Document {
    is_one: Option<fn(&str, &str) -> bool>,
    open: Vec<Open>,
    places: HashMap<String, Place>,
    /// What aliases may repeat, by the number of the anchor.
    anchored: HashMap<usize, Anchored>,
    /// Paths of the documents with kind ClusterDNS, in order.
    configurations: Vec<String>,
    /// It has a sequence of items: it is a list of documents, and none itself.
    is_list: bool,
}

/// What has an anchor, as far as it matters.
#[derive(Clone)]
enum Anchored {
    Text(String),
    /// A document with kind ClusterDNS.
    Configuration,
}

/// A mapping or a sequence whose end was not read yet.
struct Open {
    path: String,
    is_sequence: bool,
    /// The number of its anchor; 0 where it has none.
    anchor: usize,
    /// Entries of this sequence so far: the index in a path.
    count: usize,
    /// The key whose value comes next.
    key: Option<(String, Place)>,
}

impl Document {
    fn scalar(&mut self, text: &str, anchor: usize, at: Marker) {
        let at = place(at);
        if anchor != 0 && text.len() <= MAX_PATH && self.anchored.len() < MAX_PLACES {
            self.anchored.insert(anchor, Anchored::Text(text.to_owned()));
        }
        if let Some(open) = self.open.last_mut()
            && !open.is_sequence
            && open.key.is_none()
        {
            open.key = Some((text.to_owned(), at));
            return;
        }
        if let Some(open) = self.open.last()
            && open.key.as_ref().is_some_and(|(key, _)| self.is_one.is_some_and(|is| is(key, text)))
        {
            self.add_configuration(open.path.clone());
        }
        let (path, _) = self.here(at);
        self.keep(path, at);
        self.is_done();
    }

    fn add_configuration(&mut self, path: String) {
        if self.configurations.last() != Some(&path) {
            self.configurations.push(path);
        }
    }

    /// What an alias repeats is where the alias is.
    fn alias(&mut self, anchor: usize, at: Marker) {
        match self.anchored.get(&anchor).cloned() {
            Some(Anchored::Text(text)) => self.scalar(&text, 0, at),
            Some(Anchored::Configuration) => {
                // The value of the merge key may also be a list of aliases.
                let mapping = self.open.iter().rev().find(|open| !open.is_sequence);
                let merged =
                    mapping.filter(|open| open.key.as_ref().is_some_and(|(key, _)| key == MERGE));
                let path = merged.map_or_else(|| self.here(place(at)).0, |open| open.path.clone());
                self.add_configuration(path);
                self.scalar("", 0, at);
            }
            None => self.scalar("", 0, at),
        }
    }

    /// A collection is where its key is, else where it begins.
    fn begin(&mut self, is_sequence: bool, anchor: usize, at: Marker) {
        let (path, at) = self.here(place(at));
        self.is_list |= is_sequence && path == ITEMS;
        self.keep(path.clone(), at);
        self.open.push(Open { path, is_sequence, anchor, count: 0, key: None });
    }

    fn end(&mut self) {
        if let Some(open) = self.open.pop()
            && open.anchor != 0
            && self.configurations.last() == Some(&open.path)
        {
            self.anchored.insert(open.anchor, Anchored::Configuration);
        }
        self.is_done();
    }

    /// The path of the value that comes next.
    fn here(&self, at: Place) -> (String, Place) {
        match self.open.last() {
            None => (String::new(), at),
            Some(open) if open.is_sequence => (format!("{}[{}]", open.path, open.count), at),
            Some(open) => {
                // A key that is no text: no field of ours has one.
                let (key, at) = open.key.as_ref().map_or(("?", at), |(key, at)| (key, *at));
                let dot = if open.path.is_empty() { "" } else { "." };
                // Longer than any path that is kept: what is below it need not be longer still.
                let key = if key.len() > MAX_PATH { "?" } else { key };
                (format!("{}{dot}{key}", open.path), at)
            }
        }
    }

    fn is_done(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.count += 1;
            open.key = match (open.is_sequence, open.key.take()) {
                (false, None) => Some(("?".to_owned(), Place { line: 0, column: 0 })),
                _ => None,
            };
        }
    }

    fn keep(&mut self, path: String, at: Place) {
        if self.places.len() < MAX_PLACES && path.len() <= MAX_PATH {
            self.places.insert(path, at);
        }
    }

    fn configurations(self) -> Vec<Places> {
        let is_item = |path: &str| {
            let rest = path.strip_prefix(ITEMS).and_then(|rest| rest.strip_prefix('['));
            rest.is_some_and(|rest| rest.ends_with(']') && !rest.contains('.'))
        };
        let is_one = |path: &&String| if self.is_list { is_item(path) } else { path.is_empty() };
        let of = |prefix: &String| {
            let own = self.places.iter().filter_map(|(path, place)| {
                let rest = path.strip_prefix(prefix)?;
                Some((rest.strip_prefix('.').unwrap_or(rest).to_owned(), *place))
            });
            Places(own.collect())
        };
        self.configurations.iter().filter(is_one).map(of).collect()
    }
}

fn place(at: Marker) -> Place {
    Place { line: at.line(), column: at.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_every_document_and_every_style() {
        let text = "kind: Service\n---\nkind: ClusterDNS\nspec:\n  ttlSeconds: 5\n  hosts:\n  - name: a.example\n    addresses: [10.0.0.1, x]\n---\n{\"kind\": \"List\", \"items\": [{\"kind\": \"ClusterDNS\",\n \"spec\": {\"domain\": \"b\"}}]}\n";
        let found = places(text);
        assert_eq!(found.len(), 2);
        let rows = [
            (0, "spec.ttlSeconds", "5:15"),
            (0, "spec.hosts", "6:3"),
            (0, "spec.hosts[0].name", "7:11"),
            (0, "spec.hosts[0].addresses[1]", "8:27"),
            (0, "spec.hosts[0].absent", "7:5"),
            (0, "spec.stubDomains[3].domain", "4:1"),
            (1, "spec.domain", "11:21"),
        ];
        for (document, field, expected) in rows {
            assert_eq!(found[document].of(field).unwrap().to_string(), expected, "{field}");
        }
    }

    /// `kubectl get --raw` writes such a list: its group is ours too.
    #[test]
    fn a_list_of_ours_is_not_counted_and_its_items_have_their_own_lines() {
        let head = "apiVersion: clusterdns.dev/v1alpha1\n";
        let item = "- apiVersion: clusterdns.dev/v1alpha1\n  kind: ClusterDNS\n  spec: {}\n";
        let text = format!("{head}kind: ClusterDNSList\nitems:\n{item}{item}");
        let lines: Vec<_> =
            places(&text).iter().map(|it| it.of("spec").map(|place| place.line)).collect();
        assert_eq!(lines, [Some(6), Some(9)]);
    }

    #[test]
    fn an_item_that_merges_several_has_its_own_lines() {
        let text = "kind: List\nitems:\n- &a\n  kind: ClusterDNS\n  spec: {}\n- &b\n  metadata: {}\n\
                    - <<: [*a, *b]\n  spec: {}\n- kind: ClusterDNS\n  spec: {}\n";
        let lines: Vec<_> =
            places(text).iter().map(|it| it.of("spec").map(|place| place.line)).collect();
        assert_eq!(lines, [Some(5), Some(9), Some(11)]);
    }

    #[test]
    fn a_long_key_is_not_kept_with_all_that_is_below_it() {
        let long = "k".repeat(100_000);
        let items = "x,".repeat(1_000);
        let text = format!("kind: ClusterDNS\nspec:\n  ttlSeconds: 5\n? {long}\n: [{items}]\n");
        let found = places(&text);
        let octets: usize = found[0].0.keys().map(String::len).sum();
        assert!(octets < 2 * 10 * 1_000, "{octets}");
        assert_eq!(found[0].of("spec.ttlSeconds").unwrap().to_string(), "3:15");
    }

    #[test]
    fn what_is_no_yaml_has_the_documents_before_it() {
        assert_eq!(places("kind: ClusterDNS\n---\nspec: [\n").len(), 1);
        assert!(places("kind: Service\n").is_empty());
    }
}
