//! The value of a constant: its expression is read, because a limit is private to its file.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::super::{read, rust_files};
use super::Quantity::{self, Nanoseconds, Number};

/// The values of a constant, of an array all. Its name says the unit of a number that is a time.
pub(super) fn values(place: &str) -> Vec<Quantity> {
    let (path, name) = place.split_once("::").expect("path::CONSTANT");
    let unit = match name {
        _ if name.contains("_PER_") => None,
        _ if name.ends_with("_S") || name.ends_with("_SECONDS") => Some(1_000_000_000),
        _ if name.ends_with("_MS") => Some(1_000_000),
        _ => None,
    };
    let expression = expression(path, name).unwrap_or_else(|| panic!("there is no {place}"));
    let parts: Vec<&str> = match expression.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(list) => list.split(',').filter(|part| !part.trim().is_empty()).collect(),
        None => vec![&expression],
    };
    let of = |part: &&str| match (evaluate(path, part), unit) {
        (Number(value), Some(unit)) => Nanoseconds(value * unit),
        (value, _) => value,
    };
    parts.iter().map(of).collect()
}

/// The right side of `const NAME: TYPE = …;` in a file.
fn expression(path: &str, name: &str) -> Option<String> {
    static SOURCES: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let sources = SOURCES.get_or_init(|| {
        rust_files("").into_iter().map(|path| (path.clone(), read(&path))).collect()
    });
    let (_, after) = sources.get(path)?.split_once(&format!("const {name}: "))?;
    let (_, value) = after.split_once('=')?;
    Some(value.split(';').next()?.trim().to_owned())
}

/// The value of another constant that an expression names: of its own file, or of the nearest one with a constant of this name.
fn named(path: &str, name: &str) -> Quantity {
    let mut words = name.rsplit("::");
    let last = words.next().unwrap();
    let module = words.next().map_or(".rs".to_owned(), |module| format!("/{module}.rs"));
    if let Some(found) = expression(path, last) {
        return evaluate(path, &found);
    }
    let folders = path.match_indices('/').rev().map(|(end, _)| &path[..=end]).chain([""]);
    for folder in folders {
        let mut found = rust_files(folder);
        found.retain(|path| path.ends_with(&module) && expression(path, last).is_some());
        if let [one] = &found[..] {
            return evaluate(one, &expression(one, last).unwrap());
        }
        assert!(found.is_empty(), "{path}: which {name} of {found:?}?");
    }
    panic!("{path}: {name} is no constant");
}

/// The value of an expression of numbers, durations and other constants.
pub(super) fn evaluate(path: &str, expression: &str) -> Quantity {
    let mut tokens = tokens(expression);
    tokens.reverse();
    let value = shifted(path, &mut tokens);
    assert!(tokens.is_empty(), "{path}: what is {expression}?");
    value
}

/// Names with their path, numbers, texts, and signs, in order.
fn tokens(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_:\"".contains(c);
        let length = match rest.find(|c| !is_word(c)) {
            _ if rest.starts_with("<<") => 2,
            Some(0) => first.len_utf8(),
            Some(end) => end,
            None => rest.len(),
        };
        found.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    found
}

/// The operators of Rust from the weakest on. `tokens` are in reverse order.
fn shifted(path: &str, tokens: &mut Vec<String>) -> Quantity {
    let mut value = sum(path, tokens);
    while took(tokens, "<<") {
        value = both(value, sum(path, tokens), |a, b| a << b);
    }
    value
}

fn sum(path: &str, tokens: &mut Vec<String>) -> Quantity {
    let mut value = product(path, tokens);
    loop {
        value = match () {
            () if took(tokens, "+") => both(value, product(path, tokens), |a, b| a + b),
            () if took(tokens, "-") => both(value, product(path, tokens), |a, b| a - b),
            () => return value,
        }
    }
}

fn product(path: &str, tokens: &mut Vec<String>) -> Quantity {
    let mut value = term(path, tokens);
    loop {
        value = match () {
            () if took(tokens, "*") => both(value, term(path, tokens), |a, b| a * b),
            () if took(tokens, "/") => both(value, term(path, tokens), |a, b| a / b),
            () => return value,
        }
    }
}

fn term(path: &str, tokens: &mut Vec<String>) -> Quantity {
    let first = tokens.pop().unwrap_or_else(|| panic!("{path}: an expression has no end"));
    let duration = first.split("Duration::from_").nth(1);
    let mut value = match (first.as_str(), duration) {
        ("(", _) => inside(path, tokens),
        (_, Some(unit)) => {
            assert!(took(tokens, "("), "{path}: {first} without a number");
            let factor = match unit {
                "micros" => 1_000,
                "millis" => 1_000_000,
                "secs" => 1_000_000_000,
                "mins" => 60_000_000_000,
                "hours" => 3_600_000_000_000,
                _ => panic!("{path}: {first}"),
            };
            match inside(path, tokens) {
                Number(value) => Nanoseconds(value * factor),
                Nanoseconds(_) => panic!("{path}: a time of a time"),
            }
        }
        (text, _) if text.starts_with('"') => match text.trim_matches('"').strip_suffix("Gi") {
            Some(number) => Number(number.parse::<i128>().unwrap() << 30),
            None => panic!("{path}: {text} is no number"),
        },
        (number, _) if number.starts_with(|c: char| c.is_ascii_digit()) => {
            Number(number.replace('_', "").parse().unwrap_or_else(|_| panic!("{path}: {number}")))
        }
        (name, _) => named(path, name),
    };
    loop {
        if took(tokens, "as") {
            tokens.pop();
        } else if took(tokens, ".") {
            let method = tokens.pop().unwrap();
            assert!(took(tokens, "("), "{path}: {method}");
            let other = inside(path, tokens);
            value = match method.as_str() {
                "saturating_sub" => both(value, other, |a, b| (a - b).max(0)),
                "saturating_add" => both(value, other, |a, b| a + b),
                "saturating_mul" => both(value, other, |a, b| a * b),
                _ => panic!("{path}: {method}"),
            };
        } else {
            return value;
        }
    }
}

/// What is before the next `)`.
fn inside(path: &str, tokens: &mut Vec<String>) -> Quantity {
    let value = shifted(path, tokens);
    assert!(took(tokens, ")"), "{path}: a parenthesis stays open");
    value
}

fn took(tokens: &mut Vec<String>, token: &str) -> bool {
    tokens.pop_if(|next| next == token).is_some()
}

pub(super) fn both(left: Quantity, right: Quantity, of: fn(i128, i128) -> i128) -> Quantity {
    match (left, right) {
        (Number(left), Number(right)) => Number(of(left, right)),
        (Nanoseconds(left), Nanoseconds(right) | Number(right)) => Nanoseconds(of(left, right)),
        (Number(_), Nanoseconds(_)) => panic!("a time is the second operand"),
    }
}
