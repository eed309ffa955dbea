//! Messages of an upstream as an attacker would write them: as many records as there is room for, and names that cost more to
//! read than their octets show.

use super::*;
use crate::relay::LookupKey;
use crate::wire::message::HEADER;

pub(super) const CNAME: u16 = 5;
pub(super) const DNAME: u16 = 39;
pub(super) const RRSIG: u16 = 46;
pub(super) const NSEC: u16 = 47;
/// Names in a pool: many labels, labels behind pointers, long labels that differ at their ends.
const POOL: usize = 300;

/// What an upstream sends, as an attacker would write it.
#[derive(Clone, Debug)]
pub(super) struct Hostile {
    pub(super) octets: usize,
    pub(super) soup: Soup,
    /// Owners are every name of the pool in turn, or always the question.
    pub(super) many_owners: bool,
    pub(super) types: Vec<u16>,
    /// In the authority section, beside the answer section.
    pub(super) authority: bool,
    /// CNAMEs from each name of the pool to the next, before the records.
    pub(super) chain: usize,
}

/// Where the names of a message come from, as pointers lead to them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Soup {
    /// One octet for each label.
    ManyLabels,
    /// A pointer behind each label.
    ManyPointers,
    /// Names of one length that differ in the last label.
    Alike,
}

pub(super) struct Message {
    pub(super) octets: Vec<u8>,
    counts: [u16; 2],
}

impl Message {
    pub(super) fn about(key: &LookupKey) -> Message {
        let mut octets = vec![0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        octets.extend(key.name().wire());
        octets.extend(key.qtype().to_be_bytes());
        octets.extend([0, 1]);
        Message { octets, counts: [0, 0] }
    }

    pub(super) fn record(&mut self, section: usize, owner: &[u8], rtype: u16, rdata: &[u8]) {
        self.octets.extend(owner);
        self.octets.extend(rtype.to_be_bytes());
        self.octets.extend([0, 1, 0, 0, 1, 0]);
        self.octets.extend((rdata.len() as u16).to_be_bytes());
        self.octets.extend(rdata);
        self.counts[section] += 1;
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        for (section, count) in self.counts.into_iter().enumerate() {
            self.octets[6 + 2 * section..8 + 2 * section].copy_from_slice(&count.to_be_bytes());
        }
        self.octets
    }
}

pub(super) fn pointer(to: usize) -> [u8; 2] {
    (0xc000 | to as u16).to_be_bytes()
}

impl Soup {
    /// Octets that hold the names, and where each of these begins.
    fn names(self, at: usize) -> (Vec<u8>, Vec<usize>) {
        let (mut octets, mut names) = (Vec::new(), Vec::new());
        while names.len() < POOL && octets.len() < 12_000 {
            let start = octets.len();
            match self {
                Soup::ManyLabels => {
                    for label in 0..126 {
                        names.push(at + octets.len());
                        octets.extend([1, b'a' + (label % 26) as u8]);
                    }
                    octets.push(0);
                }
                Soup::ManyPointers => {
                    octets.extend([1, b'a', 0]);
                    let mut before = at + start;
                    for label in 0..120 {
                        let place = at + octets.len();
                        octets.extend([1, b'a' + (label % 26) as u8]);
                        octets.extend(pointer(before));
                        names.push(place);
                        before = place;
                    }
                }
                Soup::Alike => {
                    names.push(at + start);
                    for _ in 0..3 {
                        octets.push(60);
                        octets.extend([b'x'; 60]);
                    }
                    octets.extend(format!("\x03{:03}", names.len() % 1_000).bytes());
                    octets.push(0);
                }
            }
        }
        (octets, names)
    }
}

impl Hostile {
    pub(super) fn message(&self, key: &LookupKey) -> Vec<u8> {
        let mut message = Message::about(key);
        let names = match self.octets {
            0..2_000 => vec![HEADER],
            _ => {
                let (soup, names) = self.soup.names(message.octets.len() + 11);
                message.record(0, &[0], 65_280, &soup);
                names
            }
        };
        let mut owner = HEADER;
        for link in 0..self.chain {
            let to = names[(7 * link) % names.len()];
            message.record(0, &pointer(owner), CNAME, &pointer(to));
            owner = to;
        }
        let mut number = 0_usize;
        while message.octets.len() + 300 < self.octets {
            let rtype = self.types[number % self.types.len()];
            let place = number / self.types.len();
            let owner = if self.many_owners { names[place % names.len()] } else { owner };
            let name = pointer(names[(number * 31) % names.len()]);
            let section = usize::from(self.authority && number % 2 == 1);
            let [.., high, low] = number.to_be_bytes();
            let rdata: Vec<u8> = match rtype {
                rtype::A => vec![if number.is_multiple_of(5) { 10 } else { 203 }, 0, high, low],
                CNAME | DNAME | rtype::PTR => name.to_vec(),
                // MX.
                15 => [&[0, 1], &name[..]].concat(),
                // MINFO.
                14 => [name, name].concat(),
                // SOA.
                6 => [&name[..], &name, &[0; 20]].concat(),
                // Over the link of a chain.
                RRSIG => [&CNAME.to_be_bytes()[..], &[0; 18]].concat(),
                // They differ at the end.
                rtype::TXT => [&[199][..], &[b'x'; 197], &[high, low]].concat(),
                _ => vec![high, low],
            };
            message.record(section, &pointer(owner), rtype, &rdata);
            number += 1;
        }
        message.finish()
    }
}
