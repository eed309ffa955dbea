//! Which line of a Corefile has a name: a server block, a `forward` of it, and the rules of `rewrite` that change it. Pure.

use std::collections::BTreeMap;

use super::parse::Directive;
use crate::import::values::{is_at_or_below, zones};

/// A server block that all clients ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served<'a> {
    /// What it serves; the root is the empty text.
    pub(super) zones: &'a [String],
    pub(super) directives: &'a [Directive],
}

/// The server block that CoreDNS asks for a name: the one with the longest zone. Of several with that zone, as where they
/// differ by `bind`, it is the first.
pub(super) fn block_of<'a>(blocks: &[Served<'a>], name: &str) -> Option<Served<'a>> {
    let longest = |block: &Served<'_>| {
        block.zones.iter().filter(|zone| is_at_or_below(name, zone)).map(String::len).max()
    };
    let having = blocks.iter().filter_map(|block| Some((longest(block)?, *block)));
    having.rev().max_by_key(|(length, _)| *length).map(|(_, block)| block)
}

/// The zone of a `forward`: CoreDNS reads one.
pub(super) fn forwarded(directive: &Directive) -> Option<String> {
    zones(directive.args.first()?).into_iter().next()
}

/// The zones of a `cache`: those behind the TTL, else those of its server block.
pub(super) fn cached_zones(directive: &Directive, own: &[String]) -> Vec<String> {
    let has_ttl = directive.args.first().is_some_and(|text| text.parse::<i64>().is_ok());
    let written = directive.args.iter().skip(usize::from(has_ttl));
    let written: Vec<String> = written.flat_map(|zone| zones(zone)).collect();
    if written.is_empty() { own.to_vec() } else { written }
}

/// The zones that it leaves to the lines behind it.
pub(super) fn excepted(directive: &Directive) -> Vec<String> {
    let lines = directive.body.iter().filter(|line| line.name == "except");
    lines.flat_map(|line| &line.args).flat_map(|zone| zones(zone)).collect()
}

fn is_forward(directive: &&Directive) -> bool {
    directive.name == "forward"
}

/// The `forward` (or `proxy`, its older form) that has a name: the first whose zone has it and that does not except it.
pub(super) fn forward_of<'d>(directives: &'d [Directive], name: &str) -> Option<&'d Directive> {
    let has = |forward: &&Directive| {
        forwarded(forward).is_some_and(|from| is_at_or_below(name, &from))
            && !excepted(forward).iter().any(|zone| is_at_or_below(name, zone))
    };
    directives.iter().filter(|it| is_forward(it) || it.name == "proxy").find(has)
}

/// What comes to a `forward` of the names in a domain: the zones that are left of it, and the first line above that has the
/// others. `spend` is called with each step's cost, and says whether there is a next one: lines that except names of each
/// other could take more than any file should.
pub(super) fn left_of<'d>(
    domain: &str,
    forward: &Directive,
    directives: &'d [Directive],
    mut spend: impl FnMut(usize) -> bool,
) -> (Vec<String>, Option<&'d Directive>) {
    let (mut left, mut first) = (vec![domain.to_owned()], None);
    // The older `proxy` prefers the longest zone, in any order.
    let is_ordered = is_forward(&forward);
    let above = directives.iter().take_while(|it| is_ordered && !std::ptr::eq(*it, forward));
    for above in above.filter(is_forward) {
        let Some(from) = forwarded(above) else { continue };
        let (mut still, excepted) = (Vec::<String>::new(), excepted(above));
        for zone in left {
            if !spend(1 + excepted.len()) {
                return (Vec::new(), first);
            }
            let is_excepted = excepted.iter().any(|it| is_at_or_below(&zone, it));
            if is_excepted || !is_at_or_below(&zone, &from) {
                still.push(zone);
                continue;
            }
            first = first.or(Some(above));
            for inner in excepted.iter().filter(|it| is_at_or_below(it, &zone)) {
                if !spend(still.len()) {
                    return (Vec::new(), first);
                }
                if !still.iter().any(|it| is_at_or_below(inner, it)) {
                    still.push(inner.clone());
                }
            }
        }
        left = still;
        if left.is_empty() {
            break;
        }
    }
    (left, first)
}

