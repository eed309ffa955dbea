//! Where in a file a field is: from the events of the YAML parser, so that a message about `spec.stubDomains[1].domain`
//! has a line.

use std::collections::BTreeMap;

use serde_saphyr::granit_parser::{Event, Parser};

/// Lines of the fields of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    lines: BTreeMap<String, usize>,
    first: usize,
}

impl Places {
    /// The line of a field; of what it would be in, where it is not written. Counted from 1.
    pub fn line(&self, field: &str) -> usize {
        let mut path = field;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.first,
            }
        }
    }

    /// The same fields, as seen from one that is an object itself.
    pub fn below(&self, field: &str) -> Places {
        let prefix = format!("{field}.");
        let inner =
            |(path, line): (&String, &usize)| Some((path.strip_prefix(&prefix)?.to_owned(), *line));
        Places { lines: self.lines.iter().filter_map(inner).collect(), first: self.line(field) }
    }

    /// The places of each document that is not empty. Reading stops where the text is not YAML: who reads the values
    /// says so.
    pub fn of(text: &str) -> Vec<Places> {
        let mut walk = Walk::default();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            walk.step(&event, span.start.line());
        }
        walk.done
    }
}

/// What is open while events are read.
#[derive(Default)]
struct Walk {
    done: Vec<Places>,
    open: Places,
    is_empty: bool,
    levels: Vec<Level>,
}

enum Level {
    /// A mapping, and the path of the value whose key was read last.
    Map { path: String, key: Option<String> },
    /// A list, and how many items came before.
    List { path: String, index: usize },
    /// Something that is a key itself, of which no field is ever named.
    Key,
}

impl Walk {
    fn step(&mut self, event: &Event<'_>, line: usize) {
        match event {
            Event::DocumentStart(..) => {
                self.open = Places { lines: BTreeMap::new(), first: line };
                self.is_empty = true;
                self.levels.clear();
            }
            Event::DocumentEnd if !self.is_empty => self.done.push(std::mem::take(&mut self.open)),
            Event::Scalar(text, ..) => self.scalar(text, line),
            Event::Alias(_) | Event::UnresolvedAlias(_) => drop(self.value(line)),
            Event::MappingStart(..) => {
                let path = self.value(line);
                self.levels.push(path.map_or(Level::Key, |path| Level::Map { path, key: None }));
            }
            Event::SequenceStart(..) => {
                let path = self.value(line);
                self.levels.push(path.map_or(Level::Key, |path| Level::List { path, index: 0 }));
            }
            Event::MappingEnd | Event::SequenceEnd => drop(self.levels.pop()),
            // Comments, anchors, the ends of the stream and of empty documents.
            _ => {}
        }
    }

    /// A key, or a value without fields.
    fn scalar(&mut self, text: &str, line: usize) {
        match self.levels.last_mut() {
            Some(Level::Map { path, key: key @ None }) => {
                let full = if path.is_empty() { text.to_owned() } else { format!("{path}.{text}") };
                self.open.lines.insert(full.clone(), line);
                *key = Some(full);
            }
            Some(_) => drop(self.value(line)),
            // The whole document is one: only empty ones are none.
            None => self.is_empty = matches!(text, "" | "~" | "null" | "Null" | "NULL"),
        }
    }

    /// A value begins: its path, unless it is a key.
    fn value(&mut self, line: usize) -> Option<String> {
        self.is_empty = false;
        match self.levels.last_mut() {
            None => {
                self.open.first = line;
                Some(String::new())
            }
            Some(Level::Map { key: key @ Some(_), .. }) => key.take(),
            Some(Level::Map { key: key @ None, .. }) => {
                // A mapping or list as a key: its value has no name either.
                *key = Some("?".to_owned());
                None
            }
            Some(Level::List { path, index }) => {
                let full = format!("{path}[{index}]");
                *index += 1;
                self.open.lines.insert(full.clone(), line);
                Some(full)
            }
            Some(Level::Key) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    const TEXT: &str = "\
# A comment.
kind: ClusterDNS
spec:
  stubDomains:
  - domain: a.example
    servers: [{address: 10.0.0.1},
      {address: 10.0.0.2}]
  - {domain: b.example}
  domain: |
    cluster.local
---
---
# Only a comment.
---
kind: Other
? [a, b]
: {c: d}
last: &x {y: 1}
again: *x
";

    #[test]
    fn every_field_has_the_line_of_its_key() {
        let documents = Places::of(TEXT);
        assert_eq!(documents.len(), 2, "empty ones are none");
        let rows = [
            ("kind", 2),
            ("spec", 3),
            ("spec.stubDomains", 4),
            ("spec.stubDomains[0].domain", 5),
            ("spec.stubDomains[0].servers[1].address", 7),
            ("spec.stubDomains[1].domain", 8),
            ("spec.domain", 9),
        ];
        for (field, line) in rows {
            assert_eq!(documents[0].line(field), line, "{field}");
        }
        assert_eq!(documents[1].line("last.y"), 18);
        assert_eq!(documents[1].line("again.y"), 19, "an alias has the place where it stands");
    }

    #[test]
    fn what_is_not_written_has_the_line_of_what_it_would_be_in() {
        let documents = Places::of(TEXT);
        assert_eq!(documents[0].line("spec.stubDomains[1].servers"), 8);
        assert_eq!(documents[0].line("spec.scaling.fixed.replicas"), 3);
        assert_eq!(documents[0].line("metadata.name"), 2);
    }

    #[test]
    fn an_object_in_a_list_has_places_of_its_own() {
        let places =
            &Places::of("kind: List\nitems:\n- spec:\n    domain: x\n- spec:\n    domain: y\n")[0];
        assert_eq!(places.below("items[1]").line("spec.domain"), 6);
        assert_eq!(places.below("items[1]").line("metadata.name"), 5);
    }
}
