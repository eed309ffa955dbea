//! Rebind protection for replies that were kept without it: where a chain leads from a name of the public DNS into a stub
//! domain (FW43). This is done for each client, so what is copied is what the client may get and no more.

use alloc::vec::Vec;

use super::private_addresses::OwnRanges;
use super::rdata::RRSIG;
use super::relayed::Relayed;
use super::selected::Selected;
use crate::random::{scaled, scrambled};
use crate::steps::step;

impl Relayed {
    /// The same without addresses that no name of the public DNS should have, and those of `own` ranges; if nothing is left, the
    /// reply is that of N21. Of many addresses only as many are kept as fit into `most` octets, any of them (WR24).
    pub fn without_private_addresses(&self, own: &OwnRanges, most: usize, seed: u64) -> Relayed {
        if self.is_blocked() || self.is_negative() {
            return self.clone();
        }
        let counts = self.counts();
        let rrset = counts.chain..counts.chain + counts.rrset;
        let is_public = |index: &usize| {
            let record = self.record(*index);
            step(1 + record.octets.len() / 8);
            !own.is_private(record.rtype(), record.rdata())
        };
        if rrset.clone().all(|index| is_public(&index)) {
            return self.clone();
        }
        // In a reply to ANY the RRset has signatures too.
        let is_signature = |index: &usize| self.record(*index).rtype() == RRSIG;
        let mut public: Vec<usize> =
            rrset.filter(|index| is_public(index) && !is_signature(index)).collect();
        if public.is_empty() {
            return self.blocked();
        }
        if self.fitting(public.iter().copied(), most) < public.len() {
            // The reply is cut. If it is written from any record on, it may lose any of them; another number than that of the
            // reply decides which.
            if self.rotates() {
                let turn = scaled(scrambled(seed, 1), public.len());
                public.rotate_left(turn);
            }
            // One more, so that the reply is seen to be cut.
            public.truncate(self.fitting(public.iter().copied(), most) + 1);
        }
        self.with_records(&public, most)
    }

    /// The reply of which rebind protection left nothing (N21).
    fn blocked(&self) -> Relayed {
        let mut nothing = Selected::new(self.rcode(), false);
        nothing.is_blocked = true;
        Relayed::of(&nothing, &self.key())
    }
}
