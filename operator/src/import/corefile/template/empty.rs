//! `template` without an answer, for names that have records here: of the types that are not among these they have no data in
//! any case (RR81). Pure, except for the draft.

use super::rcode_of;
use crate::import::corefile::parse::Directive;
use crate::import::corefile::scope::Scope;
use crate::import::report::Outcome::{self, Changed, NotNeeded};

/// Reports it, where all of its names have records of other types. These must be in the draft.
pub(super) fn convert(
    directive: &Directive,
    owners: Option<&[String]>,
    asked: &str,
    scope: &mut Scope<'_>,
) -> bool {
    let Some((outcome, message)) =
        owners.and_then(|owners| decided(directive, owners, asked, scope))
    else {
        return false;
    };
    scope.say_all(directive, outcome, message);
    true
}

fn decided(
    directive: &Directive,
    owners: &[String],
    asked: &str,
    scope: &mut Scope<'_>,
) -> Option<(Outcome, &'static str)> {
    let options = ["match", "rcode", "fallthrough", "upstream"];
    if directive.body.iter().any(|line| !options.contains(&line.name.as_str())) {
        return None;
    }
    // Of several the last counts.
    let rcode = directive.body.iter().rfind(|line| line.name == "rcode").map(rcode_of);
    let decided = match rcode.as_deref() {
        None | Some("NOERROR") => {
            (NotNeeded, "these names have no data of other types in any case")
        }
        Some("NXDOMAIN") => (
            Changed,
            "the reply has no data, and not NXDOMAIN, because these names have other types",
        ),
        Some(_) => return None,
    };
    scope.draft.spend(owners.len());
    let asked_here: Vec<String> =
        owners.iter().filter_map(|owner| scope.owners(owner).ok()).flatten().collect();
    let is_done = |owner: &String| scope.draft.has_other_types(owner, asked);
    (!asked_here.is_empty() && asked_here.iter().all(is_done)).then_some(decided)
}
