//! The options of dnsmasq as one list, whether they are written as words of a command line or as lines of a file.

use crate::import::report::Place;
use crate::import::{Argument, Text};

/// Letters for options, with whether a value follows.
const LETTERS: [(char, &str, bool); 37] = [
    ('a', "listen-address", true),
    ('A', "address", true),
    ('b', "bogus-priv", false),
    ('B', "bogus-nxdomain", true),
    ('c', "cache-size", true),
    ('C', "conf-file", true),
    ('d', "no-daemon", false),
    ('D', "domain-needed", false),
    ('e', "selfmx", false),
    ('E', "expand-hosts", false),
    ('f', "filterwin2k", false),
    ('g', "group", true),
    ('h', "no-hosts", false),
    ('H', "addn-hosts", true),
    ('i', "interface", true),
    ('I', "except-interface", true),
    ('k', "keep-in-foreground", false),
    ('m', "mx-host", true),
    ('n', "no-poll", false),
    ('N', "no-negcache", false),
    ('o', "strict-order", false),
    ('p', "port", true),
    ('P', "edns-packet-max", true),
    ('q', "log-queries", false),
    ('r', "resolv-file", true),
    ('R', "no-resolv", false),
    ('s', "domain", true),
    ('S', "server", true),
    ('T', "local-ttl", true),
    ('u', "user", true),
    ('V', "alias", true),
    ('W', "srv-host", true),
    ('x', "pid-file", true),
    ('Y', "txt-record", true),
    ('z', "bind-interfaces", false),
    ('0', "dns-forward-max", true),
    ('8', "log-facility", true),
];

/// Options without a letter whose value may be the next word.
const WITH_VALUE: [&str; 12] = [
    "server",
    "address",
    "addn-hosts",
    "host-record",
    "cname",
    "txt-record",
    "srv-host",
    "cache-size",
    "resolv-file",
    "local",
    "rev-server",
    "hostsdir",
];

/// One option of dnsmasq in its long form, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) place: Place,
    pub(super) name: String,
    /// Its value; empty where it has none.
    pub(super) value: String,
}

impl Flag {
    pub(super) fn text(&self) -> String {
        match self.value.is_empty() {
            true => format!("--{}", self.name),
            false => format!("--{}={}", self.name, self.value),
        }
    }

    /// The parts of a value with commas.
    pub(super) fn words(&self) -> Vec<String> {
        let words = self.value.split(',').map(|word| word.trim().to_owned());
        words.filter(|word| !word.is_empty()).collect()
    }

    /// The same, where a part may be in quotes: commas in quotes are part of it, and a backslash there takes a quote or
    /// backslash as it is (dnsmasq(8), `--txt-record`).
    pub(super) fn strings(&self) -> Vec<String> {
        let parts =
            split(&self.value, |it| it == ',').into_iter().map(|part| unquoted(part.trim()));
        parts.collect()
    }
}

/// The parts between separators that are not in quotes.
fn split(text: &str, is_separator: impl Fn(char) -> bool) -> Vec<&str> {
    let (mut parts, mut began, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if !is_quoted && is_separator(character) => {
                parts.push(&text[began..at]);
                began = at + character.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[began..]);
    parts
}

/// Without its quotes.
fn unquoted(text: &str) -> String {
    let (mut plain, mut is_quoted) = (String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => {
                let taken = characters.next_if(|it| ['"', '\\'].contains(it));
                plain.push(taken.unwrap_or(character));
            }
            _ => plain.push(character),
        }
    }
    plain
}

/// The words of a command line, which may have white space in quotes.
fn command_line(line: &str) -> impl Iterator<Item = &str> {
    split(line, char::is_whitespace).into_iter().filter(|word| !word.is_empty())
}

/// A line up to a `#` behind white space that is not in quotes.
fn uncommented(line: &str) -> &str {
    let mut end = 0;
    for part in split(line, |it| it == '#') {
        end += part.len();
        if line[..end].ends_with(char::is_whitespace) {
            return line[..end].trim_end();
        }
        end += 1;
    }
    line
}