/// Which names a record of a rule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Its owner.
    Own,
    /// Those below its owner that no other record has.
    Wildcard,
    /// All below its owner: a DNAME.
    Below,
}

/// One owner of the records that a rule of `rewrite` makes.
#[derive(Clone, Debug)]
pub(super) struct Leads<'a> {
    pub(super) names: Names,
    /// What each of its names becomes, where that is one name.
    to: Option<String>,
    pub(super) line: &'a Directive,
    /// The directives of its server block.
    pub(super) directives: &'a [Directive],
    /// Its place among all owners.
    pub(super) order: usize,
}

/// The owners of all rules.
#[derive(Debug, Default)]
pub(super) struct Led<'a> {
    by_owner: BTreeMap<String, Vec<Leads<'a>>>,
    count: usize,
}

impl<'a> Led<'a> {
    /// Adds an owner as a record has it, such as `*.a.example`. `to` is what its names become; none where the owner is that of a
    /// DNAME.
    pub(super) fn add(
        &mut self,
        owner: &str,
        to: Option<&str>,
        line: &'a Directive,
        directives: &'a [Directive],
    ) {
        let bare = owner.strip_prefix("*.");
        let names = match (to.is_none(), bare) {
            (true, _) => Names::Below,
            (false, Some(_)) => Names::Wildcard,
            (false, None) => Names::Own,
        };
        let to = to.map(str::to_owned);
        let leads = Leads { names, to, line, directives, order: self.count };
        self.count += 1;
        self.by_owner.entry(bare.unwrap_or(owner).to_owned()).or_default().push(leads);
    }

    /// The place of the first owner of a rule.
    pub(super) fn order_of(&self, line: &Directive) -> Option<usize> {
        let all = self.by_owner.values().flatten();
        all.filter(|it| std::ptr::eq(it.line, line)).map(|it| it.order).min()
    }

    /// The rule that CoreDNS takes for all names of an owner, such as `*.a.example`, in the server block of these directives: the
    /// first one that has them. One that leaves the name as it is hides nothing.
    pub(super) fn first_of(&self, owner: &str, directives: &[Directive]) -> Option<&Leads<'a>> {
        let below = owner.strip_prefix("*.");
        let name = below.unwrap_or(owner);
        let at = |name: &str| self.by_owner.get(name).into_iter().flatten();
        let own = at(name).filter(|it| (it.names == Names::Own) == below.is_none());
        let parents = std::iter::successors(name.split_once('.'), |(_, rest)| rest.split_once('.'));
        let above = parents.flat_map(|(_, name)| at(name)).filter(|it| it.names != Names::Own);
        let all = own.chain(above).filter(|it| std::ptr::eq(it.directives, directives));
        all.min_by_key(|it| it.order).filter(|it| it.to.as_deref() != Some(owner))
    }

    /// The owners whose records would change a name, or, of a suffix, one of the names below it.
    pub(super) fn of(&self, name: &str, is_suffix: bool) -> Vec<(&str, Leads<'a>)> {
        let mut found: Vec<(&str, Leads<'a>)> = Vec::new();
        let mut add = |owner: &str, has: &dyn Fn(&Leads<'_>) -> bool| {
            if let Some((owner, all)) = self.by_owner.get_key_value(owner) {
                found
                    .extend(all.iter().filter(|it| has(it)).map(|it| (owner.as_str(), it.clone())));
            }
        };
        add(name, &|it| (it.names != Names::Own) == is_suffix);
        let mut above = name;
        while let Some((_, rest)) = above.split_once('.') {
            above = rest;
            add(above, &|it| it.names != Names::Own);
        }
        if is_suffix {
            let below =
                self.by_owner.iter().filter(|(it, _)| *it != name && is_at_or_below(it, name));
            found.extend(
                below.flat_map(|(owner, all)| {
                    all.iter().map(move |it| (owner.as_str(), it.clone()))
                }),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests;
