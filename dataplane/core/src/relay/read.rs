//! Reading a message from an upstream: work is bounded by its length and not by its content.
//! Names are expanded into one arena; no recursion, and pointers lead strictly backwards.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec::Vec;

use super::header::{AD, OPCODE, QR, TC};
use super::verdict::{Discard, RelayError};
use super::work_budget::WorkBudget;
use crate::wire::message::{CLASS_IN, HEADER, rtype};
use crate::wire::name::{MAX_LABEL, MAX_NAME};

/// Compression pointers followed in one name: more than any name has labels.
const MAX_POINTERS: usize = 128;
/// NOERROR, NXDOMAIN and YXDOMAIN (RFC 6672 §2.2): the Rcodes of a good reply (FW20).
const GOOD_RCODES: [u8; 3] = [0, 3, 6];

/// A message whose header and question are those of a reply to us.
pub(super) struct Questioned {
    /// Offset of the first octet after the question section.
    pub(super) end: usize,
    /// An Rcode or flag that ends the attempt; the records are then not read.
    pub(super) error: Option<RelayError>,
}

/// Checks header and question (FW12): `name` is lower case and is compared without case.
pub(super) fn question(
    reply: &[u8],
    id: u16,
    name: &[u8],
    qtype: u16,
) -> Result<Questioned, Discard> {
    let header = reply.first_chunk::<HEADER>().ok_or(Discard::Malformed)?;
    if header[..2] != id.to_be_bytes() {
        return Err(Discard::Id);
    }
    if header[2] & QR == 0 || header[2] & OPCODE != 0 {
        return Err(Discard::Malformed);
    }
    let rcode = header[3] & 0x0f;
    let error = if !GOOD_RCODES.contains(&rcode) {
        Some(RelayError::Rcode(rcode.into()))
    } else if header[2] & TC != 0 {
        Some(RelayError::Truncated)
    } else {
        None
    };
    let questions = match u16::from_be_bytes([header[4], header[5]]) {
        // The header alone: some servers copy the counts of the query.
        _ if reply.len() == HEADER && error.is_some() => 0,
        questions => questions,
    };
    match (questions, error) {
        // A server that did not understand the query may leave the question out.
        (0, Some(RelayError::Rcode(_))) => return Ok(Questioned { end: HEADER, error }),
        // And so may one that has no room. A forged one costs a query over TCP, and its id and port must be guessed, too.
        (0, _) => {
            let error = extended_rcode(reply).map(RelayError::Rcode).or(error);
            return match error {
                Some(_) => Ok(Questioned { end: HEADER, error }),
                None => Err(Discard::Question),
            };
        }
        (1, _) => {}
        _ => return Err(Discard::Question),
    }
    // The first name of a message has nothing to point to, so it is never compressed.
    let length = uncompressed_length(&reply[HEADER..]).ok_or(Discard::Malformed)?;
    let end = HEADER + length;
    let asked = &reply[HEADER..end];
    let rest = reply.get(end..end + 4).ok_or(Discard::Malformed)?;
    // Lengths of labels are below 64 and so no letters: one comparison serves both.
    let same = asked.eq_ignore_ascii_case(name)
        && rest[..2] == qtype.to_be_bytes()
        && rest[2..] == CLASS_IN.to_be_bytes();
    if same { Ok(Questioned { end: end + 4, error }) } else { Err(Discard::Question) }
}

/// The Rcode of a message without a question, if it is one of those whose upper bits are in the OPT record, as BADVERS.
fn extended_rcode(reply: &[u8]) -> Option<u16> {
    let message = Message::read(reply, HEADER).ok()?;
    (message.rcode > 0x0f).then_some(message.rcode)
}

/// Where one name is in [`Message::names`].
#[derive(Clone, Copy)]
pub(super) struct Span {
    start: usize,
    len: usize,
}

/// A record of class IN.
pub(super) struct Record {
    owner: Span,
    pub(super) rtype: u16,
    /// A TTL above 2^31 - 1 counts as 0 (FW44, RFC 2181 §8).
    pub(super) ttl_s: u32,
    /// Where the RDATA begins and ends in the message.
    pub(super) rdata: core::ops::Range<usize>,
}

/// The records of a message.
pub(super) struct Message<'m> {
    pub(super) octets: &'m [u8],
    pub(super) rcode: u16,
    pub(super) authentic: bool,
    /// What its records may still cost.
    pub(super) budget: WorkBudget,
    names: Vec<u8>,
    /// The pointer that the latest owner is written as, and the name: records of one RRset follow each other.
    latest: Option<([u8; 2], Span)>,
    pub(super) answer: Vec<Record>,
    pub(super) authority: Vec<Record>,
}

