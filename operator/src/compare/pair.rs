//! What two servers replied to one question, in the form in which it is compared: order, serials and additional data
//! aside. Pure.

use std::collections::BTreeSet;

use crds::rcode;
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::names::Asked;

/// One record: owner in lower case, type, data as text, TTL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) owner: String,
    pub(super) kind: RecordType,
    pub(super) data: String,
    pub(super) ttl_s: u32,
}

/// A reply, reduced to what is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its response code (RFC 6895 §2.3), as text.
    pub(super) rcode: String,
    /// The AA and RA bits.
    pub(super) flags: (bool, bool),
    /// The answer section, as a set.
    pub(super) answer: BTreeSet<Line>,
    /// Whether an SOA is in the authority section.
    pub(super) has_soa: bool,
}

impl Said {
    pub(super) fn of(reply: &Message) -> Said {
        let has_soa = reply.authorities.iter().any(|it| it.record_type() == RecordType::SOA);
        Said {
            rcode: rcode::text(reply.metadata.response_code.into()),
            flags: (reply.metadata.authoritative, reply.metadata.recursion_available),
            answer: reply.answers.iter().map(line).collect(),
            has_soa,
        }
    }

    pub(super) fn is(&self, rcode: &str) -> bool {
        self.rcode == rcode
    }

    /// NOERROR without an answer.
    pub(super) fn is_nodata(&self) -> bool {
        self.is("NOERROR") && self.answer.is_empty()
    }

    /// NOERROR with an answer.
    pub(super) fn is_found(&self) -> bool {
        self.is("NOERROR") && !self.answer.is_empty()
    }

    pub(super) fn has(&self, kind: RecordType) -> bool {
        self.answer.iter().any(|line| line.kind == kind)
    }

    /// Type and data of all records but aliases, without their owners.
    pub(super) fn content(&self) -> BTreeSet<(RecordType, &str)> {
        let is_alias = |kind| [RecordType::CNAME, RecordType::DNAME].contains(&kind);
        let lines = self.answer.iter().filter(|line| !is_alias(line.kind));
        lines.map(|line| (line.kind, line.data.as_str())).collect()
    }

    /// Owner, type and data of all records, without TTLs.
    pub(super) fn records(&self) -> BTreeSet<(&str, RecordType, &str)> {
        let lines = self.answer.iter();
        lines.map(|line| (line.owner.as_str(), line.kind, line.data.as_str())).collect()
    }

    /// About how long the answer section is: owners are compressed, and SRV targets are not (WR25).
    pub(super) fn octets(&self) -> usize {
        let of_data = |line: &Line| match line.kind {
            RecordType::A => 4,
            RecordType::AAAA => 16,
            RecordType::SRV => 7 + line.data.rsplit(' ').next().unwrap_or_default().len(),
            _ => line.data.len(),
        };
        self.answer.iter().map(|line| 12 + of_data(line)).sum()
    }

    /// In one line, for people.
    pub(super) fn text(&self) -> String {
        let mut text = self.rcode.clone();
        for line in self.answer.iter().take(SHOWN_RECORDS) {
            text.push_str(&format!(", {} {} {} {}", line.owner, line.ttl_s, line.kind, line.data));
        }
        if self.answer.len() > SHOWN_RECORDS {
            text.push_str(&format!(" and {} more", self.answer.len() - SHOWN_RECORDS));
        }
        text
    }
}

/// Records of an example that are shown.
const SHOWN_RECORDS: usize = 3;

/// One question and what the two servers said: `with` is the new one, `against` the one it is compared with.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// Of the cluster.
    pub(super) domain: Name,
    pub(super) asked: Asked,
    pub(super) with: Said,
    pub(super) against: Said,
    /// The codes of the Extended DNS Errors of `with` (RFC 8914). They say why, and are not compared.
    pub(super) ede: Vec<u16>,
}

fn line(record: &Record) -> Line {
    let data = match &record.data {
        // A serial is the time of a change (RR70).
        RData::SOA(soa) => format!(
            "{} {} {} {} {} {}",
            soa.mname, soa.rname, soa.refresh, soa.retry, soa.expire, soa.minimum
        ),
        other => other.to_string(),
    };
    let owner = record.name.to_lowercase().to_ascii();
    Line { owner, kind: record.record_type(), data: data.to_ascii_lowercase(), ttl_s: record.ttl }
}
