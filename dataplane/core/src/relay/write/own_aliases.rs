//! The aliases of ours in front of what an upstream said (RR40): the same records as `respond` writes, with pointers
//! to the name before. Ten take less than 3,100 octets: a name that is made of a DNAME ends with a pointer to the
//! target of that DNAME, which is written in full just before.

use super::RelayedReply;
use crate::relay::aliases::Alias;
use crate::relay::compress::{Case, Known};
use crate::relay::head::ReplyHead;
use crate::relay::rdata::{CNAME, DNAME};
use crate::wire::message::{CLASS_IN, HEADER};
use crate::wire::name::Name;

/// Where the octets of a name are in the message.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// This many octets are at `at`, in one piece.
    whole: usize,
    /// Where the rest is, in one piece.
    rest_at: usize,
}

impl Place {
    /// A name in one piece.
    fn whole(at: usize) -> Place {
        Place { at, whole: usize::MAX, rest_at: at }
    }

    /// Where the name without its first octets is.
    fn behind(&self, octets: usize) -> usize {
        match octets.checked_sub(self.whole) {
            Some(more) => self.rest_at + more,
            None => self.at + octets,
        }
    }
}

/// How a target is written.
enum Target<'t, 'n> {
    /// All octets, uncompressed.
    Whole(&'t [u8]),
    /// Compressed where a part of it is in the message already (RFC 1035 §4.1.4).
    Compressed(&'n [u8]),
    /// These octets, then a compression pointer to this offset.
    With(&'t [u8], usize),
}

impl<'n> RelayedReply<'_, 'n> {
    /// The aliases, first to last; where the last name is written in one piece, or `None` when not all fit.
    pub(super) fn own_aliases(&mut self, head: &ReplyHead<'n>) -> Option<usize> {
        let mut name = Name::from_wire(head.question)?;
        // Here and not with the reply: it has 1.5 KiB, and most replies have no alias of ours.
        let mut known = Known::new();
        known.place(head.question, HEADER, Case::Kept);
        let mut place = Place::whole(HEADER);
        let mut aliases = head.cnames.iter().peekable();
        while let Some(alias) = aliases.next() {
            let is_last = aliases.peek().is_none();
            match alias {
                Alias::Cname(target, ttl_s) => {
                    let compresses = matches!(aliases.peek(), Some(Alias::Cname(..)));
                    let written = match compresses {
                        true => Target::Compressed(target.wire()),
                        false => Target::Whole(target.wire()),
                    };
                    place = self.alias(&mut known, place.at, CNAME, ttl_s, &written)?;
                    name = Name::clone(target);
                }
                Alias::Federated(end) => {
                    let next = end.substitute(name.wire())?;
                    let written = Target::Whole(next.wire());
                    place = self.alias(&mut known, place.at, CNAME, end.ttl_s, &written)?;
                    name = next;
                }
                Alias::Dname(dname) => {
                    let before = dname.before(name.wire())?;
                    let (ttl_s, target) = (dname.ttl_s, Target::Whole(dname.target.wire()));
                    let target =
                        self.alias(&mut known, place.behind(before), DNAME, ttl_s, &target)?;
                    let next = dname.substitute(name.wire())?;
                    let written = match is_last {
                        true => Target::Whole(next.wire()),
                        false => Target::With(next.wire().get(..before)?, target.at),
                    };
                    place = self.alias(&mut known, place.at, CNAME, ttl_s, &written)?;
                    name = next;
                }
            }
        }
        Some(place.at)
    }

    /// Writes one record, whole or not at all; returns where its target is.
    fn alias(
        &mut self,
        known: &mut Known<'n>,
        owner_at: usize,
        rtype: u16,
        ttl_s: u32,
        target: &Target<'_, 'n>,
    ) -> Option<Place> {
        let (at, names) = (self.at, known.count());
        let place = self.try_alias(known, owner_at, rtype, ttl_s, target);
        match place {
            Some(_) => self.count += 1,
            None => {
                self.at = at;
                known.forget(names);
            }
        }
        place
    }

    fn try_alias(
        &mut self,
        known: &mut Known<'n>,
        owner_at: usize,
        rtype: u16,
        ttl_s: u32,
        target: &Target<'_, 'n>,
    ) -> Option<Place> {
        self.put(&pointer(owner_at))?;
        self.put(&rtype.to_be_bytes())?;
        self.put(&CLASS_IN.to_be_bytes())?;
        self.put(&ttl_s.to_be_bytes())?;
        self.put(&[0, 0])?;
        let at = self.at;
        let place = match *target {
            Target::Whole(name) => {
                self.put(name)?;
                Place::whole(at)
            }
            Target::With(octets, rest_at) => {
                self.put(octets)?;
                self.put(&pointer(rest_at))?;
                Place { at, whole: octets.len(), rest_at }
            }
            Target::Compressed(name) => {
                let (octets, to) = known.place(name, at, Case::Kept);
                self.put(&name[..octets])?;
                if let Some(to) = to {
                    self.put(&pointer(to.into()))?;
                }
                match (octets, to) {
                    // The record has only a pointer: the name is where the pointer leads.
                    (0, Some(to)) => Place::whole(to.into()),
                    (_, _) => Place::whole(at),
                }
            }
        };
        let length = (self.at - at) as u16;
        self.buffer[at - 2..at].copy_from_slice(&length.to_be_bytes());
        Some(place)
    }
}

fn pointer(to: usize) -> [u8; 2] {
    (0xc000 | to as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use hickory_proto::op::Message;
    use hickory_proto::rr::{Name as Text, RData, RecordType};
    use hickory_proto::serialize::binary::BinDecodable;

    use crate::relay::{Alias, Cnames, ReplyForm, ReplyHead};
    use crate::wire::dname::Dname;
    use crate::wire::name::Name;

    fn name(text: &str) -> Name {
        Name::from_text(text).unwrap()
    }

    fn dname(owner: &str, target: &str) -> Arc<Dname> {
        Arc::new(Dname { owner: name(owner), target: name(target), ttl_s: 30 })
    }

    /// The reply to a client whose upstream failed: its length, and a line for each record.
    fn written(question: &Name, cnames: Cnames<'_>) -> (usize, Vec<String>) {
        let form = ReplyForm {
            id: 1,
            rd: true,
            cd: false,
            ad: false,
            do_: false,
            edns: true,
            qtype: 1,
            limit: 65_535,
            udp_payload_size: 1232,
            ra: true,
            snapshot_age_s: None,
            is_ours: false,
        };
        let head = ReplyHead { form, question: question.wire(), nsid: None, cnames };
        let mut buffer = std::vec![0; 65_535];
        let length = head.fail(22, "", &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let line = |record: &hickory_proto::rr::Record| match &record.data {
            RData::CNAME(target) => format!("{} CNAME {target}", record.name),
            RData::Unknown { code: RecordType::DNAME, rdata } => {
                // Without pointers: a message with a pointer could not be read by itself.
                format!("{} DNAME {}", record.name, Text::from_bytes(&rdata.anything).unwrap())
            }
            other => other.to_string(),
        };
        (length, reply.answers.iter().map(line).collect())
    }

    #[test]
    fn rr85_aliases_of_both_kinds_are_written_with_names_that_can_be_read() {
        let dnames = [
            dname("one.example", "two.example"),
            dname("b.two.example", "three.example"),
            dname("four.example", "www.example.org"),
            dname("d.www.example.org", "five.example"),
        ];
        let cnames = ["c.d.four.example", "three.example", "x.one.example"];
        let [four, three, one] = cnames.map(|text| Arc::new(name(text)));
        let mut aliases = Cnames::NONE;
        assert!(aliases.add(Alias::Dname(&dnames[0])) && aliases.add(Alias::Dname(&dnames[1])));
        assert!(aliases.push(&four, 5));
        assert!(aliases.add(Alias::Dname(&dnames[2])) && aliases.add(Alias::Dname(&dnames[3])));
        assert!(
            aliases.push(&three, 5)
                && aliases.push(&one, 5)
                && aliases.add(Alias::Dname(&dnames[0]))
        );
        let (_, lines) = written(&name("a.b.one.example"), aliases);
        assert_eq!(
            lines,
            [
                "one.example. DNAME two.example.",
                "a.b.one.example. CNAME a.b.two.example.",
                "b.two.example. DNAME three.example.",
                "a.b.two.example. CNAME a.three.example.",
                "a.three.example. CNAME c.d.four.example.",
                "four.example. DNAME www.example.org.",
                "c.d.four.example. CNAME c.d.www.example.org.",
                "d.www.example.org. DNAME five.example.",
                "c.d.www.example.org. CNAME c.five.example.",
                "c.five.example. CNAME three.example.",
                "three.example. CNAME x.one.example.",
                "one.example. DNAME two.example.",
                "x.one.example. CNAME x.two.example.",
            ]
        );
        assert_eq!(aliases.lead_from(name("a.b.one.example")), name("x.two.example"));
    }

    #[test]
    fn rr95_a_name_of_a_federation_is_a_cname_alone() {
        let west = dname("west.svc.z.example", "west.svc.w1.example");
        let (web, there) = (Arc::new(name("web.west.svc.z.example")), dname("w1.example", "x.org"));
        let mut aliases = Cnames::NONE;
        assert!(aliases.push(&web, 5) && aliases.add(Alias::Federated(&west)));
        assert!(aliases.add(Alias::Dname(&there)));
        let (_, lines) = written(&name("a.example"), aliases);
        assert_eq!(
            lines,
            [
                "a.example. CNAME web.west.svc.z.example.",
                "web.west.svc.z.example. CNAME web.west.svc.w1.example.",
                "w1.example. DNAME x.org.",
                "web.west.svc.w1.example. CNAME web.west.svc.x.org.",
            ]
        );
        let last = aliases.iter().last().map(|alias| alias.records());
        assert_eq!((last, aliases.iter().nth(1).map(|alias| alias.records())), (Some(2), Some(1)));
    }

    #[test]
    fn rr48_ten_dnames_with_the_longest_names_leave_room_for_pointers() {
        let labels = |octets: &[usize], first: char| {
            let label = |octets: &usize| first.to_string() + &"x".repeat(octets - 1);
            octets.iter().map(label).collect::<Vec<_>>().join(".")
        };
        // The labels before the owner and the owner together have 255 octets.
        for (before, owner) in
            [(&[63, 63, 63][..], &[61][..]), (&[61], &[63, 63, 63]), (&[1], &[63, 63, 63, 59])]
        {
            let owners: Vec<String> = ('a'..='k').map(|first| labels(owner, first)).collect();
            let dnames: Vec<Arc<Dname>> =
                owners.windows(2).map(|pair| dname(&pair[0], &pair[1])).collect();
            let question = name(&format!("{}.{}", labels(before, 'z'), owners[0]));
            assert_eq!(question.wire().len(), 255);
            let mut aliases = Cnames::NONE;
            assert!(dnames.iter().all(|dname| aliases.add(Alias::Dname(dname))));
            assert!(!aliases.add(Alias::Dname(&dnames[0])), "ten are the most");
            let (length, lines) = written(&question, aliases);
            assert_eq!(lines.len(), 20);
            let (head, opt) = (12 + 255 + 4, 11 + 6);
            assert!(length - head - opt < 3100, "{length}");
        }
    }
}
