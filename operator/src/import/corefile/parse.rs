//! From words to server blocks and directives: braces, snippets, imports and environment variables as CoreDNS reads them,
//! within bounds. What CoreDNS refuses is refused.

use std::collections::{BTreeMap, VecDeque};

use super::lexer::{Token, tokens};
use super::octets::{Octets, octets};
use super::variables::expand;
pub(super) use super::variables::has_variable;
use crate::import::report::Place;
use crate::import::{Look, Refused, Text};

/// Words of a Corefile with everything that it imports.
const MAX_TOKENS: usize = 200_000;
/// Imports that are followed in one Corefile: the bound for a snippet that imports itself.
const MAX_IMPORTS: usize = 1_000;
/// Braces inside braces.
const MAX_NESTING: usize = 16;

/// A server block: keys and directives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerBlock {
    pub(super) place: Place,
    /// What it serves, as written, environment variables filled in.
    pub(super) keys: Vec<String>,
    /// Those of its keys that clients of the Service do not ask.
    pub(super) other_keys: Vec<String>,
    /// Its directives, in their order.
    pub(super) directives: Vec<Directive>,
}

/// A directive, or a line of the body of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) place: Place,
    pub(super) name: String,
    /// The other words of its line.
    pub(super) args: Vec<String>,
    /// The lines between its braces.
    pub(super) body: Vec<Directive>,
    /// It has braces, perhaps with nothing between them.
    pub(super) has_braces: bool,
    /// A closing brace is behind it, on the same line.
    pub(super) has_brace_behind: bool,
}

impl Directive {
    /// As it is written, on one line, without its body.
    pub(super) fn text(&self) -> String {
        let words = std::iter::once(&self.name).chain(&self.args);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Why CoreDNS would refuse it.
    pub(super) fn refused(&self, message: impl Into<String>) -> Refused {
        Refused::at(&self.place, format!("{}: {}", self.name, message.into()))
    }
}

/// An import of a pattern that no file has, or of a file that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EmptyImport {
    pub(super) place: Place,
    pub(super) pattern: String,
    /// Why a file that is there is not read.
    pub(super) why: Option<String>,
}

/// A line of a snippet that nothing imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnusedLine {
    pub(super) place: Place,
    /// The snippet, with its parentheses, and the line.
    pub(super) text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::import) struct Parsed {
    /// The server blocks, in their order.
    pub(super) blocks: Vec<ServerBlock>,
    /// Those that clients of the Service do not ask.
    pub(super) apart: Vec<ServerBlock>,
    /// Imports of which nothing, or not all, was read.
    pub(super) empty_imports: Vec<EmptyImport>,
    /// Snippets that nothing imports, by line.
    pub(super) unused: Vec<UnusedLine>,
}

/// Reads a Corefile.
///
/// # Errors
/// Why CoreDNS would refuse it, or that it is beyond a bound.
pub(super) fn parse(
    text: &Text,
    variables: &BTreeMap<String, String>,
    look: &Look<'_>,
) -> Result<Parsed, Refused> {
    let rest = VecDeque::from(tokens(text));
    let lines = text.text.lines().count().max(1);
    let end = Place { file: text.file.clone(), line: text.line + lines - 1 };
    let words = rest.len();
    if words > MAX_TOKENS {
        return Err(Refused::at(&end, format!("more than {MAX_TOKENS} words")));
    }
    let octets = Octets::of(&rest);
    let snippets = BTreeMap::new();
    Parser { rest, end, variables, look, snippets, imports: 0, words, octets }.all()
}

struct Snippet {
    place: Place,
    tokens: Vec<Token>,
    is_used: bool,
}

struct Parser<'a> {
    /// The words that are not read yet.
    rest: VecDeque<Token>,
    end: Place,
    variables: &'a BTreeMap<String, String>,
    look: &'a Look<'a>,
    snippets: BTreeMap<String, Snippet>,
    imports: usize,
    /// Words in all, those of imports every time.
    words: usize,
    /// Their octets.
    octets: Octets,
}

