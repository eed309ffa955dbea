//! Rebind protection for replies that were kept without it: where a chain leads from a name of the public DNS into a stub
//! domain or to a name of ours (FW43).

use super::judge::Verdict;
use super::relayed::Relayed;
use super::select::TtlCaps;

impl Relayed {
    /// The same without private, loopback, link-local and unspecified addresses; if nothing is left, the reply is
    /// that of N21.
    pub fn without_private_addresses(&self) -> Relayed {
        if self.is_blocked() || self.is_negative() {
            return self.clone();
        }
        let caps =
            TtlCaps { max_s: u32::MAX, max_negative_s: u32::MAX, no_private_addresses: true };
        match self.key().judge(0, &self.message(), &caps) {
            Verdict::Good(filtered) if filtered.counts().rrset < self.counts().rrset => filtered,
            _ => self.clone(),
        }
    }
}
