//! Rebind protection for replies that were kept without it: where a chain leads from a name of the public DNS into a stub
//! domain (FW43). This is done for each client, so what is copied is what the client may get and no more.

use alloc::vec::Vec;

use super::relayed::Relayed;
use super::selected::{Selected, is_private};
use crate::steps::step;

impl Relayed {
    /// The same without private, loopback, link-local and unspecified addresses; if nothing is left, the reply is
    /// that of N21. Of many addresses only as many are kept as fit into `most` octets, from a random one on (WR24).
    pub fn without_private_addresses(&self, most: usize, seed: u64) -> Relayed {
        if self.is_blocked() || self.is_negative() {
            return self.clone();
        }
        let counts = self.counts();
        let rrset = counts.chain..counts.chain + counts.rrset;
        let is_public = |index: &usize| {
            let record = self.record(*index);
            step(1 + record.octets.len() / 8);
            !is_private(record.rtype(), record.rdata())
        };
        let public = rrset.clone().filter(is_public).count();
        if public == counts.rrset {
            return self.clone();
        }
        if public == 0 {
            return self.blocked();
        }
        // Written from any record on, or always from the first.
        let turn = match self.rotates() {
            true => ((u128::from(seed) * counts.rrset as u128) >> 64) as usize,
            false => 0,
        };
        let (first, last) = (rrset.start, rrset.end);
        let mut octets = 0;
        let mut chosen = Vec::new();
        for index in (first + turn..last).chain(first..first + turn).filter(is_public) {
            // One more than fits: then the reply is cut.
            if octets > most {
                break;
            }
            octets += self.record(index).octets.len();
            chosen.push(index);
        }
        self.with_records(&chosen)
    }

    /// The reply of which rebind protection left nothing (N21).
    fn blocked(&self) -> Relayed {
        let mut nothing = Selected::new(self.rcode(), false);
        nothing.is_blocked = true;
        Relayed::of(&nothing, &self.key())
    }
}
