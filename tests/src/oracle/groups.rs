//! Which upstream group a name belongs to that is not ours (docs/dns.md A18 to A20), and which one has the zone above ours.

use dataplane_core::Resource;

use super::expected::{Expected, Record, Reply, RrSet, rtype};
use super::names::Name;
use super::{Local, Node, Oracle, Route, chain};

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

    /// The group that has the zone above a zone of ours, for its DS record (RR75), or the zone of others of which an extra record
    /// has the apex, for that and the DNSKEY record (RR81); none where it is for us to answer.
    pub(super) fn group_above(
        &self,
        name: &Name,
        qtype: u16,
        local: &Local,
        cnames: &[Record],
    ) -> Option<usize> {
        let has_soa = |set: &RrSet| set.records[0].data.rtype() == rtype::SOA;
        let is_zone = matches!(&local.node, Node::Exists(sets) if sets.iter().any(has_soa));
        let mut owners = self.settings.extra.iter().filter(|extra| !extra.wildcard);
        let is_owner = cnames.is_empty()
            && name.left_of(&self.zone()).is_none()
            && owners.any(|extra| Name::of(&extra.owner) == *name);
        match self.group(name, qtype) {
            Route::Group(group) if is_zone && qtype == rtype::DS => Some(group),
            Route::Group(group) if is_owner && matches!(qtype, rtype::DS | rtype::DNSKEY) => {
                Some(group)
            }
            _ => None,
        }
    }

    /// Whether this group is never asked for the type (FW45).
    pub(super) fn is_withheld(&self, group: usize, qtype: u16) -> bool {
        let by_group = self.settings.withheld_types.iter().enumerate();
        by_group.filter(|(at, _)| *at == group).any(|(_, types)| types.contains(&qtype))
    }

    /// NOERROR with the CNAMEs of ours alone (N22); the age of a snapshot takes the place of EDE 17 (E42).
    pub(super) fn without_data(&self, cnames: &[Record], needs: &[Resource]) -> Expected {
        let ede = match self.snapshot_ede(needs) {
            age if age.is_empty() => vec![17],
            age => age,
        };
        let aa = !cnames.is_empty();
        Reply { aa, opt: true, answer: chain(cnames), ede, ..Reply::default() }.into()
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
