//! The CNAMEs and DNAMEs of a reply that lead from the question to the name that answers it (FW41).

use alloc::vec::Vec;

use super::{Selection, answers, is_suffix};
use crate::relay::rdata::{CNAME, DNAME};
use crate::relay::read::Record;
use crate::relay::selected::Kept;
use crate::relay::verdict::RelayError;
use crate::wire::message::rtype::ANY;
use crate::wire::name::MAX_NAME;

/// CNAMEs of one upstream reply (FW41). A loop runs into it too.
const MAX_CNAMES: usize = 16;

/// What the answer section has at one name of the chain.
#[derive(Default)]
struct At<'s> {
    /// A record of the type that was asked for; unless that is CNAME or ANY, the others are then not looked for.
    answers: bool,
    cname: Option<&'s Record>,
    /// The first one above the name.
    dname: Option<&'s Record>,
}

impl<'s> Selection<'s, '_> {
    /// Keeps the CNAMEs and DNAMEs that lead away from `asked`; returns the name at the end, which is the first one of ours
    /// where these are not relayed (FW42). A question for CNAME ends at the first CNAME, which may be made of a DNAME.
    pub(super) fn follow_chain(&mut self, asked: &[u8], qtype: u16) -> Result<Vec<u8>, RelayError> {
        let mut current = asked.to_vec();
        for _ in 0..=MAX_CNAMES {
            let At { answers, cname, dname } = self.at(&current, qtype)?;
            // Of a CNAME that answers, the DNAME is wanted too from which it was made.
            if answers && (cname.is_none() || !matches!(qtype, CNAME | ANY)) {
                return Ok(current);
            }
            let dname = match dname {
                Some(dname) => Some((dname, self.substitute(dname, &current)?)),
                None => None,
            };
            let mut target = match (cname, &dname) {
                (Some(cname), _) => {
                    let mut target = Vec::new();
                    self.expand(cname, &mut target)?;
                    Some(target)
                }
                (None, Some((_, target))) => target.clone(),
                (None, None) => return Ok(current),
            };
            // The DNAME from which the CNAME was made, or from which we make it (RFC 6672 §3.1). Such a CNAME has no signature:
            // the one of the DNAME shows that it is right (RFC 6672 §5.3.1).
            if let Some((dname, to)) = &dname
                && (cname.is_none() || same(to.as_deref(), target.as_deref()))
            {
                self.keep_in_chain(dname)?;
                target.clone_from(to);
                self.made.extend(cname.zip(to.clone()));
            }
            if answers {
                return Ok(current);
            }
            // No target: the name would be too long (YXDOMAIN), the DNAME says so.
            let Some(target) = target else { return Ok(current) };
            match (cname, &dname) {
                (Some(cname), _) => self.keep_in_chain(cname)?,
                (None, Some((dname, _))) => {
                    self.spend_octets(current.len() + target.len())?;
                    let ttl_s = self.ttl_s(dname, self.caps.max_s);
                    let (owner, rdata) = (self.store(&current), self.store(&target));
                    let made = Kept { owner, rtype: CNAME, ttl_s, rdata };
                    // Of NXDOMAIN it is a link: what does not exist is its target.
                    if qtype == CNAME && self.message.rcode == 0 {
                        self.kept.rrset.push(made);
                        return Ok(current);
                    }
                    self.kept.chain.push(made);
                }
                (None, None) => {}
            }
            current = target;
            self.kept.leads_home = self.is_ours(&current)?;
            if self.kept.leads_home && !self.caps.relays_own_zone {
                return Ok(current);
            }
        }
        Err(RelayError::Chain)
    }

    /// Whether a name is in the cluster zone.
    pub(super) fn is_ours(&self, name: &[u8]) -> Result<bool, RelayError> {
        let Some(zone) = &self.caps.own_zone else { return Ok(false) };
        self.spend(1 + name.len() / 2)?;
        Ok(is_suffix(name, zone.wire()))
    }

    /// Keeps a link of the chain and, with DO, its signatures. Each is kept once: one DNAME may be used for every name of a
    /// chain, and its signatures may fill the message.
    fn keep_in_chain(&mut self, link: &'s Record) -> Result<(), RelayError> {
        let (message, dnssec) = (self.message, self.dnssec);
        if self.links.iter().any(|known| core::ptr::eq(*known, link)) {
            return Ok(());
        }
        self.links.push(link);
        let kept = self.keep(link, self.caps.max_s)?;
        self.kept.chain.push(kept);
        for record in message.answer.iter().filter(|_| dnssec) {
            self.spend(1)?;
            if self.signs(record, |covered| covered == link.rtype)
                && self.is_at(record, message.owner(link))?
            {
                let kept = self.keep(record, self.caps.max_s)?;
                self.kept.chain.push(kept);
            }
        }
        Ok(())
    }

    /// What the answer section has at a name of the chain, in one pass.
    fn at(&self, name: &[u8], qtype: u16) -> Result<At<'s>, RelayError> {
        let message = self.message;
        let mut at = At::default();
        for record in &message.answer {
            self.spend(1)?;
            let is_wanted = answers(record, qtype) || record.rtype == CNAME;
            if is_wanted && self.is_at(record, name)? {
                at.answers |= answers(record, qtype);
                if at.answers && record.rtype != CNAME && qtype != ANY {
                    return Ok(at);
                }
                at.cname = at.cname.or((record.rtype == CNAME).then_some(record));
            } else if record.rtype == DNAME
                && at.dname.is_none()
                && message.owner(record).len() < name.len()
                && self.is_above(record, name)?
            {
                at.dname = Some(record);
            }
        }
        Ok(at)
    }

    /// What a DNAME above a name makes of the name (`None`: a name too long).
    fn substitute(&self, dname: &Record, name: &[u8]) -> Result<Option<Vec<u8>>, RelayError> {
        let mut target = name[..name.len() - self.message.owner(dname).len()].to_vec();
        self.expand(dname, &mut target)?;
        Ok((target.len() <= MAX_NAME).then_some(target))
    }
}

fn same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}
