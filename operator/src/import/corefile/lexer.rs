//! A Corefile as words: quotes, escapes, comments and lines as CoreDNS reads them.

use std::rc::Rc;

use crate::import::Text;

/// One word of a Corefile, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The file that it is in.
    pub(super) file: Rc<str>,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    /// Without quotes and escapes.
    pub(super) text: String,
    /// It is the first of its line.
    pub(super) first: bool,
}

/// All words of a file.
pub(super) fn tokens(text: &Text) -> Vec<Token> {
    let mut lexer = Lexer::new(text);
    for character in text.text.strip_prefix('\u{feff}').unwrap_or(&text.text).chars() {
        lexer.read(character);
    }
    if !lexer.word.is_empty() {
        lexer.end();
    }
    lexer.found
}

struct Lexer {
    file: Rc<str>,
    found: Vec<Token>,
    word: String,
    /// Line being read, from 1.
    line: usize,
    began: usize,
    /// Where the last word ended; 0 before any.
    ended: usize,
    is_quoted: bool,
    is_escaped: bool,
    is_comment: bool,
}

impl Lexer {
    fn new(text: &Text) -> Lexer {
        Lexer {
            file: Rc::from(text.file.as_str()),
            found: Vec::new(),
            word: String::new(),
            line: text.line,
            began: text.line,
            ended: 0,
            is_quoted: false,
            is_escaped: false,
            is_comment: false,
        }
    }

    fn read(&mut self, character: char) {
        match self.is_quoted {
            true => self.read_quoted(character),
            false => self.read_plain(character),
        }
    }

    /// Between quotes only the quote itself can be escaped; line breaks are part of the word.
    fn read_quoted(&mut self, character: char) {
        if !self.is_escaped && character == '\\' {
            self.is_escaped = true;
            return;
        }
        if !self.is_escaped && character == '"' {
            self.is_quoted = false;
            return self.end();
        }
        if character == '\n' {
            self.line += 1;
        }
        if self.is_escaped && character != '"' {
            self.word.push('\\');
        }
        self.word.push(character);
        self.is_escaped = false;
    }

    fn read_plain(&mut self, character: char) {
        if character.is_whitespace() {
            // A carriage return is ignored; it does not even end a word.
            if character == '\r' {
                return;
            }
            if !self.word.is_empty() {
                self.end();
            }
            if character == '\n' {
                self.line += 1;
                self.is_comment = false;
            }
            return;
        }
        self.is_comment |= character == '#';
        if self.is_comment {
            return;
        }
        if self.word.is_empty() {
            self.began = self.line;
            if character == '"' {
                self.is_quoted = true;
                return;
            }
        }
        self.word.push(character);
    }

    fn end(&mut self) {
        let (line, text) = (self.began, std::mem::take(&mut self.word));
        self.found.push(Token { file: self.file.clone(), line, text, first: line > self.ended });
        self.ended = self.line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, String, bool)> {
        let found = tokens(&Text { line: 1, text: text.to_owned(), ..Text::default() });
        found.into_iter().map(|token| (token.line, token.text, token.first)).collect()
    }

    fn word(line: usize, text: &str, first: bool) -> (usize, String, bool) {
        (line, text.to_owned(), first)
    }

    #[test]
    fn words_end_at_white_space_and_comments() {
        assert_eq!(
            words(".:53 { # a comment\r\n  log#tail\n}\n"),
            [word(1, ".:53", true), word(1, "{", false), word(2, "log", true), word(3, "}", true)]
        );
    }

    #[test]
    fn quotes_hold_spaces_lines_and_escaped_quotes() {
        assert_eq!(
            words("answer \"a \\\"b\\\" \\d\nc\" d\ne \"\""),
            [
                word(1, "answer", true),
                word(1, "a \"b\" \\d\nc", false),
                word(2, "d", false),
                word(3, "e", true),
                word(3, "", false)
            ]
        );
    }
}
