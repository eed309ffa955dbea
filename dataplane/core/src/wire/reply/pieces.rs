//! The records that most replies consist of, each written in one piece: the same octets as by [`Reply::record`], without a
//! search for names to compress.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use super::names::{SHORTEST_SUFFIX, shared_tail};
use super::{
    Apex, Full, MAILBOX_LABEL, NAME_SERVER_LABELS, QUESTION, Reply, SMALLEST_RECORD, Section,
    soa_numbers,
};
use crate::wire::message::{HEADER, rtype};

/// The fixed octets of an SRV record with a pointer as owner, without its target.
const SRV_OCTETS: usize = 18;
/// The same of a PTR record.
const PTR_OCTETS: usize = 12;

impl<'q> Reply<'_, 'q> {
    /// A records of the question's name, as [`Reply::answer`] writes each: of ten addresses, this takes a third of the
    /// instructions.
    pub(crate) fn answer_v4(&mut self, ttl_s: u32, addresses: impl Iterator<Item = [u8; 4]>) {
        if self.truncated {
            return;
        }
        let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
        let room = self.buffer.get_mut(self.at..self.limit).unwrap_or_default();
        let mut places = room.as_chunks_mut::<SMALLEST_RECORD>().0.iter_mut();
        let mut count = 0;
        for [a, b, c, d] in addresses {
            let Some(place) = places.next() else {
                self.truncated = true;
                break;
            };
            *place = [0xc0, QUESTION, 0, 1, 0, 1, ttl0, ttl1, ttl2, ttl3, 0, 4, a, b, c, d];
            count += 1;
        }
        self.at += count * SMALLEST_RECORD;
        self.counts[Section::Answer as usize] += count as u16;
    }

    /// The question's name without its first labels, in lower case.
    pub(crate) fn asked_below(&self, labels: usize) -> &'q [u8] {
        self.question.name.suffix(labels)
    }

    /// An SRV record of the question's name whose target is that name without its first labels. The target needs no
    /// anchor: later names find it in the question.
    pub(crate) fn answer_service(
        &mut self,
        labels: usize,
        ttl_s: u32,
        numbers: [u16; 3],
    ) -> Result<(), Full> {
        let target = self.asked_below(labels);
        if self.truncated || self.at + SRV_OCTETS + target.len() > self.limit {
            self.truncated = true;
            return Err(Full);
        }
        let [[a, b], [c, d], [e, f]] = numbers.map(u16::to_be_bytes);
        let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
        let [length0, length1] = (target.len() as u16 + 6).to_be_bytes();
        let (type0, type1) = (0, rtype::SRV as u8);
        self.array([
            0xc0, QUESTION, type0, type1, 0, 1, ttl0, ttl1, ttl2, ttl3, length0, length1, a, b, c,
            d, e, f,
        ])?;
        self.octets(target)?;
        self.counts[Section::Answer as usize] += 1;
        Ok(())
    }

    /// The PTR record of the question's name that is the whole answer, its target in parts of whole labels. No name follows
    /// that could be compressed against it. `None` where its own end may be that of the question.
    pub(crate) fn answer_only_pointer<const N: usize>(
        &mut self,
        ttl_s: u32,
        target: [&[u8]; N],
    ) -> Option<Result<(), Full>> {
        let end = target.last()?;
        if self.truncated
            || self.anchor_count > 0
            || shared_tail(self.question.name.wire(), end) >= SHORTEST_SUFFIX
        {
            return None;
        }
        let room = self.buffer.get_mut(self.at..self.limit).unwrap_or_default();
        let Some(octets) = pointer(room, ttl_s, target) else {
            self.truncated = true;
            return Some(Err(Full));
        };
        self.at += octets;
        self.counts[Section::Answer as usize] += 1;
        Some(Ok(()))
    }

    /// An address in the additional section, owned by the question's name without its first labels. One that does not
    /// fit leaves no trace.
    pub(crate) fn add_v4_of_asked(&mut self, labels: usize, ttl_s: u32, address: [u8; 4]) {
        let name = self.question.name;
        let [owner0, owner1] = (0xc000 | (HEADER + name.start(labels)) as u16).to_be_bytes();
        let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
        let [a, b, c, d] = address;
        if self.truncated || self.at + self.kept + SMALLEST_RECORD > self.limit {
            return;
        }
        let record = [owner0, owner1, 0, 1, 0, 1, ttl0, ttl1, ttl2, ttl3, 0, 4, a, b, c, d];
        let written = self.array(record);
        self.counts[Section::Additional as usize] += u16::from(written.is_ok());
    }

    /// The SOA of the cluster's zone in the authority section, when its names can be compressed
    /// against nothing but the zone's name in the question, as in nearly every denial; `None`
    /// otherwise. The same octets as by [`Reply::record`], without a search.
    pub(crate) fn cluster_soa(&mut self, zone: Apex<'_>, serial: u32) -> Option<Result<(), Full>> {
        let name = self.question.name;
        let left = name.below(zone.wire, zone.labels)?;
        let beside = left > 0 && matches!(name.label(left - 1), b"dns" | b"hostmaster");
        if beside || zone.labels == 0 || self.anchor_count > 0 {
            return None;
        }
        let start = (HEADER + name.start(left)) as u16;
        let [zone0, zone1] = (0xc000 | start).to_be_bytes();
        let ttl_s = zone.negative_ttl_s;
        let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
        let mut soa = [0; 54];
        let fixed = [zone0, zone1, 0, 6, 0, 1, ttl0, ttl1, ttl2, ttl3, 0, 42];
        soa[..12].copy_from_slice(&fixed);
        soa[12..19].copy_from_slice(NAME_SERVER_LABELS);
        soa[19..21].copy_from_slice(&[zone0, zone1]);
        soa[21..32].copy_from_slice(MAILBOX_LABEL);
        soa[32..34].copy_from_slice(&[zone0, zone1]);
        soa[34..].copy_from_slice(&soa_numbers(serial, ttl_s));
        let written = self.array(soa);
        self.counts[Section::Authority as usize] += u16::from(written.is_ok());
        Some(written)
    }
}