impl<'m> Message<'m> {
    /// Reads what follows the question. Octets after the counted sections are ignored, and so is what cannot be read in the
    /// additional section.
    ///
    /// # Errors
    /// It does not parse, or costs more than its length allows.
    pub(super) fn read(octets: &'m [u8], at: usize) -> Result<Message<'m>, RelayError> {
        let mut message = Message {
            octets,
            rcode: (octets[3] & 0x0f).into(),
            authentic: octets[3] & AD != 0,
            budget: WorkBudget::of(octets.len()),
            names: Vec::new(),
            latest: None,
            answer: Vec::new(),
            authority: Vec::new(),
        };
        match message.sections(at) {
            Some(()) => Ok(message),
            None => Err(message.budget.why_unread()),
        }
    }

    /// Reads the three sections of records, which begin at `at`.
    fn sections(&mut self, mut at: usize) -> Option<()> {
        let octets = self.octets;
        let count = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        for _ in 0..count(6) {
            let (record, end) = self.record(at)?;
            at = end;
            self.answer.extend(record);
        }
        for _ in 0..count(8) {
            let (record, end) = self.record(at)?;
            at = end;
            self.authority.extend(record);
        }
        // None of these is relayed, and servers that copy the counts of our query announce an OPT record that they do not send.
        for _ in 0..count(10) {
            self.budget.spend(1)?;
            let Some(end) = self.additional(at) else { break };
            at = end;
        }
        Some(())
    }

    /// Takes the upper bits of the Rcode from the record at `at`, if it is the OPT record, also where its options are cut: an
    /// error must not look like an answer. Returns where the record ends.
    fn additional(&mut self, at: usize) -> Option<usize> {
        let name_end = skip_name(self.octets, at)?;
        let fixed = self.octets.get(name_end..name_end + 10)?;
        if fixed[..2] == rtype::OPT.to_be_bytes() {
            self.rcode |= u16::from(fixed[4]) << 4;
        }
        Some(rdata_at(self.octets, name_end)?.end)
    }

    /// The record at `at` unless it is of another class, and where it ends.
    fn record(&mut self, at: usize) -> Option<(Option<Record>, usize)> {
        self.budget.spend(1)?;
        let (owner, name_end) = self.owner_at(at)?;
        let fixed = self.octets.get(name_end..name_end + 8)?;
        let rdata = rdata_at(self.octets, name_end)?;
        let end = rdata.end;
        let ttl_s = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let record = Record {
            owner,
            rtype: u16::from_be_bytes([fixed[0], fixed[1]]),
            ttl_s: if ttl_s > i32::MAX as u32 { 0 } else { ttl_s },
            rdata,
        };
        let ours = fixed[2..4] == CLASS_IN.to_be_bytes() && record.rtype != rtype::OPT;
        Some((ours.then_some(record), end))
    }

    /// The owner of the record at `at`, and where it ends.
    fn owner_at(&mut self, at: usize) -> Option<(Span, usize)> {
        let pair = self.octets.get(at..)?.first_chunk();
        if let (Some(pair), Some((pointer, owner))) = (pair, self.latest)
            && *pair == pointer
        {
            return Some((owner, at + 2));
        }
        let start = self.names.len();
        let end = read_name(self.octets, at, &self.budget, &mut self.names)?;
        let owner = Span { start, len: self.names.len() - start };
        if let Some(pair) = pair.filter(|pair| usize::from(pair[0]) > MAX_LABEL) {
            self.latest = Some((*pair, owner));
        }
        Some((owner, end))
    }

    /// The owner of a record, uncompressed, in the upstream's letter case.
    pub(super) fn owner(&self, record: &Record) -> &[u8] {
        &self.names[record.owner.start..][..record.owner.len]
    }

    /// The RDATA as it came.
    pub(super) fn rdata(&self, record: &Record) -> &'m [u8] {
        &self.octets[record.rdata.clone()]
    }
}

/// The extent of the RDATA of the record whose owner ends at `name_end`.
pub(super) fn rdata_at(octets: &[u8], name_end: usize) -> Option<core::ops::Range<usize>> {
    let length = octets.get(name_end + 8..name_end + 10)?;
    let start = name_end + 10;
    let end = start + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (end <= octets.len()).then_some(start..end)
}

/// Appends the name at `at`, uncompressed; returns where it ends in the message.
pub(super) fn read_name(
    octets: &[u8],
    mut at: usize,
    budget: &WorkBudget,
    name: &mut Vec<u8>,
) -> Option<usize> {
    let start = name.len();
    let mut end = None;
    let mut labels = 0;
    // Where the part being read began: a pointer must lead before it, so no octet is read twice.
    let mut part = at;
    let mut pointers = 0;
    loop {
        let length = *octets.get(at)? as usize;
        if length <= MAX_LABEL {
            let label = octets.get(at..at + 1 + length)?;
            if name.len() - start + label.len() > MAX_NAME {
                return None;
            }
            name.extend_from_slice(label);
            at += label.len();
            labels += 1;
            if length == 0 {
                budget.spend(labels + pointers)?;
                return Some(end.unwrap_or(at));
            }
        } else {
            let target = pointer(octets, at)?;
            pointers += 1;
            if target < HEADER || target >= part || pointers > MAX_POINTERS {
                return None;
            }
            end.get_or_insert(at + 2);
            at = target;
            part = target;
        }
    }
}

/// Where the name at `at` ends, without following pointers.
pub(super) fn skip_name(octets: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *octets.get(at)? as usize;
        if length > MAX_LABEL {
            return pointer(octets, at).map(|_| at + 2);
        }
        at += length + 1;
        if length == 0 {
            return Some(at);
        }
    }
}

/// The target of the compression pointer at `at`; `None` for the label types 01 and 10, which are no pointers.
fn pointer(octets: &[u8], at: usize) -> Option<usize> {
    let pair = octets.get(at..at + 2)?;
    (pair[0] >= 0xc0).then(|| usize::from(u16::from_be_bytes([pair[0] & 0x3f, pair[1]])))
}

/// The length of the uncompressed name at the start of `octets`.
pub(super) fn uncompressed_length(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let length = *octets.get(at)? as usize;
        if length > MAX_LABEL {
            return None;
        }
        at += length + 1;
        if length == 0 {
            return (at <= octets.len()).then_some(at);
        }
    }
}