impl Parser<'_> {
    fn all(mut self) -> Result<Parsed, Refused> {
        let mut parsed = Parsed::default();
        while !self.rest.is_empty() {
            if let Some(block) = self.block(&mut parsed.empty_imports)? {
                parsed.blocks.push(block);
            }
        }
        for (name, snippet) in self.snippets.iter().filter(|(_, snippet)| !snippet.is_used) {
            let text = format!("({name})");
            parsed.unused.push(UnusedLine { place: snippet.place.clone(), text });
            let firsts = snippet.tokens.iter().filter(|token| token.first && token.text != "}");
            let line = |token: &Token| UnusedLine {
                place: place(token),
                text: format!("({name}): {}", token.text),
            };
            parsed.unused.extend(firsts.map(line));
        }
        Ok(parsed)
    }

    fn block(&mut self, empty: &mut Vec<EmptyImport>) -> Result<Option<ServerBlock>, Refused> {
        let Some(token) = self.rest.front() else { return Ok(None) };
        let place = place(token);
        let (keys, first) = self.keys(empty)?;
        // An imported block has its keys in another file.
        let place = first.unwrap_or(place);
        if let [key] = &keys[..]
            && let Some(name) = key.strip_prefix('(').and_then(|key| key.strip_suffix(')'))
        {
            self.snippet(name, &place)?;
            return Ok(None);
        }
        if keys.is_empty() && self.rest.is_empty() {
            return Ok(None);
        }
        let has_braces = self.rest.front().is_some_and(|token| token.text == "{");
        if has_braces {
            self.rest.pop_front();
        }
        let directives = self.directives(has_braces, 1, empty)?;
        Ok(Some(ServerBlock { place, keys, other_keys: Vec::new(), directives }))
    }

    /// The words before the brace, or of the first line where there is none, and where the first of them is.
    fn keys(
        &mut self,
        empty: &mut Vec<EmptyImport>,
    ) -> Result<(Vec<String>, Option<Place>), Refused> {
        let (mut keys, mut first) = (Vec::new(), None);
        let mut expects_another = false;
        while let Some(token) = self.rest.front() {
            if token.text == "import" && token.first {
                self.import(empty)?;
                continue;
            }
            if token.text == "{" && expects_another {
                let message = "another server address must follow the comma: remove the comma";
                return Err(Refused::at(&place(token), message));
            }
            if token.text == "{" || (token.first && !expects_another && !keys.is_empty()) {
                return Ok((keys, first));
            }
            if token.text == "}" {
                let message = "this brace closes nothing: remove it, or add the { that it closes";
                return Err(Refused::at(&place(token), message));
            }
            let text = self.expanded(token)?;
            let key = text.strip_suffix(',');
            expects_another = key.is_some();
            let key = key.unwrap_or(&text);
            if !key.is_empty() {
                first.get_or_insert_with(|| place(token));
                keys.push(key.to_owned());
            }
            self.rest.pop_front();
        }
        match expects_another {
            true => Err(Refused::at(&self.end, "the file ends where another address must follow")),
            false => Ok((keys, first)),
        }
    }

    fn snippet(&mut self, name: &str, at: &Place) -> Result<(), Refused> {
        if self.snippets.contains_key(name) {
            let message = format!("snippet ({name}) is defined already: give it another name");
            return Err(Refused::at(at, message));
        }
        if self.rest.pop_front().is_none_or(|token| token.text != "{") {
            return Err(Refused::at(at, format!("snippet ({name}) needs braces around it")));
        }
        let (mut depth, mut body) = (1_usize, Vec::new());
        while let Some(token) = self.rest.pop_front() {
            depth = match token.text.as_str() {
                "{" => depth + 1,
                "}" => depth - 1,
                _ => depth,
            };
            if depth == 0 {
                let snippet = Snippet { place: at.clone(), tokens: body, is_used: false };
                self.snippets.insert(name.to_owned(), snippet);
                return Ok(());
            }
            body.push(token);
        }
        Err(Refused::at(at, format!("snippet ({name}) has no closing brace: add }}")))
    }

    /// The lines up to the closing brace, or to the end if there is none.
    fn directives(
        &mut self,
        has_braces: bool,
        depth: usize,
        empty: &mut Vec<EmptyImport>,
    ) -> Result<Vec<Directive>, Refused> {
        let mut found = Vec::new();
        while let Some(token) = self.rest.front() {
            if depth > MAX_NESTING {
                let message = format!("more than {MAX_NESTING} braces inside braces");
                return Err(Refused::at(&place(token), message));
            }
            match token.text.as_str() {
                "}" if has_braces => {
                    self.rest.pop_front();
                    return Ok(found);
                }
                "}" => {
                    let message = "this brace closes nothing: remove it, or add the { it closes";
                    return Err(Refused::at(&place(token), message));
                }
                "import" => self.import(empty)?,
                _ => found.extend(self.directive(depth, empty)?),
            }
        }
        match has_braces {
            true => Err(Refused::at(&self.end, "the file ends before a closing brace: add }")),
            false => Ok(found),
        }
    }

    /// One line, and the lines between braces that open on it.
    fn directive(
        &mut self,
        depth: usize,
        empty: &mut Vec<EmptyImport>,
    ) -> Result<Option<Directive>, Refused> {
        let Some(token) = self.rest.pop_front() else { return Ok(None) };
        let (place, name) = (place(&token), self.expanded(&token)?);
        let (args, body) = (Vec::new(), Vec::new());
        let mut directive =
            Directive { place, name, args, body, has_braces: false, has_brace_behind: false };
        while let Some(token) = self.rest.front() {
            if token.text == "{" {
                self.rest.pop_front();
                directive.has_braces = true;
                directive.body.extend(self.directives(true, depth + 1, empty)?);
            } else if token.first || token.text == "}" {
                directive.has_brace_behind = !token.first;
                break;
            } else {
                let text = self.expanded(token)?;
                directive.args.push(text);
                self.rest.pop_front();
            }
        }
        Ok(Some(directive))
    }

    /// Replaces an import by the words that it names.
    fn import(&mut self, empty: &mut Vec<EmptyImport>) -> Result<(), Refused> {
        let Some(import) = self.rest.pop_front() else { return Ok(()) };
        let at = place(&import);
        let is_argument = self.rest.front().is_some_and(|token| !token.first);
        let Some(pattern) = self.rest.pop_front().filter(|_| is_argument) else {
            return Err(Refused::at(&at, "import needs the name of a snippet or file"));
        };
        let pattern = self.expanded(&pattern)?;
        if self.rest.front().is_some_and(|token| !token.first && token.text != "}") {
            return Err(Refused::at(&at, "import takes one name only: write one import a line"));
        }
        self.imports += 1;
        if self.imports > MAX_IMPORTS {
            let message = format!("more than {MAX_IMPORTS} imports: does a snippet import itself?");
            return Err(Refused::at(&at, message));
        }
        let mut found = match self.snippets.get_mut(&pattern) {
            Some(snippet) => {
                snippet.is_used = true;
                snippet.tokens.clone()
            }
            None => self.imported(&pattern, &at, empty)?,
        };
        self.words += found.len();
        if self.words > MAX_TOKENS {
            return Err(Refused::at(&at, format!("more than {MAX_TOKENS} words with its imports")));
        }
        self.octets.hold(octets(&found), &at)?;
        if let Some(first) = found.first_mut() {
            first.first = true;
        }
        for token in found.into_iter().rev() {
            self.rest.push_front(token);
        }
        Ok(())
    }

    fn imported(
        &self,
        pattern: &str,
        at: &Place,
        empty: &mut Vec<EmptyImport>,
    ) -> Result<Vec<Token>, Refused> {
        if has_several_wildcards(pattern) {
            let message = format!(
                "import {pattern}: a pattern has one * or one ? at most, and no brackets: write one import for each file"
            );
            return Err(Refused::at(at, message));
        }
        let is_pattern = pattern.contains(['*', '?']);
        let files = (self.look)(pattern);
        if files.is_none() && !is_pattern && !has_variable(pattern) {
            let message = format!(
                "import: there is neither a snippet nor a file {pattern}: put that file beside the Corefile, or name the \
                 ConfigMap that holds it with one more --corefile"
            );
            return Err(Refused::at(at, message));
        }
        let line = |why| EmptyImport { place: at.clone(), pattern: pattern.to_owned(), why };
        if files.is_none() {
            empty.push(line(None));
        }
        empty.extend(files.unread.into_iter().map(|why| line(Some(why))));
        let mut found = Vec::new();
        for file in &files.found {
            found.extend(tokens(file));
            // Parsing can stop: the file is refused anyway.
            if self.words + found.len() > MAX_TOKENS {
                break;
            }
        }
        Ok(found)
    }

    /// A word with the values of `{$NAME}` and `{%NAME%}`. A variable that is not known stays as it is.
    fn expanded(&self, token: &Token) -> Result<String, Refused> {
        if !has_variable(&token.text) {
            return Ok(token.text.clone());
        }
        let room = self.octets.room();
        let text = expand(&token.text, "{%", "%}", self.variables, room);
        let text = text.and_then(|text| expand(&text, "{$", "}", self.variables, room));
        let octets = text.as_ref().map_or(usize::MAX, String::len);
        self.octets.hold(octets, &place(token))?;
        Ok(text.unwrap_or_default())
    }
}

/// Patterns that CoreDNS refuses, as they may take long.
fn has_several_wildcards(pattern: &str) -> bool {
    pattern.matches('*').count() > 1 || pattern.matches('?').count() > 1 || pattern.contains('[')
}

fn place(token: &Token) -> Place {
    Place { file: token.file.to_string(), line: token.line }
}
