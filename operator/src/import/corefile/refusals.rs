//! What CoreDNS refuses of its directives when it starts: how often one may be written, how many words it takes, and which
//! options. `rows` has a row for each directive, as the plugins of CoreDNS 1.15 read their words. Directives that become
//! settings are also checked where they are converted.

mod words;
mod special_rules;
mod rows;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

pub(super) use rows::ROWS;

use super::parse::{Directive, has_variable};
use crate::import::Refused;

/// Directives without a row that CoreDNS takes once in a server block.
const ONCE: [&str; 7] = ["cache", "dnssec", "grpc", "hosts", "kubernetes", "tsig", "view"];

/// Checks some words; an error is what to write instead.
type Check = fn(&[&str]) -> Result<(), String>;

/// How CoreDNS reads one directive.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// How many words may follow its name.
    words: RangeInclusive<usize>,
    check: Check,
    braces: Braces,
    again: Again,
}

/// What may be between its braces.
enum Braces {
    /// It has none.
    Refused,
    /// Nothing.
    Empty,
    /// Anything: CoreDNS does not read it.
    NotRead,
    /// These options.
    Options(&'static [Line]),
    /// What this function says; it reads words that depend on others.
    Own(fn(&Directive) -> Result<(), Refused>),
}

/// One option between braces.
struct Line {
    name: &'static str,
    takes: Takes,
    check: Check,
}

/// The words that belong to an option. What is behind them on the same line is another option.
enum Takes {
    Nothing,
    One,
    /// All of its line, this many.
    All(RangeInclusive<usize>),
}

/// What CoreDNS makes of the same directive, written again in a server block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Refused,
    /// It reads the first one only.
    NotRead,
    Read,
}

/// Checks the directives of one server block.
///
/// # Errors
/// The first that CoreDNS would refuse.
pub(super) fn check(directives: &[Directive]) -> Result<(), Refused> {
    let mut seen = BTreeSet::new();
    for directive in directives {
        let row = ROWS.iter().find(|row| row.name == directive.name);
        let again = match row {
            Some(row) => row.again,
            None if ONCE.contains(&directive.name.as_str()) => Again::Refused,
            None => Again::Read,
        };
        match (seen.insert(&directive.name), again) {
            (false, Again::Refused) => {
                return Err(directive.refused("only once in a server block: join the two"));
            }
            (false, Again::NotRead) => continue,
            (true, _) | (false, Again::Read) => {}
        }
        // What an environment variable is in CoreDNS may be right.
        if let Some(row) = row.filter(|_| !is_unknown(directive)) {
            of_row(row, directive)?;
        }
    }
    Ok(())
}

/// Does CoreDNS read this one of the directives of a server block? Of some it reads the first only.
pub(super) fn is_read(directive: &Directive, all: &[Directive]) -> bool {
    let row = ROWS.iter().find(|row| row.name == directive.name);
    let first = || all.iter().find(|other| other.name == directive.name);
    row.is_none_or(|row| row.again != Again::NotRead)
        || first().is_none_or(|first| std::ptr::eq(first, directive))
}

fn is_unknown(line: &Directive) -> bool {
    line.args.iter().any(|word| has_variable(word)) || line.body.iter().any(is_unknown)
}

fn of_row(row: &Row, directive: &Directive) -> Result<(), Refused> {
    let words = words(directive);
    if !row.words.contains(&words.len()) {
        return Err(directive.refused(count(&row.words)));
    }
    (row.check)(&words).map_err(|why| directive.refused(why))?;
    match &row.braces {
        Braces::Refused if directive.has_braces => Err(directive.refused("it has no braces")),
        Braces::Empty if !directive.body.is_empty() => Err(directive.refused("it has no options")),
        Braces::Refused | Braces::Empty | Braces::NotRead => Ok(()),
        Braces::Options(lines) => options(directive, lines),
        Braces::Own(check) => check(directive),
    }
}

/// Checks the lines between braces by a table of options.
fn options(directive: &Directive, lines: &[Line]) -> Result<(), Refused> {
    for written in &directive.body {
        let all: Vec<&str> = std::iter::once(written.name.as_str()).chain(words(written)).collect();
        let mut rest = &all[..];
        while let Some((name, more)) = rest.split_first() {
            if *name == "}" {
                break;
            }
            let unknown = || {
                let of = &directive.name;
                Refused::at(
                    &written.place,
                    format!("{name}: CoreDNS does not know this option of {of}"),
                )
            };
            let line = lines.iter().find(|line| line.name == *name).ok_or_else(unknown)?;
            rest = of_line(line, more).map_err(|why| refused(written, &why))?;
        }
    }
    Ok(())
}

/// Why CoreDNS refuses a line, which may have a closing brace where a word is expected.
fn refused(line: &Directive, why: &str) -> Refused {
    match line.has_brace_behind {
        true => line.refused(format!("{why}; the closing brace needs a line of its own")),
        false => line.refused(why),
    }
}

/// Takes the words of one option; the rest is what is behind them.
fn of_line<'a, 'b>(line: &Line, more: &'a [&'b str]) -> Result<&'a [&'b str], String> {
    let taken = match &line.takes {
        Takes::Nothing => 0,
        Takes::One if more.is_empty() => return Err(count(&(1..=1))),
        Takes::One => 1,
        Takes::All(range) if !range.contains(&more.len()) => return Err(count(range)),
        Takes::All(_) => more.len(),
    };
    let (own, rest) = more.split_at(taken);
    (line.check)(own)?;
    Ok(rest)
}

/// The words of its line as CoreDNS reads them: a closing brace on the same line is one of them.
fn words(line: &Directive) -> Vec<&str> {
    let brace = line.has_brace_behind.then_some("}");
    line.args.iter().map(String::as_str).chain(brace).collect()
}

fn count(range: &RangeInclusive<usize>) -> String {
    let plural = |number: usize| if number == 1 { "word" } else { "words" };
    match (*range.start(), *range.end()) {
        (0, 0) => "nothing may follow on its line".to_owned(),
        (least, usize::MAX) => format!("{least} {} or more must follow", plural(least)),
        (least, most) if least == most => {
            format!("{least} {} must follow", plural(least))
        }
        (0, most) => format!("at most {most} {} may follow", plural(most)),
        (least, most) => format!("{least} to {most} words must follow"),
    }
}
