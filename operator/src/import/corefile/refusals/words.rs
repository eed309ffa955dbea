//! Checks of the words of a directive or option.

use super::Line;
use super::Takes::One;
use crate::import::literals::{duration, integer, is_boolean, is_host_port, unsigned};

/// Seconds between two looks at the Corefile, at least.
const RELOAD_S: f64 = 2.0;
/// Seconds of the random part of that, at least.
const JITTER_S: f64 = 1.0;
const SECOND: f64 = 1e9;

pub(super) const fn line(name: &'static str, takes: super::Takes, check: super::Check) -> Line {
    Line { name, takes, check }
}

/// An option with one word, which may be anything.
pub(super) const fn named(name: &'static str) -> Line {
    line(name, One, any)
}

pub(super) fn any(_: &[&str]) -> Result<(), String> {
    Ok(())
}

/// Each word must be one of these.
pub(super) fn one_of(words: &[&str], known: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !known.contains(word)) {
        Some(word) => Err(format!("{word}: write {}", known.join(", "))),
        None => Ok(()),
    }
}

/// Each word must be right.
fn each(words: &[&str], is_right: fn(&str) -> bool, wanted: &str) -> Result<(), String> {
    match words.iter().find(|word| !is_right(word)) {
        Some(word) => Err(format!("{word}: {wanted} must follow")),
        None => Ok(()),
    }
}

pub(super) fn octets(words: &[&str]) -> Result<(), String> {
    let is_size = |text: &str| integer(text).is_some_and(|it| (512..=4096).contains(&it));
    each(words, is_size, "a number, 512-4096,")
}

pub(super) fn any_duration(words: &[&str]) -> Result<(), String> {
    each(words, |text| duration(text).is_some(), "a duration such as 5s")
}

pub(super) fn positive_duration(words: &[&str]) -> Result<(), String> {
    each(words, |text| duration(text).is_some_and(|it| it > 0.0), "a duration such as 5s")
}

pub(super) fn interval(words: &[&str]) -> Result<(), String> {
    any_duration(words)?;
    let seconds = |at: usize| words.get(at).and_then(|text| duration(text)).map(|it| it / SECOND);
    if seconds(0).is_some_and(|it| it < RELOAD_S) {
        return Err(format!("{}: {RELOAD_S} s or more", words[0]));
    }
    if seconds(1).is_some_and(|it| it != 0.0 && it < JITTER_S) {
        return Err(format!("{}: 0, or {JITTER_S} s or more", words[1]));
    }
    Ok(())
}

pub(super) fn stdout(words: &[&str]) -> Result<(), String> {
    one_of(words, &["stdout"])
}

pub(super) fn host_port(words: &[&str]) -> Result<(), String> {
    each(words, is_host_port, "an address with a port, such as :8080,")
}

pub(super) fn on_or_off(words: &[&str]) -> Result<(), String> {
    one_of(words, &["on", "off"])
}

pub(super) fn classes(words: &[&str]) -> Result<(), String> {
    one_of(words, &["all", "denial", "error", "success"])
}

pub(super) fn monitor(words: &[&str]) -> Result<(), String> {
    one_of(words, &["until-ready", "continuously"])
}

pub(super) fn number(words: &[&str]) -> Result<(), String> {
    each(words, |text| integer(text).is_some(), "a whole number")
}

pub(super) fn natural(words: &[&str]) -> Result<(), String> {
    each(words, |text| unsigned(text).is_some(), "a whole number from 0 on")
}

pub(super) fn boolean(words: &[&str]) -> Result<(), String> {
    each(words, is_boolean, "true or false")
}

pub(super) fn rate(words: &[&str]) -> Result<(), String> {
    let is_rate = |text: &str| text.parse::<f64>().is_ok_and(|it| (0.0..=1.0).contains(&it));
    each(words, is_rate, "a number, 0-1,")
}

/// No words ask for a certificate by ACME; others are its files.
pub(super) fn certificate(words: &[&str]) -> Result<(), String> {
    match words.len() {
        1 => Err("a certificate and its key must follow".to_owned()),
        _ => Ok(()),
    }
}
