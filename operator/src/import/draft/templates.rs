//! The names that `template` of CoreDNS answers, by type of address: it is asked before `hosts`. Pure.

use std::collections::HashSet;
use std::net::IpAddr;

/// Owners as records have them, such as `*.a.example`, and whether they are of IPv4.
#[derive(Default)]
pub(in crate::import) struct Templates(HashSet<(String, bool)>);

impl Templates {
    /// Adds an owner; `asked` is the type of the questions that are answered.
    pub(in crate::import) fn add(&mut self, owner: &str, asked: &str) {
        for (kind, is_ipv4) in [("A", true), ("AAAA", false)] {
            if ["ANY", kind].iter().any(|it| asked.eq_ignore_ascii_case(it)) {
                self.0.insert((owner.to_owned(), is_ipv4));
            }
        }
    }

    /// Is a question for this address of a name answered by one of them?
    pub(in crate::import) fn has(&self, name: &str, ip: IpAddr) -> bool {
        let has = |owner: String| self.0.contains(&(owner, ip.is_ipv4()));
        let mut above = std::iter::successors(name.split_once('.'), |(_, it)| it.split_once('.'));
        !self.0.is_empty() && (has(name.to_owned()) || above.any(|(_, it)| has(format!("*.{it}"))))
    }
}
