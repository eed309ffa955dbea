//! Logs: a line of JSON of our query log for each question, or a line of the plugin `log` of CoreDNS. Prefixes of log
//! collectors in front do not matter.

use std::str::FromStr;

use hickory_proto::rr::{Name, RecordType};
use serde_json::Value;

use super::found::{Captured, asked, is_asked};
use crate::compare::names::Asked;

/// The longest line that is read.
const MAX_LINE: usize = 64 * 1024;

/// Reads each line; those that are no question are passed over.
pub(super) fn read(octets: &[u8], captured: &mut Captured) {
    for line in octets.split(|octet| *octet == b'\n') {
        let line = String::from_utf8_lossy(line.get(..MAX_LINE).unwrap_or(line));
        match ours(&line).or_else(|| of_coredns(&line)) {
            Some(asked) => captured.question(asked),
            None if line.trim().is_empty() => {}
            None => captured.passed_over += 1,
        }
    }
}

/// `{"message":"query",...,"name":"cart.shop.svc.cluster.local.","type":"A",...}`
fn ours(line: &str) -> Option<Asked> {
    let value: Value = serde_json::from_str(line.get(line.find('{')?..)?).ok()?;
    if value["message"] != "query" {
        return None;
    }
    of_words(value["name"].as_str()?, value["type"].as_str()?)
}

/// `[INFO] 10.244.0.5:40212 - 1234 "A IN cart.shop.svc.cluster.local. udp 45 false 512" NOERROR ...`
fn of_coredns(line: &str) -> Option<Asked> {
    let quoted = line.split('"').nth(1)?;
    let mut words = quoted.split(' ');
    let (kind, class, name) = (words.next()?, words.next()?, words.next()?);
    // A collector may have quoted the line.
    let is_transport = words.next().is_some_and(|word| ["udp", "tcp"].contains(&word));
    if class != "IN" || !is_transport { None } else { of_words(name, kind) }
}

fn of_words(name: &str, kind: &str) -> Option<Asked> {
    let kind = match kind.strip_prefix("TYPE").and_then(|number| number.parse::<u16>().ok()) {
        Some(number) => RecordType::from(number),
        None => RecordType::from_str(&kind.to_ascii_uppercase()).ok()?,
    };
    let name = Name::from_ascii(name).ok()?;
    is_asked(kind).then(|| asked(&name, kind))
}
