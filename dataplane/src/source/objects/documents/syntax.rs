//! YAML or JSON text to documents, one after the other, in bounds, with the line of a mistake.

use std::fmt;

use serde::de::DeserializeOwned;

/// Longest reason that is kept.
const MAX_REASON: usize = 300;

/// Why a text is not a sequence of YAML or JSON documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1; 0 when unknown.
    pub line: u64,
    /// Column, from 1; 0 when unknown.
    pub column: u64,
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.reason),
            (line, column) => write!(f, "line {line}, column {column}: {}", self.reason),
        }
    }
}

impl std::error::Error for ParseError {}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// One or more documents separated by `---`.
    Yaml,
    /// One or more JSON values.
    Json,
}

/// The documents of a text, each added to the collection before the next one is read.
pub(super) fn read<D: DeserializeOwned, C: Default + Extend<D>>(
    text: &str,
    syntax: Syntax,
) -> Result<C, ParseError> {
    match syntax {
        Syntax::Yaml => yaml_documents(text),
        Syntax::Json => json_documents(text),
    }
}

fn yaml_documents<D: DeserializeOwned, C: Default + Extend<D>>(
    text: &str,
) -> Result<C, ParseError> {
    // The size of a file is bounded before it is read (files/scan.rs).
    let options = crds::manifest::options();
    serde_saphyr::from_str_multiple_with_options::<D, C>(text, options).map_err(|error| {
        let (place, reason) = crds::manifest::not_yaml(&error);
        let (line, column) = place.map_or((0, 0), |place| (place.line as u64, place.column as u64));
        ParseError { line, column, reason: first_line(&reason) }
    })
}

fn json_documents<D: DeserializeOwned, C: Default + Extend<D>>(
    text: &str,
) -> Result<C, ParseError> {
    let mut documents = C::default();
    for document in serde_json::Deserializer::from_str(text).into_iter::<D>() {
        let document = document.map_err(|error| ParseError {
            line: error.line() as u64,
            column: error.column() as u64,
            reason: first_line(&error.to_string()),
        })?;
        documents.extend(Some(document));
    }
    Ok(documents)
}

/// One line of at most [`MAX_REASON`] octets, without control characters: it goes to logs.
pub(super) fn first_line(text: &str) -> String {
    let line: String =
        text.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().find(|(at, _)| *at >= MAX_REASON) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