/// Writes a PTR record of the question's name; returns its length, or `None` when it does not fit.
fn pointer<const N: usize>(room: &mut [u8], ttl_s: u32, target: [&[u8]; N]) -> Option<usize> {
    let (fixed, mut room) = room.split_first_chunk_mut::<PTR_OCTETS>()?;
    let before = room.len();
    for part in target {
        let (place, rest) = room.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        room = rest;
    }
    let octets = before - room.len();
    let [ttl0, ttl1, ttl2, ttl3] = ttl_s.to_be_bytes();
    let ([type0, type1], [length0, length1]) =
        (rtype::PTR.to_be_bytes(), (octets as u16).to_be_bytes());
    *fixed = [0xc0, QUESTION, type0, type1, 0, 1, ttl0, ttl1, ttl2, ttl3, length0, length1];
    Some(PTR_OCTETS + octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::labels::Labels;
    use crate::wire::message::{CLASS_IN, Rcode, Transport, parse};
    use crate::wire::reply::{Owner, Rdata};

    /// A query with an OPT; some letters of its name are upper case.
    const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\x05_HTTP\x04_tcp\x04Cart\x04shop\x03svc\x05local\0\0\x21\0\x01\
        \0\0\x29\x04\xd0\0\0\0\0\0\0";
    /// Octets of a reply without records.
    const EMPTY: usize = QUERY.len();

    /// What is written in a buffer of this many octets.
    fn written(octets: usize, write: impl FnOnce(&mut Reply<'_, '_>)) -> Vec<u8> {
        let mut name = Labels::ROOT;
        name.read(QUERY, HEADER).expect("a name");
        let question = parse(QUERY, Some(&name)).ok().expect("a query");
        let mut buffer = vec![0; octets];
        let mut reply = Reply::new(&question, Transport::Udp, 1232, &[], &mut buffer);
        reply.keep_for_ede(3);
        write(&mut reply);
        let length = reply.finish(Rcode::NoError, true, true, None);
        buffer.truncate(length);
        buffer
    }

    /// Both ways in buffers of every size, from one without room for a record.
    fn assert_equal(one: impl Fn(&mut Reply<'_, '_>), other: impl Fn(&mut Reply<'_, '_>)) {
        for octets in EMPTY..EMPTY + 140 {
            assert_eq!(written(octets, &one), written(octets, &other), "{octets} octets");
        }
    }

    #[test]
    fn addresses_in_one_piece_are_those_of_single_records() {
        let addresses: Vec<[u8; 4]> = (1..=7).map(|last| [10, 0, 0, last]).collect();
        assert_equal(
            |reply| {
                reply.answer_v4(5, addresses[..3].iter().copied());
                reply.answer_v4(5, addresses[3..].iter().copied());
            },
            |reply| {
                for address in &addresses {
                    let rdata = Rdata::Octets(address);
                    let _ = reply.answer(Owner::Question, rtype::A, 5, rdata);
                }
            },
        );
    }

    #[test]
    fn a_service_in_one_piece_is_that_of_single_records() {
        let target = b"\x04cart\x04shop\x03svc\x05local\0";
        assert_equal(
            |reply| {
                for port in [80, 443] {
                    let _ = reply.answer_service(2, 5, [0, 100, port]);
                }
                reply.add_v4_of_asked(2, 5, [10, 96, 0, 1]);
            },
            |reply| {
                for port in [80, 443] {
                    let rdata = Rdata::Srv { priority: 0, weight: 100, port, target };
                    let _ = reply.answer(Owner::Question, rtype::SRV, 5, rdata);
                }
                if !reply.is_truncated() {
                    let (owner, rdata) = (Owner::Name(target), Rdata::Octets(&[10, 96, 0, 1]));
                    let _ = reply.record(Section::Additional, owner, rtype::A, CLASS_IN, 5, rdata);
                }
            },
        );
    }

    #[test]
    fn a_pointer_in_one_piece_is_that_of_a_single_record() {
        let target = b"\x04cart\x04shop\x03svc\x07cluster\0";
        assert_equal(
            |reply| {
                let parts = [&target[..5], &target[5..10], &target[10..]];
                assert!(reply.answer_only_pointer(5, parts).is_some());
            },
            |reply| {
                let _ = reply.answer(Owner::Question, rtype::PTR, 5, Rdata::Name(target));
            },
        );
        // The question ends like this: a pointer would lead there.
        let end = b"\x03svc\x05local\0";
        written(1_000, |reply| assert!(reply.answer_only_pointer(5, [end]).is_none()));
    }
}