/// The words of a file: of command lines, or of lines as `dnsmasq.conf` has them.
pub(in crate::import) fn written(text: &Text) -> Vec<Argument> {
    let mut found = Vec::new();
    for (at, line) in text.text.lines().enumerate() {
        let place = Place { file: text.file.clone(), line: text.line + at };
        let line = line.trim().trim_start_matches("- ").trim_end_matches('\\').trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('-') {
            let words = command_line(line).take_while(|word| !word.starts_with('#'));
            found
                .extend(words.map(|word| Argument { place: place.clone(), text: word.to_owned() }));
            continue;
        }
        let line = uncommented(line);
        // A program at the beginning of a command line.
        match line.split_once(char::is_whitespace).filter(|(word, _)| word.ends_with("dnsmasq")) {
            Some((_, rest)) => {
                let words = command_line(rest);
                found.extend(
                    words.map(|word| Argument { place: place.clone(), text: word.to_owned() }),
                );
            }
            None => found.push(Argument { place, text: format!("--{line}") }),
        }
    }
    found
}

/// The options that these words contain.
pub(super) fn flags(words: &[Argument]) -> Vec<Flag> {
    let mut found: Vec<Flag> = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let flag = |name: &str, value: &str| Flag {
            place: word.place.clone(),
            name: name.to_owned(),
            value: value.trim().to_owned(),
        };
        let mut next = |flag: Flag| match flag.value.is_empty() {
            true => {
                let value = words.next_if(|word| !word.text.starts_with('-'));
                Flag { value: value.map_or(String::new(), |word| word.text.clone()), ..flag }
            }
            false => flag,
        };
        if let Some(long) = word.text.strip_prefix("--") {
            let (name, value) = long.split_once('=').unwrap_or((long, ""));
            let (name, takes) = (name.trim(), WITH_VALUE.contains(&name) && !long.contains('='));
            if name.is_empty() {
                continue;
            }
            found.push(if takes { next(flag(name, "")) } else { flag(name, value) });
            continue;
        }
        let Some(letters) = word.text.strip_prefix('-') else {
            found.push(flag(&word.text, ""));
            continue;
        };
        short(letters, &flag, &mut next, &mut found);
    }
    found
}

/// Several letters in one word: flags; the last may have a value.
fn short(
    letters: &str,
    flag: &dyn Fn(&str, &str) -> Flag,
    next: &mut dyn FnMut(Flag) -> Flag,
    found: &mut Vec<Flag>,
) {
    for (at, letter) in letters.char_indices() {
        let known = LETTERS.iter().find(|(known, _, _)| *known == letter);
        match known {
            Some((_, name, false)) => found.push(flag(name, "")),
            Some((_, name, true)) => {
                let rest = letters[at + letter.len_utf8()..].trim_start_matches('=');
                return found.push(next(flag(name, rest)));
            }
            None => return found.push(flag(&letters[at..], "")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_same_in_every_form() {
        let read = |text: &str| {
            let text = Text { line: 1, text: text.to_owned(), ..Text::default() };
            flags(&written(&text)).iter().map(Flag::text).collect::<Vec<_>>()
        };
        let expected = ["--keep-in-foreground", "--cache-size=1000", "--server=/a/10.0.0.1#5353"];
        assert_eq!(read("dnsmasq -k --cache-size=1000 --server=/a/10.0.0.1#5353"), expected);
        assert_eq!(read("-k -c 1000 -S /a/10.0.0.1#5353"), expected);
        assert_eq!(read("-kc1000\n--server /a/10.0.0.1#5353"), expected);
        assert_eq!(
            read("# a file\nkeep-in-foreground\ncache-size=1000 # many\nserver=/a/10.0.0.1#5353\n"),
            expected
        );
        assert_eq!(read("- --log-facility=-"), ["--log-facility=-"]);
    }

    #[test]
    fn quotes_hold_commas_white_space_and_hash_signs() {
        let read = |text: &str| {
            let text = Text { line: 1, text: text.to_owned(), ..Text::default() };
            flags(&written(&text)).iter().map(Flag::strings).collect::<Vec<_>>()
        };
        let expected = vec![vec!["x.example".to_owned(), "a, b #c".to_owned(), "d\"e".to_owned()]];
        assert_eq!(read(r#"txt-record=x.example,"a, b #c","d\"e" # a comment"#), expected);
        assert_eq!(read(r#"--txt-record=x.example,"a, b #c","d\"e""#), expected);
        assert_eq!(read(r#"dnsmasq --txt-record=x.example,"a, b #c","d\"e""#), expected);
        let two = vec![vec!["x.example".to_owned(), String::new(), "a".to_owned()]];
        assert_eq!(read("txt-record=x.example,,a"), two, "an empty string is one too");
        assert_eq!(
            read("txt-record=x.example,\"ü"),
            [["x.example", "ü"]],
            "a quote that is not closed"
        );
    }
}
