//! Which upstream group a name belongs to that is not ours (docs/dns.md A18 to A20), and which one has the zone above ours.

use super::expected::{RrSet, rtype};
use super::names::Name;
use super::{Local, Node, Oracle, Route};

impl Oracle {
    pub(super) fn group(&self, name: &Name, qtype: u16) -> Route {
        let default = self.settings.default_upstreams.then_some(0);
        let above = |own| self.stub_domain(name, own).or(default);
        let group = match qtype {
            // The parent has it, if there is anyone to ask for the parent.
            rtype::DS => above(false).or(self.stub_domain(name, true)),
            _ => above(true),
        };
        group.map_or(Route::NoGroup, Route::Group)
    }

    /// The group that has the zone above a zone of ours, for its DS record (RR75); none where it is for us to answer.
    pub(super) fn group_above(&self, name: &Name, qtype: u16, local: &Local) -> Option<usize> {
        let has_soa = |set: &RrSet| set.records[0].data.rtype() == rtype::SOA;
        let is_zone = matches!(&local.node, Node::Exists(sets) if sets.iter().any(has_soa));
        match self.group(name, qtype) {
            Route::Group(group) if is_zone && qtype == rtype::DS => Some(group),
            _ => None,
        }
    }

    /// The stub domain with the longest suffix; `own`: the name itself counts too.
    fn stub_domain(&self, name: &Name, own: bool) -> Option<usize> {
        let domains = self.settings.stub_domains.iter().map(Name::of);
        let matching = domains.zip(1..).filter(|(suffix, _)| {
            name.left_of(suffix).is_some_and(|labels| own || !labels.is_empty())
        });
        matching.max_by_key(|(suffix, _)| suffix.0.len()).map(|(_, group)| group)
    }
}
