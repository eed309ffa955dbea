//! A second `kubernetes` beside the one that answers the names of the cluster. A ClusterDNS has one value of each setting, so of
//! the second one only the reverse names count. Pure, except for the draft.

use super::{FALLS_THROUGH, ranges};
use crate::import::corefile::parse::Directive;
use crate::import::corefile::routes::{Served, block_of};
use crate::import::corefile::scope::Scope;
use crate::import::report::Outcome::{Changed, Kept, NotNeeded};
use crate::import::values::{is_at_or_below, is_reverse, zones};

/// The `kubernetes` that answers the names of the cluster domain: that of the server block with the longest zone; of several
/// with this zone, which differ by their addresses, the first. Where no such block has one, the first of all.
pub(super) fn of_domain<'a>(scope: &Scope<'a>) -> Option<&'a Directive> {
    let domain = &scope.draft.spec.domain;
    let length = |block: &Served<'_>| {
        block.zones.iter().filter(|zone| is_at_or_below(domain, zone)).map(String::len).max()
    };
    let longest = scope.blocks.iter().filter_map(length).max();
    // Of blocks without zones a cache in front lets no name through.
    let blocks = scope.blocks.iter().filter(|block| !block.zones.is_empty());
    let all: Vec<(Option<usize>, &'a Directive)> =
        blocks.filter_map(|block| Some((length(block), served(block, domain)?.0))).collect();
    let asked = all.iter().find(|(length, _)| length.is_some() && *length == longest);
    asked.or(all.first()).map(|(_, directive)| *directive)
}

/// The `kubernetes` of a server block that has this domain, and its zones.
fn served<'d>(block: &Served<'d>, domain: &str) -> Option<(&'d Directive, Vec<String>)> {
    let directive = block.directives.iter().find(|it| it.name == "kubernetes")?;
    let own: Vec<String> = match directive.args.is_empty() {
        true => block.zones.to_vec(),
        false => directive.args.iter().flat_map(|zone| zones(zone)).collect(),
    };
    own.iter().any(|zone| zone.is_empty() || zone == domain).then_some((directive, own))
}

/// Do all names of a reverse tree come to a `kubernetes` of the cluster domain?
pub(super) fn has_reverse(tree: &str, scope: &Scope<'_>) -> bool {
    let served =
        block_of(scope.blocks, tree).and_then(|block| served(&block, &scope.draft.spec.domain));
    served.is_some_and(|(_, own)| own.iter().any(|zone| is_at_or_below(tree, zone)))
}

/// Do names of this zone come to its server block?
pub(super) fn is_asked(zone: &str, scope: &Scope<'_>) -> bool {
    scope.elsewhere(zone).is_none() || !scope.zones_below(zone).is_empty()
}

/// Converts what it says of reverse names, and says of the rest which one counts.
pub(super) fn convert(
    directive: &Directive,
    own: &[String],
    first: &Directive,
    scope: &mut Scope<'_>,
) {
    let domain = scope.draft.spec.domain.clone();
    let (file, line) = (&first.place.file, first.place.line);
    let counts = format!(
        "names of {domain} are answered as the kubernetes of {file}:{line} says, because its server block is asked for them"
    );
    let has_reverse = own.iter().any(|zone| is_reverse(zone) && is_asked(zone, scope));
    // Names that a rule leads into the cluster are answered in the server block of the rule.
    let is_reached = has_reverse
        || scope.elsewhere(&domain).is_none()
        || scope.directives.iter().any(|it| it.name == "rewrite");
    let other = if is_reached { Changed } else { NotNeeded };
    match has_reverse {
        true => {
            let message = format!("the reverse names of the addresses of the cluster; {counts}");
            scope.say(directive, Kept, message);
            ranges(directive, own, scope);
        }
        false => scope.say(directive, other, counts.as_str()),
    }
    for line in &directive.body {
        let is_same = first.body.iter().any(|it| it.text() == line.text());
        match (line.name.as_str(), is_same) {
            ("fallthrough", _) if has_reverse => scope.say_of(directive, line, Kept, FALLS_THROUGH),
            (_, true) => scope.say_of(directive, line, NotNeeded, "that one says the same"),
            (_, false) => scope.say_of(directive, line, other, counts.as_str()),
        }
    }
}
