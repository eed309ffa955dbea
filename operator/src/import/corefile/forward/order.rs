//! Several lines `forward` in one server block: which names come to which. Pure.

use crate::import::corefile::parse::Directive;
use crate::import::corefile::routes::left_of;
use crate::import::corefile::scope::Scope;
use crate::import::report::Outcome::{self, NotNeeded, NotPossible};

/// Those of its domains whose names come to it, and the first line above that has names of the others: the first line that
/// has a name decides in CoreDNS, also where a line below has a longer zone.
pub(super) fn still_asked<'a>(
    directive: &Directive,
    domains: Vec<String>,
    scope: &mut Scope<'a>,
) -> (Vec<String>, Option<&'a Directive>) {
    let (mut still, mut first) = (Vec::new(), None);
    for domain in domains {
        let (draft, directives) = (&mut *scope.draft, scope.directives);
        let spend = |tries| {
            draft.spend(tries);
            !draft.is_spent()
        };
        let (left, above) = left_of(&domain, directive, directives, spend);
        still.extend(left);
        first = first.or(above);
    }
    (still, first)
}

/// Why names do not come to a line below this one.
pub(super) fn hidden(above: &Directive) -> (Outcome, String) {
    let hands_on = ["next", "next_on_nodata"];
    let text = above.text();
    match above.body.iter().any(|line| hands_on.contains(&line.name.as_str())) {
        true => (
            NotPossible,
            format!(
                "CoreDNS asks these servers after some replies of the line {text} above; here such replies are final: write a \
                 stub domain for the names that only these servers know"
            ),
        ),
        false => (
            NotNeeded,
            format!(
                "CoreDNS asks these servers for no name that the line {text} above has, as the first line decides: if they are \
                 meant, write them in spec.upstreams.servers or in a stub domain"
            ),
        ),
    }
}
